// SPDX-License-Identifier: Apache-2.0
// The loop of one thread: fill, submit, reap, record, stop, drain. One thread, one ring, one file.
//
//   reap     one clock read stamps every visible completion; then its slot is free, or has a rest to do (reap.c)
//   refill   a free slot gets the next I/O: each one published and submitted by itself (each), or all at once (batch)
//   wait     sleep in the kernel until the next completion; a timer of TICK_NS bounds that sleep, so that a stop, the
//            deadline and hanging I/O are seen without a timeout on every wait
//
// Submitting each successor at once costs one more system call per I/O, and on a disk brings 10 to 20 % more of them:
// the device idles less while the rest of a batch is prepared.
#include "crew.h"

#include <errno.h>
#include <inttypes.h>
#include <time.h>

#include "data.h"
#include "reason.h"

#define TICK_NS 100000000ull	  /* how late a stop or a deadline may be seen */
#define SPIN_POLLER_NS 1000000ull /* SQPOLL: then sleep, which gives the poller the CPU */
#define POLL_PAUSE_NS 20000ull	  /* SQPOLL with iopoll: the poller polls, this only looks */
#define DRAIN_AFTER_STOP_NS 5000000000ull
#define DRAIN_AFTER_CANCEL_NS 500000000ull
#define STUCK_MAX_NS 2000000000ull /* the kernel takes no submission, with nothing in flight */

static void pause_ns(uint64_t length_ns)
{
	struct timespec length = {.tv_sec = (time_t)(length_ns / 1000000000),
				  .tv_nsec = (long)(length_ns % 1000000000)};

	clock_nanosleep(CLOCK_MONOTONIC, 0, &length, NULL);
}

/* ---- fill ---- */

/* What is marked so is made twice: once for plain jobs, whose I/Os are all alike, with all that is shaped left out by
 * the compiler, and once for the others. */
#define TWICE static inline __attribute__((always_inline))

TWICE void fill_sqe(struct calyx_worker *w, struct io_uring_sqe *sqe, uint32_t index, bool shaped)
{
	struct calyx_slot *slot = &w->slots[index];

	sqe->user_data = index;
	if (w->taken.fixed_files) {
		sqe->fd = 0;
		sqe->flags = IOSQE_FIXED_FILE;
	} else {
		sqe->fd = w->fd;
	}
	sqe->opcode = w->opcodes[slot->direction];
	if (slot->direction == CALYX_DIR_SYNC) {
		sqe->fsync_flags = w->fsync_flags;
		return;
	}
	sqe->off = slot->offset + slot->done;
	sqe->addr = (uint64_t)(uintptr_t)(slot->buffer + slot->done);
	sqe->len = (shaped ? w->shapes[index].length : (uint32_t)w->crew->job.bs) - slot->done;
}

/* Gives a free slot its next I/O. False when the submission queue is full. */
TWICE bool prepare_next(struct calyx_worker *w, bool shaped)
{
	const struct calyx_job *job = &w->crew->job;
	struct io_uring_sqe *sqe = calyx_ring_prepare(&w->ring);
	struct calyx_offset next;
	struct calyx_slot *slot;
	uint32_t index, length = 0;

	if (!sqe)
		return false;
	next = shaped ? calyx_offsets_next_shaped(&w->offsets, &length) : calyx_offsets_next(&w->offsets);
	index = w->free_slots[--w->free_count];
	slot = &w->slots[index];
	slot->direction = next.direction;
	slot->offset = next.offset;
	slot->done = slot->retries = 0;
	if (shaped) {
		calyx_shape_prepare(w, index, length);
		fill_sqe(w, sqe, index, true);
		return true;
	}
	slot->buffer = w->pool + ((uint64_t)index * w->turns + slot->turn) * job->bs;
	if (next.direction == CALYX_DIR_WRITE) {
		slot->turn = slot->turn + 1 < w->turns ? slot->turn + 1 : 0;
		calyx_data_stamp(slot->buffer, job->bs, &w->data_stamp);
	}
	if (next.direction != CALYX_DIR_SYNC)
		w->pace.issued++;
	fill_sqe(w, sqe, index, false);
	return true;
}

