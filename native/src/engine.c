// SPDX-License-Identifier: Apache-2.0
// The loop of one thread: fill, submit, reap, record, stop, drain. One thread, one ring, one target.
//
//   reap     one clock read stamps every visible completion; then its slot is free, or has a rest to do (reap.c)
//   refill   a free slot gets the next I/O: each one published and submitted by itself (each), or all at once (batch)
//            (refill.c). With DEFER_TASKRUN each submission looks for completions, and they are reaped first
//   wait     sleep in the kernel until the next completion; a timer of 0.1 s bounds that sleep, so that a stop, the
//            deadline and hanging I/O are seen without a timeout on every wait (wait.c)
#include "crew.h"

#include <inttypes.h>

#include "cold.h"
#include "data.h"
#include "loop.h"

#define DRAIN_AFTER_STOP_NS 5000000000ull
#define DRAIN_AFTER_CANCEL_NS 500000000ull

static CALYX_COLD void begin_drain(struct calyx_worker *w, uint32_t stop)
{
	w->draining = true;
	w->drain_until_ns = w->deadline_ns;
	w->stopped = stop == CALYX_STOP_BY_CALLER && w->now_ns < w->window_end_ns;
	/* What waited for another try is given up, and what the kernel never took never happened. */
	while (w->resume_count > 0) {
		w->counts.unfinished++;
		calyx_slot_release(w, w->resume_slots[--w->resume_count]);
	}
}

/* Best effort, one by one: cancelling everything in one go needs kernel 5.19. */
static CALYX_COLD void cancel_all(struct calyx_worker *w)
{
	w->cancelled = true;
	w->drain_until_ns = w->now_ns + DRAIN_AFTER_CANCEL_NS;
	if (w->crew->job.iopoll)
		return; /* a polled ring knows no cancelling */
	for (uint32_t i = 0; i < w->crew->job.iodepth; i++) {
		struct io_uring_sqe *sqe;

		if (!atomic_load_explicit(&w->slots[i].published_ns, memory_order_relaxed))
			continue;
		sqe = calyx_ring_prepare(&w->ring);
		if (!sqe)
			return;
		sqe->opcode = IORING_OP_ASYNC_CANCEL;
		sqe->fd = -1;
		sqe->addr = i;
		sqe->user_data = CALYX_DATA_CANCEL;
		calyx_worker_publish(w, 1);
		calyx_worker_submit(w);
	}
}

/* True when the loop is over. */
static bool check_end(struct calyx_worker *w)
{
	uint32_t stop = atomic_load_explicit(&w->crew->stop, memory_order_relaxed);

	if (!w->draining && (stop != CALYX_STOP_NONE || w->now_ns >= w->window_end_ns))
		begin_drain(w, stop);
	if (!w->draining)
		return false;
	if (w->in_flight == 0)
		return true;
	/* Also of a stop that comes only now. */
	if (stop != CALYX_STOP_NONE && !w->cancelled && w->now_ns + DRAIN_AFTER_STOP_NS < w->drain_until_ns)
		w->drain_until_ns = w->now_ns + DRAIN_AFTER_STOP_NS;
	if (w->failure[0] && w->in_flight <= calyx_worker_count_untaken(w)) {
		/* The kernel never took these, and will not. */
		w->counts.unfinished += w->in_flight;
		return true;
	}
	if (w->now_ns < w->drain_until_ns)
		return false;
	if (!w->cancelled) {
		cancel_all(w);
		return false;
	}
	w->counts.unfinished += w->in_flight;
	return true;
}

static CALYX_COLD void set_times(struct calyx_worker *w, uint64_t start_ns)
{
	const struct calyx_job *job = &w->crew->job;

	w->window_start_ns = start_ns + job->ramp_ns;
	w->window_end_ns = w->window_start_ns + job->runtime_ns;
	w->deadline_ns = start_ns + job->deadline_ns;
	/* The queue is prepared for this instant. */
	w->now_ns = start_ns;
}

