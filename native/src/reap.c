// SPDX-License-Identifier: Apache-2.0
// One pass over the completion queue: one clock read stamps all that is visible, then each completion is recorded, or
// has a rest to do, or is an error. The window and the interval are looked up once a pass.
#include "calyx/text.h"
#include "crew.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>

#include "cold.h"
#include "reason.h"

#define RETRIES_MAX 100 /* of one I/O that ends in EAGAIN */
#define ERROR_STREAK_MAX 100
#define ERRORS_MAX 1000
#define LATE_NS 1000000u

/* One thread's failure ends the job: the others drain and report what they have. The first sentence stands. */
CALYX_COLD void calyx_worker_fail(struct calyx_worker *w, const char *format, ...)
{
	uint32_t none = CALYX_STOP_NONE;
	va_list arguments;

	if (w->failure[0])
		return;
	va_start(arguments, format);
	calyx_format_list(w->failure, sizeof(w->failure), format, arguments);
	va_end(arguments);
	atomic_compare_exchange_strong(&w->crew->stop, &none, CALYX_STOP_BY_FAILURE);
}

CALYX_COLD void calyx_worker_count_error(struct calyx_worker *w, enum calyx_direction direction, int error,
					 uint64_t offset)
{
	struct calyx_error_count *entry = w->errors;

	w->directions[direction].errors++;
	for (uint32_t i = 0; i < w->errors_count; i++, entry++) {
		if (entry->direction == direction && entry->error == error)
			break;
	}
	if (entry == &w->errors[w->errors_count] && w->errors_count < CALYX_ERRORS_MAX) {
		*entry = (struct calyx_error_count){direction, error, 0, offset};
		w->errors_count++;
	}
	if (entry < &w->errors[w->errors_count])
		entry->count++;
}

static CALYX_COLD void record_error(struct calyx_worker *w, const struct calyx_slot *slot, int error)
{
	calyx_worker_count_error(w, slot->direction, error, slot->offset);
	w->counts.errors++;
	w->error_streak++;
	if (w->error_streak >= ERROR_STREAK_MAX || w->counts.errors >= ERRORS_MAX)
		calyx_worker_fail(w,
				  "job %" PRIu32 ": %" PRIu64 " I/Os failed, the last one with %s at offset %" PRIu64,
				  w->index, w->counts.errors, calyx_error_text(error).text, slot->offset);
}

static void record(struct calyx_worker *w, const struct calyx_slot *slot, uint32_t bytes)
{
	struct calyx_direction_result *direction = &w->directions[slot->direction];
	uint64_t latency_ns = w->now_ns - atomic_load_explicit(&slot->published_ns, memory_order_relaxed);

	w->error_streak = 0;
	if (!w->in_window)
		return;
	calyx_histogram_record(&direction->latency, latency_ns);
	direction->ios++;
	direction->bytes += bytes;
	if (!w->interval || slot->direction == CALYX_DIR_SYNC)
		return;
	if (slot->direction == CALYX_DIR_READ) {
		w->interval->read_ios++;
		w->interval->read_bytes += bytes;
	} else {
		w->interval->write_ios++;
		w->interval->write_bytes += bytes;
	}
	if (latency_ns > w->interval->latency_max_ns)
		w->interval->latency_max_ns = latency_ns;
}

/* Made twice, as in engine.c: for plain jobs all that is shaped is left out. */
#define TWICE static inline __attribute__((always_inline))

/* An open loop has two latencies (Gil Tene's wrk2): from when the I/O was due, which counts how long it waited behind
 * others, and from when it really began. Neither is made of the other. */
static void record_intended(struct calyx_worker *w, uint32_t index)
{
	const struct calyx_slot *slot = &w->slots[index];
	uint64_t due_ns = w->shapes[index].due_ns;

	if (!w->in_window || slot->direction == CALYX_DIR_SYNC)
		return;
	calyx_histogram_record(&w->intended[slot->direction], w->now_ns - due_ns);
	w->directions[slot->direction].late +=
		atomic_load_explicit(&slot->published_ns, memory_order_relaxed) > due_ns + LATE_NS;
}

