/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of system calls that bends what io_uring says. It remembers where the rings lie (one ring: one thread) and
 * lets a test change submissions before they are handed over, and completions after the kernel wrote them. With
 * DEFER_TASKRUN the kernel works on both queues only within io_uring_enter, so nothing races.
 */
#ifndef BENT_RING_H
#define BENT_RING_H

#include <linux/io_uring.h>
#include <sys/mman.h>

#include "check.h"
#include "ring.h"

static struct {
	struct calyx_sys table;
	struct io_uring_params params;
	unsigned char *rings;
	struct io_uring_sqe *sqes;
	uint32_t sq_seen, cq_seen;
	bool first_of_batch; /* of the completions that one call brought */
	/* Set by the test; hooks may be NULL. Without a disk each request is a NOP that says it moved 4096 bytes, so
	 * that the test does not hang on a disk that others keep busy; the hooks come after that. */
	bool without_disk;
	void (*submission)(struct io_uring_sqe *sqe);
	void (*completion)(struct io_uring_cqe *cqe);
	/* Returns 0 to go on to the kernel, else what io_uring_enter answers. */
	int (*enter)(uint32_t to_submit, uint32_t min_complete);
} bent;

static inline uint32_t *bent_word(uint32_t offset)
{
	return (uint32_t *)(bent.rings + offset);
}

static inline int bent_setup(uint32_t entries, struct io_uring_params *params)
{
	int fd = calyx_sys_linux.io_uring_setup(entries, params);

	bent.params = *params;
	return fd;
}

static inline int bent_map(void **address, size_t length, int flags, int fd, uint64_t offset)
{
	int error = calyx_sys_linux.map(address, length, flags, fd, offset);

	if (!error && fd >= 0 && offset == IORING_OFF_SQ_RING)
		bent.rings = *address;
	if (!error && fd >= 0 && offset == IORING_OFF_SQES)
		bent.sqes = *address;
	return error;
}

static inline bool bent_is_io(uint64_t user_data)
{
	return user_data < 1ull << 32;
}

static inline void bent_become_nop(struct io_uring_sqe *sqe)
{
	sqe->opcode = IORING_OP_NOP;
	sqe->flags = 0;
	sqe->off = sqe->addr = sqe->len = 0;
}

static inline int bent_enter(int fd, uint32_t to_submit, uint32_t min_complete, uint32_t flags)
{
	int answer = bent.enter ? bent.enter(to_submit, min_complete) : 0;
	uint32_t tail;

	if (answer)
		return answer;
	tail = __atomic_load_n(bent_word(bent.params.sq_off.tail), __ATOMIC_ACQUIRE);
	for (; bent.sq_seen != tail; bent.sq_seen++) {
		struct io_uring_sqe *sqe = &bent.sqes[bent.sq_seen & (bent.params.sq_entries - 1)];

		if (bent.without_disk && bent_is_io(sqe->user_data))
			bent_become_nop(sqe);
		if (bent.submission && bent_is_io(sqe->user_data))
			bent.submission(sqe);
	}
	answer = calyx_sys_linux.io_uring_enter(fd, to_submit, min_complete, flags);
	tail = __atomic_load_n(bent_word(bent.params.cq_off.tail), __ATOMIC_ACQUIRE);
	bent.first_of_batch = true;
	for (; bent.cq_seen != tail; bent.cq_seen++) {
		struct io_uring_cqe *cqes = (struct io_uring_cqe *)(bent.rings + bent.params.cq_off.cqes);
		struct io_uring_cqe *cqe = &cqes[bent.cq_seen & (bent.params.cq_entries - 1)];

		if (bent.without_disk && bent_is_io(cqe->user_data))
			cqe->res = 4096;
		if (bent.completion && bent_is_io(cqe->user_data)) {
			bent.completion(cqe);
			bent.first_of_batch = false; /* a tick that came first is no request */
		}
	}
	return answer;
}

/* Opens one job on a bent ring; skips where the kernel has no DEFER_TASKRUN. */
static inline struct calyx_crew *bent_open(const struct calyx_job *wanted)
{
	struct calyx_job job = *wanted;
	uint32_t setups = 0, features;

	if (calyx_ring_probe(&setups, &features) < 0 || !(setups & 1u << CALYX_SETUP_DEFER))
		SKIP("this kernel has no DEFER_TASKRUN");
	bent.table = calyx_sys_linux;
	bent.table.io_uring_setup = bent_setup;
	bent.table.map = bent_map;
	bent.table.io_uring_enter = bent_enter;
	bent.sq_seen = bent.cq_seen = 0;
	calyx_sys = &bent.table;
	job.setup = CALYX_SETUP_DEFER;
	return open_crew(&job);
}

#endif
