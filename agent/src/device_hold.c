/* SPDX-License-Identifier: Apache-2.0
 *
 * Raw block devices: held by the agent from `prepare` to `clean`. See device.h.
 */
#include "device.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calyx/text.h"
#include "protocol.h"

#ifndef BLKGETDISKSEQ /* Linux 5.15 */
#define BLKGETDISKSEQ _IOR(0x12, 128, __u64)
#endif

static uint64_t sequence_of(int fd)
{
	__u64 sequence = 0;

	return ioctl(fd, BLKGETDISKSEQ, &sequence) ? 0 : sequence;
}

int device_hold(struct device_holds *holds, const struct device *device, uint64_t used_bytes, char *why)
{
	struct device_hold *place = NULL;
	int fd;

	for (int i = 0; i < DEVICES_MAX && !place; i++)
		if (!holds->held[i].fd)
			place = &holds->held[i];
	if (!place) {
		calyx_format(why, WHY_MAX, "more than %d devices at once", DEVICES_MAX);
		return -EMFILE;
	}
	fd = device_open(device, O_RDWR, why);
	if (fd < 0)
		return fd;
	flock(fd, LOCK_EX | LOCK_NB); /* udev looks at no device that is locked */
	place->number = device->number;
	place->sequence = sequence_of(fd);
	place->size_bytes = device->size_bytes;
	place->used_bytes = used_bytes;
	memcpy(place->node, device->node, sizeof(place->node));
	place->fd = fd; /* last: from here on the guard would make it blank */
	return fd;
}

int64_t device_is_held(const struct device_holds *holds, const char *path, char *why)
{
	const struct device_hold *hold = NULL;
	struct stat status;
	int error, fd;

	if (stat(path, &status) || !S_ISBLK(status.st_mode))
		return 0; /* whoever opens it will say what is wrong with it */
	for (int i = 0; i < DEVICES_MAX && !hold; i++)
		if (holds->held[i].fd && holds->held[i].number == status.st_rdev)
			hold = &holds->held[i];
	if (!hold) {
		calyx_format(why, WHY_MAX, "%.300s is not a block device that this agent prepared", path);
		return -EPERM;
	}
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	error = fd < 0 ? -errno : sequence_of(fd) == hold->sequence ? 0 : -ESTALE;
	if (fd >= 0)
		close(fd);
	if (error)
		calyx_format(why, WHY_MAX, "%.300s is another disk than the one that was prepared (%s)", path,
			     strerror(-error));
	return error ? error : (int64_t)hold->used_bytes;
}

static void let_go(struct device_hold *hold, int fd)
{
	if (fd >= 0 && sequence_of(fd) == hold->sequence)
		device_make_blank(fd, hold->size_bytes, hold->used_bytes);
	if (fd >= 0)
		close(fd);
	hold->fd = 0;
}

void device_let_go(struct device_holds *holds)
{
	for (int i = 0; i < DEVICES_MAX; i++)
		if (holds->held[i].fd)
			let_go(&holds->held[i], holds->held[i].fd);
}

void device_let_go_of_dead(struct device_holds *holds)
{
	for (int i = 0; i < DEVICES_MAX; i++) {
		struct device_hold *hold = &holds->held[i];
		struct stat status;
		int fd;

		if (!hold->fd)
			continue;
		fd = open(hold->node, O_RDWR | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd >= 0 && (fstat(fd, &status) || !S_ISBLK(status.st_mode) || status.st_rdev != hold->number)) {
			close(fd);
			fd = -1;
		}
		let_go(hold, fd);
	}
}
