// SPDX-License-Identifier: Apache-2.0
// Laying out a file whose every block is written: no hole, no unwritten extent, nothing to compress or deduplicate.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "calyx/engine.h"
#include "calyx/text.h"
#include "crc32c.h"
#include "data.h"
#include "offsets.h"
#include "reason.h"
#include "sys.h"
#include "verify.h"

#define CHUNK_BYTES (1u << 20)
#define LAYOUT 0x6c61796f7574ull /* "layout": apart from what a job writes by the same seed */
#define DIRECT_ALIGNMENT 4096u
#define EXTENTS_AT_ONCE 256u
#define STOP_SEEN_NS 100000000ull /* how late a stop is seen while the rate holds back */
#define NOT_WRITTEN (FIEMAP_EXTENT_UNWRITTEN | FIEMAP_EXTENT_DELALLOC | FIEMAP_EXTENT_UNKNOWN)

/* "No space left" has three causes, and df shows only one of them. */
static int refuse_full(char *reason, const char *path, const char *act, int error)
{
	struct calyx_error_text text = calyx_error_text(error);
	char directory[4096];
	struct statvfs status;
	char *slash;
	const char *cause;
	uint64_t free_bytes;

	calyx_format(directory, sizeof(directory), "%s", path);
	slash = strrchr(directory, '/');
	if (slash)
		slash[slash == directory] = 0;
	if (error != -ENOSPC || calyx_sys->statvfs(slash ? directory : ".", &status) < 0)
		return calyx_refuse(reason, error, "cannot %s %s: %s", act, path, text.text);
	free_bytes = (uint64_t)status.f_bavail * status.f_frsize;
	if (status.f_files > 0 && status.f_favail == 0)
		cause = "it has run out of inodes";
	else if (free_bytes < CHUNK_BYTES)
		cause = "it has run out of space";
	else
		cause = "a quota, a reserve or a limit of the directory is the cause";
	return calyx_refuse(reason, error,
			    "cannot %s %s: %s: %" PRIu64 " bytes and %" PRIu64 " inodes are free there: %s", act, path,
			    text.text, free_bytes, (uint64_t)status.f_favail, cause);
}

/* What tells of the bytes that are written, and may ask for an end. */
struct listener {
	bool (*progress)(void *context, uint64_t written_bytes);
	void *context;
};

static bool tell(const struct listener *listener, uint64_t written)
{
	return listener->progress && listener->progress(listener->context, written);
}

/* True when it is to stop. */
static bool wait_for_rate(uint64_t started_ns, uint64_t written, uint64_t max_bytes_per_s,
			  const struct listener *listener)
{
	uint64_t due_ns, now_ns, until_ns;
	struct timespec until;

	if (!max_bytes_per_s)
		return false;
	due_ns = started_ns + written / max_bytes_per_s * 1000000000 +
		 (uint64_t)((double)(written % max_bytes_per_s) * 1e9 / (double)max_bytes_per_s);
	while ((now_ns = calyx_now_ns()) < due_ns) {
		if (tell(listener, written))
			return true;
		until_ns = now_ns + STOP_SEEN_NS < due_ns ? now_ns + STOP_SEEN_NS : due_ns;
		until.tv_sec = (time_t)(until_ns / 1000000000);
		until.tv_nsec = (long)(until_ns % 1000000000);
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	}
	return false;
}

/* Writes one chunk. Direct I/O is given up when the file system refuses it, and for a tail that is not aligned. */
static int write_chunk(int fd, const unsigned char *buffer, size_t length, uint64_t offset, bool *direct)
{
	size_t done = 0;

	if (*direct && length % DIRECT_ALIGNMENT) {
		calyx_sys->set_flags(fd, 0);
		*direct = false;
	}
	while (done < length) {
		int64_t count = calyx_sys->pwrite(fd, buffer + done, length - done, offset + done);

		if (count == -EINTR)
			continue;
		if (count == -EINVAL && *direct) {
			calyx_sys->set_flags(fd, 0);
			*direct = false;
			continue;
		}
		if (count < 0)
			return (int)count;
		if (count == 0)
			return -EIO;
		done += (size_t)count;
	}
	return 0;
}

static int write_all(int fd, uint64_t size, uint64_t data_seed, uint64_t max_bytes_per_s, bool verify,
		     unsigned char *chunk, bool (*progress)(void *context, uint64_t written_bytes), void *context,
		     uint64_t *written)
{
	bool direct = calyx_sys->set_flags(fd, O_DIRECT) == 0;
	/* Mixed first: seeds that lie a step of the generator apart would else give the same chunks, one later. */
	uint64_t started_ns = calyx_now_ns(), seed = data_seed, state = calyx_random_next(&seed);
	const struct listener listener = {progress, context};
	int error;

	for (*written = 0; *written < size;) {
		size_t length = size - *written < CHUNK_BYTES ? (size_t)(size - *written) : CHUNK_BYTES;

		calyx_data_fill(chunk, length, calyx_random_next(&state));
		if (verify)
			calyx_verify_stamp(chunk, length, *written, 0, data_seed);
		error = write_chunk(fd, chunk, length, *written, &direct);
		if (error)
			return error;
		*written += length;
		if (tell(&listener, *written) || wait_for_rate(started_ns, *written, max_bytes_per_s, &listener))
			return -ECANCELED;
	}
	error = calyx_sys->fsync(fd);
	/* What went through the page cache must not be read back from there. */
	calyx_sys->forget_cache(fd);
	return error;
}

uint64_t calyx_layout_seed(uint64_t seed, uint32_t file)
{
	return calyx_data_tag(seed ^ LAYOUT, file);
}

