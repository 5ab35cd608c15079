/* SPDX-License-Identifier: Apache-2.0
 *
 * Can completions of a file be polled for (iopoll)? Asked before a run: where it is not possible, some kernels fail at
 * the first I/O, others complete it by interrupt and say nothing.
 */
#ifndef CALYX_POLLING_H
#define CALYX_POLLING_H

#include <stddef.h>
#include <stdint.h>

/* One polled read of `length` bytes at `offset`, after a look at the device's queue/io_poll. 0, or -errno with a
 * sentence that names the device. */
int calyx_polling_check(int fd, const char *path, void *buffer, size_t length, uint64_t offset, char *reason);

#endif
