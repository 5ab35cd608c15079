// SPDX-License-Identifier: Apache-2.0
// Opens a crew: copies the job, chooses the set-up, spawns the threads, and settles what they got.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "crew.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include "futex.h"
#include "reason.h"

#define SECOND_NS 1000000000ull
#define OPEN_TIMEOUT_NS (60 * SECOND_NS)
#define DEADLINE_DEFAULT_NS (30 * SECOND_NS) /* after the window, for a job that names none */
#define STACK_BYTES (256u << 10)
#define RING_ENTRIES_MIN 8
#define RING_TIMERS 2

/* A poller shows completions before it shows that the places of their submissions are free again, so what it took in
 * one go and all that may follow have places side by side. Else a full queue would leave nothing in flight, and the
 * thread asleep. */
static uint32_t ring_entries(const struct calyx_job *job)
{
	uint32_t wanted = job->setup == CALYX_SETUP_SQPOLL ? 2 * (job->iodepth + RING_TIMERS) : job->iodepth;
	uint32_t entries = RING_ENTRIES_MIN;

	while (entries < wanted)
		entries *= 2;
	return entries;
}

static int copy_job(struct calyx_crew *crew, const struct calyx_job *job)
{
	uint64_t intervals = 0;

	crew->job = *job;
	if (!crew->job.deadline_ns)
		crew->job.deadline_ns = job->ramp_ns + job->runtime_ns + DEADLINE_DEFAULT_NS;
	if (job->interval_ns)
		intervals = (job->runtime_ns + job->interval_ns - 1) / job->interval_ns;
	crew->intervals_count = (uint32_t)intervals;
	crew->ring_entries = ring_entries(job);

	crew->paths = calloc(job->paths_count, sizeof(*crew->paths));
	crew->workers = calloc(job->paths_count, sizeof(*crew->workers));
	crew->intervals = calloc(intervals + 1, sizeof(*crew->intervals));
	if (job->arrival != CALYX_ARRIVAL_CLOSED)
		crew->intended = calloc(CALYX_DIR_SYNC, sizeof(*crew->intended));
	if (!crew->paths || !crew->workers || !crew->intervals ||
	    (job->arrival != CALYX_ARRIVAL_CLOSED && !crew->intended))
		return -ENOMEM;
	for (uint32_t i = 0; i < job->paths_count; i++) {
		crew->paths[i] = strdup(job->paths[i]);
		if (!crew->paths[i])
			return -ENOMEM;
		crew->workers[i].crew = crew;
		crew->workers[i].index = i;
		crew->workers[i].cpu = -1;
		crew->workers[i].poller_cpu = -1;
		crew->workers[i].fd = -1;
		crew->workers[i].ring.fd = -1;
	}
	crew->job.paths = (const char *const *)crew->paths;
	return 0;
}

/* The kernel promises memory that it does not have, and kills when it is touched: so refuse what cannot fit. */
static int check_memory(const struct calyx_crew *crew, char *reason)
{
	uint32_t turns;
	uint64_t notes = calyx_verify_bytes(&crew->job) + crew->intervals_count * sizeof(struct calyx_interval);
	uint64_t wanted = (calyx_pool_bytes(&crew->job, &turns) + notes) * crew->job.paths_count, total;
	struct sysinfo info;

	if (sysinfo(&info) < 0)
		return 0;
	total = (uint64_t)info.totalram * info.mem_unit;
	if (wanted > total / 2)
		return calyx_refuse(reason, -ENOMEM,
				    "the job needs %" PRIu64
				    " bytes of buffers and notes: more than half of the guest's memory (%" PRIu64 ")",
				    wanted, total);
	return 0;
}

