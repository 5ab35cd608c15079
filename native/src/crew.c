// SPDX-License-Identifier: Apache-2.0
// A crew's life: choose the set-up, open all threads, start, watch, stop, wait, merge, close.
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
#define STACK_BYTES (256u << 10)
#define RING_ENTRIES_MIN 8 /* room for timers beside a short queue */

static const char *const setup_names[] = {"auto", "sqpoll", "defer", "coop", "plain"};

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
	return NULL;
}

/* ---- opening ---- */

static int list_allowed_cpus(struct calyx_crew *crew, int *cpus, int capacity)
{
	int count = 0;

	if (syscall(SYS_sched_getaffinity, 0, sizeof(crew->allowed_cpus), crew->allowed_cpus) < 0)
		return 0;
	for (int cpu = 0; cpu < CALYX_CPU_WORDS * 64 && count < capacity; cpu++) {
		if (crew->allowed_cpus[cpu / 64] >> (cpu % 64) & 1)
			cpus[count++] = cpu;
	}
	return count;
}

/* Every second CPU goes to a poller, starting with the last one: the first ones take most interrupts. */
static int place_pollers(struct calyx_crew *crew, char *reason)
{
	int cpus[CALYX_CPU_WORDS * 64];
	int count = list_allowed_cpus(crew, cpus, CALYX_CPU_WORDS * 64);

	if (count == 1)
		return calyx_refuse(
			reason, -EINVAL,
			"setup=sqpoll needs two CPUs: its poller and the job would wait for each other on one");
	for (uint32_t i = 0; i < crew->job.paths_count && count > 1; i++)
		crew->workers[i].poller_cpu = cpus[(uint32_t)(count - 1) - (2 * i) % (uint32_t)count];
	return 0;
}

static int refuse_io_uring(int error, const char *name, char *reason)
{
	char text[8] = "";
	FILE *sysctl;

	if (error == -EPERM) {
		sysctl = fopen("/proc/sys/kernel/io_uring_disabled", "re");
		if (sysctl) {
			if (!fgets(text, sizeof(text), sysctl))
				text[0] = 0;
			fclose(sysctl);
		}
		if (text[0] == '1' || text[0] == '2')
			return calyx_refuse(reason, error,
					    "io_uring_setup: %s: the sysctl kernel.io_uring_disabled is %c",
					    calyx_error_text(error).text, text[0]);
		return calyx_refuse(
			reason, error,
			"io_uring_setup (%s): %s: a seccomp filter, a security module or a missing privilege "
			"forbids it",
			name, calyx_error_text(error).text);
	}
	if (error == -ENOSYS)
		return calyx_refuse(reason, error,
				    "io_uring_setup: %s: the kernel has no io_uring, or a filter hides it",
				    calyx_error_text(error).text);
	if (error == -EINVAL)
		return calyx_refuse(reason, error, "io_uring_setup: %s: this kernel does not have setup=%s",
				    calyx_error_text(error).text, name);
	return calyx_refuse(reason, error, "io_uring_setup (%s): %s", name, calyx_error_text(error).text);
}

static int choose_setup(struct calyx_crew *crew, char *reason)
{
	static const enum calyx_setup ladder[] = {CALYX_SETUP_DEFER, CALYX_SETUP_COOP, CALYX_SETUP_PLAIN};
	enum calyx_setup wanted = crew->job.setup;
	uint32_t entries = crew->ring_entries;
	int error = -EINVAL;

	if (wanted == CALYX_SETUP_SQPOLL && (error = place_pollers(crew, reason)))
		return error;
	if (wanted != CALYX_SETUP_AUTO) {
		crew->took = wanted;
		error = calyx_ring_choose(wanted, entries, crew->workers[0].poller_cpu, &crew->ring_flags);
		return error ? refuse_io_uring(error, setup_names[wanted], reason) : 0;
	}
	for (size_t i = 0; i < sizeof(ladder) / sizeof(ladder[0]); i++) {
		crew->took = ladder[i];
		error = calyx_ring_choose(ladder[i], entries, -1, &crew->ring_flags);
		if (!error)
			return 0;
		if (error != -EINVAL)
			break;
		calyx_reason_add(crew->why, "setup=%s: %s", setup_names[ladder[i]], calyx_error_text(error).text);
	}
	return refuse_io_uring(error, setup_names[crew->took], reason);
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
	crew->ring_entries = RING_ENTRIES_MIN;
	while (crew->ring_entries < job->iodepth)
		crew->ring_entries *= 2;

	crew->paths = calloc(job->paths_count, sizeof(*crew->paths));
	crew->workers = calloc(job->paths_count, sizeof(*crew->workers));
	crew->intervals = calloc(intervals + 1, sizeof(*crew->intervals));
	if (!crew->paths || !crew->workers || !crew->intervals)
		return -ENOMEM;
	for (uint32_t i = 0; i < job->paths_count; i++) {
		crew->paths[i] = strdup(job->paths[i]);
		if (!crew->paths[i])
			return -ENOMEM;
		crew->workers[i].crew = crew;
		crew->workers[i].index = i;
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
		free(crew->workers[i].intervals);
	}
	for (uint32_t i = 0; crew->paths && i < crew->job.paths_count; i++)
		free(crew->paths[i]);
	free(crew->paths);
	free(crew->workers);
	free(crew->intervals);
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
	if ((error = check_memory(crew, reason)) || (error = choose_setup(crew, reason)) ||
	    (error = spawn(crew, reason)) || (error = await_reports(crew, reason)) ||
	    (error = first_open_error(crew, reason)) || (error = settle_buffers(crew, reason)) ||
	    (error = settle_setup(crew, reason)))
		goto failed;
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
	sum.done = atomic_load(&crew->finished) == crew->spawned || is_overdue(crew, now_ns);
	*progress = sum;
}

