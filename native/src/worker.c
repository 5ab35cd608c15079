// SPDX-License-Identifier: Apache-2.0
// What one thread needs before the start line: its file, its ring, its memory, its registrations.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "crew.h"
#include "data.h"
#include "memory.h"
#include "polling.h"
#include "psync.h"
#include "reason.h"
#include "sys.h"

#define DIRECT_PROBE_MIN 512u
#define STACK_TOUCH_BYTES (32u << 10)

static int open_file(struct calyx_worker *w)
{
	const struct calyx_job *job = &w->crew->job;
	const char *path = job->paths[w->index];
	/* O_SYNC cannot be set later. */
	int access = (calyx_rw_writes(job->rw) ? O_RDWR : O_RDONLY) | (job->sync ? O_SYNC : 0);
	struct stat status;
	uint64_t size;
	int error;

	w->fd = calyx_sys->open(path, access | O_CLOEXEC | O_NONBLOCK, 0);
	if (w->fd < 0)
		return calyx_refuse(w->open_reason, w->fd, "cannot open %s: %s", path, calyx_error_text(w->fd).text);
	error = calyx_sys->fstat(w->fd, &status);
	if (error)
		return calyx_refuse(w->open_reason, error, "cannot look at %s: %s", path, calyx_error_text(error).text);
	size = (uint64_t)status.st_size;
	if (job->devices && S_ISBLK(status.st_mode))
		error = calyx_sys->ioctl(w->fd, BLKGETSIZE64, &size);
	else if (!S_ISREG(status.st_mode))
		return calyx_refuse(w->open_reason, -EINVAL, "%s is not a regular file", path);
	else if (calyx_rw_trims(job->rw))
		return calyx_refuse(w->open_reason, -EINVAL, "%s is a file: only a block device can be trimmed", path);
	if (error < 0)
		return calyx_refuse(w->open_reason, error, "cannot ask for the size of %s: %s", path,
				    calyx_error_text(error).text);
	if (size < job->offset + job->size)
		return calyx_refuse(w->open_reason, -EINVAL, "%s has %" PRIu64 " bytes; the job uses %" PRIu64, path,
				    size, job->offset + job->size);
	/* O_NONBLOCK only kept a FIFO from blocking the open; on a file it would turn full queues into EAGAIN. */
	error = calyx_sys->set_flags(w->fd, job->direct ? O_DIRECT : 0);
	if (error)
		return calyx_refuse(w->open_reason, error, "%s: the file system refuses direct I/O: %s", path,
				    calyx_error_text(error).text);
	/* Pages that are not written back yet would stay. */
	if (!job->direct) {
		calyx_sys->fsync(w->fd);
		calyx_sys->forget_cache(w->fd);
	}
	w->taken.direct = job->direct;
	return 0;
}

/* A block below the logical block size fails only at the first I/O, so one block is read now, and on EINVAL the
 * smallest size that can be had is looked for. */
static int probe_block(struct calyx_worker *w, uint64_t bs)
{
	const struct calyx_job *job = &w->crew->job;
	const char *path = job->paths[w->index];
	int64_t count;

	/* The second block: the first one is aligned to anything. */
	count = calyx_sys->pread(w->fd, w->pool, bs, job->offset + (job->size >= 2 * bs ? bs : 0));
	if (count >= 0)
		return 0;
	if (count != -EINVAL)
		return calyx_refuse(w->open_reason, (int)count, "cannot read %s: %s", path,
				    calyx_error_text((int)count).text);
	/* Whole pages are mapped, also for a pool that is smaller. */
	for (uint32_t size = DIRECT_PROBE_MIN; (size <= w->pool_bytes || size <= 4096) && size <= 65536; size *= 2) {
		if (calyx_sys->pread(w->fd, w->pool, size, size) >= 0)
			return calyx_refuse(w->open_reason, -EINVAL,
					    "%s: bs=%" PRIu64 " does not fit direct I/O here: use a multiple of %u",
					    path, bs, size);
	}
	return calyx_refuse(w->open_reason, -EINVAL, "%s: bs=%" PRIu64 " does not fit direct I/O here: %s", path, bs,
			    calyx_error_text(-EINVAL).text);
}

