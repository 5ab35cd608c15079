// SPDX-License-Identifier: Apache-2.0
// One probe read before a polled job (polling.h).
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "polling.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "calyx/text.h"
#include "reason.h"
#include "ring.h"
#include "sys.h"

#define PROBE_ENTRIES 8
#define PROBE_TIMEOUT_NS 2000000000ull

/* The device below a file by its name in /sys, and what its queue/io_poll says: '0', '1', or 0 where it says nothing.
 */
static char device_polls(int fd, char *name, size_t size)
{
	char path[128], link[512];
	struct stat status;
	char answer[2] = "";
	const char *last;
	ssize_t length;
	dev_t device;

	calyx_format(name, size, "the file system");
	if (calyx_sys->fstat(fd, &status))
		return 0;
	/* The node of a raw device lies on another file system. */
	device = S_ISBLK(status.st_mode) ? status.st_rdev : status.st_dev;
	calyx_format(path, sizeof(path), "/sys/dev/block/%u:%u", major(device), minor(device));
	length = readlink(path, link, sizeof(link) - 1);
	if (length <= 0)
		return 0;
	link[length] = 0;
	last = strrchr(link, '/');
	calyx_format(name, size, "%.40s", last ? last + 1 : link);
	calyx_format(path, sizeof(path), "/sys/dev/block/%u:%u/queue/io_poll", major(device), minor(device));
	if (calyx_read_text(path, answer, sizeof(answer)) < 0) { /* a partition has no queue of its own */
		calyx_format(path, sizeof(path), "/sys/dev/block/%u:%u/../queue/io_poll", major(device), minor(device));
		calyx_read_text(path, answer, sizeof(answer));
	}
	return answer[0] == '0' || answer[0] == '1' ? answer[0] : 0;
}

/* The read's answer; -ETIME when it did not come back. */
static int read_polled(struct calyx_ring *ring, int fd, void *buffer, size_t length, uint64_t offset)
{
	uint64_t until_ns = calyx_now_ns() + PROBE_TIMEOUT_NS;
	struct io_uring_sqe *sqe = calyx_ring_prepare(ring);
	int error;

	sqe->opcode = IORING_OP_READ;
	sqe->fd = fd;
	sqe->addr = (uint64_t)(uintptr_t)buffer;
	sqe->len = (uint32_t)length;
	sqe->off = offset;
	calyx_ring_publish(ring, 1);
	while (!calyx_ring_has_completions(ring)) {
		error = calyx_ring_enter(ring, true, 0, IORING_ENTER_GETEVENTS);
		if (error && error != -EINTR && error != -EAGAIN && error != -EBUSY)
			return error;
		if (calyx_now_ns() > until_ns)
			return -ETIME;
	}
	return ring->cqes[*ring->cq_head & ring->cq_mask].res;
}

int calyx_polling_check(int fd, const char *path, void *buffer, size_t length, uint64_t offset, char *reason)
{
	struct calyx_ring ring;
	char device[64];
	int answer;

	if (device_polls(fd, device, sizeof(device)) == '0')
		return calyx_refuse(reason, -EOPNOTSUPP,
				    "%s: polling not supported by %s: its queue/io_poll is 0 (no poll queues); run "
				    "without iopoll",
				    path, device);
	answer = calyx_ring_open(&ring, PROBE_ENTRIES, IORING_SETUP_IOPOLL, -1);
	if (answer)
		return calyx_refuse(reason, answer, "io_uring_setup (iopoll): %s", calyx_error_text(answer).text);
	answer = read_polled(&ring, fd, buffer, length, offset);
	calyx_ring_close(&ring);
	if (answer == -ETIME)
		return calyx_refuse(reason, answer,
				    "%s: polling not supported by %s: a polled read did not come back within %llu s; "
				    "run without iopoll",
				    path, device, PROBE_TIMEOUT_NS / 1000000000);
	if (answer < 0)
		return calyx_refuse(reason, answer, "%s: polling not supported by %s: %s; run without iopoll", path,
				    device, calyx_error_text(answer).text);
	return 0;
}