static CALYX_COLD void set_pace(struct calyx_worker *w, uint64_t start_ns)
{
	const struct calyx_job *job = &w->crew->job;

	calyx_pace_init(&w->pace, job->rate ? job->rate : job->rate_iops, start_ns);
	if (job->arrival == CALYX_ARRIVAL_POISSON)
		calyx_pace_make_poisson(&w->pace, calyx_data_tag(job->seed, w->index));
	w->think_left = job->thinktime_blocks ? job->thinktime_blocks : 1;
	w->timed = w->pace.rate || job->thinktime_ns;
}

static CALYX_COLD void set_opcodes(struct calyx_worker *w)
{
	bool fixed = w->taken.fixed_buffers, nop = w->crew->job.nop;

	w->opcodes[CALYX_DIR_READ] = nop ? IORING_OP_NOP : fixed ? IORING_OP_READ_FIXED : IORING_OP_READ;
	w->opcodes[CALYX_DIR_WRITE] = nop ? IORING_OP_NOP : fixed ? IORING_OP_WRITE_FIXED : IORING_OP_WRITE;
	w->opcodes[CALYX_DIR_SYNC] = nop ? IORING_OP_NOP : IORING_OP_FSYNC;
	w->fsync_flags = w->crew->job.fdatasync ? IORING_FSYNC_DATASYNC : 0;
	w->look = w->taken.defer_taskrun && !w->crew->job.iopoll ? IORING_ENTER_GETEVENTS : 0;
}

/* The first queue has been prepared before the start line; only its publication is left. */
static CALYX_COLD void publish_first(struct calyx_worker *w, uint32_t count)
{
	bool each = w->crew->job.refill == CALYX_REFILL_EACH;

	atomic_store(&w->started_ns, calyx_worker_publish(w, each ? 1 : count));
	calyx_worker_submit(w);
	calyx_startline_leave();
	for (uint32_t i = 1; each && i < count; i++) {
		calyx_worker_publish(w, 1);
		calyx_worker_submit(w);
	}
}

/* One fsync after all writes have ended, counted outside the window. */
static CALYX_COLD void end_with_fsync(struct calyx_worker *w)
{
	struct io_uring_sqe *sqe = calyx_ring_prepare(&w->ring);
	uint32_t index;

	if (!sqe)
		return;
	index = w->free_slots[--w->free_count];
	w->slots[index].direction = CALYX_DIR_SYNC;
	w->slots[index].offset = w->slots[index].done = w->slots[index].retries = 0;
	w->fsync_flags = 0;
	w->ending = true;
	calyx_worker_fill_sync(w, sqe, index);
	calyx_worker_publish(w, 1);
	do {
		calyx_worker_wait(w);
		calyx_worker_reap(w);
	} while (!check_end(w));
}

void calyx_worker_run(struct calyx_worker *w)
{
	uint64_t start_ns = atomic_load(&w->crew->start_ns);
	uint32_t first;

	set_times(w, start_ns);
	set_opcodes(w);
	set_pace(w, start_ns);
	first = calyx_worker_prepare_first(w);
	if (!calyx_startline_wait(w->crew, start_ns)) {
		w->stopped = atomic_load(&w->crew->stop) == CALYX_STOP_BY_CALLER;
		calyx_startline_leave();
		w->ended_ns = calyx_now_ns();
		return;
	}
	publish_first(w, first);
	w->now_ns = calyx_now_ns();
	for (;;) {
		calyx_worker_wait(w);
		calyx_worker_reap(w);
		if (check_end(w))
			break;
		if (w->draining)
			continue;
		calyx_worker_resume(w);
		calyx_worker_refill(w);
	}
	if (w->crew->job.end_fsync && !w->stopped && !w->failure[0] && w->in_flight == 0)
		end_with_fsync(w);
	if (w->crew->job.verify && !w->stopped && !w->failure[0])
		calyx_worker_read_back(w);
	w->ended_ns = calyx_now_ns();
	if (w->cancelled && w->counts.unfinished > 0 && !w->stopped)
		calyx_worker_fail(w, "job %" PRIu32 ": %" PRIu64 " I/Os did not end %s", w->index, w->counts.unfinished,
				  w->ended_ns < w->deadline_ns ? "within 5 s of a stop" : "before the deadline");
}