static int probe_direct(struct calyx_worker *w)
{
	const struct calyx_job *job = &w->crew->job;
	const struct calyx_bssplit *splits[] = {&job->bssplit, &job->bssplit_write};
	int error;

	if (!job->direct)
		return 0;
	error = probe_block(w, job->bs);
	for (size_t i = 0; i < 2; i++) {
		for (uint32_t j = 0; j < splits[i]->count && !error; j++)
			error = probe_block(w, splits[i]->bs[j]);
	}
	return error;
}

/* Zeroed memory whose pages exist: calloc alone leaves them to be faulted in during the run, and a compiler may drop a
 * memset behind it. */
static void *allocate_touched(size_t count, size_t size)
{
	volatile unsigned char *memory = calloc(count, size);

	for (size_t i = 0; memory && i < count * size; i += 1024)
		memory[i] = 0;
	return (void *)memory;
}

static int allocate_shapes(struct calyx_worker *w)
{
	const struct calyx_job *job = &w->crew->job;
	int error;

	w->shaped = calyx_job_is_shaped(job);
	if (!w->shaped)
		return 0;
	w->shapes = allocate_touched(job->iodepth, sizeof(*w->shapes));
	if (!w->shapes)
		return calyx_refuse(w->open_reason, -ENOMEM, "no memory for the results");
	if (job->arrival != CALYX_ARRIVAL_CLOSED) {
		w->intended = allocate_touched(CALYX_DIR_SYNC, sizeof(*w->intended));
		if (!w->intended)
			return calyx_refuse(w->open_reason, -ENOMEM, "no memory for the results");
		for (int i = 0; i < CALYX_DIR_SYNC; i++)
			calyx_histogram_init(&w->intended[i]);
	}
	error = job->verify ? calyx_verify_init(&w->verify, job, w->index) : 0;
	return error ? calyx_refuse(w->open_reason, error, "no memory to note what verify must find") : 0;
}

static int allocate(struct calyx_worker *w)
{
	const struct calyx_job *job = &w->crew->job;
	void *pool;
	int error;

	w->slots = allocate_touched(job->iodepth, sizeof(*w->slots));
	w->free_slots = allocate_touched(job->iodepth, sizeof(*w->free_slots));
	w->resume_slots = allocate_touched(job->iodepth, sizeof(*w->resume_slots));
	w->directions = allocate_touched(CALYX_DIRECTIONS, sizeof(*w->directions));
	w->intervals = allocate_touched(w->crew->intervals_count + 1, sizeof(*w->intervals));
	if (!w->slots || !w->free_slots || !w->resume_slots || !w->directions || !w->intervals)
		return calyx_refuse(w->open_reason, -ENOMEM, "no memory for the results");
	for (int i = 0; i < CALYX_DIRECTIONS; i++)
		calyx_histogram_init(&w->directions[i].latency);

	w->pool_bytes = calyx_pool_bytes(job, &w->turns);
	w->pool_map_bytes = w->pool_bytes;
	if (w->crew->huge_page_bytes)
		error = calyx_memory_map(&pool, &w->pool_map_bytes, w->crew->huge_page_bytes);
	else
		error = calyx_memory_map_transparent(&pool, &w->pool_map_bytes, calyx_transparent_page_bytes(),
						     &w->taken.transparent_huge);
	if (error)
		return calyx_refuse(w->open_reason, error, "no memory for %zu bytes of buffers: %s", w->pool_bytes,
				    calyx_error_text(error).text);
	w->pool = pool;
	w->taken.huge = w->crew->huge_page_bytes;
	if (job->numa) {
		error = calyx_memory_bind(w->pool, w->pool_map_bytes, job->numa_node);
		if (error)
			return calyx_refuse(w->open_reason, error,
					    "cannot bind the buffers to NUMA node %" PRIu32 ": %s", job->numa_node,
					    calyx_error_text(error).text);
		w->taken.numa = true;
		w->taken.numa_node = job->numa_node;
	}
	/* The last slot is on the bottom of the stack, so slots are first used in order. */
	for (uint32_t i = 0; i < job->iodepth; i++)
		w->free_slots[i] = job->iodepth - 1 - i;
	w->free_count = job->iodepth;
	calyx_offsets_init(&w->offsets, job, w->index);
	return allocate_shapes(w);
}

