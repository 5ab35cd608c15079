/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU over the measured window: see usage.h and docs/protocol.md (usage).
 *
 *   what                     from                               grain
 *   busy, delay              /proc/schedstat, all CPUs          scheduler, ns; a task counts when it leaves its CPU
 *   engine                   process CPU clocks                 scheduler, ns; children already waited for: ticks
 *   engine user and system   /proc/PID/stat                     sampled at ticks
 *   user .. steal            /proc/stat                         sampled at ticks
 *   idle, iowait             /proc/stat                         timed at each way in and out of idle; told in ticks
 *   threads                  /proc/PID/task/TID/schedstat       scheduler, ns
 */
#include "usage.h"

#include <dirent.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "calyx/text.h"
#include "moment.h"
#include "proc.h"
#include "protocol.h"

#define THREADS_MAX 512
#define PIDS_MAX 512
/* The list of processes and the breakdown by thread are taken this long before each sample, the same at both ends: they
 * take their time, and threads may end with the window. */
#define LIST_AHEAD_NS (50 * MS_NS)
#define THREADS_AHEAD_NS (10 * MS_NS)

struct thread_time {
	pid_t tid;
	char name[20];
	uint64_t ns;
};

struct sample {
	uint64_t at_ns, engine_ns, engine_user_ns, engine_system_ns, busy_ns, delay_ns, stat_ns[PROC_TIMES];
	uint32_t cpus, threads_count;
	bool schedstat;
	struct thread_time threads[THREADS_MAX];
};

struct usage {
	enum usage_of of;
	uint64_t start_ns, end_ns;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool cancelled, complete;
	pid_t pids[PIDS_MAX];
	size_t pids_count;
	struct sample first, last;
};

static void list_pids(struct usage *usage)
{
	if (usage->of == USAGE_DESCENDANTS) {
		usage->pids_count = proc_descendants(getpid(), true, usage->pids, PIDS_MAX);
		return;
	}
	usage->pids[0] = getpid();
	usage->pids_count = 1;
}

static void sample_engine(const struct usage *usage, struct sample *sample)
{
	struct rusage ended;
	struct proc_stat stat;
	uint64_t ns;

	if (usage->of == USAGE_SELF) {
		proc_cpu_ns(getpid(), &sample->engine_ns);
		if (!proc_stat(getpid(), &stat)) {
			sample->engine_user_ns = stat.user_ns;
			sample->engine_system_ns = stat.system_ns;
		}
		return;
	}
	getrusage(RUSAGE_CHILDREN, &ended);
	sample->engine_user_ns = (uint64_t)ended.ru_utime.tv_sec * SECOND_NS + (uint64_t)ended.ru_utime.tv_usec * 1000;
	sample->engine_system_ns =
		(uint64_t)ended.ru_stime.tv_sec * SECOND_NS + (uint64_t)ended.ru_stime.tv_usec * 1000;
	sample->engine_ns = sample->engine_user_ns + sample->engine_system_ns;
	for (size_t i = 0; i < usage->pids_count; i++) {
		if (!proc_cpu_ns(usage->pids[i], &ns) || proc_stat(usage->pids[i], &stat))
			continue;
		sample->engine_ns += ns + stat.children_user_ns + stat.children_system_ns;
		sample->engine_user_ns += stat.user_ns + stat.children_user_ns;
		sample->engine_system_ns += stat.system_ns + stat.children_system_ns;
	}
}

/* Whether idle time is taken with the clock, as every kernel with tickless idle does, or counted at ticks. */
static bool idle_is_timed(void)
{
	char text[4096], *word, *rest = text;

	if (calyx_read_text("/proc/cmdline", text, sizeof(text)) <= 0)
		return true;
	while ((word = strtok_r(rest, " \n", &rest)))
		if (!strcmp(word, "nohz=off") || !strcmp(word, "nohz=0"))
			return false;
	return true;
}

static void sample_thread(struct sample *sample, pid_t pid, pid_t tid)
{
	struct thread_time *thread = &sample->threads[sample->threads_count];
	char path[64], text[64];

	calyx_format(path, sizeof(path), "/proc/%d/task/%d/schedstat", (int)pid, (int)tid);
	if (sample->threads_count == THREADS_MAX || calyx_read_text(path, text, sizeof(text)) <= 0)
		return;
	thread->tid = tid;
	thread->ns = calyx_number(text, NULL);
	calyx_format(path, sizeof(path), "/proc/%d/task/%d/comm", (int)pid, (int)tid);
	if (calyx_read_text(path, thread->name, sizeof(thread->name)) <= 0)
		return;
	thread->name[strcspn(thread->name, "\n")] = 0;
	sample->threads_count++;
}

static void sample_threads(const struct usage *usage, struct sample *sample)
{
	struct dirent *entry;
	char path[40];
	DIR *directory;

	for (size_t i = 0; i < usage->pids_count; i++) {
		calyx_format(path, sizeof(path), "/proc/%d/task", (int)usage->pids[i]);
		directory = opendir(path);
		while (directory && (entry = readdir(directory)))
			if (entry->d_name[0] != '.')
				sample_thread(sample, usage->pids[i], (pid_t)calyx_number(entry->d_name, NULL));
		if (directory)
			closedir(directory);
	}
}

