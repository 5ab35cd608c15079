/* SPDX-License-Identifier: Apache-2.0
 *
 * One io_uring by bare system calls: set-up, registration, publishing, entering. The ring knows nothing of I/O slots.
 *
 *   sq:  consumed <= published <= prepared      consumed: taken by the kernel (not tracked under SQPOLL)
 *                                               published: the tail that the kernel may see
 *                                               prepared: SQEs that are filled but not yet visible
 */
#ifndef CALYX_RING_H
#define CALYX_RING_H

#include <linux/io_uring.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "calyx/engine.h"

/* Newer than the headers of Debian 11 and 12. */
#ifndef IORING_SETUP_COOP_TASKRUN
#define IORING_SETUP_COOP_TASKRUN (1U << 8)
#endif
#ifndef IORING_SETUP_SINGLE_ISSUER
#define IORING_SETUP_SINGLE_ISSUER (1U << 12)
#endif
#ifndef IORING_SETUP_DEFER_TASKRUN
#define IORING_SETUP_DEFER_TASKRUN (1U << 13)
#endif
#ifndef IORING_SETUP_NO_SQARRAY
#define IORING_SETUP_NO_SQARRAY (1U << 16)
#endif
#define CALYX_REGISTER_RING_FDS 20 /* 5.18; an enumeration in the header, so it cannot be asked for */
#define CALYX_UNREGISTER_RING_FDS 21
#ifndef IORING_ENTER_REGISTERED_RING
#define IORING_ENTER_REGISTERED_RING (1U << 4)
#endif
#ifndef IORING_FEAT_SQPOLL_NONFIXED
#define IORING_FEAT_SQPOLL_NONFIXED (1U << 7)
#endif
#ifndef IORING_FEAT_RW_CUR_POS
#define IORING_FEAT_RW_CUR_POS (1U << 3)
#endif

#define CALYX_PSYNC_TIMERS 2

struct calyx_ring {
	int fd;		      /* -1: not open */
	int enter_fd;	      /* as io_uring_enter takes it: fd, or its index when the ring's fd is registered */
	uint32_t enter_flags; /* IORING_ENTER_REGISTERED_RING then */
	uint32_t flags, features;
	bool sqpoll, psync;

	uint32_t *sq_head, *sq_tail, *sq_flags, sq_mask, sq_entries;
	uint32_t *cq_head, *cq_tail, cq_mask, cq_entries;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
	uint32_t prepared, published, consumed;
	uint64_t enter_calls, wakeups;

	void *rings_map, *sqes_map;
	size_t rings_bytes, sqes_bytes;

	/* Without io_uring (psync.h): */
	int psync_fd;
	bool psync_trim; /* writes discard */
	struct {
		uint64_t due_ns, user_data;
	} psync_timers[CALYX_PSYNC_TIMERS];
};

/* The flags of the richest variant of one set-up that the kernel accepts, with the flags `always` among them: 0 or
 * -errno of io_uring_setup. */
int calyx_ring_choose(enum calyx_setup setup, uint32_t entries, int poller_cpu, uint32_t always, uint32_t *flags);
int calyx_ring_open(struct calyx_ring *ring, uint32_t entries, uint32_t flags, int poller_cpu);
void calyx_ring_close(struct calyx_ring *ring);
/* Saves the look-up of the ring's file in each enter; by and for the calling thread alone. */
int calyx_ring_register_itself(struct calyx_ring *ring);
int calyx_ring_register_file(struct calyx_ring *ring, int fd);
int calyx_ring_register_buffer(struct calyx_ring *ring, void *buffer, size_t length);
/* Both wait for I/O in flight. */
void calyx_ring_unregister_buffers(struct calyx_ring *ring);
void calyx_ring_unregister_file(struct calyx_ring *ring);
/* Enters the kernel with what is published: 0, or -errno (nothing was taken then). */
int calyx_ring_enter(struct calyx_ring *ring, bool submit, uint32_t min_complete, uint32_t flags);
/* Under SQPOLL: wakes the kernel's thread when it went to sleep. */
int calyx_ring_wake(struct calyx_ring *ring);

/* The next free SQE, zeroed, or NULL when the queue is full. */
static inline struct io_uring_sqe *calyx_ring_prepare(struct calyx_ring *ring)
{
	struct io_uring_sqe *sqe;

	if (ring->prepared - __atomic_load_n(ring->sq_head, __ATOMIC_ACQUIRE) >= ring->sq_entries)
		return NULL;
	sqe = &ring->sqes[ring->prepared++ & ring->sq_mask];
	__builtin_memset(sqe, 0, sizeof(*sqe));
	return sqe;
}

/* Makes the next `count` prepared SQEs visible to the kernel. */
static inline void calyx_ring_publish(struct calyx_ring *ring, uint32_t count)
{
	ring->published += count;
	__atomic_store_n(ring->sq_tail, ring->published, __ATOMIC_RELEASE);
}

/* Published, but not taken by the kernel. Under SQPOLL it takes them by itself. */
static inline uint32_t calyx_ring_pending(const struct calyx_ring *ring)
{
	return ring->sqpoll ? 0 : ring->published - ring->consumed;
}

static inline bool calyx_ring_has_completions(const struct calyx_ring *ring)
{
	return __atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE) != *ring->cq_head;
}

#endif