void calyx_crew_stop(struct calyx_crew *crew)
{
	uint32_t none = CALYX_STOP_NONE;

	atomic_compare_exchange_strong(&crew->stop, &none, CALYX_STOP_BY_CALLER);
	command_crew(crew, CALYX_QUIT);
}

/* ---- the result ---- */

static void merge_errors(struct calyx_result *result, const struct calyx_worker *w)
{
	for (uint32_t i = 0; i < w->errors_count; i++) {
		const struct calyx_error_count *from = &w->errors[i];
		uint32_t j = 0;

		while (j < result->errors_count &&
		       (result->errors[j].direction != from->direction || result->errors[j].error != from->error))
			j++;
		if (j < result->errors_count)
			result->errors[j].count += from->count;
		else if (j < CALYX_ERRORS_MAX)
			result->errors[result->errors_count++] = *from;
	}
}

static void merge_worker(struct calyx_crew *crew, const struct calyx_worker *w)
{
	struct calyx_result *result = &crew->result;
	uint64_t started_ns = atomic_load(&w->started_ns);

	if (started_ns && (!result->started_ns || started_ns < result->started_ns))
		result->started_ns = started_ns;
	if (w->ended_ns > result->ended_ns)
		result->ended_ns = w->ended_ns;
	for (int d = 0; d < CALYX_DIRECTIONS; d++) {
		struct calyx_direction_result *into = &result->directions[d];

		into->ios += w->directions[d].ios;
		into->bytes += w->directions[d].bytes;
		into->errors += w->directions[d].errors;
		into->short_ios += w->directions[d].short_ios;
		calyx_histogram_merge(&into->latency, &w->directions[d].latency);
	}
	for (uint32_t i = 0; i < crew->intervals_count; i++) {
		struct calyx_interval *into = &crew->intervals[i];
		const struct calyx_interval *from = &w->intervals[i];

		into->read_ios += from->read_ios;
		into->read_bytes += from->read_bytes;
		into->write_ios += from->write_ios;
		into->write_bytes += from->write_bytes;
		if (from->latency_max_ns > into->latency_max_ns)
			into->latency_max_ns = from->latency_max_ns;
	}
	result->enter_calls += w->ring.enter_calls;
	result->wakeups += w->ring.wakeups;
	result->submitted += w->counts.submitted;
	result->eagain += w->counts.eagain;
	result->short_ios += w->counts.short_ios;
	result->unfinished += w->counts.unfinished;
	result->stopped |= w->stopped;
	merge_errors(result, w);
	if (w->failure[0] && !result->failure[0])
		memcpy(result->failure, w->failure, sizeof(result->failure));
}

static void merge(struct calyx_crew *crew)
{
	struct calyx_result *result = &crew->result;
	uint64_t start_ns = atomic_load(&crew->start_ns);

	if (crew->merged)
		return;
	crew->merged = true;
	result->setup = crew->setup;
	result->interval_ns = crew->job.interval_ns;
	result->intervals = crew->intervals;
	result->intervals_count = crew->intervals_count;
	if (start_ns) {
		result->window_start_ns = start_ns + crew->job.ramp_ns;
		result->window_end_ns = result->window_start_ns + crew->job.runtime_ns;
	}
	for (int d = 0; d < CALYX_DIRECTIONS; d++)
		calyx_histogram_init(&result->directions[d].latency);
	for (uint32_t i = 0; i < crew->spawned; i++) {
		const struct calyx_worker *w = &crew->workers[i];

		merge_worker(crew, w);
		if (atomic_load(&w->finished))
			continue;
		crew->abandoned = true;
		result->unfinished += w->in_flight;
		result->ended_ns = calyx_now_ns();
		calyx_refuse(result->failure, 0,
			     "job %" PRIu32
			     " (%s) hangs in the kernel past its deadline and was left behind with %" PRIu32
			     " I/Os in flight",
			     i, crew->paths[i], w->in_flight);
	}
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
	merge(crew);
	return 0;
}

const struct calyx_result *calyx_crew_result(struct calyx_crew *crew)
{
	return &crew->result;
}

void calyx_crew_close(struct calyx_crew *crew)
{
	uint64_t until_ns = calyx_now_ns() + CLOSE_TIMEOUT_NS;
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
	for (uint32_t i = 0; i < crew->spawned; i++)
		pthread_join(crew->workers[i].thread, NULL);
	free_crew(crew);
}