/* Returns early when cancelled. */
static void sleep_until(struct usage *usage, uint64_t until_ns)
{
	struct timespec until = moment_timespec(until_ns);

	while (!usage->cancelled && moment_now_ns() < until_ns)
		pthread_cond_timedwait(&usage->changed, &usage->lock, &until);
}

/* Takes a sample at that instant, or at once when cancelled. */
static void take_sample(struct usage *usage, uint64_t at_ns, struct sample *sample)
{
	sleep_until(usage, at_ns - LIST_AHEAD_NS);
	list_pids(usage);
	sleep_until(usage, at_ns - THREADS_AHEAD_NS);
	sample_threads(usage, sample);
	sleep_until(usage, at_ns);
	sample->at_ns = moment_now_ns();
	sample_engine(usage, sample);
	sample->schedstat = proc_schedstat("/proc/schedstat", &sample->busy_ns, &sample->delay_ns);
	sample->cpus = proc_times(sample->stat_ns);
}

static void *sample_window(void *argument)
{
	struct usage *usage = argument;

	prctl(PR_SET_NAME, "calyx-usage", 0, 0, 0);
	moment_fine_timers();
	pthread_mutex_lock(&usage->lock);
	take_sample(usage, usage->start_ns, &usage->first);
	if (usage->first.at_ns >= usage->start_ns) {
		take_sample(usage, usage->end_ns, &usage->last);
		usage->complete = true;
	}
	pthread_mutex_unlock(&usage->lock);
	return NULL;
}

struct usage *usage_begin(enum usage_of of, uint64_t window_start_ns, uint64_t window_end_ns)
{
	struct usage *usage = calloc(1, sizeof(*usage));
	pthread_condattr_t attributes;

	if (!usage)
		return NULL;
	usage->of = of;
	usage->start_ns = window_start_ns;
	usage->end_ns = window_end_ns;
	pthread_mutex_init(&usage->lock, NULL);
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&usage->changed, &attributes);
	if (pthread_create(&usage->thread, NULL, sample_window, usage)) {
		free(usage);
		return NULL;
	}
	return usage;
}

bool usage_end(struct usage *usage)
{
	pthread_mutex_lock(&usage->lock);
	usage->cancelled = true;
	pthread_cond_signal(&usage->changed);
	pthread_mutex_unlock(&usage->lock);
	pthread_join(usage->thread, NULL);
	return usage->complete;
}

static uint64_t past(uint64_t last, uint64_t first)
{
	return last > first ? last - first : 0;
}

static void write_threads(const struct usage *usage, struct json *json)
{
	json_key(json, "threads");
	json_array(json);
	for (uint32_t i = 0; i < usage->last.threads_count; i++) {
		const struct thread_time *last = &usage->last.threads[i];
		uint64_t before_ns = 0;

		for (uint32_t k = 0; k < usage->first.threads_count; k++)
			if (usage->first.threads[k].tid == last->tid)
				before_ns = usage->first.threads[k].ns;
		if (last->ns <= before_ns)
			continue;
		json_object(json);
		json_text(json, "name", last->name);
		json_u64(json, "ns", last->ns - before_ns);
		json_object_end(json);
	}
	json_array_end(json);
}

static void write_stat(const struct usage *usage, struct json *json)
{
	static const char *const names[PROC_TIMES] = {"user_ns",   "nice_ns", "system_ns",  "idle_ns",
						      "iowait_ns", "irq_ns",  "softirq_ns", "steal_ns"};

	json_key(json, "stat");
	json_object(json);
	for (int i = 0; i < PROC_TIMES; i++)
		json_u64(json, names[i], past(usage->last.stat_ns[i], usage->first.stat_ns[i]));
	json_object_end(json);
	json_bool(json, "steal_known", usage->last.stat_ns[PROC_STEAL] > 0);
}

void usage_write(const struct usage *usage, struct buffer *out)
{
	const struct sample *first = &usage->first, *last = &usage->last;
	struct json json = message_begin(out, "usage");

	json_u64(&json, "window_start_ns", first->at_ns);
	json_u64(&json, "window_end_ns", last->at_ns);
	json_u64(&json, "cpus", last->cpus);
	if (first->schedstat && last->schedstat) {
		json_u64(&json, "busy_ns", past(last->busy_ns, first->busy_ns));
		json_u64(&json, "delay_ns", past(last->delay_ns, first->delay_ns));
	} else {
		json_null(&json, "busy_ns");
		json_null(&json, "delay_ns");
	}
	json_u64(&json, "engine_ns", past(last->engine_ns, first->engine_ns));
	json_u64(&json, "engine_user_ns", past(last->engine_user_ns, first->engine_user_ns));
	json_u64(&json, "engine_system_ns", past(last->engine_system_ns, first->engine_system_ns));
	write_threads(usage, &json);
	write_stat(usage, &json);
	json_bool(&json, "idle_timed", idle_is_timed());
	message_end(&json);
}

void usage_free(struct usage *usage)
{
	if (!usage)
		return;
	pthread_cond_destroy(&usage->changed);
	pthread_mutex_destroy(&usage->lock);
	free(usage);
}
