/* SPDX-License-Identifier: Apache-2.0
 *
 * Raw block devices: may the content of one be destroyed? See device.h.
 */
#include "device.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "calyx/text.h"
#include "protocol.h"
#include "signature.h"

static const char *name_of(const struct device *device)
{
	return strrchr(device->sysfs, '/') + 1;
}

static bool has_entries(const char *sysfs, const char *name, char first[PLACE_TEXT])
{
	char path[PATH_MAX + 16];
	struct dirent *entry;
	DIR *directory;

	first[0] = 0;
	calyx_format(path, sizeof(path), "%s/%s", sysfs, name);
	directory = opendir(path);
	while (directory && !first[0] && (entry = readdir(directory)))
		if (entry->d_name[0] != '.')
			calyx_format(first, PLACE_TEXT, "%s", entry->d_name);
	if (directory)
		closedir(directory);
	return first[0] != 0;
}

static bool is_device(const char *path, dev_t number)
{
	struct stat status;

	return path && *path == '/' && !stat(path, &status) && S_ISBLK(status.st_mode) && status.st_rdev == number;
}

/* Is it in this line of mountinfo or of swaps? By number, since one device has many names; btrfs has numbers of its
 * own, so there the source says it. */
static bool is_in_line(char *line, bool mounts, dev_t number, char where[PLACE_TEXT])
{
	char *fields[5] = {0}, *dash = calyx_find(line, " - "), *rest, *source = NULL;
	dev_t mounted;

	if (mounts && dash) {
		*dash = 0;
		source = strtok_r(dash + 3, " ", &rest);
		source = source ? strtok_r(NULL, " ", &rest) : NULL;
	}
	for (int i = 0; i < 5 && (!i || fields[i - 1]); i++)
		fields[i] = strtok_r(i ? NULL : line, " \t", &rest);
	if (!mounts)
		return is_device(fields[0], number);
	calyx_format(where, PLACE_TEXT, "%s", fields[4] ? fields[4] : "");
	return is_device(source, number) ||
	       (fields[2] && device_parse_number(fields[2], &mounted) && mounted == number);
}

static bool is_in_table(const char *table, bool mounts, dev_t number, char where[PLACE_TEXT])
{
	char *text = calyx_read_all(table), *rest = text, *line;
	bool found = false;

	while (!found && (line = calyx_next_line(&rest)))
		found = is_in_line(line, mounts, number, where);
	free(text);
	return found;
}

static bool read_number(const char *sysfs, dev_t *number)
{
	char text[PLACE_TEXT];

	return place_attribute(sysfs, "dev", text) && device_parse_number(text, number);
}

/* Of the device or of a partition of it. */
static int check_use(const char *sysfs, const char *node, char *why)
{
	char what[PLACE_TEXT];
	dev_t number;

	if (!read_number(sysfs, &number))
		return 0;
	if (is_in_table("/proc/self/mountinfo", true, number, what)) {
		calyx_format(why, WHY_MAX, "%.200s is mounted on %.200s", node, what);
		return -EBUSY;
	}
	if (is_in_table("/proc/swaps", false, number, what)) {
		calyx_format(why, WHY_MAX, "%.200s is in use as swap space", node);
		return -EBUSY;
	}
	if (has_entries(sysfs, "holders", what)) {
		calyx_format(why, WHY_MAX, "%.200s is held by %.100s: it is part of LVM, MD or a mapped device", node,
			     what);
		return -EBUSY;
	}
	return 0;
}

/* The partitions that the kernel knows: any is a reason, one that is in use the better one. */
static int check_partitions(const struct device *device, char *why)
{
	DIR *directory = opendir(device->sysfs);
	struct dirent *entry;
	int error = 0;

	while (directory && error != -EBUSY && (entry = readdir(directory))) {
		char sysfs[2 * PATH_MAX], text[PLACE_TEXT];

		calyx_format(sysfs, sizeof(sysfs), "%s/%s", device->sysfs, entry->d_name);
		if (entry->d_name[0] == '.' || !place_attribute(sysfs, "partition", text))
			continue;
		error = check_use(sysfs, entry->d_name, why);
		if (error)
			calyx_format(why + strlen(why), WHY_MAX - strlen(why), ", a partition of %.100s",
				     name_of(device));
		else
			calyx_format(why, WHY_MAX, "%.200s has partitions (%.100s)", device->node, entry->d_name);
		error = error ? error : -EEXIST;
	}
	if (directory)
		closedir(directory);
	return error;
}

static int check_kind(const struct device *device, char *why)
{
	char text[PLACE_TEXT];

	if (place_attribute(device->sysfs, "partition", text)) {
		const char *end = strrchr(device->sysfs, '/');
		const char *from = end;

		while (from > device->sysfs && from[-1] != '/')
			from--;
		calyx_format(why, WHY_MAX,
			     "%.200s is a partition of %.*s, which bears its table: give a whole disk of its own",
			     device->node, (int)(end - from), from);
		return -EINVAL;
	}
	if (has_entries(device->sysfs, "slaves", text)) {
		calyx_format(why, WHY_MAX,
			     "%.200s lies on %.100s: a part of LVM, MD or a mapped device is no raw device",
			     device->node, text);
		return -EINVAL;
	}
	if (place_attribute(device->sysfs, "ro", text) && *text == '1') {
		calyx_format(why, WHY_MAX, "%.200s is read-only", device->node);
		return -EROFS;
	}
	return 0;
}

static int check_signature(const struct device *device, int fd, char *why)
{
	const char *found;
	int error = signature_find(fd, device->size_bytes, &found);

	if (error)
		calyx_format(why, WHY_MAX, "cannot read %.200s: %s", device->node, strerror(-error));
	else if (found) {
		calyx_format(why, WHY_MAX, "%.200s bears %.60s: ", device->node, found);
		device_tell_way_out(device, why);
	}
	return error ? error : found ? -EEXIST : 0;
}

/* O_EXCL without O_CREAT: the kernel refuses it while anybody else has the device or a part of it for himself, also in
 * another mount namespace. */
static int open_alone(const struct device *device, int access, char *why)
{
	int fd = open(device->node, access | O_EXCL | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC), error = 0;
	struct stat status;

	if (fd < 0) {
		error = -errno;
		calyx_format(why, WHY_MAX,
			     error == -EBUSY ? "%.200s is in use: another program or the kernel has it for itself"
					     : "cannot open %.200s: %s",
			     device->node, strerror(-error));
		return error;
	}
	if (fstat(fd, &status) || !S_ISBLK(status.st_mode) || status.st_rdev != device->number) {
		close(fd);
		calyx_format(why, WHY_MAX, "%.200s became another device meanwhile", device->node);
		return -ESTALE;
	}
	return fd;
}

int device_open(const struct device *device, int access, char *why)
{
	int error = check_kind(device, why), fd;

	if (!error)
		error = check_use(device->sysfs, device->node, why);
	if (!error)
		error = check_partitions(device, why);
	if (!error)
		error = device_check_loops(device, why);
	if (error)
		return error;
	fd = open_alone(device, access, why);
	if (fd < 0)
		return fd;
	error = check_signature(device, fd, why);
	if (!error)
		error = device_check_blank(device, fd, why);
	if (!error)
		return fd;
	close(fd);
	return error;
}

int device_check(const struct device *device, char *why)
{
	int fd = device_open(device, O_RDONLY, why);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}