/* On its own CPU (cpus_allowed), else on those of the NUMA node, and off those of the pollers: a poller and a submitter
 * on one CPU wait for each other's time slices. */
static int take_cpu(struct calyx_worker *w)
{
	uint64_t cpus[CALYX_CPU_WORDS] = {0};

	if (w->cpu < 0 && w->poller_cpu < 0 && !w->crew->on_node)
		return 0;
	if (w->cpu >= 0)
		cpus[w->cpu / 64] |= 1ull << (w->cpu % 64);
	for (int i = 0; w->cpu < 0 && i < CALYX_CPU_WORDS; i++)
		cpus[i] = w->crew->allowed_cpus[i] & ~w->crew->poller_cpus[i];
	if (syscall(SYS_sched_setaffinity, 0, sizeof(cpus), cpus) == 0)
		return 0;
	return calyx_refuse(w->open_reason, -errno, "cannot keep job %" PRIu32 " on its CPU: %s", w->index,
			    calyx_error_text(errno).text);
}

static int open_ring(struct calyx_worker *w)
{
	const struct calyx_crew *crew = w->crew;
	uint32_t flags = crew->ring_flags;
	int error;

	if (crew->took == CALYX_SETUP_PSYNC)
		error = calyx_psync_open(&w->ring, crew->ring_entries, w->fd, calyx_rw_trims(crew->job.rw));
	else
		error = calyx_ring_open(&w->ring, crew->ring_entries, flags, w->poller_cpu);
	if (error == -EOPNOTSUPP)
		return calyx_refuse(w->open_reason, error, "this kernel's io_uring is older than 5.4");
	if (error)
		return calyx_refuse(w->open_reason, error, "io_uring_setup for job %" PRIu32 ": %s", w->index,
				    calyx_error_text(error).text);
	if (w->ring.sqpoll && !crew->job.fixed_files && !(w->ring.features & IORING_FEAT_SQPOLL_NONFIXED))
		return calyx_refuse(w->open_reason, -EINVAL,
				    "this kernel's SQPOLL needs registered files (before 5.11)");
	w->taken.requested = crew->job.setup;
	w->taken.took = crew->took;
	w->taken.sqpoll = flags & IORING_SETUP_SQPOLL;
	w->taken.defer_taskrun = flags & IORING_SETUP_DEFER_TASKRUN;
	w->taken.coop_taskrun = flags & IORING_SETUP_COOP_TASKRUN;
	w->taken.single_issuer = flags & IORING_SETUP_SINGLE_ISSUER;
	w->taken.iopoll = flags & IORING_SETUP_IOPOLL;
	w->taken.psync = w->ring.psync;
	w->taken.no_sqarray = flags & IORING_SETUP_NO_SQARRAY;
	w->taken.sq_entries = w->ring.sq_entries;
	w->taken.cq_entries = w->ring.cq_entries;
	w->taken.refill = crew->job.refill;
	w->taken.buffer_bytes = w->pool_bytes;
	return 0;
}

static int require_plain_buffers(struct calyx_worker *w)
{
	if (w->ring.features & IORING_FEAT_RW_CUR_POS)
		return 0;
	return calyx_refuse(w->open_reason, -EOPNOTSUPP,
			    "plain buffers need IORING_OP_READ and IORING_OP_WRITE (kernel 5.6)");
}

