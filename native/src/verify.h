/* SPDX-License-Identifier: Apache-2.0
 *
 * verify=crc32c: each block of 4 KiB says what it is, so that what reads back wrong is found and named.
 *
 *   bytes  0 ..  7   "calyx\0v1"
 *          8 .. 15   the offset in its file that it was written for
 *         16 .. 23   generation: which write of its thread wrote it, from 1; 0 of a layout
 *         24 .. 31   the tag of data.h
 *         32 .. 35   CRC-32C of the block with these four bytes as 0
 *         36 .. 39   0; data follows
 *
 * Little-endian. A block is bad by its crc, else by its offset (a write or a read went astray), else by its generation:
 * older than the newest write that was acknowledged before the read was prepared (a write was lost). That is asked only
 * where the answer is certain: writes to one block that are in flight together may land in any order, and a read beside
 * a write may see either.
 */
#ifndef CALYX_VERIFY_H
#define CALYX_VERIFY_H

#include <stdbool.h>
#include <stdint.h>

#include "calyx/engine.h"
#include "data.h"

struct calyx_verify {
	uint32_t thread, generation; /* the newest write that was prepared */
	uint64_t first_block, blocks;
	/* Of each block, and only in a job that writes; else NULL. */
	uint32_t *acknowledged; /* the generation that must be there; 0: not known */
	uint16_t *writing;	/* writes in flight; WRITES_OVERLAP when there were two at once */
	struct calyx_verified found;
};

/* How many bytes the notes of one thread take: 0 where nothing is written, or without verify. */
uint64_t calyx_verify_bytes(const struct calyx_job *job);
/* Gives memory for a thread: 0 or -ENOMEM. calyx_verify_free takes it back. */
int calyx_verify_init(struct calyx_verify *verify, const struct calyx_job *job, uint32_t thread);
void calyx_verify_free(struct calyx_verify *verify);

/* Writes the headers of a buffer that is going to `offset`. */
void calyx_verify_stamp(void *buffer, uint64_t length, uint64_t offset, uint64_t generation, uint64_t tag);
/* What is wrong with one block: 0 nothing, else 1 + enum calyx_bad. `generation` 0: any. */
int calyx_verify_block(const void *block, uint64_t offset, uint32_t generation);
/* Can a block be checked at all? */
bool calyx_verify_has_header(const void *block);

/* A write is prepared: its generation. */
uint32_t calyx_verify_begin_write(struct calyx_verify *verify, void *buffer, uint64_t length, uint64_t offset,
				  uint64_t tag);
void calyx_verify_end_write(struct calyx_verify *verify, uint64_t length, uint64_t offset, uint32_t generation,
			    bool acknowledged);
/* A read is prepared: false when writes to its blocks are in flight, so that their generation is not certain. */
bool calyx_verify_begin_read(const struct calyx_verify *verify, uint64_t length, uint64_t offset);
/* A read has ended: how many blocks are bad. `newest` and `certain` are from when it was prepared. */
uint32_t calyx_verify_end_read(struct calyx_verify *verify, const void *buffer, uint64_t length, uint64_t offset,
			       uint32_t newest, bool certain);

#endif
