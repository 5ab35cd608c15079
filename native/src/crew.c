// SPDX-License-Identifier: Apache-2.0
// A crew's life: open all threads, start, watch, stop, wait, close.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "crew.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "futex.h"
#include "reason.h"

#define SECOND_NS 1000000000ull
#define OPEN_TIMEOUT_NS (60 * SECOND_NS)
#define DEADLINE_DEFAULT_NS (30 * SECOND_NS) /* after the window, for a job that names none */
#define DEADLINE_GRACE_NS (2 * SECOND_NS)    /* cancelling, and closing the ring */
#define CLOSE_TIMEOUT_NS (7 * SECOND_NS)
#define PARKED_NS (3600 * SECOND_NS)
#define STACK_BYTES (256u << 10)
#define RING_ENTRIES_MIN 8
#define RING_TIMERS 2

uint32_t calyx_crew_await(struct calyx_crew *crew, uint32_t from, uint64_t until_ns)
{
	uint32_t command;

	while ((command = atomic_load(&crew->command)) == from && calyx_now_ns() < until_ns)
		calyx_futex_wait(&crew->command, from, until_ns);
	return command;
}

/* ---- the threads' side ---- */

static void report(struct calyx_crew *crew)
{
	atomic_fetch_add(&crew->reports, 1);
	calyx_futex_wake_all(&crew->reports);
}

/* The kernel would hold this thread on its way out until its I/O ends; and musl lets no other thread begin or end while
 * one is on its way out. So it never goes. */
static void park(void)
{
	_Atomic uint32_t never = 0;

	for (;;)
		calyx_futex_wait(&never, 0, calyx_now_ns() + PARKED_NS);
}

static void *thread_main(void *argument)
{
	struct calyx_worker *w = argument;
	struct calyx_crew *crew = w->crew;
	uint32_t command;

	calyx_worker_open(w);
	report(crew);
	command = calyx_crew_await(crew, CALYX_OPENING, CALYX_FOREVER_NS);
	if (command == CALYX_DROP_BUFFERS) {
		calyx_worker_drop_buffers(w);
		report(crew);
		command = calyx_crew_await(crew, CALYX_DROP_BUFFERS, CALYX_FOREVER_NS);
	}
	if (command == CALYX_READY)
		command = calyx_crew_await(crew, CALYX_READY, CALYX_FOREVER_NS);
	if (command == CALYX_START)
		calyx_worker_run(w);
	else
		w->stopped = true;
	calyx_worker_close(w);
	atomic_store(&w->finished, true);
	atomic_fetch_add(&crew->finished, 1);
	calyx_futex_wake_all(&crew->finished);
	if (w->in_flight > 0)
		park();
	return NULL;
}