TWICE bool may_issue(struct calyx_worker *w, bool shaped)
{
	return w->free_count > 0 && (!shaped || calyx_shape_may_issue(w)) && calyx_pace_is_due(&w->pace, w->now_ns);
}

/* ---- submit ---- */

static uint64_t publish_at(struct calyx_worker *w, uint32_t count, uint64_t now_ns)
{
	struct calyx_ring *ring = &w->ring;

	for (uint32_t i = 0; i < count; i++) {
		uint64_t index = ring->sqes[(ring->published + i) & ring->sq_mask].user_data;

		if (index >= w->crew->job.iodepth)
			continue;
		w->counts.submitted++;
		/* The latency of a retry, or of the rest of a short I/O, runs from the first publication. */
		if (atomic_load_explicit(&w->slots[index].published_ns, memory_order_relaxed))
			continue;
		atomic_store_explicit(&w->slots[index].published_ns, now_ns, memory_order_relaxed);
		w->in_flight++;
	}
	calyx_ring_publish(ring, count);
	return now_ns;
}

static uint64_t publish(struct calyx_worker *w, uint32_t count)
{
	return publish_at(w, count, calyx_now_ns());
}

static void note_submission(struct calyx_worker *w, int error)
{
	if (!error) {
		w->stuck_since_ns = 0;
		return;
	}
	if (error == -EINTR)
		return;
	if (error == -EAGAIN || error == -EBUSY) {
		if (!w->stuck_since_ns)
			w->stuck_since_ns = calyx_now_ns();
		return;
	}
	calyx_worker_fail(w, "job %" PRIu32 ": io_uring_enter: %s", w->index, calyx_error_text(error).text);
}

/* Hands everything published to the kernel. */
static void submit(struct calyx_worker *w)
{
	if (w->ring.sqpoll)
		note_submission(w, calyx_ring_wake(&w->ring));
	else if (calyx_ring_pending(&w->ring))
		note_submission(w, calyx_ring_enter(&w->ring, true, 0, 0));
}

static void resume(struct calyx_worker *w)
{
	while (w->resume_count > 0) {
		struct io_uring_sqe *sqe = calyx_ring_prepare(&w->ring);

		if (!sqe)
			return;
		fill_sqe(w, sqe, w->resume_slots[--w->resume_count], w->shaped);
		publish(w, 1);
	}
}

TWICE void refill_as(struct calyx_worker *w, bool shaped)
{
	bool each = w->crew->job.refill == CALYX_REFILL_EACH;
	uint32_t batch = 0;

	while (may_issue(w, shaped)) {
		/* The last one is submitted by the wait that follows: one system call less. */
		if (each && (calyx_ring_pending(&w->ring) || w->ring.sqpoll))
			submit(w);
		if (w->stuck_since_ns || !prepare_next(w, shaped))
			break;
		if (each)
			publish(w, 1);
		else
			batch++;
	}
	if (batch > 0)
		publish(w, batch);
	if (w->ring.sqpoll)
		submit(w);
}

static void refill(struct calyx_worker *w)
{
	if (w->shaped)
		refill_as(w, true);
	else
		refill_as(w, false);
}

/* ---- wait ---- */

/* When the next I/O may begin, by its rate or after a pause; 0 when that is not a matter of time. */
static uint64_t due_ns(const struct calyx_worker *w)
{
	return w->thinking ? w->think_until_ns : calyx_pace_due_ns(&w->pace);
}

static bool arm_timer(struct calyx_worker *w, struct __kernel_timespec *length, uint64_t length_ns, uint64_t user_data)
{
	struct io_uring_sqe *sqe = calyx_ring_prepare(&w->ring);

	if (!sqe)
		return false;
	length->tv_sec = (int64_t)(length_ns / 1000000000);
	length->tv_nsec = (long long)(length_ns % 1000000000);
	sqe->opcode = IORING_OP_TIMEOUT;
	sqe->fd = -1;
	sqe->addr = (uint64_t)(uintptr_t)length;
	sqe->len = 1;
	sqe->user_data = user_data;
	publish(w, 1);
	return true;
}

/* A pace timer in flight is never late for a later I/O: due times only grow. False when the queue has no room for a
 * timer: a sleep would then not end when it must. */
