/* SPDX-License-Identifier: Apache-2.0
 *
 * Raw block devices below and above loop devices, which the kernel counts among neither holders nor slaves. See
 * device.h.
 */
#include "device.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calyx/text.h"
#include "protocol.h"

/* What a loop device lies on: a block device, or else a file. */
struct backing {
	dev_t block, device;
	ino_t inode;
	char path[PATH_MAX];
};

/* The kernel knows it also where its path leads elsewhere by now, or only in another mount namespace. */
static bool ask_kernel(const char *name, struct backing *backing)
{
	struct loop_info64 info;
	char node[PLACE_TEXT + 8];
	int fd, error;

	calyx_format(node, sizeof(node), "/dev/%s", name);
	fd = open(node, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	error = ioctl(fd, LOOP_GET_STATUS64, &info);
	close(fd);
	if (error)
		return false;
	/* Of a file both are the number of its file system. */
	backing->block = info.lo_rdevice != info.lo_device ? (dev_t)info.lo_rdevice : 0;
	backing->device = (dev_t)info.lo_device;
	backing->inode = (ino_t)info.lo_inode;
	return true;
}

/* False when `name` is no loop device in use. */
static bool find_backing(const char *name, struct backing *backing)
{
	char file[PATH_MAX];
	struct stat status = {0};
	ssize_t length;

	*backing = (struct backing){0};
	calyx_format(file, sizeof(file), "/sys/block/%s/loop/backing_file", name);
	length = calyx_read_text(file, backing->path, sizeof(backing->path));
	if (length < 0)
		return false;
	backing->path[strcspn(backing->path, "\n")] = 0;
	if (!ask_kernel(name, backing) && !stat(backing->path, &status)) {
		backing->block = S_ISBLK(status.st_mode) ? status.st_rdev : 0;
		backing->device = status.st_dev;
		backing->inode = status.st_ino;
	}
	return true;
}

/* Of a partition the disk counts: what is written to the whole is written to it. */
static bool lies_on(const struct backing *backing, const struct device *device)
{
	char sysfs[PATH_MAX];

	return backing->block && place_disk_of(backing->block, sysfs) && !strcmp(sysfs, device->sysfs);
}

int device_check_loops(const struct device *device, char *why)
{
	const char *own_name = strrchr(device->sysfs, '/') + 1;
	struct backing own, other;
	bool is_loop = find_backing(own_name, &own);
	DIR *disks = opendir("/sys/block");
	struct dirent *entry;
	int error = 0;

	if (is_loop && own.block) {
		calyx_format(why, WHY_MAX, "%.200s lies on %.200s: a loop device over another device is no raw device",
			     device->node, own.path);
		error = -EINVAL;
	}
	while (disks && !error && (entry = readdir(disks))) {
		if (!strcmp(entry->d_name, own_name) || !find_backing(entry->d_name, &other))
			continue;
		if (lies_on(&other, device)) {
			calyx_format(why, WHY_MAX, "%.200s is held by %.40s: that loop device lies on it", device->node,
				     entry->d_name);
			error = -EBUSY;
		} else if (is_loop && own.inode == other.inode && own.device == other.device) {
			calyx_format(why, WHY_MAX, "%.200s is in use: %.40s lies on the same file, %.200s",
				     device->node, entry->d_name, own.path);
			error = -EBUSY;
		}
	}
	if (disks)
		closedir(disks);
	return error;
}
