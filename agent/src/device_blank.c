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
#define CHUNK_BYTES 4096ull

static uint64_t last_end(uint64_t size_bytes)
{
	return size_bytes > END_BYTES ? size_bytes - END_BYTES : 0;
}

/* The next chunk of one of the ends, at most up to `limit`; its length. */
static size_t next_chunk(uint64_t *at, uint64_t size_bytes, uint64_t limit)
{
	*at += CHUNK_BYTES;
	if (*at >= END_BYTES && *at < last_end(size_bytes))
		*at = last_end(size_bytes);
	return *at >= limit ? 0 : limit - *at < CHUNK_BYTES ? (size_t)(limit - *at) : CHUNK_BYTES;
}

int device_check_blank(const struct device *device, int fd, char *why)
{
	uint64_t at = (uint64_t)-CHUNK_BYTES;
	char chunk[CHUNK_BYTES];
	size_t length;

	while ((length = next_chunk(&at, device->size_bytes, device->size_bytes))) {
		ssize_t count = pread(fd, chunk, length, (off_t)at);
		int error = count < 0 ? errno : EIO;

		if (count != (ssize_t)length) {
			calyx_format(why, WHY_MAX, "cannot read %.200s: %s", device->node, strerror(error));
			return -error;
		}
		if (!chunk[0] && !memcmp(chunk, chunk + 1, length - 1))
			continue;
		calyx_format(why, WHY_MAX, "%.200s bears data of no known format (from byte %llu on): ", device->node,
			     (unsigned long long)at);
		device_tell_way_out(device, why);
		return -EEXIST;
	}
	return 0;
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

void device_make_blank(int fd, uint64_t size_bytes, uint64_t used_bytes)
{
	static char zeros[CHUNK_BYTES]; /* not const: that would lie in the executable */
	uint64_t at = (uint64_t)-CHUNK_BYTES;
	size_t length;

	fcntl(fd, F_SETFL, 0); /* not O_DIRECT, as the layout left it */
	while ((length = next_chunk(&at, size_bytes, used_bytes)) && pwrite(fd, zeros, length, (off_t)at) > 0)
		; /* of what fails the next run says that it bears data */
	fdatasync(fd);
}
