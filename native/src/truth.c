// SPDX-License-Identifier: Apache-2.0
// What lies below a file that was just laid out: does a second read of a block come back much quicker than the first (a
// cache of the host or the array), and what does a write cost that is flushed (is the flush ignored, or the device
// protected against power loss)? The answers are times; what they mean is for the reader to say.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "calyx/engine.h"
#include "data.h"
#include "offsets.h"
#include "reason.h"
#include "sys.h"

#define BLOCK_BYTES 4096u
#define READS_MAX 64u
#define WRITES 16u
#define TIME_MAX_NS 2000000000ull /* for each part: a slow disk is asked less often, but at least MIN times */
#define MIN 8u

struct probe {
	const char *path;
	int fd;
	unsigned char *block, *saved; /* a block each */
	uint64_t size, blocks;	      /* size: of a block device that is meant, else 0; blocks: of the file */
	char *reason;
};

/* By insertion: they are few, and qsort would be a tenth of the agent. */
static void sort(uint64_t *times, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++) {
		uint64_t moving = times[i];
		uint32_t at = i;

		for (; at > 0 && times[at - 1] > moving; at--)
			times[at] = times[at - 1];
		times[at] = moving;
	}
}

/* Median, least and greatest of count times; it sorts them. */
static void summarize(uint64_t *times, uint32_t count, uint64_t *median, uint64_t *least, uint64_t *greatest)
{
	sort(times, count);
	*median = times[count / 2];
	*least = times[0];
	*greatest = times[count - 1];
}

static int transfer(const struct probe *probe, bool write, void *block, uint64_t offset, uint64_t *took_ns)
{
	uint64_t began_ns = calyx_now_ns();
	int64_t count = write ? calyx_sys->pwrite(probe->fd, block, BLOCK_BYTES, offset)
			      : calyx_sys->pread(probe->fd, block, BLOCK_BYTES, offset);

	*took_ns = calyx_now_ns() - began_ns;
	if (count == BLOCK_BYTES)
		return 0;
	if (count >= 0)
		count = -EIO;
	return calyx_refuse(probe->reason, (int)count, "cannot %s a block of %s at %" PRIu64 ": %s",
			    write ? "write" : "read", probe->path, offset, calyx_error_text((int)count).text);
}

static int flush(const struct probe *probe)
{
	int error = calyx_sys->fdatasync(probe->fd);

	if (error)
		calyx_refuse(probe->reason, error, "fdatasync of %s: %s", probe->path, calyx_error_text(error).text);
	return error;
}

/* All cold reads first, far apart; then the same blocks again. */
static int measure_reads(const struct probe *probe, uint64_t seed, struct calyx_truth *truth)
{
	uint64_t cold[READS_MAX], hot[READS_MAX], offsets[READS_MAX], state = seed, began_ns = calyx_now_ns();
	uint32_t wanted = probe->blocks < READS_MAX ? (uint32_t)probe->blocks : READS_MAX, count = 0;
	int error;

	for (; count < wanted && (count < MIN || calyx_now_ns() - began_ns < TIME_MAX_NS); count++) {
		/* One draw in each of equal parts, so that no block is read twice. */
		uint64_t part = probe->blocks / wanted;

		offsets[count] = (count * part + calyx_random_below(&state, part)) * BLOCK_BYTES;
		error = transfer(probe, false, probe->block, offsets[count], &cold[count]);
		if (error)
			return error;
	}
	for (uint32_t i = 0; i < count; i++) {
		error = transfer(probe, false, probe->block, offsets[i], &hot[i]);
		if (error)
			return error;
	}
	truth->reads = count;
	summarize(cold, count, &truth->cold_read_ns, &truth->cold_min_ns, &truth->cold_max_ns);
	summarize(hot, count, &truth->hot_read_ns, &truth->hot_min_ns, &truth->hot_max_ns);
	return 0;
}