static bool arm_timers(struct calyx_worker *w)
{
	uint64_t next_ns;

	if (!w->tick_due_ns) {
		if (!arm_timer(w, &w->tick_time, TICK_NS, CALYX_DATA_TICK))
			return false;
		w->tick_due_ns = w->now_ns + TICK_NS;
	}
	if (w->draining || !w->timed || !w->free_count || w->pace_timer_ns)
		return true;
	next_ns = due_ns(w);
	if (next_ns <= w->now_ns)
		return true;
	if (!arm_timer(w, &w->pace_time, next_ns - w->now_ns, CALYX_DATA_PACE))
		return false;
	w->pace_timer_ns = next_ns;
	return true;
}

/* The poller fills the queue by itself, so look for a while before going to sleep; sleeping is the way out when it does
 * not get a CPU because we hold it. */
static void wait_for_poller(struct calyx_worker *w)
{
	uint32_t flags = IORING_ENTER_GETEVENTS;
	uint64_t until_ns;

	submit(w);
	until_ns = calyx_now_ns() + SPIN_POLLER_NS;
	do {
		for (int i = 0; i < 64; i++) {
			if (calyx_ring_has_completions(&w->ring))
				return;
			calyx_relax();
		}
	} while (calyx_now_ns() < until_ns);
	if (__atomic_load_n(w->ring.sq_flags, __ATOMIC_RELAXED) & IORING_SQ_NEED_WAKEUP)
		flags |= IORING_ENTER_SQ_WAKEUP;
	note_submission(w, calyx_ring_enter(&w->ring, false, 1, flags));
}

/* A polled ring knows no timers and never sleeps: with I/O in flight the kernel looks for its completion until it finds
 * one or another thread wants the CPU; without, this sleeps until the next I/O is due. */
static void wait_polling(struct calyx_worker *w)
{
	uint64_t next_ns;

	submit(w);
	if (calyx_ring_has_completions(&w->ring))
		return;
	if (w->ring.sqpoll) {
		pause_ns(POLL_PAUSE_NS);
	} else if (w->in_flight > 0) {
		note_submission(w, calyx_ring_enter(&w->ring, true, 1, IORING_ENTER_GETEVENTS));
	} else {
		next_ns = due_ns(w);
		if (next_ns > w->now_ns)
			pause_ns(next_ns - w->now_ns < TICK_NS ? next_ns - w->now_ns : TICK_NS);
	}
}

/* The kernel said EAGAIN: with I/O in flight a completion will help, without it only time can, and not for ever. */
static void wait_while_stuck(struct calyx_worker *w)
{
	bool in_kernel = w->in_flight > calyx_ring_pending(&w->ring);

	calyx_ring_enter(&w->ring, false, 0, IORING_ENTER_GETEVENTS); /* only to let completions happen */
	if (!in_kernel && calyx_now_ns() - w->stuck_since_ns > STUCK_MAX_NS)
		calyx_worker_fail(w, "job %" PRIu32 ": io_uring_enter: %s for %llu ms with nothing in flight", w->index,
				  calyx_error_text(EAGAIN).text, STUCK_MAX_NS / 1000000);
	pause_ns(1000000);
	submit(w);
}

static void wait(struct calyx_worker *w)
{
	if (w->stuck_since_ns || (w->failure[0] && calyx_ring_pending(&w->ring))) {
		wait_while_stuck(w);
		return;
	}
	if (w->crew->job.iopoll) {
		wait_polling(w);
		return;
	}
	if (!arm_timers(w) || calyx_ring_has_completions(&w->ring)) {
		submit(w);
		return;
	}
	if (w->ring.sqpoll)
		wait_for_poller(w);
	else
		note_submission(w, calyx_ring_enter(&w->ring, true, 1, IORING_ENTER_GETEVENTS));
}

/* ---- stop and drain ---- */

static void begin_drain(struct calyx_worker *w, uint32_t stop)
{
	w->draining = true;
	w->drain_until_ns = w->deadline_ns;
	if (stop != CALYX_STOP_NONE && w->now_ns < w->window_end_ns) {
		w->stopped = stop == CALYX_STOP_BY_CALLER;
		if (w->now_ns + DRAIN_AFTER_STOP_NS < w->drain_until_ns)
			w->drain_until_ns = w->now_ns + DRAIN_AFTER_STOP_NS;
	}
	/* What waited for another try is given up, and what the kernel never took never happened. */
	while (w->resume_count > 0) {
		w->counts.unfinished++;
		calyx_slot_release(w, w->resume_slots[--w->resume_count]);
	}
}

