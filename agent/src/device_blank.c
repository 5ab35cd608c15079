/* SPDX-License-Identifier: Apache-2.0
 *
 * Raw block devices: a device that bears nothing reads as zeros at both ends. See device.h.
 *
 * A list of signatures is never whole, and old ones are two bytes. So a device that may be overwritten is one whose
 * first and last MiB are zeros: as a new disk reads, and as we leave one that we wrote.
 */
#include "device.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "calyx/text.h"
#include "protocol.h"

#define END_BYTES (1ull << 20)
#define CHUNK_BYTES 4096

static int64_t find_data(int fd, uint64_t from, uint64_t end)
{
	char chunk[CHUNK_BYTES];

	while (from < end) {
		size_t want = end - from < CHUNK_BYTES ? (size_t)(end - from) : CHUNK_BYTES;
		ssize_t count = pread(fd, chunk, want, (off_t)from);

		if (count <= 0)
			return count ? -errno : -EIO;
		if (chunk[0] || memcmp(chunk, chunk + 1, (size_t)count - 1))
			return (int64_t)from;
		from += (uint64_t)count;
	}
	return -ENODATA;
}

static uint64_t last_end(uint64_t size_bytes)
{
	return size_bytes > END_BYTES ? size_bytes - END_BYTES : 0;
}

int device_check_blank(const struct device *device, int fd, char *why)
{
	uint64_t size = device->size_bytes;
	int64_t at = find_data(fd, 0, size < END_BYTES ? size : END_BYTES);

	if (at == -ENODATA)
		at = find_data(fd, last_end(size), size);
	if (at == -ENODATA)
		return 0;
	if (at < 0)
		calyx_format(why, WHY_MAX, "cannot read %.200s: %s", device->node, strerror((int)-at));
	else {
		calyx_format(why, WHY_MAX, "%.200s bears data of no known format (from byte %lld on): ", device->node,
			     (long long)at);
		device_tell_way_out(device, why);
	}
	return at < 0 ? (int)at : -EEXIST;
}

void device_tell_way_out(const struct device *device, char *why)
{
	size_t length = strlen(why);

	calyx_format(
		why + length, WHY_MAX - length,
		"if nobody needs its content, make its ends blank on the guest (wipefs -a %.60s; blkdiscard -z -l 1MiB "
		"%.60s; blkdiscard -z -o %llu %.60s)",
		device->node, device->node, (unsigned long long)last_end(device->size_bytes), device->node);
}

static void zero(int fd, uint64_t from, uint64_t end)
{
	static const char zeros[CHUNK_BYTES];

	while (from < end) {
		size_t want = end - from < CHUNK_BYTES ? (size_t)(end - from) : CHUNK_BYTES;
		ssize_t count = pwrite(fd, zeros, want, (off_t)from);

		if (count <= 0)
			return; /* the next run will say that it bears data */
		from += (uint64_t)count;
	}
}

void device_make_blank(int fd, uint64_t size_bytes, uint64_t used_bytes)
{
	fcntl(fd, F_SETFL, 0); /* not O_DIRECT, as the layout left it */
	zero(fd, 0, used_bytes < END_BYTES ? used_bytes : END_BYTES);
	zero(fd, last_end(size_bytes), used_bytes);
	fdatasync(fd);
}
