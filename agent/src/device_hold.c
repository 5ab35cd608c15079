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
	*place = (struct device_hold){
		.number = device->number,
		.sequence = sequence_of(fd),
		.used_bytes = used_bytes,
		.fd = fd,
	};
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

void device_let_go(struct device_holds *holds)
{
	for (int i = 0; i < DEVICES_MAX; i++) {
		if (holds->held[i].fd)
			close(holds->held[i].fd);
		holds->held[i] = (struct device_hold){0};
	}
}
