/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of calyx_job_check, and what it needs to know of buffers.
 */
#ifndef CALYX_JOB_H
#define CALYX_JOB_H

#include "calyx/engine.h"

#define CALYX_BUFFER_BYTES_MAX (1ull << 30) /* the kernel registers at most 1 GiB in one piece */

/* job_words.c */
int calyx_job_check_words(const struct calyx_job *job, char *reason);
/* pool.c: bytes of a thread's buffers; turns is how many variants of data each place in the queue has. */
uint64_t calyx_pool_bytes(const struct calyx_job *job, uint32_t *turns);

#endif