/* ---- opening ---- */

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
	uint64_t wanted = calyx_pool_bytes(&crew->job, &turns) * crew->job.paths_count, total;
	struct sysinfo info;

	if (sysinfo(&info) < 0)
		return 0;
	total = (uint64_t)info.totalram * info.mem_unit;
	if (wanted > total / 2)
		return calyx_refuse(reason, -ENOMEM,
				    "the job needs %" PRIu64
				    " bytes of buffers: more than half of the guest's memory (%" PRIu64 ")",
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
		error = pthread_create(&crew->workers[i].thread, &attributes, thread_main, &crew->workers[i]);
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

static void command_crew(struct calyx_crew *crew, uint32_t command)
{
	atomic_store(&crew->command, command);
	calyx_futex_wake_all(&crew->command);
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
	command_crew(crew, CALYX_DROP_BUFFERS);
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

static void free_crew(struct calyx_crew *crew)
{
	for (uint32_t i = 0; crew->workers && i < crew->job.paths_count; i++) {
		free(crew->workers[i].slots);
		free(crew->workers[i].free_slots);
		free(crew->workers[i].resume_slots);
		free(crew->workers[i].directions);
		free(crew->workers[i].shapes);
		free(crew->workers[i].intended);
		calyx_verify_free(&crew->workers[i].verify);
		free(crew->workers[i].intervals);
	}
	for (uint32_t i = 0; crew->paths && i < crew->job.paths_count; i++)
		free(crew->paths[i]);
	free(crew->paths);
	free(crew->workers);
	free(crew->intervals);
	free(crew->intended);
	free(crew);
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
	command_crew(crew, CALYX_READY);
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

/* ---- running ---- */

int calyx_crew_start(struct calyx_crew *crew, uint64_t start_ns)
{
	uint32_t ready = CALYX_READY;

	if (start_ns <= calyx_now_ns())
		return -ETIME;
	if (atomic_load(&crew->start_ns))
		return -EALREADY;
	atomic_store(&crew->start_ns, start_ns);
	/* A stop that came first stands. */
	atomic_compare_exchange_strong(&crew->command, &ready, CALYX_START);
	calyx_futex_wake_all(&crew->command);
	return 0;
}

/* Has the deadline passed, with all that a thread may still do after it? Then what has not ended hangs in the kernel.
 */
static bool is_overdue(const struct calyx_crew *crew, uint64_t now_ns)
{
	uint64_t start_ns = atomic_load(&crew->start_ns);

	return start_ns && now_ns > start_ns + crew->job.deadline_ns + DEADLINE_GRACE_NS;
}

/* Puts one I/O among the oldest that are named, oldest first. */
static void note_hung(struct calyx_progress *progress, const struct calyx_hung *hung)
{
	uint32_t at = progress->hung_count < CALYX_HUNG_MAX ? progress->hung_count : CALYX_HUNG_MAX;

	progress->hung_count++;
	while (at > 0 && progress->hung[at - 1].age_ns < hung->age_ns) {
		if (at < CALYX_HUNG_MAX)
			progress->hung[at] = progress->hung[at - 1];
		at--;
	}
	if (at < CALYX_HUNG_MAX)
		progress->hung[at] = *hung;
}

/* Another thread's slot is read without a lock: the publication of a hanging I/O is long past, so what it is stands
 * still, and if it ended in between, the second look at its time tells. Checked by that, not by the memory model. */
__attribute__((no_sanitize("thread"))) static void find_hung(const struct calyx_crew *crew, uint64_t now_ns,
							     struct calyx_progress *progress)
{
	for (uint32_t i = 0; i < crew->spawned; i++) {
		for (uint32_t j = 0; j < crew->job.iodepth; j++) {
			const struct calyx_slot *slot = &crew->workers[i].slots[j];
			uint64_t published_ns = atomic_load_explicit(&slot->published_ns, memory_order_acquire);
			struct calyx_hung hung = {.offset = slot->offset, .direction = slot->direction, .job = i};

			atomic_thread_fence(memory_order_acquire);
			if (!published_ns || published_ns + CALYX_HUNG_NS > now_ns ||
			    atomic_load_explicit(&slot->published_ns, memory_order_relaxed) != published_ns)
				continue;
			hung.age_ns = now_ns - published_ns;
			note_hung(progress, &hung);
		}
	}
}

void calyx_crew_progress(const struct calyx_crew *crew, struct calyx_progress *progress)
{
	uint64_t now_ns = calyx_now_ns(), oldest_ns = now_ns, started_ns;
	struct calyx_progress sum = {0};

	for (uint32_t i = 0; i < crew->spawned; i++) {
		const struct calyx_worker *w = &crew->workers[i];

		sum.ios += atomic_load_explicit(&w->ios, memory_order_relaxed);
		sum.bytes += atomic_load_explicit(&w->bytes, memory_order_relaxed);
		started_ns = atomic_load_explicit(&w->started_ns, memory_order_relaxed);
		if (started_ns && (!sum.started_ns || started_ns < sum.started_ns))
			sum.started_ns = started_ns;
		for (uint32_t j = 0; j < crew->job.iodepth; j++) {
			uint64_t published_ns = atomic_load_explicit(&w->slots[j].published_ns, memory_order_relaxed);

			if (published_ns && published_ns < oldest_ns)
				oldest_ns = published_ns;
		}
	}
	sum.oldest_ns = now_ns - oldest_ns;
	if (sum.oldest_ns > CALYX_HUNG_NS)
		find_hung(crew, now_ns, &sum);
	sum.done = atomic_load(&crew->finished) == crew->spawned || is_overdue(crew, now_ns);
	*progress = sum;
}

void calyx_crew_stop(struct calyx_crew *crew)
{
	uint32_t none = CALYX_STOP_NONE;

	atomic_compare_exchange_strong(&crew->stop, &none, CALYX_STOP_BY_CALLER);
	command_crew(crew, CALYX_QUIT);
}

int calyx_crew_wait(struct calyx_crew *crew, uint64_t timeout_ns)
{
	uint64_t now_ns = calyx_now_ns(), start_ns, until_ns, overdue_ns;
	uint32_t finished;

	until_ns = timeout_ns > UINT64_MAX - 1 - now_ns ? UINT64_MAX - 1 : now_ns + timeout_ns;
	while ((finished = atomic_load(&crew->finished)) < crew->spawned) {
		now_ns = calyx_now_ns();
		if (is_overdue(crew, now_ns))
			break;
		if (now_ns >= until_ns)
			return -ETIME;
		start_ns = atomic_load(&crew->start_ns);
		overdue_ns = start_ns ? start_ns + crew->job.deadline_ns + DEADLINE_GRACE_NS + 1 : until_ns;
		/* At most a second at a time: a start may set a deadline while this waits. */
		overdue_ns = overdue_ns < now_ns + SECOND_NS ? overdue_ns : now_ns + SECOND_NS;
		calyx_futex_wait(&crew->finished, finished, until_ns < overdue_ns ? until_ns : overdue_ns);
	}
	calyx_crew_merge(crew);
	return 0;
}

void calyx_crew_close(struct calyx_crew *crew)
{
	uint64_t until_ns = calyx_now_ns() + CLOSE_TIMEOUT_NS;
	bool parked = false;
	uint32_t finished;

	if (!crew)
		return;
	calyx_crew_stop(crew);
	while ((finished = atomic_load(&crew->finished)) < crew->spawned) {
		/* A thread that hangs in the kernel still uses all of this: it is left behind with it. */
		if (crew->abandoned || calyx_now_ns() >= until_ns)
			return;
		calyx_futex_wait(&crew->finished, finished, until_ns);
	}
	for (uint32_t i = 0; i < crew->spawned; i++) {
		if (crew->workers[i].in_flight > 0) {
			pthread_detach(crew->workers[i].thread);
			parked = true;
		} else {
			pthread_join(crew->workers[i].thread, NULL);
		}
	}
	if (!parked) /* else what it still uses is left with it */
		free_crew(crew);
}
