/* SPDX-License-Identifier: Apache-2.0
 *
 * Raw block devices: which one is meant, and whether its content may be destroyed.
 *
 *   found      by a path that leads to a device node, or by `serial:TEXT`; never made, never a regular file
 *   refused    when it or a part of it is mounted, swap, held by a driver above it (LVM, MD, device mapper, loop) or
 *              opened exclusively; when it is a partition or lies on other devices; when it bears a partition table, a
 *              signature, or anything but zeros at its ends
 *   held       open with O_EXCL and locked from `prepare` to `clean`, so that nobody mounts it meanwhile
 *   let go of  with zeros at its ends, where we wrote; the guard does it for a killed agent
 *   the same   by number and, where the kernel has it, by the sequence number of its disk, at each start
 */
#ifndef CALYX_AGENT_DEVICE_H
#define CALYX_AGENT_DEVICE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "json.h"
#include "place.h"

#define DEVICES_MAX 16
#define DEVICE_SERIAL "serial:"

struct device {
	char node[PATH_MAX];	 /* /dev/sdb */
	char sysfs[PATH_MAX];	 /* its directory below /sys/devices */
	char serial[PLACE_TEXT]; /* "" when it has none */
	dev_t number;
	uint64_t size_bytes;
};

struct device_hold {
	dev_t number;
	uint64_t sequence; /* of the disk, 0 when the kernel does not say */
	uint64_t size_bytes;
	uint64_t used_bytes; /* of it from its start */
	int fd;		     /* 0: a free place */
	char node[PATH_MAX];
};

/* Held by the agent; the kernel lets go of them with it. In memory that the guard shares. */
struct device_holds {
	struct device_hold held[DEVICES_MAX];
};

/* "MAJOR:MINOR" */
bool device_parse_number(const char *text, dev_t *number);
/* 0, or -errno with a sentence in why (WHY_MAX bytes). */
int device_find(const char *written, struct device *device, char *why);
/* May its content be destroyed? 0, or -errno with a sentence in why. Opens it for reading alone. */
int device_check(const struct device *device, char *why);
/* Parts of device_check: what loop devices lie on, and zeros at both ends. */
int device_check_loops(const struct device *device, char *why);
int device_check_blank(const struct device *device, int fd, char *why);
/* Adds to a sentence what to do when nobody needs the content. */
void device_tell_way_out(const struct device *device, char *why);
/* Zeros at both ends, within the bytes that were used. */
void device_make_blank(int fd, uint64_t size_bytes, uint64_t used_bytes);
/* As device_check, and leaves it open, for nobody else until it is closed: the descriptor. */
int device_open(const struct device *device, int access, char *why);
/* Checks, opens and holds it. The descriptor, which stays with the holds, or -errno with a sentence in why. */
int device_hold(struct device_holds *holds, const struct device *device, uint64_t used_bytes, char *why);
/* Is the block device at `path` held, and still the same? How much of it is used, 0 when `path` is no block device, or
 * -errno with a sentence in why. */
int64_t device_is_held(const struct device_holds *holds, const char *path, char *why);
void device_let_go(struct device_holds *holds);
/* The same for the guard of a dead agent, whose descriptors are gone. */
void device_let_go_of_dead(struct device_holds *holds);
/* The object `disk` of a path's facts: which disk it is. `sysfs` is its directory, NULL: there is none, and it is null.
 */
void device_write_disk(struct json *json, const char *sysfs);
/* The object `block` of a path's facts: null where it is no block device. */
void device_write(struct json *json, const char *written);

#endif
