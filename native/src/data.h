/* SPDX-License-Identifier: Apache-2.0
 *
 * Data that no layer below can compress or deduplicate: buffers are filled with random bytes once, before the start,
 * and each write stamps 8 bytes into every 512 of them, the smallest piece that anything below compares (fio's
 * scramble_buffers does so, too). The stamps of a thread are a Weyl sequence: the next is the last plus an odd number,
 * so that none comes again in 2^64, and no compressor sees a counter in them.
 */
#ifndef CALYX_DATA_H
#define CALYX_DATA_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define CALYX_DATA_BLOCK 4096u
#define CALYX_DATA_SECTOR 512u
#define CALYX_DATA_STEP 0xd1342543de82ef95ull
/* A thread that writes goes through at least this much distinct data before its buffers come round again, so that a
 * compressor with a window (gzip 32 KiB, ZFS records of 128 KiB) finds no earlier copy. */
#define CALYX_DATA_POOL_MIN (1u << 20)
/* buffer_compress_percentage: of each such piece the last N percent are 0, as fio's buffer_compress_chunk has it. */
#define CALYX_DATA_CHUNK 512u
/* dedupe_percentage: so much data is written again and again, block for block; wider than a compressor's window. */
#define CALYX_DATA_TWICE_BYTES (256u << 10)

void calyx_data_fill(void *buffer, size_t length, uint64_t seed);
/* The same, with N percent zeros: a compressor leaves about 100 - N percent. */
void calyx_data_fill_compressible(void *buffer, size_t length, uint64_t seed, uint32_t percent);
uint64_t calyx_data_tag(uint64_t data_seed, uint32_t thread);

/* Makes each sector of a buffer unlike any other that was written with `stamp`. */
static inline void calyx_data_stamp(void *buffer, size_t length, uint64_t *stamp)
{
	uint64_t next = *stamp;

	for (size_t at = 0; at + sizeof(next) <= length; at += CALYX_DATA_SECTOR) {
		next += CALYX_DATA_STEP;
		memcpy((unsigned char *)buffer + at, &next, sizeof(next));
	}
	*stamp = next;
}

/* Which writes of dedupe_percentage=N are copies: exactly N of 100 in the long run. There are `originals` buffers to
 * copy; the first write of each is no copy yet, and is made up for later. */
struct calyx_dedupe {
	uint32_t percent, originals, seen, next;
	uint64_t owed;
};

/* The original to write, or UINT32_MAX for data of its own. */
uint32_t calyx_dedupe_next(struct calyx_dedupe *dedupe);

#endif
