/* SPDX-License-Identifier: Apache-2.0
 *
 * A ring without io_uring, for guests where that is forbidden: the same queues in ordinary memory, and entering it does
 * one pread, pwrite or fsync after the other. So the loop, its clock and its counts are the same; only the kernel's
 * side is played here, by blocking calls, which is why the queue depth is 1.
 */
#ifndef CALYX_PSYNC_H
#define CALYX_PSYNC_H

#include "ring.h"

/* 0 or -errno. fd stays the caller's. calyx_ring_close closes what this made. */
int calyx_psync_open(struct calyx_ring *ring, uint32_t entries, int fd, bool trim);
/* As io_uring_enter: how many were taken. Timers are answered when they are due; with min_complete above 0 and nothing
 * completed it sleeps until the first one is. */
int calyx_psync_enter(struct calyx_ring *ring, uint32_t to_submit, uint32_t min_complete);

#endif
