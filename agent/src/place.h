/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a path lies: its file system and the block device below it.
 */
#ifndef CALYX_AGENT_PLACE_H
#define CALYX_AGENT_PLACE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define PLACE_TEXT 256

struct mount {
	char point[PATH_MAX], type[64], source[PATH_MAX], options[1024];
};

/* The path without links and dots, as the kernel names what it opens; false with errno where it leads nowhere. */
bool place_real(const char *path, char real[PATH_MAX]);
/* The mount that holds an existing path, by /proc/self/mountinfo. False when there is none to be found. */
bool place_mount(const char *path, struct mount *mount);
/* The directory in /sys of the whole disk below an existing path (of a partition: its parent). False when there is
 * none. */
bool place_disk(const char *path, char sysfs[PATH_MAX]);
/* The same of a block device's number. */
bool place_disk_of(dev_t device, char sysfs[PATH_MAX]);
/* Does the data of an existing path lie in memory (tmpfs, ramfs, an overlay or a loop device on them, a RAM disk)? */
bool place_is_ram(const char *path);
/* The number of the file system of an existing directory, in hex: its uuid, or what statfs makes of it. False when it
 * has none that lasts (a file system of another machine, an unmounted place). */
bool place_fs_uuid(const char *path, char text[PLACE_TEXT]);
/* What gives the bytes of removed files back to a thin disk: online, fstrim, none; NULL when that is not known. */
const char *place_discard(const char *path, const struct mount *mount);
/* A small file below a directory of /sys, without its newline. False when it cannot be read. */
bool place_attribute(const char *sysfs, const char *name, char text[PLACE_TEXT]);

#endif
