/* SPDX-License-Identifier: Apache-2.0
 *
 * A crew is one job's threads. opening.c opens it, crew.c starts, watches and ends it; worker.c opens what one thread
 * needs; engine.c is the loop that one thread runs. They meet in this header only.
 *
 *   command:  OPENING -> (DROP_BUFFERS) -> READY -> START    set by the caller's thread, waited for by all workers
 *             any -> QUIT                                    by a stop, or for a crew that is refused
 *   stop:     NONE -> BY_CALLER or BY_FAILURE                read by running workers at each pass
 */
#ifndef CALYX_CREW_H
#define CALYX_CREW_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "calyx/engine.h"
#include "data.h"
#include "job.h"
#include "offsets.h"
#include "pace.h"
#include "ring.h"
#include "verify.h"

enum calyx_command { CALYX_OPENING, CALYX_DROP_BUFFERS, CALYX_READY, CALYX_START, CALYX_QUIT };
enum calyx_stop { CALYX_STOP_NONE, CALYX_STOP_BY_CALLER, CALYX_STOP_BY_FAILURE };

/* user_data below 2^32 is the index of a slot; these name none. */
#define CALYX_DATA_TICK (1ull << 32)
#define CALYX_DATA_PACE (2ull << 32)
#define CALYX_DATA_CANCEL (3ull << 32)

/* One place in the queue. published_ns is 0 while the slot is free; another thread reads it for the age of the oldest
 * I/O. */
struct calyx_slot {
	_Atomic uint64_t published_ns;
	uint64_t offset;
	unsigned char *buffer; /* of the current I/O, within the slot's share of the pool */
	uint32_t done, retries, turn;
	enum calyx_direction direction;
};

/* What an I/O carries besides in a shaped job (shape.c). */
struct calyx_shape {
	uint64_t due_ns; /* its intended start */
	uint32_t length;
	uint32_t generation; /* verify: of a write; of a read, the newest write that came before it */
	bool certain;	     /* verify: no write to the read's blocks was in flight */
};

struct calyx_counts {
	uint64_t submitted, eagain, short_ios, unfinished, errors;
};

struct calyx_worker {
	struct calyx_crew *crew;
	uint32_t index;
	pthread_t thread;
	bool spawned;
	int cpu;	/* that this thread is pinned to; -1 none */
	int poller_cpu; /* SQPOLL: the CPU of the kernel's thread; -1 none */

	/* What the loop touches at each I/O. */
	struct calyx_ring ring;
	struct calyx_slot *slots;
	uint32_t *free_slots, free_count;
	uint32_t *resume_slots, resume_count; /* the rest of short I/O, and retries */
	uint32_t in_flight;		      /* published and not yet completed */
	uint8_t opcodes[CALYX_DIRECTIONS];
	uint32_t fsync_flags;
	uint32_t look; /* DEFER_TASKRUN shows completions only in an enter that asks for events: so each one does */
	bool shaped;
	int fd;
	uint64_t data_tag, data_stamp;
	struct calyx_offsets offsets;
	struct calyx_pace pace;
	bool timed; /* I/O may have to wait for its time */

	/* Of a shaped job alone. */
	struct calyx_shape *shapes;	  /* by slot */
	struct calyx_histogram *intended; /* open loop: of reads and of writes; else NULL */
	struct calyx_verify verify;
	struct calyx_dedupe dedupe;
	unsigned char *reads, *originals; /* within the pool */
	uint64_t reads_stride;
	bool thinking;
	uint32_t think_left;
	uint64_t think_until_ns; /* 0: I/O is still in flight */

	/* The loop's times and state. */
	uint64_t now_ns, window_start_ns, window_end_ns, deadline_ns, drain_until_ns;
	uint64_t tick_due_ns, pace_timer_ns; /* 0: not armed */
	struct __kernel_timespec tick_time, pace_time;
	uint64_t stuck_since_ns; /* since when the kernel takes no submission; 0: it does */
	uint32_t error_streak;
	bool draining, cancelled, ending; /* ending: the fsync of end_fsync is counted outside the window */
	struct calyx_interval *interval;  /* of the current pass, NULL outside the window or without a series */
	bool in_window;

	/* Results: written by the worker alone, read by others once it has finished. */
	struct calyx_direction_result *directions;
	struct calyx_interval *intervals;
	struct calyx_counts counts;
	struct calyx_error_count errors[CALYX_ERRORS_MAX];
	uint32_t errors_count;
	uint64_t ended_ns;
	bool stopped;
	char failure[CALYX_REASON_MAX];

