// SPDX-License-Identifier: Apache-2.0
// io_uring by bare system calls (ring.h).
#include "ring.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <time.h>

#include "psync.h"
#include "sys.h"

#define RETRIES 8
#define PROBE_ENTRIES 8

/* Richest first. SQPOLL with COOP_TASKRUN or DEFER_TASKRUN is EINVAL (6.18); NO_SQARRAY came in 6.6, SINGLE_ISSUER in
 * 6.0. SQ_AFF fails where a cpuset forbids the CPU, so it can be left out. */
#define VARIANTS 5
static const uint32_t variants[][VARIANTS] = {
	[CALYX_SETUP_SQPOLL] = {IORING_SETUP_SQPOLL | IORING_SETUP_SQ_AFF | IORING_SETUP_SINGLE_ISSUER |
					IORING_SETUP_NO_SQARRAY,
				IORING_SETUP_SQPOLL | IORING_SETUP_SQ_AFF | IORING_SETUP_SINGLE_ISSUER,
				IORING_SETUP_SQPOLL | IORING_SETUP_SQ_AFF,
				IORING_SETUP_SQPOLL | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_NO_SQARRAY,
				IORING_SETUP_SQPOLL},
	[CALYX_SETUP_DEFER] = {IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_NO_SQARRAY,
			       IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN},
	[CALYX_SETUP_COOP] = {IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_NO_SQARRAY,
			      IORING_SETUP_COOP_TASKRUN | IORING_SETUP_SINGLE_ISSUER, IORING_SETUP_COOP_TASKRUN},
	[CALYX_SETUP_PLAIN] = {IORING_SETUP_NO_SQARRAY, 0},
};

/* Memory of a ring that has just been closed is given back a little later (exit/init race), so ENOMEM gets a second
 * try: 1, 2, 4 .. 32 ms. */
static bool is_worth_retrying(int error, unsigned attempt)
{
	struct timespec pause = {.tv_nsec = 1000000L << attempt};

	if (error != -ENOMEM || attempt >= RETRIES)
		return false;
	clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	return true;
}

static int setup(uint32_t entries, uint32_t flags, int poller_cpu, struct io_uring_params *params)
{
	int fd;

	for (unsigned attempt = 0;; attempt++) {
		memset(params, 0, sizeof(*params));
		params->flags = flags;
		if (flags & IORING_SETUP_SQ_AFF)
			params->sq_thread_cpu = (uint32_t)poller_cpu;
		fd = calyx_sys->io_uring_setup(entries, params);
		if (fd >= 0 || !is_worth_retrying(fd, attempt))
			return fd;
	}
}

int calyx_ring_choose(enum calyx_setup wanted, uint32_t entries, int poller_cpu, uint32_t always, uint32_t *flags)
{
	struct io_uring_params params;
	int fd = -EINVAL;

	for (unsigned i = 0; i < VARIANTS; i++) {
		uint32_t candidate = variants[wanted][i];

		if (i > 0 && candidate == 0 && variants[wanted][i - 1] == 0)
			break;
		if (candidate == 0 && wanted != CALYX_SETUP_PLAIN)
			break;
		if ((candidate & IORING_SETUP_SQ_AFF) && poller_cpu < 0)
			continue;
		fd = setup(entries, candidate | always, poller_cpu, &params);
		if (fd >= 0) {
			calyx_sys->close(fd);
			*flags = candidate | always;
			return 0;
		}
		if (fd != -EINVAL)
			return fd;
	}
	return fd;
}

int calyx_ring_probe(uint32_t *setups, uint32_t *features)
{
	static const enum calyx_setup all[] = {CALYX_SETUP_SQPOLL, CALYX_SETUP_DEFER, CALYX_SETUP_COOP,
					       CALYX_SETUP_PLAIN};
	struct io_uring_params params;
	uint32_t found = 0, flags;
	int fd;

	fd = setup(PROBE_ENTRIES, 0, -1, &params);
	if (fd < 0)
		return fd;
	calyx_sys->close(fd);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (calyx_ring_choose(all[i], PROBE_ENTRIES, -1, 0, &flags) == 0)
			found |= 1u << all[i];
	}
	*setups = found;
	*features = params.features;
	return 0;
}

static int map_queues(struct calyx_ring *ring, const struct io_uring_params *params)
{
	size_t sq_bytes = params->sq_off.array + params->sq_entries * sizeof(uint32_t);
	size_t cq_bytes = params->cq_off.cqes + params->cq_entries * sizeof(struct io_uring_cqe);
	unsigned char *rings;
	int error;

	/* Both queues lie in one mapping since 5.4. */
	if (!(params->features & IORING_FEAT_SINGLE_MMAP))
		return -EOPNOTSUPP;
	ring->rings_bytes = sq_bytes > cq_bytes ? sq_bytes : cq_bytes;
	ring->sqes_bytes = params->sq_entries * sizeof(struct io_uring_sqe);
	error = calyx_sys->map(&ring->rings_map, ring->rings_bytes, MAP_SHARED | MAP_POPULATE, ring->fd,
			       IORING_OFF_SQ_RING);
	if (error)
		return error;
	error = calyx_sys->map(&ring->sqes_map, ring->sqes_bytes, MAP_SHARED | MAP_POPULATE, ring->fd, IORING_OFF_SQES);
	if (error)
		return error;

	rings = ring->rings_map;
	ring->sqes = ring->sqes_map;
	ring->sq_head = (uint32_t *)(rings + params->sq_off.head);
	ring->sq_tail = (uint32_t *)(rings + params->sq_off.tail);
	ring->sq_flags = (uint32_t *)(rings + params->sq_off.flags);
	ring->sq_mask = params->sq_entries - 1;
	ring->sq_entries = params->sq_entries;
	ring->cq_head = (uint32_t *)(rings + params->cq_off.head);
	ring->cq_tail = (uint32_t *)(rings + params->cq_off.tail);
	ring->cqes = (struct io_uring_cqe *)(rings + params->cq_off.cqes);
	ring->cq_mask = params->cq_entries - 1;
	ring->cq_entries = params->cq_entries;
	if (!(ring->flags & IORING_SETUP_NO_SQARRAY)) {
		/* The index array stays the identity: SQEs are used in ring order, as the kernel does without the
		 * array. */
		uint32_t *array = (uint32_t *)(rings + params->sq_off.array);

		for (uint32_t i = 0; i < params->sq_entries; i++)
			array[i] = i;
	}
	return 0;
}

