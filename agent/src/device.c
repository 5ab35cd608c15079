/* SPDX-License-Identifier: Apache-2.0
 *
 * Raw block devices: which one is meant, and what is told of it. See device.h.
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
#include "facts.h"
#include "protocol.h"

/* Page 0x80 of a SCSI device: four bytes of header, then its serial number. */
static bool read_scsi_serial(const char *sysfs, char serial[PLACE_TEXT])
{
	char path[PATH_MAX + 32], page[PLACE_TEXT];
	int fd;
	ssize_t length;

	calyx_format(path, sizeof(path), "%s/device/vpd_pg80", sysfs);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	length = read(fd, page, sizeof(page) - 1);
	close(fd);
	if (length <= 4)
		return false;
	page[length] = 0;
	calyx_format(serial, PLACE_TEXT, "%s", page + 4);
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

bool device_parse_number(const char *text, dev_t *number)
{
	const char *end;
	uint64_t major_number = calyx_number(text, &end);

	if (end == text || *end != ':')
		return false;
	*number = makedev((unsigned int)major_number, (unsigned int)calyx_number(end + 1, NULL));
	return true;
}

/* The one whole disk with this serial number; two of the same are nobody's. */
static int find_serial(const char *serial, char node[PATH_MAX], char *why)
{
	DIR *disks = opendir("/sys/block");
	unsigned int count = 0;
	struct dirent *entry;

	while (disks && (entry = readdir(disks))) {
		char sysfs[PATH_MAX], own[PLACE_TEXT];

		calyx_format(sysfs, sizeof(sysfs), "/sys/block/%s", entry->d_name);
		if (entry->d_name[0] == '.')
			continue;
		read_serial(sysfs, own);
		if (strcmp(own, serial) != 0)
			continue;
		count++;
		calyx_format(node, PATH_MAX, "/dev/%s", entry->d_name);
	}
	if (disks)
		closedir(disks);
	if (count == 1)
		return 0;
	calyx_format(why, WHY_MAX, "%u disks have the serial number %.100s: one is what names a target", count, serial);
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
	if (!place_real(by_serial ? node : written, device->node) || stat(device->node, &status)) {
		error = -errno;
		calyx_format(why, WHY_MAX, "cannot use %.300s: %s", written, strerror(-error));
		return error;
	}
	if (!S_ISBLK(status.st_mode)) {
		calyx_format(why, WHY_MAX, "%.300s is no block device: nothing is made in the place of one", written);
		return -ENOTBLK;
	}
	device->number = status.st_rdev;
	calyx_format(path, sizeof(path), "/sys/dev/block/%u:%u", major(device->number), minor(device->number));
	if (!place_real(path, device->sysfs)) {
		calyx_format(why, WHY_MAX, "%.300s: the kernel has no such device (%.40s)", written, path);
		return -ENODEV;
	}
	read_serial(device->sysfs, device->serial);
	device->size_bytes = place_attribute(device->sysfs, "size", path) ? calyx_number(path, NULL) * 512 : 0;
	return 0;
}

static void write_first(struct json *json, const char *key, const char *sysfs, const char *name, const char *other)
{
	char text[PLACE_TEXT];

	json_text(json, key,
		  (place_attribute(sysfs, name, text) && *text) || (place_attribute(sysfs, other, text) && *text)
			  ? text
			  : NULL);
}

void device_write_disk(struct json *json, const char *sysfs)
{
	char text[PLACE_TEXT];

	json_key(json, "disk");
	if (!sysfs) {
		json_null(json, NULL);
		return;
	}
	json_object(json);
	facts_write_text(json, "number", sysfs, "dev");
	if (place_attribute(sysfs, "size", text))
		json_u64(json, "size_bytes", calyx_number(text, NULL) * 512);
	else
		json_null(json, "size_bytes");
	read_serial(sysfs, text);
	json_text(json, "serial", *text ? text : NULL);
	write_first(json, "wwid", sysfs, "wwid", "device/wwid");
	write_first(json, "uuid", sysfs, "dm/uuid", "md/uuid");
	facts_write_text(json, "backing_file", sysfs, "loop/backing_file");
	json_object_end(json);
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
			  place_attribute(device.sysfs, "queue/discard_max_bytes", text) && calyx_number(text, NULL));
		error = device_check(&device, why);
	}
	json_text(json, "refused", error ? why : "");
	json_object_end(json);
}
