/* SPDX-License-Identifier: Apache-2.0
 *
 * Raw block devices: see device.h.
 */
#include "device.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "protocol.h"
#include "signature.h"

#ifndef BLKGETDISKSEQ /* Linux 5.15 */
#define BLKGETDISKSEQ _IOR(0x12, 128, __u64)
#endif

static const char *name_of(const struct device *device)
{
	return strrchr(device->sysfs, '/') + 1;
}

/* ---- which one is meant ---- */

/* Page 0x80 of a SCSI device: four bytes of header, then its serial number. */
static bool read_scsi_serial(const char *sysfs, char serial[PLACE_TEXT])
{
	char path[PATH_MAX + 32], page[PLACE_TEXT];
	int fd;
	ssize_t length;

	snprintf(path, sizeof(path), "%s/device/vpd_pg80", sysfs);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	length = read(fd, page, sizeof(page) - 1);
	close(fd);
	if (length <= 4)
		return false;
	page[length] = 0;
	snprintf(serial, PLACE_TEXT, "%s", page + 4);
	return true;
}

/* virtio has it at the disk, NVMe at the controller, SCSI in a page. */
static void read_serial(const char *sysfs, char serial[PLACE_TEXT])
{
	char *from = serial;

	serial[0] = 0;
	if (!place_attribute(sysfs, "serial", serial) && !place_attribute(sysfs, "device/serial", serial) &&
	    !read_scsi_serial(sysfs, serial))
		serial[0] = 0;
	while (*from == ' ')
		from++;
	memmove(serial, from, strlen(from) + 1);
	for (size_t length = strlen(serial); length && serial[length - 1] == ' ';)
		serial[--length] = 0;
}

/* MAJOR:MINOR */
static bool parse_number(const char *text, dev_t *number)
{
	char *end;
	unsigned long major_number = strtoul(text, &end, 10);

	if (end == text || *end != ':')
		return false;
	*number = makedev(major_number, strtoul(end + 1, NULL, 10));
	return true;
}

static bool read_number(const char *sysfs, dev_t *number)
{
	char text[PLACE_TEXT];

	return place_attribute(sysfs, "dev", text) && parse_number(text, number);
}

/* The one whole disk with this serial number; two of the same are nobody's. */
static int find_serial(const char *serial, char node[PATH_MAX], char *why)
{
	DIR *disks = opendir("/sys/block");
	unsigned int count = 0;
	struct dirent *entry;

	while (disks && (entry = readdir(disks))) {
		char sysfs[PATH_MAX], own[PLACE_TEXT];

		snprintf(sysfs, sizeof(sysfs), "/sys/block/%s", entry->d_name);
		if (entry->d_name[0] == '.')
			continue;
		read_serial(sysfs, own);
		if (strcmp(own, serial) != 0)
			continue;
		count++;
		snprintf(node, PATH_MAX, "/dev/%s", entry->d_name);
	}
	if (disks)
		closedir(disks);
	if (count == 1)
		return 0;
	snprintf(why, WHY_MAX, "%u disks have the serial number %.100s: one is what names a target", count, serial);
	return count ? -EEXIST : -ENODEV;
}

int device_find(const char *written, struct device *device, char *why)
{
	const size_t prefix = strlen(DEVICE_SERIAL);
	bool by_serial = !strncmp(written, DEVICE_SERIAL, prefix);
	char path[PATH_MAX + 16], node[PATH_MAX];
	struct stat status;
	int error;

	if (by_serial) {
		error = find_serial(written + prefix, node, why);
		if (error)
			return error;
	}
	if (!realpath(by_serial ? node : written, device->node) || stat(device->node, &status)) {
		error = -errno;
		snprintf(why, WHY_MAX, "cannot use %.300s: %s", written, strerror(-error));
		return error;
	}
	if (!S_ISBLK(status.st_mode)) {
		snprintf(why, WHY_MAX, "%.300s is no block device: nothing is made in the place of one", written);
		return -ENOTBLK;
	}
	device->number = status.st_rdev;
	snprintf(path, sizeof(path), "/sys/dev/block/%u:%u", major(device->number), minor(device->number));
	if (!realpath(path, device->sysfs)) {
		snprintf(why, WHY_MAX, "%.300s: the kernel has no such device (%.40s)", written, path);
		return -ENODEV;
	}
	read_serial(device->sysfs, device->serial);
	device->size_bytes = place_attribute(device->sysfs, "size", path) ? strtoull(path, NULL, 10) * 512 : 0;
	return 0;
}

/* ---- may its content be destroyed? ---- */

static bool has_entries(const char *sysfs, const char *name, char first[PLACE_TEXT])
{
	char path[PATH_MAX + 16];
	struct dirent *entry;
	DIR *directory;

	first[0] = 0;
	snprintf(path, sizeof(path), "%s/%s", sysfs, name);
	directory = opendir(path);
	while (directory && !first[0] && (entry = readdir(directory)))
		if (entry->d_name[0] != '.')
			snprintf(first, PLACE_TEXT, "%s", entry->d_name);
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
	char *fields[5] = {0}, *dash = strstr(line, " - "), *rest, *source = NULL;
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
	snprintf(where, PLACE_TEXT, "%s", fields[4] ? fields[4] : "");
	return is_device(source, number) || (fields[2] && parse_number(fields[2], &mounted) && mounted == number);
}