/* Best effort, one by one: cancelling everything in one go needs kernel 5.19. */
static void cancel_all(struct calyx_worker *w)
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
		publish(w, 1);
		submit(w);
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
	if (w->failure[0] && w->in_flight <= calyx_ring_pending(&w->ring)) {
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

static void set_times(struct calyx_worker *w, uint64_t start_ns)
{
	const struct calyx_job *job = &w->crew->job;

	w->window_start_ns = start_ns + job->ramp_ns;
	w->window_end_ns = w->window_start_ns + job->runtime_ns;
	w->deadline_ns = start_ns + job->deadline_ns;
	/* The queue is prepared for this instant. */
	w->now_ns = start_ns;
}

static void set_pace(struct calyx_worker *w, uint64_t start_ns)
{
	const struct calyx_job *job = &w->crew->job;

	calyx_pace_init(&w->pace, job->rate ? job->rate : job->rate_iops, start_ns);
	if (job->arrival == CALYX_ARRIVAL_POISSON)
		calyx_pace_make_poisson(&w->pace, calyx_data_tag(job->seed, w->index));
	w->think_left = job->thinktime_blocks ? job->thinktime_blocks : 1;
	w->timed = w->pace.rate || job->thinktime_ns;
}

static void set_opcodes(struct calyx_worker *w)
{
	bool fixed = w->taken.fixed_buffers, nop = w->crew->job.nop;

	w->opcodes[CALYX_DIR_READ] = nop ? IORING_OP_NOP : fixed ? IORING_OP_READ_FIXED : IORING_OP_READ;
	w->opcodes[CALYX_DIR_WRITE] = nop ? IORING_OP_NOP : fixed ? IORING_OP_WRITE_FIXED : IORING_OP_WRITE;
	w->opcodes[CALYX_DIR_SYNC] = nop ? IORING_OP_NOP : IORING_OP_FSYNC;
	w->fsync_flags = w->crew->job.fdatasync ? IORING_FSYNC_DATASYNC : 0;
}

/* The first queue has been prepared before the start line; only its publication is left. */
static void publish_first(struct calyx_worker *w, uint32_t count)
{
	bool each = w->crew->job.refill == CALYX_REFILL_EACH;

	atomic_store(&w->started_ns, publish(w, each ? 1 : count));
	submit(w);
	calyx_startline_leave();
	for (uint32_t i = 1; each && i < count; i++) {
		publish(w, 1);
		submit(w);
	}
}

static uint32_t prepare_first(struct calyx_worker *w)
{
	uint32_t count = 0;

	while (may_issue(w, w->shaped) && prepare_next(w, w->shaped))
		count++;
	return count;
}

/* One fsync after all writes have ended, counted outside the window. */
static void end_with_fsync(struct calyx_worker *w)
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
	fill_sqe(w, sqe, index, false);
	publish(w, 1);
	do {
		wait(w);
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
	first = prepare_first(w);
	if (!calyx_startline_wait(w->crew, start_ns)) {
		w->stopped = atomic_load(&w->crew->stop) == CALYX_STOP_BY_CALLER;
		calyx_startline_leave();
		w->ended_ns = calyx_now_ns();
		return;
	}
	publish_first(w, first);
	w->now_ns = calyx_now_ns();
	for (;;) {
		wait(w);
		calyx_worker_reap(w);
		if (check_end(w))
			break;
		if (w->draining)
			continue;
		resume(w);
		refill(w);
	}
	if (w->crew->job.end_fsync && !w->stopped && !w->failure[0] && w->in_flight == 0)
		end_with_fsync(w);
	if (w->crew->job.verify && !w->stopped && !w->failure[0])
		calyx_worker_read_back(w);
	w->ended_ns = calyx_now_ns();
	if (w->cancelled && w->counts.unfinished > 0 && !w->stopped)
		calyx_worker_fail(w, "job %" PRIu32 ": %" PRIu64 " I/Os did not end before the deadline", w->index,
				  w->counts.unfinished);
}