static int lay_out(const char *path, uint64_t size, uint64_t data_seed, uint64_t max_bytes_per_s, bool verify,
		   bool (*progress)(void *context, uint64_t written_bytes), void *context, struct calyx_layout *layout,
		   char *reason)
{
	struct calyx_layout found = {0};
	void *chunk;
	int fd, error;

	error = calyx_sys->map(&chunk, CHUNK_BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (error)
		return calyx_refuse(reason, error, "no memory for one chunk: %s", calyx_error_text(error).text);
	/* Opened without O_DIRECT: where that is refused, open would fail and yet leave the new file behind. */
	fd = calyx_sys->open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0) {
		error = refuse_full(reason, path, "create", fd);
		goto unmap;
	}
	error = write_all(fd, size, data_seed, max_bytes_per_s, verify, chunk, progress, context, &found.written_bytes);
	if (error == -ECANCELED)
		calyx_refuse(reason, error, "laying out %s was stopped after %" PRIu64 " bytes", path,
			     found.written_bytes);
	else if (error)
		refuse_full(reason, path, "write", error);
	if (!error) {
		error = calyx_target_extents(fd, size, &found);
		if (error)
			calyx_refuse(reason, error, "cannot ask for the extents of %s: %s", path,
				     calyx_error_text(error).text);
	}
	calyx_sys->close(fd);
	if (error)
		calyx_sys->unlink(path);
	else
		*layout = found;
unmap:
	calyx_sys->unmap(chunk, CHUNK_BYTES);
	return error;
}

int calyx_target_layout(const char *path, uint64_t size, uint64_t data_seed, uint64_t max_bytes_per_s,
			bool (*progress)(void *context, uint64_t written_bytes), void *context,
			struct calyx_layout *layout, char *reason)
{
	return lay_out(path, size, data_seed, max_bytes_per_s, false, progress, context, layout, reason);
}

int calyx_target_layout_verified(const char *path, uint64_t size, uint64_t data_seed, uint64_t max_bytes_per_s,
				 bool (*progress)(void *context, uint64_t written_bytes), void *context,
				 struct calyx_layout *layout, char *reason)
{
	calyx_crc32c_init();
	return lay_out(path, size, data_seed, max_bytes_per_s, true, progress, context, layout, reason);
}

int calyx_target_fill(int fd, const char *path, uint64_t size, uint64_t data_seed, uint64_t max_bytes_per_s,
		      bool verify, bool (*progress)(void *context, uint64_t written_bytes), void *context,
		      uint64_t *written_bytes, char *reason)
{
	void *chunk;
	int error;

	calyx_crc32c_init();
	error = calyx_sys->map(&chunk, CHUNK_BYTES, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (error)
		return calyx_refuse(reason, error, "no memory for one chunk: %s", calyx_error_text(error).text);
	error = write_all(fd, size, data_seed, max_bytes_per_s, verify, chunk, progress, context, written_bytes);
	if (error == -ECANCELED)
		calyx_refuse(reason, error, "writing %s was stopped after %" PRIu64 " bytes", path, *written_bytes);
	else if (error)
		calyx_refuse(reason, error, "cannot write %s: %s", path, calyx_error_text(error).text);
	calyx_sys->unmap(chunk, CHUNK_BYTES);
	return error;
}

/* Adds one extent, and the gap before it, to what was found. *end is how far the file has been seen, *shift how far
 * the extent before lies from its place in the file. */
static void count_extent(const struct fiemap_extent *extent, uint64_t size, uint64_t *end, uint64_t *shift,
			 struct calyx_layout *found)
{
	uint64_t from = extent->fe_logical < size ? extent->fe_logical : size;
	uint64_t to = extent->fe_logical + extent->fe_length < size ? extent->fe_logical + extent->fe_length : size;
	uint64_t moved = extent->fe_physical - extent->fe_logical, state = found->placed ^ moved;

	if (!found->extents || from > *end || moved != *shift) {
		state = calyx_random_next(&state) ^ from;
		found->placed = calyx_random_next(&state);
		found->pieces++;
	}
	*shift = moved;

	found->extents++;
	if (from > *end)
		found->hole_bytes += from - *end;
	if (extent->fe_flags & NOT_WRITTEN)
		found->unwritten_bytes += to - from;
	*end = to > *end ? to : *end;
}

int calyx_target_extents(int fd, uint64_t size, struct calyx_layout *layout)
{
	size_t room = sizeof(struct fiemap) + EXTENTS_AT_ONCE * sizeof(struct fiemap_extent);
	struct fiemap *map = malloc(room);
	struct calyx_layout found = {.written_bytes = layout->written_bytes, .fiemap = true};
	uint64_t end = 0, shift = 0;
	bool last = false;
	int error = 0;

	if (!map)
		return -ENOMEM;
	while (!last && end < size) {
		memset(map, 0, room);
		map->fm_start = end;
		map->fm_length = size - end;
		map->fm_flags = FIEMAP_FLAG_SYNC;
		map->fm_extent_count = EXTENTS_AT_ONCE;
		error = calyx_sys->ioctl(fd, FS_IOC_FIEMAP, map);
		if (error < 0)
			break;
		error = 0;
		for (uint32_t i = 0; i < map->fm_mapped_extents; i++) {
			count_extent(&map->fm_extents[i], size, &end, &shift, &found);
			last |= map->fm_extents[i].fe_flags & FIEMAP_EXTENT_LAST;
		}
		last |= map->fm_mapped_extents == 0;
	}
	free(map);
	if (error == -EOPNOTSUPP || error == -ENOTTY) {
		found.fiemap = false;
		found.extents = found.hole_bytes = found.unwritten_bytes = found.pieces = found.placed = 0;
		error = 0;
	} else if (!error && end < size) {
		found.hole_bytes += size - end;
	}
	if (!error)
		*layout = found;
	return error;
}