/* Returns the bytes of a complete I/O, or -1 when there is nothing to count: an error, a retry, a rest to do. */
TWICE int64_t complete(struct calyx_worker *w, uint32_t index, int32_t answer, bool shaped)
{
	struct calyx_slot *slot = &w->slots[index];
	uint32_t wanted = shaped ? w->shapes[index].length : (uint32_t)w->crew->job.bs;

	if ((answer == -EAGAIN || answer == -EINTR) && slot->retries < RETRIES_MAX && !w->draining) {
		slot->retries++;
		w->counts.eagain++;
		w->resume_slots[w->resume_count++] = index;
		return -1;
	}
	if (w->draining && (answer == -ECANCELED || answer == -EAGAIN || answer == -EINTR)) {
		w->counts.unfinished++;
		calyx_slot_release(w, index);
		return -1;
	}
	if (slot->direction == CALYX_DIR_SYNC && answer == 0) {
		record(w, slot, 0);
		calyx_slot_release(w, index);
		return 0;
	}
	if (answer == 0 && w->crew->job.nop)
		answer = (int32_t)wanted;
	if (answer <= 0 || slot->direction == CALYX_DIR_SYNC || (uint32_t)answer > wanted - slot->done) {
		/* 0 bytes is the end of the file (or a device that wrote nothing): asking again would never end. */
		record_error(w, slot, answer < 0 ? -answer : answer == 0 ? ENODATA : EIO);
		if (shaped)
			calyx_shape_end(w, index, false);
		calyx_slot_release(w, index);
		return -1;
	}
	slot->done += (uint32_t)answer;
	if (slot->done < wanted) {
		w->counts.short_ios += slot->done == (uint32_t)answer;
		w->directions[slot->direction].short_ios += slot->done == (uint32_t)answer;
		if (w->draining) {
			w->counts.unfinished++;
			calyx_slot_release(w, index);
		} else {
			w->resume_slots[w->resume_count++] = index;
		}
		return -1;
	}
	if (shaped && !calyx_shape_end(w, index, true)) {
		calyx_worker_count_error(w, slot->direction, EILSEQ, slot->offset);
		calyx_slot_release(w, index);
		return -1;
	}
	if (shaped && w->intended)
		record_intended(w, index);
	record(w, slot, wanted);
	calyx_slot_release(w, index);
	return wanted;
}

static void begin_pass(struct calyx_worker *w)
{
	w->now_ns = calyx_now_ns();
	w->in_window = w->now_ns >= w->window_start_ns && w->now_ns < w->window_end_ns;
	w->interval = NULL;
	if (w->ending) {
		w->in_window = true;
		return;
	}
	if (w->in_window && w->crew->intervals_count)
		w->interval = &w->intervals[(w->now_ns - w->window_start_ns) / w->crew->job.interval_ns];
}

TWICE void reap_as(struct calyx_worker *w, bool shaped)
{
	struct calyx_ring *ring = &w->ring;
	uint32_t tail = __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE), head = *ring->cq_head;
	uint64_t ios = 0, bytes = 0;

	begin_pass(w);
	for (; head != tail; head++) {
		const struct io_uring_cqe *cqe = &ring->cqes[head & ring->cq_mask];
		int64_t count;

		if (cqe->user_data == CALYX_DATA_TICK) {
			w->tick_due_ns = 0;
		} else if (cqe->user_data == CALYX_DATA_PACE) {
			w->pace_timer_ns = 0;
		} else if (cqe->user_data == CALYX_DATA_CANCEL) {
			continue;
		} else if (cqe->user_data >= w->crew->job.iodepth ||
			   !atomic_load_explicit(&w->slots[cqe->user_data].published_ns, memory_order_relaxed)) {
			calyx_worker_fail(w,
					  "job %" PRIu32
					  ": the kernel completed an I/O that is not in flight (user_data %llu)",
					  w->index, (unsigned long long)cqe->user_data);
		} else {
			count = complete(w, (uint32_t)cqe->user_data, cqe->res, shaped);
			ios += count >= 0;
			bytes += count >= 0 ? (uint64_t)count : 0;
		}
	}
	__atomic_store_n(ring->cq_head, head, __ATOMIC_RELEASE);
	if (ios) {
		/* This thread alone writes them, so a load and a store do; a locked add would be paid at each pass. */
		atomic_store_explicit(&w->ios, atomic_load_explicit(&w->ios, memory_order_relaxed) + ios,
				      memory_order_relaxed);
		atomic_store_explicit(&w->bytes, atomic_load_explicit(&w->bytes, memory_order_relaxed) + bytes,
				      memory_order_relaxed);
	}
}

void calyx_worker_reap(struct calyx_worker *w)
{
	if (w->shaped)
		reap_as(w, true);
	else
		reap_as(w, false);
}