static int spawn(struct calyx_crew *crew, char *reason)
{
	sigset_t all, before;
	pthread_attr_t attributes;
	int error = 0;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK_BYTES);
	/* Signals are the program's: a worker's waits shall not end early for them. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (uint32_t i = 0; i < crew->job.paths_count && !error; i++) {
		error = pthread_create(&crew->workers[i].thread, &attributes, calyx_crew_thread, &crew->workers[i]);
		crew->workers[i].spawned = !error;
		crew->spawned += !error;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	if (error)
		return calyx_refuse(reason, -error, "cannot start thread %" PRIu32 ": %s", crew->spawned,
				    calyx_error_text(error).text);
	return 0;
}

static int await_reports(struct calyx_crew *crew, char *reason)
{
	uint64_t until_ns = calyx_now_ns() + OPEN_TIMEOUT_NS;
	uint32_t reports;

	while ((reports = atomic_load(&crew->reports)) < crew->spawned) {
		if (calyx_now_ns() >= until_ns)
			return calyx_refuse(reason, -ETIMEDOUT,
					    "%" PRIu32 " of %" PRIu32 " threads did not finish opening within %llu s",
					    crew->spawned - reports, crew->spawned, OPEN_TIMEOUT_NS / SECOND_NS);
		calyx_futex_wait(&crew->reports, reports, until_ns);
	}
	return 0;
}

static int first_open_error(const struct calyx_crew *crew, char *reason)
{
	for (uint32_t i = 0; i < crew->spawned; i++) {
		if (crew->workers[i].open_error)
			return calyx_refuse(reason, crew->workers[i].open_error, "%s", crew->workers[i].open_reason);
	}
	return 0;
}

/* When one thread cannot register its buffers, no thread does: all run the same way, and the result says why. */
static int settle_buffers(struct calyx_crew *crew, char *reason)
{
	struct rlimit limit = {.rlim_cur = 0};
	uint64_t wanted = 0;
	int error = 0;

	for (uint32_t i = 0; i < crew->spawned; i++) {
		error = error ? error : crew->workers[i].buffers_error;
		wanted += crew->workers[i].pool_bytes;
	}
	if (!error)
		return 0;
	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (crew->job.buffers == CALYX_BUFFERS_REGISTERED)
		return calyx_refuse(reason, error,
				    "cannot register buffers: %s: %" PRIu64 " bytes are needed, the memory-lock limit "
				    "(RLIMIT_MEMLOCK) is %" PRIu64,
				    calyx_error_text(error).text, wanted, (uint64_t)limit.rlim_cur);
	calyx_reason_add(crew->why,
			 "buffers not registered: %s: %" PRIu64
			 " bytes are needed, the memory-lock limit (RLIMIT_MEMLOCK) is "
			 "%" PRIu64,
			 calyx_error_text(error).text, wanted, (uint64_t)limit.rlim_cur);
	atomic_store(&crew->reports, 0);
	calyx_crew_command(crew, CALYX_DROP_BUFFERS);
	error = await_reports(crew, reason);
	return error ? error : first_open_error(crew, reason);
}

static int settle_setup(struct calyx_crew *crew, char *reason)
{
	crew->setup = crew->workers[0].taken;
	for (uint32_t i = 1; i < crew->spawned; i++) {
		if (memcmp(&crew->workers[i].taken, &crew->workers[0].taken, sizeof(crew->setup)) != 0)
			return calyx_refuse(reason, -EINVAL, "job %" PRIu32 " got another set-up than job 0", i);
	}
	crew->setup.buffer_bytes *= crew->spawned;
	for (uint32_t i = 0; i < crew->spawned && crew->workers[i].cpu >= 0; i++)
		crew->setup.cpus[crew->setup.cpus_count++] = (uint16_t)crew->workers[i].cpu;
	memcpy(crew->setup.why, crew->why, sizeof(crew->why));
	return 0;
}

int calyx_crew_open(const struct calyx_job *job, struct calyx_crew **out, char *reason)
{
	struct calyx_crew *crew;
	int error;

	error = calyx_job_check(job, reason);
	if (error)
		return error;
	crew = calloc(1, sizeof(*crew));
	if (!crew)
		return calyx_refuse(reason, -ENOMEM, "no memory for the job");
	error = copy_job(crew, job);
	if (error) {
		calyx_refuse(reason, error, "no memory for the job");
		goto failed;
	}
	if ((error = check_memory(crew, reason)) || (error = calyx_choose_setup(crew, reason)) ||
	    (error = spawn(crew, reason)) || (error = await_reports(crew, reason)) ||
	    (error = first_open_error(crew, reason)) || (error = settle_buffers(crew, reason)) ||
	    (error = settle_setup(crew, reason)))
		goto failed;
	calyx_clock_measure(&crew->result.clock);
	calyx_crew_command(crew, CALYX_READY);
	*out = crew;
	return 0;
failed:
	calyx_crew_close(crew);
	return error;
}

const struct calyx_setup_taken *calyx_crew_setup(const struct calyx_crew *crew)
{
	return &crew->setup;
}
