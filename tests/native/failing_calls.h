/* SPDX-License-Identifier: Apache-2.0
 *
 * A table of system calls whose n-th call fails, counted over all threads, and a look at what was left behind. Giving
 * back (close, unmap, unlink, unregistering) never fails: what could a program do about it?
 */
#ifndef FAILING_CALLS_H
#define FAILING_CALLS_H

#include <linux/io_uring.h>
#include <stdatomic.h>

#include "check.h"
#include "ring.h"

static struct calyx_sys table;
static atomic_int calls, fail_at, live_maps;

static inline bool fails(void)
{
	return atomic_fetch_add(&calls, 1) + 1 == atomic_load(&fail_at);
}

static inline bool gives_back(uint32_t opcode)
{
	return opcode == IORING_UNREGISTER_BUFFERS || opcode == IORING_UNREGISTER_FILES ||
	       opcode == CALYX_UNREGISTER_RING_FDS;
}

static inline int try_setup(uint32_t entries, struct io_uring_params *params)
{
	return fails() ? -EMFILE : calyx_sys_linux.io_uring_setup(entries, params);
}

static inline int try_register(int fd, uint32_t opcode, const void *argument, uint32_t count)
{
	if (gives_back(opcode))
		return calyx_sys_linux.io_uring_register(fd, opcode, argument, count);
	return fails() ? -EIO : calyx_sys_linux.io_uring_register(fd, opcode, argument, count);
}

static inline int try_map(void **address, size_t length, int flags, int fd, uint64_t offset)
{
	int error = fails() ? -ENOMEM : calyx_sys_linux.map(address, length, flags, fd, offset);

	atomic_fetch_add(&live_maps, error == 0);
	return error;
}

static inline int try_unmap(void *address, size_t length)
{
	atomic_fetch_sub(&live_maps, 1);
	return calyx_sys_linux.unmap(address, length);
}

static inline int try_open(const char *path, int flags, mode_t mode)
{
	return fails() ? -EMFILE : calyx_sys_linux.open(path, flags, mode);
}

static inline int try_enter(int fd, uint32_t to_submit, uint32_t min_complete, uint32_t flags)
{
	return fails() ? -EIO : calyx_sys_linux.io_uring_enter(fd, to_submit, min_complete, flags);
}

static inline int try_mbind(void *address, size_t length, int policy, const unsigned long *nodes, unsigned long bits)
{
	return fails() ? -EPERM : calyx_sys_linux.mbind(address, length, policy, nodes, bits);
}

static inline int try_forget_cache(int fd)
{
	return fails() ? -EIO : calyx_sys_linux.forget_cache(fd);
}

static inline int try_fstat(int fd, struct stat *status)
{
	return fails() ? -EIO : calyx_sys_linux.fstat(fd, status);
}

static inline int try_set_flags(int fd, int flags)
{
	return fails() ? -EINVAL : calyx_sys_linux.set_flags(fd, flags);
}

static inline int64_t try_pread(int fd, void *buffer, size_t length, uint64_t offset)
{
	return fails() ? -EIO : calyx_sys_linux.pread(fd, buffer, length, offset);
}

static inline int64_t try_pwrite(int fd, const void *buffer, size_t length, uint64_t offset)
{
	return fails() ? -EIO : calyx_sys_linux.pwrite(fd, buffer, length, offset);
}

static inline int try_fsync(int fd)
{
	return fails() ? -EIO : calyx_sys_linux.fsync(fd);
}

static inline int try_fdatasync(int fd)
{
	return fails() ? -EIO : calyx_sys_linux.fdatasync(fd);
}

static inline int try_ioctl(int fd, unsigned long request, void *argument)
{
	return fails() ? -EIO : calyx_sys_linux.ioctl(fd, request, argument);
}

static inline void check_nothing_left(int n, int open_files)
{
	CHECK(atomic_load(&live_maps) == 0, "call %d: %d mappings are left", n, atomic_load(&live_maps));
	CHECK(count_open_files() == open_files, "call %d: files are left open", n);
}

static inline void fail_calls(void)
{
	table = calyx_sys_linux;
	table.io_uring_setup = try_setup;
	table.io_uring_register = try_register;
	table.map = try_map;
	table.unmap = try_unmap;
	table.open = try_open;
	table.fstat = try_fstat;
	table.set_flags = try_set_flags;
	table.pread = try_pread;
	table.pwrite = try_pwrite;
	table.fsync = try_fsync;
	table.io_uring_enter = try_enter;
	table.mbind = try_mbind;
	table.forget_cache = try_forget_cache;
	table.fdatasync = try_fdatasync;
	table.ioctl = try_ioctl;
	calyx_sys = &table;
}

/* From here on the n-th call fails; 0: none does. */
static inline void fail_call(int n)
{
	atomic_store(&calls, 0);
	atomic_store(&fail_at, n);
}

#endif