int calyx_ring_open(struct calyx_ring *ring, uint32_t entries, uint32_t flags, int poller_cpu)
{
	struct io_uring_params params;
	int error;

	memset(ring, 0, sizeof(*ring));
	ring->fd = setup(entries, flags, poller_cpu, &params);
	if (ring->fd < 0) {
		error = ring->fd;
		ring->fd = -1;
		return error;
	}
	ring->enter_fd = ring->fd;
	ring->flags = flags;
	ring->features = params.features;
	ring->sqpoll = flags & IORING_SETUP_SQPOLL;
	error = map_queues(ring, &params);
	if (error)
		calyx_ring_close(ring);
	return error;
}

void calyx_ring_close(struct calyx_ring *ring)
{
	/* A registered ring is held by its thread until that ends, and with it the file system that it uses. */
	if (ring->enter_flags & IORING_ENTER_REGISTERED_RING) {
		struct io_uring_rsrc_update itself = {.offset = (uint32_t)ring->enter_fd};

		calyx_sys->io_uring_register(ring->fd, CALYX_UNREGISTER_RING_FDS, &itself, 1);
		ring->enter_flags = 0;
	}
	if (ring->sqes_map)
		calyx_sys->unmap(ring->sqes_map, ring->sqes_bytes);
	if (ring->rings_map)
		calyx_sys->unmap(ring->rings_map, ring->rings_bytes);
	if (ring->fd >= 0)
		calyx_sys->close(ring->fd);
	ring->sqes_map = ring->rings_map = NULL;
	ring->fd = ring->enter_fd = -1;
}

static int register_retrying(struct calyx_ring *ring, uint32_t opcode, const void *argument, uint32_t count)
{
	int error;

	for (unsigned attempt = 0;; attempt++) {
		error = calyx_sys->io_uring_register(ring->fd, opcode, argument, count);
		if (error >= 0 || !is_worth_retrying(error, attempt))
			return error < 0 ? error : 0;
	}
}

int calyx_ring_register_itself(struct calyx_ring *ring)
{
	struct io_uring_rsrc_update itself = {.offset = UINT32_MAX, .data = (uint64_t)ring->fd};
	int count = calyx_sys->io_uring_register(ring->fd, CALYX_REGISTER_RING_FDS, &itself, 1);

	if (count != 1)
		return count < 0 ? count : -EINVAL;
	ring->enter_fd = (int)itself.offset;
	ring->enter_flags = IORING_ENTER_REGISTERED_RING;
	return 0;
}

int calyx_ring_register_file(struct calyx_ring *ring, int fd)
{
	return register_retrying(ring, IORING_REGISTER_FILES, &fd, 1);
}

int calyx_ring_register_buffer(struct calyx_ring *ring, void *buffer, size_t length)
{
	struct iovec vector = {.iov_base = buffer, .iov_len = length};

	return register_retrying(ring, IORING_REGISTER_BUFFERS, &vector, 1);
}

void calyx_ring_unregister_buffers(struct calyx_ring *ring)
{
	calyx_sys->io_uring_register(ring->fd, IORING_UNREGISTER_BUFFERS, NULL, 0);
}

void calyx_ring_unregister_file(struct calyx_ring *ring)
{
	calyx_sys->io_uring_register(ring->fd, IORING_UNREGISTER_FILES, NULL, 0);
}

int calyx_ring_enter(struct calyx_ring *ring, bool submit, uint32_t min_complete, uint32_t flags)
{
	uint32_t to_submit = submit ? calyx_ring_pending(ring) : 0;
	int taken;

	ring->enter_calls++;
	if (ring->psync)
		taken = calyx_psync_enter(ring, to_submit, min_complete);
	else
		taken = calyx_sys->io_uring_enter(ring->enter_fd, to_submit, min_complete, flags | ring->enter_flags);
	if (taken < 0)
		return taken;
	ring->consumed += (uint32_t)taken;
	return 0;
}

int calyx_ring_wake(struct calyx_ring *ring)
{
	/* The tail must be visible before the flag is read: the kernel's thread sets the flag, then reads the tail. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!(__atomic_load_n(ring->sq_flags, __ATOMIC_RELAXED) & IORING_SQ_NEED_WAKEUP))
		return 0;
	ring->wakeups++;
	return calyx_ring_enter(ring, false, 0, IORING_ENTER_SQ_WAKEUP);
}
