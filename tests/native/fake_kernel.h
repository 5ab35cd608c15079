/* SPDX-License-Identifier: Apache-2.0
 *
 * A kernel that a test plays: the rings lie in memory of our own, nothing is ever asked of io_uring, and the test
 * decides when a submission is taken, when its completion shows, and when its place is shown to be free again. One
 * ring, one job's thread. It serves NOPs and timers.
 */
#ifndef FAKE_KERNEL_H
#define FAKE_KERNEL_H

#include <linux/io_uring.h>
#include <stdatomic.h>
#include <sys/mman.h>

#include "check.h"
#include "ring.h"

#define FAKE_RINGS_BYTES (1u << 20)
#define FAKE_SQES_BYTES (1u << 20)
#define FAKE_TIMERS 4

struct fake_rings {
	uint32_t sq_head, sq_tail, sq_flags, sq_mask, sq_entries, cq_head, cq_tail, cq_mask, cq_entries, array[64];
	struct io_uring_cqe cqes[];
};

static struct {
	struct calyx_sys table;
	struct fake_rings *rings;
	struct io_uring_sqe *sqes;
	uint32_t entries, taken; /* taken: also those whose places are not shown to be free */
	uint64_t held[64];	 /* user_data of NOPs that are taken and not completed */
	uint32_t held_count;
	struct {
		uint64_t due_ns, user_data; /* due_ns 0: none */
	} timers[FAKE_TIMERS];
} fake;

static inline int fake_setup(uint32_t entries, struct io_uring_params *params)
{
	int fd = memfd_create("ring", MFD_CLOEXEC);

	CHECK(fd >= 0 && entries <= 64, "memfd for %u entries", entries);
	CHECK(ftruncate(fd, (off_t)IORING_OFF_SQES + FAKE_SQES_BYTES) == 0, "size");
	params->sq_entries = fake.entries = entries;
	params->cq_entries = 2 * entries;
	params->features = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_RW_CUR_POS | IORING_FEAT_SQPOLL_NONFIXED;
	params->sq_off.head = offsetof(struct fake_rings, sq_head);
	params->sq_off.tail = offsetof(struct fake_rings, sq_tail);
	params->sq_off.flags = offsetof(struct fake_rings, sq_flags);
	params->sq_off.array = offsetof(struct fake_rings, array);
	params->cq_off.head = offsetof(struct fake_rings, cq_head);
	params->cq_off.tail = offsetof(struct fake_rings, cq_tail);
	params->cq_off.cqes = offsetof(struct fake_rings, cqes);
	return fd;
}

static inline int fake_map(void **address, size_t length, int flags, int fd, uint64_t offset)
{
	int error = calyx_sys_linux.map(address, length, flags & ~MAP_POPULATE, fd, offset);

	if (!error && fd >= 0 && offset == IORING_OFF_SQ_RING)
		fake.rings = *address;
	if (!error && fd >= 0 && offset == IORING_OFF_SQES)
		fake.sqes = *address;
	return error;
}

/* A poller of the test may still look at them. */
static inline int fake_unmap(void *address, size_t length)
{
	return address == fake.rings || address == fake.sqes ? 0 : calyx_sys_linux.unmap(address, length);
}

static inline int fake_register(int fd, uint32_t opcode, const void *argument, uint32_t count)
{
	(void)fd, (void)argument, (void)count;
	return opcode == CALYX_REGISTER_RING_FDS ? -EINVAL : 0;
}

static inline bool fake_has_completions(void)
{
	return __atomic_load_n(&fake.rings->cq_tail, __ATOMIC_ACQUIRE) !=
	       __atomic_load_n(&fake.rings->cq_head, __ATOMIC_ACQUIRE);
}

static inline void fake_complete(uint64_t user_data, int32_t answer)
{
	uint32_t tail = fake.rings->cq_tail;

	fake.rings->cqes[tail & (2 * fake.entries - 1)] = (struct io_uring_cqe){.user_data = user_data, .res = answer};
	__atomic_store_n(&fake.rings->cq_tail, tail + 1, __ATOMIC_RELEASE);
}

/* Takes what is published: timers are armed, NOPs held. How many. */
static inline uint32_t fake_take(void)
{
	uint32_t tail = __atomic_load_n(&fake.rings->sq_tail, __ATOMIC_ACQUIRE), count = tail - fake.taken;

	for (; fake.taken != tail; fake.taken++) {
		const struct io_uring_sqe *sqe = &fake.sqes[fake.taken & (fake.entries - 1)];
		const struct __kernel_timespec *length = (const void *)(uintptr_t)sqe->addr;
		int i = 0;

		if (sqe->opcode != IORING_OP_TIMEOUT) {
			CHECK(fake.held_count < 64, "more I/Os than places");
			fake.held[fake.held_count++] = sqe->user_data;
			continue;
		}
		while (i < FAKE_TIMERS && fake.timers[i].due_ns)
			i++;
		CHECK(i < FAKE_TIMERS, "more timers than two are armed");
		fake.timers[i].user_data = sqe->user_data;
		fake.timers[i].due_ns = calyx_now_ns() + (uint64_t)length->tv_sec * SECOND + (uint64_t)length->tv_nsec;
	}
	return count;
}

static inline void fake_complete_held(void)
{
	for (uint32_t i = 0; i < fake.held_count; i++)
		fake_complete(fake.held[i], 0);
	fake.held_count = 0;
}

static inline void fake_show_free(void)
{
	__atomic_store_n(&fake.rings->sq_head, fake.taken, __ATOMIC_RELEASE);
}

static inline void fake_fire_timers(bool all)
{
	uint64_t now_ns = calyx_now_ns();

	for (int i = 0; i < FAKE_TIMERS; i++) {
		if (!fake.timers[i].due_ns || (!all && fake.timers[i].due_ns > now_ns))
			continue;
		fake.timers[i].due_ns = 0;
		fake_complete(fake.timers[i].user_data, -ETIME);
	}
}

static inline void fake_begin(int (*enter)(int, uint32_t, uint32_t, uint32_t))
{
	fake.table = calyx_sys_linux;
	fake.table.io_uring_setup = fake_setup;
	fake.table.io_uring_register = fake_register;
	fake.table.map = fake_map;
	fake.table.unmap = fake_unmap;
	fake.table.io_uring_enter = enter;
	fake.taken = fake.held_count = 0;
	memset(fake.timers, 0, sizeof(fake.timers));
	calyx_sys = &fake.table;
}

#endif
