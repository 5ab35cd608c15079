/* SPDX-License-Identifier: Apache-2.0
 *
 * Data that no layer below can compress or deduplicate: buffers are filled with random bytes once, before the start,
 * and each write stamps a tag of 16 bytes into every block of 4 KiB:
 *
 *   bytes 0 .. 7    mixed from the data seed and the thread
 *   bytes 8 .. 15   a counter of that thread, never repeated
 */
#ifndef CALYX_DATA_H
#define CALYX_DATA_H

#include <stddef.h>
#include <stdint.h>

#define CALYX_DATA_BLOCK 4096u
/* A thread that writes goes through at least this much distinct data before its buffers come round again, so that a
 * compressor with a window (gzip 32 KiB, ZFS records of 128 KiB) finds no earlier copy. */
#define CALYX_DATA_POOL_MIN (1u << 20)

void calyx_data_fill(void *buffer, size_t length, uint64_t seed);
uint64_t calyx_data_tag(uint64_t data_seed, uint32_t thread);
void calyx_data_stamp(void *buffer, size_t length, uint64_t tag, uint64_t *counter);

#endif
