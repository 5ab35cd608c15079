// SPDX-License-Identifier: Apache-2.0
// Sleep in the kernel until the next completion, or where that cannot be, look for it. A timer bounds each sleep.
#include "crew.h"

#include <errno.h>
#include <inttypes.h>
#include <time.h>

#include "cold.h"
#include "loop.h"
#include "reason.h"

#define TICK_NS 100000000ull	   /* how late a stop or a deadline may be seen */
#define SPIN_POLLER_NS 1000000ull  /* SQPOLL: then sleep, which gives the poller the CPU */
#define POLL_PAUSE_NS 20000ull	   /* SQPOLL with iopoll: the poller polls, this only looks */
#define STUCK_MAX_NS 2000000000ull /* the kernel takes no submission, with nothing in flight */

static CALYX_COLD void pause_ns(uint64_t length_ns)
{
	struct timespec length = {.tv_sec = (time_t)(length_ns / 1000000000),
				  .tv_nsec = (long)(length_ns % 1000000000)};

	clock_nanosleep(CLOCK_MONOTONIC, 0, &length, NULL);
}

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
	calyx_worker_publish(w, 1);
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

	calyx_worker_submit(w);
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
	calyx_worker_note_submission(w, calyx_ring_enter(&w->ring, false, 1, flags));
}

/* A polled ring knows no timers and never sleeps: with I/O in flight the kernel looks for its completion until it finds
 * one or another thread wants the CPU; without, this sleeps until the next I/O is due. */
static void wait_polling(struct calyx_worker *w)
{
	uint64_t next_ns;

	calyx_worker_submit(w);
	if (calyx_ring_has_completions(&w->ring))
		return;
	if (w->ring.sqpoll) {
		pause_ns(POLL_PAUSE_NS);
	} else if (w->in_flight > 0) {
		calyx_worker_note_submission(w, calyx_ring_enter(&w->ring, true, 1, IORING_ENTER_GETEVENTS));
	} else {
		next_ns = due_ns(w);
		if (next_ns > w->now_ns)
			pause_ns(next_ns - w->now_ns < TICK_NS ? next_ns - w->now_ns : TICK_NS);
	}
}

CALYX_COLD uint32_t calyx_worker_count_untaken(const struct calyx_worker *w)
{
	const struct calyx_ring *ring = &w->ring;
	uint32_t count = 0;

	for (uint32_t i = ring->published - calyx_ring_pending(ring); i != ring->published; i++)
		count += ring->sqes[i & ring->sq_mask].user_data < w->crew->job.iodepth;
	return count;
}

/* The kernel said EAGAIN: with I/O in flight a completion will help, without it only time can, and not for ever. */
static CALYX_COLD void wait_while_stuck(struct calyx_worker *w)
{
	bool in_kernel = w->in_flight > calyx_worker_count_untaken(w);

	calyx_ring_enter(&w->ring, false, 0, IORING_ENTER_GETEVENTS); /* only to let completions happen */
	if (!in_kernel && calyx_now_ns() - w->stuck_since_ns > STUCK_MAX_NS)
		calyx_worker_fail(w, "job %" PRIu32 ": io_uring_enter: %s for %llu ms with nothing in flight", w->index,
				  calyx_error_text(EAGAIN).text, STUCK_MAX_NS / 1000000);
	pause_ns(1000000);
	calyx_worker_submit(w);
}

void calyx_worker_wait(struct calyx_worker *w)
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
		calyx_worker_submit(w);
		return;
	}
	if (w->ring.sqpoll)
		wait_for_poller(w);
	else
		calyx_worker_note_submission(w, calyx_ring_enter(&w->ring, true, 1, IORING_ENTER_GETEVENTS));
}
