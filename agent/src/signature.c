/* SPDX-License-Identifier: Apache-2.0
 *
 * Magic numbers: see signature.h. They are those that the formats' own documents and the kernel's headers name; each is
 * long enough, or is checked further, so that random data left by an earlier run is not taken for one.
 */
#include "signature.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define KIB 1024
#define MIB (1024 * KIB)

/* `at` below 0: from the end of the device. Behind its bytes lies the name. */
struct magic {
	int at, length;
	const char *bytes;
};

#define MAGIC(at, bytes, name)                                                                                         \
	{                                                                                                              \
		at, sizeof(bytes) - 1, bytes name                                                                      \
	}
#define MD "\xfc\x4e\x2b\xa9"

static const struct magic magics[] = {
	MAGIC(0, "XFSB", "XFS"),
	MAGIC(0, "LUKS\xba\xbe", "LUKS"),
	MAGIC(0, "bluestore block device", "Ceph BlueStore"),
	MAGIC(0, "hsqs", "squashfs"),
	MAGIC(0, "integrt", "dm-integrity"),
	MAGIC(0, "verity\0\0", "dm-verity"),
	MAGIC(0, "dmvdo001", "VDO"),
	MAGIC(3, "NTFS    ", "NTFS"),
	MAGIC(3, "EXFAT   ", "exFAT"),
	MAGIC(3, "ReFS\0\0\0\0", "ReFS"),
	MAGIC(3, "-FVE-FS-", "BitLocker"),
	MAGIC(32, "NXSB", "APFS"),
	MAGIC(32, "ORCLDISK", "Oracle ASM"),
	MAGIC(54, "FAT1", "FAT"),
	MAGIC(82, "FAT32   ", "FAT"),
	MAGIC(512, "EFI PART", "a GPT partition table"),
	MAGIC(4 * KIB, "EFI PART", "a GPT partition table"),
	MAGIC(-512, "EFI PART", "a GPT partition table"),
	MAGIC(-4 * KIB, "EFI PART", "a GPT partition table"),
	MAGIC(512, "!Stra0tis\x86\xff\x02^\x41rh", "Stratis"),
	MAGIC(0, "LABELONE", "LVM2"),
	MAGIC(512, "LABELONE", "LVM2"),
	MAGIC(1024, "LABELONE", "LVM2"),
	MAGIC(1536, "LABELONE", "LVM2"),
	MAGIC(0, MD, "MD"),
	MAGIC(4 * KIB, MD, "MD"),
	MAGIC(1024, "\x10\x20\xf5\xf2", "F2FS"),
	MAGIC(1024, "\xe2\xe1\xf5\xe0", "EROFS"),
	MAGIC(1024, "H+\0\x04", "HFS+"),
	MAGIC(1024, "HX\0\x05", "HFS+"),
	MAGIC(1024, "\x02\0\0\0\0\0\x34\x34", "NILFS2"),
	MAGIC(4 * KIB + 24, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "bcache"),
	MAGIC(4 * KIB + 24, "\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef", "bcachefs"),
	MAGIC(16 * KIB + 20, "\0\0\0\x07version", "ZFS"),
	MAGIC(8 * KIB, "OCFSV2", "OCFS2"),
	MAGIC(32 * KIB, "JFS1", "JFS"),
	MAGIC(32 * KIB + 1, "CD001", "ISO 9660"),
	MAGIC(32 * KIB + 1, "BEA01", "UDF"),
	MAGIC(64 * KIB, "\x01\x16\x19\x70", "GFS2"),
	MAGIC(64 * KIB + 52, "ReIsEr", "ReiserFS"),
	MAGIC(64 * KIB + 64, "_BHRfS_M", "btrfs"),
	MAGIC(MIB, "\x0d\xd0\x01\xc0", "VMFS"),
	MAGIC(4 * KIB - 10, "SWAPSPACE2", "swap space"),
	MAGIC(16 * KIB - 10, "SWAPSPACE2", "swap space"),
	MAGIC(64 * KIB - 10, "SWAPSPACE2", "swap space"),
	MAGIC(4 * KIB - 10, "S1SUSPEND", "a hibernated system"),
};

static int read_at(int fd, uint64_t size_bytes, long long at, void *data, size_t length)
{
	uint64_t from = at < 0 ? size_bytes - (uint64_t)-at : (uint64_t)at;
	ssize_t count;

	if ((at < 0 && (uint64_t)-at > size_bytes) || from + length > size_bytes)
		return -ERANGE; /* it is too small to bear that */
	count = pread(fd, data, length, (off_t)from);
	if (count < 0)
		return -errno;
	return (size_t)count == length ? 0 : -EIO;
}

static bool is_ext(const unsigned char *block)
{
	const unsigned char *super = block + KIB;

	/* The magic of two bytes, and a block size of 2^10 to 2^16. */
	return super[56] == 0x53 && super[57] == 0xef && super[24] <= 6 && !super[25] && !super[26] && !super[27];
}

/* A master boot record has four flags of 0x00 or 0x80; a boot sector begins with a jump. */
static bool is_boot_sector(const unsigned char *block)
{
	bool flags = true;

	for (int i = 0; i < 4; i++)
		flags = flags && !(block[446 + 16 * i] & 0x7f);
	return block[510] == 0x55 && block[511] == 0xaa && (flags || block[0] == 0xeb || block[0] == 0xe9);
}

/* Of the old kind in the last whole 64 KiB but one; version 1.0 8 KiB from the end, at a multiple of 4 KiB. */
static int find_md_at_end(int fd, uint64_t size_bytes, bool *found)
{
	uint64_t places[2] = {size_bytes & ~(64 * KIB - 1ull), (size_bytes & ~511ull) - 8 * KIB};
	unsigned char magic[4];
	int error = 0;

	places[0] -= 64 * KIB;
	places[1] &= ~(4 * KIB - 1ull);
	for (int i = 0; i < 2 && !error && !*found && size_bytes >= 128 * KIB; i++) {
		error = read_at(fd, size_bytes, (long long)places[i], magic, sizeof(magic));
		/* The old kind is in the byte order of the machine that wrote it. */
		*found = !error && (!memcmp(magic, MD, 4) || !memcmp(magic, "\xa9\x2b\x4e\xfc", 4));
	}
	return error;
}

int signature_find(int fd, uint64_t size_bytes, const char **name)
{
	unsigned char block[4096];
	bool found = false;
	int error;

	*name = NULL;
	/* A file system that was unmounted wrote past these pages. */
	posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	error = read_at(fd, size_bytes, 0, block, sizeof(block));
	if (!error && is_ext(block))
		*name = "ext2, ext3 or ext4";
	for (size_t i = 0; !error && !*name && i < sizeof(magics) / sizeof(*magics); i++) {
		const struct magic *magic = &magics[i];
		unsigned char bytes[32];

		error = read_at(fd, size_bytes, magic->at, bytes, (size_t)magic->length);
		if (!error && !memcmp(bytes, magic->bytes, (size_t)magic->length))
			*name = magic->bytes + magic->length;
		error = error == -ERANGE ? 0 : error;
	}
	if (!error && !*name && is_boot_sector(block))
		*name = "a partition table or boot sector";
	if (!error && !*name) {
		error = find_md_at_end(fd, size_bytes, &found);
		*name = found ? "MD" : NULL;
	}
	return error;
}
