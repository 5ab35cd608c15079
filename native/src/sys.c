// SPDX-License-Identifier: Apache-2.0
// The table of real system calls. Nothing here decides anything.
#include "sys.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_io_uring_setup
#define SYS_io_uring_setup 425
#define SYS_io_uring_enter 426
#define SYS_io_uring_register 427
#endif

static int checked(long value)
{
	return value < 0 ? -errno : (int)value;
}

static int real_setup(uint32_t entries, struct io_uring_params *params)
{
	return checked(syscall(SYS_io_uring_setup, entries, params));
}

static int real_enter(int fd, uint32_t to_submit, uint32_t min_complete, uint32_t flags)
{
	return checked(syscall(SYS_io_uring_enter, fd, to_submit, min_complete, flags, NULL, 0));
}

static int real_register(int fd, uint32_t opcode, const void *argument, uint32_t count)
{
	return checked(syscall(SYS_io_uring_register, fd, opcode, argument, count));
}

static int real_map(void **address, size_t length, int flags, int fd, uint64_t offset)
{
	void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, fd, (off_t)offset);

	if (at == MAP_FAILED)
		return -errno;
	*address = at;
	return 0;
}

static int real_unmap(void *address, size_t length)
{
	return checked(munmap(address, length));
}

static int real_advise(void *address, size_t length, int advice)
{
	return checked(madvise(address, length, advice));
}

static int real_mbind(void *address, size_t length, int policy, const unsigned long *nodes, unsigned long bits)
{
	return checked(syscall(SYS_mbind, address, length, policy, nodes, bits, 0));
}

static int real_open(const char *path, int flags, mode_t mode)
{
	return checked(open(path, flags, mode));
}

static int real_close(int fd)
{
	return checked(close(fd));
}

static int real_fstat(int fd, struct stat *status)
{
	return checked(fstat(fd, status));
}

static int real_set_flags(int fd, int flags)
{
	return checked(fcntl(fd, F_SETFL, flags));
}

static int64_t real_pread(int fd, void *buffer, size_t length, uint64_t offset)
{
	ssize_t count = pread(fd, buffer, length, (off_t)offset);

	return count < 0 ? -errno : count;
}

static int64_t real_pwrite(int fd, const void *buffer, size_t length, uint64_t offset)
{
	ssize_t count = pwrite(fd, buffer, length, (off_t)offset);

	return count < 0 ? -errno : count;
}

static int real_fsync(int fd)
{
	return checked(fsync(fd));
}

static int real_fdatasync(int fd)
{
	return checked(fdatasync(fd));
}

static int real_forget_cache(int fd)
{
	return -posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
}

static int real_ioctl(int fd, unsigned long request, void *argument)
{
	/* glibc takes the request as unsigned long, musl as int; the kernel looks at 32 bits. */
	return checked(syscall(SYS_ioctl, fd, request, argument));
}

static int real_unlink(const char *path)
{
	return checked(unlink(path));
}

static int real_statvfs(const char *path, struct statvfs *status)
{
	return checked(statvfs(path, status));
}

const struct calyx_sys calyx_sys_linux = {
	.io_uring_setup = real_setup,
	.io_uring_enter = real_enter,
	.io_uring_register = real_register,
	.map = real_map,
	.unmap = real_unmap,
	.advise = real_advise,
	.mbind = real_mbind,
	.open = real_open,
	.close = real_close,
	.fstat = real_fstat,
	.set_flags = real_set_flags,
	.pread = real_pread,
	.pwrite = real_pwrite,
	.fsync = real_fsync,
	.fdatasync = real_fdatasync,
	.forget_cache = real_forget_cache,
	.ioctl = real_ioctl,
	.unlink = real_unlink,
	.statvfs = real_statvfs,
};

const struct calyx_sys *calyx_sys = &calyx_sys_linux;
