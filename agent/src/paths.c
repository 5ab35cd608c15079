/* SPDX-License-Identifier: Apache-2.0
 *
 * Facts of a path: its file system, its free space, and the disk below it.
 */
#include "facts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "device.h"
#include "owner.h"
#include "place.h"

static void write_mount(struct json *json, const char *path)
{
	struct mount *mount = malloc(sizeof(*mount));
	char uuid[PLACE_TEXT];

	json_text(json, "fs_uuid", place_fs_uuid(path, uuid) ? uuid : NULL);
	if (mount && place_mount(path, mount)) {
		json_bool(json, "is_fuse", !strncmp(mount->type, "fuse", 4));
		json_text(json, "fs_type", mount->type);
		json_text(json, "mount", mount->point);
		json_text(json, "mount_options", mount->options);
		json_text(json, "source", mount->source);
	} else {
		json_null(json, "is_fuse");
		json_null(json, "fs_type");
		json_null(json, "mount");
		json_null(json, "mount_options");
		json_null(json, "source");
	}
	free(mount);
}

static void write_space(struct json *json, const char *path)
{
	struct statvfs space;

	if (statvfs(path, &space)) {
		json_null(json, "free_bytes");
		json_null(json, "free_inodes");
		json_null(json, "total_bytes");
		return;
	}
	json_u64(json, "free_bytes", (uint64_t)space.f_bavail * space.f_frsize);
	if (space.f_files)
		json_u64(json, "free_inodes", space.f_favail);
	else
		json_null(json, "free_inodes"); /* btrfs and others have no fixed number */
	json_u64(json, "total_bytes", (uint64_t)space.f_blocks * space.f_frsize);
}

/* `none [mq-deadline]`: the one in brackets is in force. */
static void write_scheduler(struct json *json, const char *sysfs)
{
	char text[PLACE_TEXT], *open;

	if (!place_attribute(sysfs, "queue/scheduler", text)) {
		json_null(json, "scheduler");
		return;
	}
	open = strchr(text, '[');
	if (open)
		open[strcspn(open, "]")] = 0;
	json_text(json, "scheduler", open ? open + 1 : text);
}

static void write_disk(struct json *json, const char *path)
{
	char sysfs[PATH_MAX], text[PLACE_TEXT];
	bool known = place_disk(path, sysfs);

	if (!known)
		strcpy(sysfs, "/dev/null"); /* which has nothing below it */
	json_text(json, "device", known ? strrchr(sysfs, '/') + 1 : NULL);
	facts_write_number(json, "logical_block_size", sysfs, "queue/logical_block_size");
	facts_write_number(json, "physical_block_size", sysfs, "queue/physical_block_size");
	if (place_attribute(sysfs, "queue/rotational", text))
		json_bool(json, "rotational", *text == '1');
	else
		json_null(json, "rotational");
	write_scheduler(json, sysfs);
	facts_write_text(json, "write_cache", sysfs, "queue/write_cache");
	/* SCSI devices have a depth of their own; others are bounded by the requests of their queue. */
	if (place_attribute(sysfs, "device/queue_depth", text))
		facts_write_number(json, "queue_depth", sysfs, "device/queue_depth");
	else
		facts_write_number(json, "queue_depth", sysfs, "queue/nr_requests");
	facts_write_text(json, "model", sysfs, "device/model");
	facts_write_number(json, "io_poll", sysfs, "queue/io_poll");
	device_write_disk(json, known ? sysfs : NULL);
}

/* "" when files can be made there, else why not. */
static const char *why_not(const char *path, int stat_error, mode_t mode)
{
	if (stat_error)
		return strerror(stat_error);
	if (faccessat(AT_FDCWD, path, S_ISDIR(mode) ? W_OK | X_OK : W_OK, AT_EACCESS))
		return strerror(errno);
	return "";
}

void facts_write_path(struct json *json, const char *path)
{
	struct stat status = {0};
	int error = stat(path, &status) ? errno : 0;
	const char *why = why_not(path, error, status.st_mode);

	json_object(json);
	json_text(json, "path", path);
	json_bool(json, "exists", !error);
	json_bool(json, "is_dir", S_ISDIR(status.st_mode));
	json_bool(json, "writable", !*why);
	json_bool(json, "is_block", S_ISBLK(status.st_mode));
	json_text(json, "why", why);
	write_mount(json, path);
	write_space(json, path);
	write_disk(json, path);
	if (error)
		json_null(json, "is_ram");
	else
		json_bool(json, "is_ram", place_is_ram(path));
	if (S_ISBLK(status.st_mode) || !strncmp(path, DEVICE_SERIAL, strlen(DEVICE_SERIAL)))
		device_write(json, path);
	owner_write_unused(json, path);
	json_object_end(json);
}