static bool is_in_table(const char *table, bool mounts, dev_t number, char where[PLACE_TEXT])
{
	FILE *file = fopen(table, "re");
	char *line = NULL;
	size_t capacity = 0;
	bool found = false;

	while (file && !found && getline(&line, &capacity, file) > 0)
		found = is_in_line(line, mounts, number, where);
	if (file)
		fclose(file);
	free(line);
	return found;
}

/* Of the device or of a partition of it. */
static int check_use(const char *sysfs, const char *node, char *why)
{
	char what[PLACE_TEXT];
	dev_t number;

	if (!read_number(sysfs, &number))
		return 0;
	if (is_in_table("/proc/self/mountinfo", true, number, what)) {
		snprintf(why, WHY_MAX, "%.200s is mounted on %.200s", node, what);
		return -EBUSY;
	}
	if (is_in_table("/proc/swaps", false, number, what)) {
		snprintf(why, WHY_MAX, "%.200s is in use as swap space", node);
		return -EBUSY;
	}
	if (has_entries(sysfs, "holders", what)) {
		snprintf(why, WHY_MAX, "%.200s is held by %.100s: it is part of LVM, MD or a mapped device", node,
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

		snprintf(sysfs, sizeof(sysfs), "%s/%s", device->sysfs, entry->d_name);
		if (entry->d_name[0] == '.' || !place_attribute(sysfs, "partition", text))
			continue;
		error = check_use(sysfs, entry->d_name, why);
		if (error)
			snprintf(why + strlen(why), WHY_MAX - strlen(why), ", a partition of %.100s", name_of(device));
		else
			snprintf(why, WHY_MAX, "%.200s has partitions (%.100s)", device->node, entry->d_name);
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
		snprintf(why, WHY_MAX,
			 "%.200s is a partition of %.*s, which bears its table: give a whole disk of its own",
			 device->node, (int)(end - from), from);
		return -EINVAL;
	}
	if (has_entries(device->sysfs, "slaves", text)) {
		snprintf(why, WHY_MAX, "%.200s lies on %.100s: a part of LVM, MD or a mapped device is no raw device",
			 device->node, text);
		return -EINVAL;
	}
	if (place_attribute(device->sysfs, "ro", text) && *text == '1') {
		snprintf(why, WHY_MAX, "%.200s is read-only", device->node);
		return -EROFS;
	}
	return 0;
}

static int check_signature(const struct device *device, int fd, char *why)
{
	const char *found;
	int error = signature_find(fd, device->size_bytes, &found);

	if (error)
		snprintf(why, WHY_MAX, "cannot read %.200s: %s", device->node, strerror(-error));
	else if (found)
		snprintf(why, WHY_MAX,
			 "%.200s bears %.60s: if nobody needs its content, take the signature away on the guest "
			 "(wipefs -a %.100s)",
			 device->node, found, device->node);
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
		snprintf(why, WHY_MAX,
			 error == -EBUSY ? "%.200s is in use: another program or the kernel has it for itself"
					 : "cannot open %.200s: %s",
			 device->node, strerror(-error));
		return error;
	}
	if (fstat(fd, &status) || !S_ISBLK(status.st_mode) || status.st_rdev != device->number) {
		close(fd);
		snprintf(why, WHY_MAX, "%.200s became another device meanwhile", device->node);
		return -ESTALE;
	}
	return fd;
}

static int check_and_open(const struct device *device, int access, char *why)
{
	int error = check_kind(device, why), fd;

	if (!error)
		error = check_use(device->sysfs, device->node, why);
	if (!error)
		error = check_partitions(device, why);
	if (error)
		return error;
	fd = open_alone(device, access, why);
	if (fd < 0)
		return fd;
	error = check_signature(device, fd, why);
	if (!error)
		return fd;
	close(fd);
	return error;
}

int device_check(const struct device *device, char *why)
{
	int fd = check_and_open(device, O_RDONLY, why);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

/* ---- held ---- */

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
		snprintf(why, WHY_MAX, "more than %d devices at once", DEVICES_MAX);
		return -EMFILE;
	}
	fd = check_and_open(device, O_RDWR, why);
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
		snprintf(why, WHY_MAX, "%.300s is not a block device that this agent prepared", path);
		return -EPERM;
	}
	fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	error = fd < 0 ? -errno : sequence_of(fd) == hold->sequence ? 0 : -ESTALE;
	if (fd >= 0)
		close(fd);
	if (error)
		snprintf(why, WHY_MAX, "%.300s is another disk than the one that was prepared (%s)", path,
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

void device_write(struct json *json, const char *written)
{
	char why[WHY_MAX], text[PLACE_TEXT];
	struct device device;
	int error = device_find(written, &device, why);

	json_key(json, "block");
	json_object(json);
	if (!error) {
		json_text(json, "node", device.node);
		json_u64(json, "size_bytes", device.size_bytes);
		json_text(json, "serial", device.serial);
		json_text(json, "wwid",
			  place_attribute(device.sysfs, "wwid", text) ||
					  place_attribute(device.sysfs, "device/wwid", text)
				  ? text
				  : NULL);
		json_bool(json, "discard",
			  place_attribute(device.sysfs, "queue/discard_max_bytes", text) && strtoull(text, NULL, 10));
		error = device_check(&device, why);
	}
	json_text(json, "refused", error ? why : "");
	json_object_end(json);
}
