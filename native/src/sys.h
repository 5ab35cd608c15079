/* SPDX-License-Identifier: Apache-2.0
 *
 * The system calls that make and check I/O, behind one table. A test points calyx_sys at a table of its own to make the
 * n-th call fail, or to bend what the kernel answers. Every entry returns a value >= 0, or -errno: errno itself is
 * never read elsewhere, so no message can end in "Success". The price is one indirect call beside a system call.
 */
#ifndef CALYX_SYS_H
#define CALYX_SYS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>

struct io_uring_params;

struct calyx_sys {
	int (*io_uring_setup)(uint32_t entries, struct io_uring_params *params);
	int (*io_uring_enter)(int fd, uint32_t to_submit, uint32_t min_complete, uint32_t flags);
	int (*io_uring_register)(int fd, uint32_t opcode, const void *argument, uint32_t count);
	int (*map)(void **address, size_t length, int flags, int fd, uint64_t offset);
	int (*unmap)(void *address, size_t length);
	int (*advise)(void *address, size_t length, int advice); /* madvise */
	int (*mbind)(void *address, size_t length, int policy, const unsigned long *nodes, unsigned long bits);
	int (*open)(const char *path, int flags, mode_t mode);
	int (*close)(int fd);
	int (*fstat)(int fd, struct stat *status);
	int (*set_flags)(int fd, int flags); /* fcntl(F_SETFL) */
	int64_t (*pread)(int fd, void *buffer, size_t length, uint64_t offset);
	int64_t (*pwrite)(int fd, const void *buffer, size_t length, uint64_t offset);
	int (*fsync)(int fd);
	int (*fdatasync)(int fd);
	int (*forget_cache)(int fd); /* posix_fadvise(DONTNEED) over the whole file */
	int (*ioctl)(int fd, unsigned long request, void *argument);
	int (*unlink)(const char *path);
	int (*statvfs)(const char *path, struct statvfs *status);
};

extern const struct calyx_sys calyx_sys_linux;
extern const struct calyx_sys *calyx_sys;

#endif
