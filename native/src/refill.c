// SPDX-License-Identifier: Apache-2.0
// What goes to the kernel: a free slot gets its next I/O, which is published and submitted; latency runs from the
// publication.
//
// Submitting each successor at once costs one more system call per I/O, and on a disk brings 10 to 20 % more of them:
// the device idles less while the rest of a batch is prepared.
#include "crew.h"

#include <errno.h>
#include <inttypes.h>

#include "cold.h"
#include "data.h"
#include "loop.h"
#include "reason.h"

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

uint64_t calyx_worker_publish(struct calyx_worker *w, uint32_t count)
{
	return publish_at(w, count, calyx_now_ns());
}

void calyx_worker_note_submission(struct calyx_worker *w, int error)
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
void calyx_worker_submit(struct calyx_worker *w)
{
	if (w->ring.sqpoll)
		calyx_worker_note_submission(w, calyx_ring_wake(&w->ring));
	else if (calyx_ring_pending(&w->ring))
		calyx_worker_note_submission(w, calyx_ring_enter(&w->ring, true, 0, w->look));
}

void calyx_worker_resume(struct calyx_worker *w)
{
	while (w->resume_count > 0) {
		struct io_uring_sqe *sqe = calyx_ring_prepare(&w->ring);

		if (!sqe)
			return;
		fill_sqe(w, sqe, w->resume_slots[--w->resume_count], w->shaped);
		calyx_worker_publish(w, 1);
	}
}

TWICE void refill_as(struct calyx_worker *w, bool shaped)
{
	bool each = w->crew->job.refill == CALYX_REFILL_EACH;
	uint32_t batch = 0;

	while (may_issue(w, shaped)) {
		/* The last one is submitted by the wait that follows: one system call less. */
		if (each && (calyx_ring_pending(&w->ring) || w->ring.sqpoll)) {
			calyx_worker_submit(w);
			/* What completed meanwhile is stamped before the next one is made. */
			if (w->look && calyx_ring_has_completions(&w->ring))
				break;
		}
		if (w->stuck_since_ns || !prepare_next(w, shaped))
			break;
		if (each)
			calyx_worker_publish(w, 1);
		else
			batch++;
	}
	if (batch > 0)
		calyx_worker_publish(w, batch);
	if (w->ring.sqpoll)
		calyx_worker_submit(w);
}

void calyx_worker_refill(struct calyx_worker *w)
{
	if (w->shaped)
		refill_as(w, true);
	else
		refill_as(w, false);
}

CALYX_COLD uint32_t calyx_worker_prepare_first(struct calyx_worker *w)
{
	uint32_t count = 0;

	while (may_issue(w, w->shaped) && prepare_next(w, w->shaped))
		count++;
	return count;
}

CALYX_COLD void calyx_worker_fill_sync(struct calyx_worker *w, struct io_uring_sqe *sqe, uint32_t index)
{
	fill_sqe(w, sqe, index, false);
}
