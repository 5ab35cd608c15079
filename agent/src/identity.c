/* SPDX-License-Identifier: Apache-2.0
 *
 * Which file system a path lies on, by the number that its makers gave it: see place.h.
 */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "place.h"

#define UUID_BYTES 16

/* FS_IOC_GETFSUUID of Linux 6.9 and later (linux/fs.h); no right is needed. */
struct fs_uuid {
	uint8_t length;
	uint8_t uuid[UUID_BYTES];
};
#define GET_FS_UUID _IOR(0x15, 0, struct fs_uuid)

/* XFS_IOC_FSGEOMETRY_V1 of every XFS: the number follows eight words and four of 64 bits. */
struct xfs_geometry {
	uint32_t sizes[8];
	uint64_t extents[4];
	uint8_t uuid[UUID_BYTES];
	uint32_t stripes[7];
};
#define GET_XFS_GEOMETRY _IOR('X', 100, struct xfs_geometry)
#define XFS_TYPE 0x58465342
#define TMPFS_TYPE 0x01021994

_Static_assert(sizeof(struct fs_uuid) == 17, "the kernel's struct fsuuid2");
_Static_assert(sizeof(struct xfs_geometry) == 112, "the kernel's struct xfs_fsop_geom_v1");

/* File systems whose statfs number is made of their uuid; that of others is made of a device's number, which may
 * change. */
static const unsigned long from_uuid[] = {0xef53 /* ext2 to ext4 */, 0x9123683e /* btrfs */, 0xf2f52010 /* f2fs */,
					  0x2fc12fc1 /* zfs */};

static void as_hex(const uint8_t *bytes, size_t count, char text[PLACE_TEXT])
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < count; i++) {
		text[2 * i] = digits[bytes[i] >> 4];
		text[2 * i + 1] = digits[bytes[i] & 15];
	}
	text[2 * count] = 0;
}

static bool xfs_uuid(int fd, const struct statfs *status, char text[PLACE_TEXT])
{
	struct xfs_geometry geometry;

	memset(&geometry, 0, sizeof(geometry));
	if ((unsigned long)status->f_type != XFS_TYPE || ioctl(fd, GET_XFS_GEOMETRY, &geometry))
		return false;
	as_hex(geometry.uuid, UUID_BYTES, text);
	return true;
}

static bool fsid(const struct statfs *status, char text[PLACE_TEXT])
{
	for (size_t i = 0; i < sizeof(from_uuid) / sizeof(*from_uuid); i++) {
		if ((unsigned long)status->f_type != from_uuid[i])
			continue;
		as_hex((const uint8_t *)&status->f_fsid, sizeof(status->f_fsid), text);
		return true;
	}
	return false;
}

static bool fs_uuid(int fd, char text[PLACE_TEXT])
{
	struct fs_uuid found;

	memset(&found, 0, sizeof(found));
	if (ioctl(fd, GET_FS_UUID, &found) || !found.length || found.length > UUID_BYTES)
		return false;
	as_hex(found.uuid, found.length, text);
	return true;
}

bool place_fs_uuid(const char *path, char text[PLACE_TEXT])
{
	struct statfs status;
	bool known = false;
	int fd;

	/* That of a tmpfs is drawn at every mount. */
	if (statfs(path, &status) || (unsigned long)status.f_type == TMPFS_TYPE)
		return false;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0) {
		known = fs_uuid(fd, text) || xfs_uuid(fd, &status, text);
		close(fd);
	}
	return known || fsid(&status, text);
}