static int register_all(struct calyx_worker *w)
{
	const struct calyx_job *job = &w->crew->job;
	int error;

	if (w->ring.psync)
		return 0;
	/* Not had before 5.18; then each enter looks the ring up. */
	error = calyx_ring_register_itself(&w->ring);
	if (error && error != -EINVAL)
		return calyx_refuse(w->open_reason, error, "cannot register the ring of job %" PRIu32 ": %s", w->index,
				    calyx_error_text(error).text);
	w->taken.ring_fd = !error;
	if (job->nop)
		return 0;
	if (job->fixed_files) {
		error = calyx_ring_register_file(&w->ring, w->fd);
		if (error)
			return calyx_refuse(w->open_reason, error, "cannot register the file %s: %s",
					    job->paths[w->index], calyx_error_text(error).text);
		w->taken.fixed_files = true;
	}
	if (job->buffers == CALYX_BUFFERS_PLAIN)
		return require_plain_buffers(w);
	w->buffers_error = calyx_ring_register_buffer(&w->ring, w->pool, w->pool_bytes);
	w->taken.fixed_buffers = w->buffers_error == 0;
	return 0;
}

/* The loop's own stack frames must not fault either. */
static void touch_stack(void)
{
	volatile unsigned char stack[STACK_TOUCH_BYTES];

	for (size_t i = 0; i < sizeof(stack); i += 1024)
		stack[i] = 0;
	(void)stack[0];
}

/* Blocks that were never made to be checked would all be told as bad: so one of three must have a header. */
static int probe_verify(struct calyx_worker *w)
{
	const struct calyx_job *job = &w->crew->job;
	uint64_t last = job->size / CALYX_DATA_BLOCK - 1, blocks[] = {0, last / 2, last};

	if (!job->verify || !calyx_rw_reads(job->rw))
		return 0;
	for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
		int64_t count =
			calyx_sys->pread(w->fd, w->pool, CALYX_DATA_BLOCK, job->offset + blocks[i] * CALYX_DATA_BLOCK);

		/* A block that cannot be read is an error of the run, not of this look. */
		if (count != CALYX_DATA_BLOCK || calyx_verify_has_header(w->pool))
			return 0;
	}
	return calyx_refuse(w->open_reason, -EINVAL,
			    "%s was not laid out to be checked: no block has a header (prepare verify=crc32c)",
			    job->paths[w->index]);
}

static int open_target(struct calyx_worker *w)
{
	const struct calyx_job *job = &w->crew->job;
	int error;

	if ((error = open_file(w)) || (error = probe_direct(w)) || (error = probe_verify(w)) || !job->iopoll)
		return error;
	return calyx_polling_check(w->fd, job->paths[w->index], w->pool, job->bs, 0, w->open_reason);
}

void calyx_worker_open(struct calyx_worker *w)
{
	touch_stack();
	/* Sleeps end at their time, not up to 50 us later. */
	prctl(PR_SET_TIMERSLACK, 1);
	w->fd = -1;
	w->ring.fd = -1;
	/* The CPU first: memory is then near to it. */
	if ((w->open_error = take_cpu(w)) || (w->open_error = allocate(w)) ||
	    (!w->crew->job.nop && (w->open_error = open_target(w))))
		return;
	calyx_pool_fill(w); /* after the looks at the file, which read into it */
	if ((w->open_error = open_ring(w)))
		return;
	w->open_error = register_all(w);
}

void calyx_worker_drop_buffers(struct calyx_worker *w)
{
	if (w->taken.fixed_buffers)
		calyx_ring_unregister_buffers(&w->ring);
	w->taken.fixed_buffers = false;
	w->open_error = require_plain_buffers(w);
}

void calyx_worker_close(struct calyx_worker *w)
{
	/* A closed ring gives its memory and its file back some time later, which makes the next job hit the
	 * memory-lock limit, and umount say EBUSY; what is unregistered is given back now. Not with I/O in flight: that
	 * would wait. */
	if (w->in_flight == 0 && w->taken.fixed_buffers)
		calyx_ring_unregister_buffers(&w->ring);
	if (w->in_flight == 0 && w->taken.fixed_files)
		calyx_ring_unregister_file(&w->ring);
	calyx_ring_close(&w->ring);
	if (w->fd >= 0)
		calyx_sys->close(w->fd);
	w->fd = -1;
	/* I/O that never ended keeps its own reference to the pages, so unmapping is safe even then. */
	if (w->pool)
		calyx_sys->unmap(w->pool, w->pool_map_bytes);
	w->pool = NULL;
}