	/* Read by other threads while it runs. */
	_Atomic uint64_t started_ns, ios, bytes;
	atomic_bool finished;

	/* What opening made. */
	int open_error, buffers_error;
	char open_reason[CALYX_REASON_MAX];
	unsigned char *pool;
	size_t pool_bytes, pool_map_bytes; /* used, and mapped: whole huge pages */
	uint32_t turns;			   /* variants of data per slot */
	struct calyx_setup_taken taken;
};

struct calyx_crew {
	struct calyx_job job; /* paths and strings are our own copies */
	char **paths;
	uint32_t ring_flags, ring_entries;
	enum calyx_setup took;
	uint64_t huge_page_bytes; /* 0: ordinary pages */
	char why[CALYX_REASON_MAX];
	struct calyx_setup_taken setup;
	uint64_t allowed_cpus[CALYX_CPU_WORDS];
	bool on_node;			       /* threads stay on allowed_cpus, which are those of the NUMA node */
	uint64_t poller_cpus[CALYX_CPU_WORDS]; /* no thread of ours runs on these */

	_Atomic uint32_t command;  /* a futex */
	_Atomic uint32_t reports;  /* a futex: workers that have worked through the current command */
	_Atomic uint32_t finished; /* a futex: workers that have ended */
	_Atomic uint32_t stop;
	_Atomic uint64_t start_ns;

	struct calyx_worker *workers;
	uint32_t spawned;
	struct calyx_interval *intervals;
	struct calyx_histogram *intended;
	uint32_t intervals_count;
	bool merged, abandoned;
	struct calyx_result result;
};

static inline void calyx_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield" ::: "memory");
#else
	__asm__ volatile("" ::: "memory");
#endif
}

/* The slot's I/O is over, however it ended. */
static inline void calyx_slot_release(struct calyx_worker *w, uint32_t index)
{
	atomic_store_explicit(&w->slots[index].published_ns, 0, memory_order_relaxed);
	w->free_slots[w->free_count++] = index;
	w->in_flight--;
}

/* choose.c: which set-up, and on which CPUs its pollers run. */
int calyx_choose_setup(struct calyx_crew *crew, char *reason);
/* result.c: adds up what the threads measured, once. */
void calyx_crew_merge(struct calyx_crew *crew);
/* worker.c */
void calyx_worker_open(struct calyx_worker *worker);
void calyx_worker_drop_buffers(struct calyx_worker *worker);
void calyx_worker_close(struct calyx_worker *worker);
/* pool.c: fills the buffers before the start, and sets what points into them. */
void calyx_pool_fill(struct calyx_worker *worker);
/* shape.c: a slot has its direction and offset: gives it data, and its place in time. */
void calyx_shape_prepare(struct calyx_worker *worker, uint32_t index, uint32_t length);
bool calyx_shape_may_issue(struct calyx_worker *worker);
/* An I/O has ended, whole or (done false) not. False when it may not be counted as good. */
bool calyx_shape_end(struct calyx_worker *worker, uint32_t index, bool done);
/* readback.c: after the end, what was written with verify. */
void calyx_worker_read_back(struct calyx_worker *worker);
bool calyx_job_is_shaped(const struct calyx_job *job);
/* startline.c: false when a stop came first. It asks for precedence; leave gives that up. */
bool calyx_startline_wait(struct calyx_crew *crew, uint64_t start_ns);
void calyx_startline_leave(void);
/* reap.c: one pass over the completion queue. The first sentence of a failure stands; it ends the job of all threads.
 */
void calyx_worker_reap(struct calyx_worker *worker);
__attribute__((format(printf, 2, 3))) void calyx_worker_fail(struct calyx_worker *worker, const char *format, ...);
/* An error among the result's, which ends no job. */
void calyx_worker_count_error(struct calyx_worker *worker, enum calyx_direction direction, int error, uint64_t offset);
/* engine.c: prepares the first queue, waits for the start line, makes I/O until the end, drains. */
void calyx_worker_run(struct calyx_worker *worker);
/* crew.c: what each thread does, from its spawning to its end; gives all threads their next command. */
void *calyx_crew_thread(void *worker);
void calyx_crew_command(struct calyx_crew *crew, uint32_t command);
/* crew.c: sleeps until command is no longer `from`, or until_ns; returns the command. */
uint32_t calyx_crew_await(struct calyx_crew *crew, uint32_t from, uint64_t until_ns);

#endif