static int measure_writes(const struct probe *probe, uint64_t seed, uint64_t offset, struct calyx_truth *truth)
{
	uint64_t plain[WRITES], flushed[WRITES], state = seed, unused[2], began_ns;
	int error;

	for (uint32_t i = 0; i < WRITES; i++) {
		calyx_data_fill(probe->block, BLOCK_BYTES, calyx_random_next(&state));
		began_ns = calyx_now_ns();
		error = transfer(probe, true, probe->block, offset, &plain[i]);
		if (error)
			return error;
		error = flush(probe);
		flushed[i] = calyx_now_ns() - began_ns;
		if (error)
			return error;
	}
	truth->writes = WRITES;
	summarize(plain, WRITES, &truth->write_ns, &unused[0], &unused[1]);
	summarize(flushed, WRITES, &truth->flush_write_ns, &truth->flush_min_ns, &truth->flush_max_ns);
	return 0;
}

/* The last block is the scratch block; what was in it is put back, whatever happened. */
static int measure(const struct probe *probe, uint64_t seed, struct calyx_truth *truth)
{
	uint64_t scratch = (probe->blocks - 1) * BLOCK_BYTES, unused;
	int error, restored;

	error = measure_reads(probe, seed, truth);
	if (!error)
		error = transfer(probe, false, probe->saved, scratch, &unused);
	if (error)
		return error;
	error = measure_writes(probe, seed, scratch, truth);
	restored = transfer(probe, true, probe->saved, scratch, &unused);
	if (!restored)
		restored = flush(probe);
	return error ? error : restored;
}

static int open_target(struct probe *probe, struct calyx_truth *truth)
{
	struct stat status;
	uint64_t size;
	int error;

	probe->fd = calyx_sys->open(probe->path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW, 0);
	if (probe->fd < 0)
		return calyx_refuse(probe->reason, probe->fd, "cannot open %s: %s", probe->path,
				    calyx_error_text(probe->fd).text);
	error = calyx_sys->fstat(probe->fd, &status);
	if (error)
		return calyx_refuse(probe->reason, error, "cannot look at %s: %s", probe->path,
				    calyx_error_text(error).text);
	size = (uint64_t)status.st_size;
	if (S_ISBLK(status.st_mode) && probe->size)
		size = probe->size;
	else if (!S_ISREG(status.st_mode))
		size = 0;
	if (size < MIN * BLOCK_BYTES)
		return calyx_refuse(probe->reason, -EINVAL,
				    "%s is not a regular file of at least %u bytes: lay one out first", probe->path,
				    MIN * BLOCK_BYTES);
	probe->blocks = size / BLOCK_BYTES;
	truth->direct = calyx_sys->set_flags(probe->fd, O_DIRECT) == 0;
	if (!truth->direct) {
		/* The guest's own cache must not answer the cold reads; it will answer the hot ones, and direct says
		 * so. */
		calyx_sys->set_flags(probe->fd, 0);
		calyx_sys->forget_cache(probe->fd);
	}
	return 0;
}

int calyx_truth_measure(const char *path, uint64_t seed, struct calyx_truth *out, char *reason)
{
	return calyx_truth_measure_device(path, 0, seed, out, reason);
}

int calyx_truth_measure_device(const char *path, uint64_t size, uint64_t seed, struct calyx_truth *out, char *reason)
{
	struct probe probe = {.path = path, .fd = -1, .size = size, .reason = reason};
	struct calyx_truth truth = {0};
	void *memory;
	int error;

	error = calyx_sys->map(&memory, 2 * BLOCK_BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (error)
		return calyx_refuse(reason, error, "no memory for two blocks: %s", calyx_error_text(error).text);
	probe.block = memory;
	probe.saved = probe.block + BLOCK_BYTES;
	error = open_target(&probe, &truth);
	if (!error)
		error = measure(&probe, seed, &truth);
	if (probe.fd >= 0)
		calyx_sys->close(probe.fd);
	calyx_sys->unmap(memory, 2 * BLOCK_BYTES);
	if (!error)
		*out = truth;
	return error;
}
