/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of one thread's loop (engine.c), which calls them in turn; reaping is in crew.h.
 */
#ifndef CALYX_LOOP_H
#define CALYX_LOOP_H

#include "crew.h"

/* refill.c: how many I/Os the first queue holds: filled, not published. */
uint32_t calyx_worker_prepare_first(struct calyx_worker *w);
/* Gives each free slot that may have one its next I/O. */
void calyx_worker_refill(struct calyx_worker *w);
/* Goes on with what was short, or is tried again. */
void calyx_worker_resume(struct calyx_worker *w);
void calyx_worker_fill_sync(struct calyx_worker *w, struct io_uring_sqe *sqe, uint32_t index);
/* Makes the next `count` prepared ones visible; returns the instant from which their latency runs. */
uint64_t calyx_worker_publish(struct calyx_worker *w, uint32_t count);
/* Hands everything published to the kernel. */
void calyx_worker_submit(struct calyx_worker *w);
/* What io_uring_enter answered, 0 or -errno. */
void calyx_worker_note_submission(struct calyx_worker *w, int error);
/* wait.c: I/Os that are published and not yet taken by the kernel, without the timers among them. */
uint32_t calyx_worker_count_untaken(const struct calyx_worker *w);
/* Until there may be completions. */
void calyx_worker_wait(struct calyx_worker *w);

#endif
