/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a path lies: see place.h.
 */
#include "place.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "calyx/text.h"
#include "proc.h"

#define TMPFS_TYPE 0x01021994
#define RAMFS_TYPE 0x858458f6
#define NESTING_MAX 4

/* mountinfo writes space, tab, newline and backslash as three octal digits. */
static void unescape_octal(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		if (*from == '\\' && strspn(from + 1, "01234567") >= 3) {
			*to++ = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
			from += 3;
		} else {
			*to++ = *from;
		}
	}
	*to = 0;
}

static bool is_below(const char *path, const char *point)
{
	size_t length = strlen(point);

	if (!strcmp(point, "/"))
		return true;
	return !strncmp(path, point, length) && (path[length] == '/' || !path[length]);
}

/* "id parent major:minor root point options [optional...] - type source super-options" */
static bool parse_mount(char *line, struct mount *mount)
{
	char *fields[6], *rest, *dash = calyx_find(line, " - "), *type, *source, *super;

	if (!dash)
		return false;
	*dash = 0;
	for (int i = 0; i < 6; i++) {
		fields[i] = strtok_r(i ? NULL : line, " ", &rest);
		if (!fields[i])
			return false;
	}
	type = strtok_r(dash + 3, " ", &rest);
	source = strtok_r(NULL, " ", &rest);
	super = strtok_r(NULL, " ", &rest);
	if (!type || !source)
		return false;
	calyx_format(mount->point, sizeof(mount->point), "%s", fields[4]);
	calyx_format(mount->type, sizeof(mount->type), "%s", type);
	calyx_format(mount->source, sizeof(mount->source), "%s", source);
	calyx_format(mount->options, sizeof(mount->options), "%s,%s", fields[5], super ? super : "");
	unescape_octal(mount->point);
	unescape_octal(mount->source);
	return true;
}

bool place_real(const char *path, char real[PATH_MAX])
{
	int fd = open(path, O_PATH | O_CLOEXEC);
	char link[32];
	ssize_t length;

	if (fd < 0)
		return false;
	calyx_format(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, real, PATH_MAX - 1);
	close(fd);
	real[length < 0 ? 0 : length] = 0;
	return length > 0;
}

bool place_mount(const char *path, struct mount *mount)
{
	char real[PATH_MAX], *table = place_real(path, real) ? calyx_read_all("/proc/self/mountinfo") : NULL;
	struct mount *candidate = malloc(sizeof(*candidate));
	char *line, *rest = candidate ? table : NULL;
	bool found = false;
	size_t best = 0;

	while ((line = calyx_next_line(&rest))) {
		/* Of two mounts on one point the later one hides the earlier. */
		if (!parse_mount(line, candidate) || !is_below(real, candidate->point) ||
		    strlen(candidate->point) < best)
			continue;
		best = strlen(candidate->point);
		*mount = *candidate;
		found = true;
	}
	free(candidate);
	free(table);
	return found;
}

bool place_disk_of(dev_t device, char sysfs[PATH_MAX])
{
	char path[PATH_MAX + 16], *slash;

	calyx_format(path, sizeof(path), "/sys/dev/block/%u:%u", major(device), minor(device));
	if (!place_real(path, sysfs))
		return false;
	calyx_format(path, sizeof(path), "%s/partition", sysfs);
	slash = strrchr(sysfs, '/');
	if (!access(path, F_OK) && slash)
		*slash = 0;
	return true;
}

bool place_disk(const char *path, char sysfs[PATH_MAX])
{
	struct mount *mount;
	struct stat status;
	bool found;

	if (stat(path, &status))
		return false;
	if (S_ISBLK(status.st_mode))
		return place_disk_of(status.st_rdev, sysfs);
	if (major(status.st_dev) && place_disk_of(status.st_dev, sysfs))
		return true;
	/* btrfs and others number their files by a device of their own; the mount still names the block device. */
	mount = malloc(sizeof(*mount));
	found = mount && place_mount(path, mount) && mount->source[0] == '/' && !stat(mount->source, &status) &&
		S_ISBLK(status.st_mode) && place_disk_of(status.st_rdev, sysfs);
	free(mount);
	return found;
}

bool place_attribute(const char *sysfs, const char *name, char text[PLACE_TEXT])
{
	char path[PATH_MAX + 64];
	ssize_t length;

	calyx_format(path, sizeof(path), "%s/%s", sysfs, name);
	length = calyx_read_text(path, text, PLACE_TEXT);
	if (length < 0)
		return false;
	while (length && (text[length - 1] == '\n' || text[length - 1] == ' '))
		text[--length] = 0;
	return true;
}

static bool is_ram_nested(const char *path, int depth);

/* The upper directory of an overlay, where what is written goes. */
static bool is_overlay_on_ram(const char *path, int depth)
{
	struct mount *mount = malloc(sizeof(*mount));
	char *upper = NULL;
	bool ram = false;

	if (mount && place_mount(path, mount) && !strcmp(mount->type, "overlay"))
		upper = calyx_find(mount->options, "upperdir=");
	if (upper) {
		upper += strlen("upperdir=");
		upper[strcspn(upper, ",")] = 0;
		ram = is_ram_nested(upper, depth + 1);
	}
	free(mount);
	return ram;
}

static bool is_disk_on_ram(const char *path, int depth)
{
	char sysfs[PATH_MAX], backing[PATH_MAX], file[PATH_MAX + 32], *slash;
	const char *name;

	if (!place_disk(path, sysfs))
		return false;
	name = strrchr(sysfs, '/') + 1;
	if (!strncmp(name, "zram", 4) || !strncmp(name, "ram", 3) || !strncmp(name, "nullb", 5))
		return true;
	calyx_format(file, sizeof(file), "%s/loop/backing_file", sysfs);
	if (calyx_read_text(file, backing, sizeof(backing)) < 0)
		return false;
	backing[strcspn(backing, "\n")] = 0;
	if (!strncmp(backing, "/memfd:", 7))
		return true;
	slash = strrchr(backing, '/');
	if (access(backing, F_OK) && slash > backing) /* it was removed: the directory says where it lay */
		*slash = 0;
	return is_ram_nested(backing, depth + 1);
}

static bool is_ram_nested(const char *path, int depth)
{
	struct statfs space;

	if (depth > NESTING_MAX || statfs(path, &space))
		return false;
	/* A device node lies on devtmpfs; what counts is the device. */
	if (((unsigned long)space.f_type == TMPFS_TYPE || (unsigned long)space.f_type == RAMFS_TYPE)) {
		struct stat status;

		if (stat(path, &status) || !S_ISBLK(status.st_mode))
			return true;
	}
	return is_overlay_on_ram(path, depth) || is_disk_on_ram(path, depth);
}

bool place_is_ram(const char *path)
{
	return is_ram_nested(path, 0);
}

const char *place_discard(const char *path, const struct mount *mount)
{
	size_t length = strlen("discard");
	char sysfs[PATH_MAX], text[PLACE_TEXT];

	for (const char *at = calyx_find(mount->options, "discard"); at; at = calyx_find(at + length, "discard"))
		if ((at == mount->options || at[-1] == ',') && (!at[length] || strchr(",=", at[length])))
			return "online";
	if (!place_disk(path, sysfs) || !place_attribute(sysfs, "queue/discard_max_bytes", text))
		return NULL;
	return calyx_number(text, NULL) ? "fstrim" : "none";
}
