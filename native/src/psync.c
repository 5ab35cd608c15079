// SPDX-License-Identifier: Apache-2.0
// The queues of a ring without io_uring (psync.h).
#include "psync.h"

#include <errno.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "sys.h"

#define NEVER_NS UINT64_MAX
#define CQES_PER_SQE 2

/* What both sides share; the arrays lie behind it. */
struct queues {
	uint32_t sq_head, sq_tail, sq_flags, cq_head, cq_tail;
	struct io_uring_cqe cqes[];
};

int calyx_psync_open(struct calyx_ring *ring, uint32_t entries, int fd, bool trim)
{
	struct queues *queues;
	int error;

	memset(ring, 0, sizeof(*ring));
	ring->fd = ring->enter_fd = -1;
	ring->psync = true;
	ring->psync_fd = fd;
	ring->psync_trim = trim;
	ring->features = IORING_FEAT_RW_CUR_POS;
	ring->sq_entries = entries;
	ring->cq_entries = entries * CQES_PER_SQE;
	ring->rings_bytes = sizeof(*queues) + ring->cq_entries * sizeof(struct io_uring_cqe);
	ring->sqes_bytes = entries * sizeof(struct io_uring_sqe);
	error = calyx_sys->map(&ring->rings_map, ring->rings_bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (!error)
		error = calyx_sys->map(&ring->sqes_map, ring->sqes_bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE,
				       -1, 0);
	if (error) {
		calyx_ring_close(ring);
		return error;
	}
	queues = ring->rings_map;
	ring->sq_head = &queues->sq_head;
	ring->sq_tail = &queues->sq_tail;
	ring->sq_flags = &queues->sq_flags;
	ring->cq_head = &queues->cq_head;
	ring->cq_tail = &queues->cq_tail;
	ring->sq_mask = ring->sq_entries - 1;
	ring->cq_mask = ring->cq_entries - 1;
	ring->sqes = ring->sqes_map;
	ring->cqes = queues->cqes;
	for (int i = 0; i < CALYX_PSYNC_TIMERS; i++)
		ring->psync_timers[i].due_ns = NEVER_NS;
	return 0;
}

static void complete(struct calyx_ring *ring, uint64_t user_data, int64_t answer)
{
	uint32_t tail = *ring->cq_tail;

	ring->cqes[tail & ring->cq_mask] = (struct io_uring_cqe){.user_data = user_data, .res = (int32_t)answer};
	__atomic_store_n(ring->cq_tail, tail + 1, __ATOMIC_RELEASE);
}

static void arm(struct calyx_ring *ring, const struct io_uring_sqe *sqe)
{
	const struct __kernel_timespec *length = (const void *)(uintptr_t)sqe->addr;

	for (int i = 0; i < CALYX_PSYNC_TIMERS; i++) {
		if (ring->psync_timers[i].due_ns != NEVER_NS)
			continue;
		ring->psync_timers[i].due_ns =
			calyx_now_ns() + (uint64_t)length->tv_sec * 1000000000 + (uint64_t)length->tv_nsec;
		ring->psync_timers[i].user_data = sqe->user_data;
		return;
	}
	complete(ring, sqe->user_data, -EBUSY);
}

/* Answers as a write of that length does. */
static int64_t discard(int fd, uint64_t offset, uint32_t length)
{
	uint64_t range[2] = {offset, length};
	int error = calyx_sys->ioctl(fd, BLKDISCARD, range);

	return error < 0 ? error : (int64_t)length;
}

static void perform(struct calyx_ring *ring, const struct io_uring_sqe *sqe)
{
	void *buffer = (void *)(uintptr_t)sqe->addr;
	int64_t answer = -EOPNOTSUPP;

	switch (sqe->opcode) {
	case IORING_OP_TIMEOUT:
		arm(ring, sqe);
		return;
	case IORING_OP_READ:
		answer = calyx_sys->pread(ring->psync_fd, buffer, sqe->len, sqe->off);
		break;
	case IORING_OP_WRITE:
		answer = ring->psync_trim ? discard(ring->psync_fd, sqe->off, sqe->len)
					  : calyx_sys->pwrite(ring->psync_fd, buffer, sqe->len, sqe->off);
		break;
	case IORING_OP_FSYNC:
		answer = sqe->fsync_flags & IORING_FSYNC_DATASYNC ? calyx_sys->fdatasync(ring->psync_fd)
								  : calyx_sys->fsync(ring->psync_fd);
		break;
	case IORING_OP_NOP:
		answer = 0;
		break;
	case IORING_OP_ASYNC_CANCEL: /* what blocks cannot be cancelled by the thread that it blocks */
		answer = -ENOENT;
		break;
	default:
		break;
	}
	complete(ring, sqe->user_data, answer);
}

static uint64_t next_timer_ns(const struct calyx_ring *ring)
{
	uint64_t next_ns = NEVER_NS;

	for (int i = 0; i < CALYX_PSYNC_TIMERS; i++) {
		if (ring->psync_timers[i].due_ns < next_ns)
			next_ns = ring->psync_timers[i].due_ns;
	}
	return next_ns;
}

static void answer_timers(struct calyx_ring *ring)
{
	uint64_t now_ns = calyx_now_ns();

	for (int i = 0; i < CALYX_PSYNC_TIMERS; i++) {
		if (ring->psync_timers[i].due_ns > now_ns)
			continue;
		ring->psync_timers[i].due_ns = NEVER_NS;
		complete(ring, ring->psync_timers[i].user_data, -ETIME);
	}
}

int calyx_psync_enter(struct calyx_ring *ring, uint32_t to_submit, uint32_t min_complete)
{
	uint32_t head = *ring->sq_head;
	uint64_t until_ns;

	for (uint32_t i = 0; i < to_submit; i++, head++)
		perform(ring, &ring->sqes[head & ring->sq_mask]);
	__atomic_store_n(ring->sq_head, head, __ATOMIC_RELEASE);
	until_ns = next_timer_ns(ring);
	if (min_complete && !calyx_ring_has_completions(ring) && until_ns != NEVER_NS) {
		struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000),
					 .tv_nsec = (long)(until_ns % 1000000000)};

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	}
	answer_timers(ring);
	return (int)to_submit;
}
