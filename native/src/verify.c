// SPDX-License-Identifier: Apache-2.0
// Blocks that say what they are (verify.h).
#include "verify.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "crc32c.h"
#include "offsets.h"

#define MAGIC "calyx\0v1"
#define WRITES_OVERLAP 0x8000u

struct header {
	unsigned char magic[8];
	uint64_t offset, generation, tag;
	uint32_t crc, zero;
};
_Static_assert(sizeof(struct header) == 40, "the layout of verify.h");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "blocks are little-endian");
_Static_assert(CALYX_IODEPTH_MAX < WRITES_OVERLAP, "writes in flight are counted below the mark");

/* Memory that is there before the start. */
static void *allocate_touched(uint64_t count, size_t size)
{
	volatile unsigned char *memory = calloc(count, size);

	for (uint64_t i = 0; memory && i < count * size; i += 1024)
		memory[i] = 0;
	return (void *)memory;
}

uint64_t calyx_verify_bytes(const struct calyx_job *job)
{
	const struct calyx_verify *verify = NULL;

	if (!job->verify || !calyx_rw_writes(job->rw))
		return 0;
	return job->size / CALYX_DATA_BLOCK * (sizeof(*verify->acknowledged) + sizeof(*verify->writing));
}

int calyx_verify_init(struct calyx_verify *verify, const struct calyx_job *job, uint32_t thread)
{
	*verify = (struct calyx_verify){
		.thread = thread,
		.first_block = job->offset / CALYX_DATA_BLOCK,
		.blocks = job->size / CALYX_DATA_BLOCK,
	};
	calyx_crc32c_init();
	if (!calyx_rw_writes(job->rw))
		return 0;
	verify->acknowledged = allocate_touched(verify->blocks, sizeof(*verify->acknowledged));
	verify->writing = allocate_touched(verify->blocks, sizeof(*verify->writing));
	return verify->acknowledged && verify->writing ? 0 : -ENOMEM;
}

void calyx_verify_free(struct calyx_verify *verify)
{
	free(verify->acknowledged);
	free(verify->writing);
	verify->acknowledged = NULL;
	verify->writing = NULL;
}

static uint32_t block_crc(const void *block, struct header *header)
{
	/* The crc field counts as 0: that is also what the block holds while its sum is made. */
	unsigned char *at = (unsigned char *)block + offsetof(struct header, crc);
	uint32_t crc, zero = 0;

	memcpy(header, block, sizeof(*header));
	memcpy(at, &zero, sizeof(zero));
	crc = calyx_crc32c(block, CALYX_DATA_BLOCK);
	memcpy(at, &header->crc, sizeof(header->crc));
	return crc;
}

void calyx_verify_stamp(void *buffer, uint64_t length, uint64_t offset, uint64_t generation, uint64_t tag)
{
	struct header header = {.generation = generation, .tag = tag};

	memcpy(header.magic, MAGIC, sizeof(header.magic));
	for (uint64_t at = 0; at + CALYX_DATA_BLOCK <= length; at += CALYX_DATA_BLOCK) {
		unsigned char *block = (unsigned char *)buffer + at;

		header.offset = offset + at;
		header.crc = 0;
		memcpy(block, &header, sizeof(header));
		header.crc = calyx_crc32c(block, CALYX_DATA_BLOCK);
		memcpy(block + offsetof(struct header, crc), &header.crc, sizeof(header.crc));
	}
}

bool calyx_verify_has_header(const void *block)
{
	return memcmp(block, MAGIC, sizeof(((struct header *)0)->magic)) == 0;
}

int calyx_verify_block(const void *block, uint64_t offset, uint32_t generation)
{
	struct header header;

	if (!calyx_verify_has_header(block) || block_crc(block, &header) != header.crc)
		return 1 + CALYX_BAD_CRC;
	if (header.offset != offset)
		return 1 + CALYX_BAD_OFFSET;
	if (generation && (uint32_t)header.generation != generation)
		return 1 + CALYX_BAD_GENERATION;
	return 0;
}

static uint64_t block_of(const struct calyx_verify *verify, uint64_t offset)
{
	return offset / CALYX_DATA_BLOCK - verify->first_block;
}

uint32_t calyx_verify_begin_write(struct calyx_verify *verify, void *buffer, uint64_t length, uint64_t offset,
				  uint64_t tag)
{
	uint64_t from = block_of(verify, offset), to = from + length / CALYX_DATA_BLOCK;

	/* 0 says that nothing is known. */
	verify->generation = verify->generation == UINT32_MAX ? 1 : verify->generation + 1;
	calyx_verify_stamp(buffer, length, offset, verify->generation, tag);
	for (uint64_t i = from; verify->writing && i < to; i++) {
		if (verify->writing[i])
			verify->writing[i] |= WRITES_OVERLAP;
		verify->writing[i]++;
	}
	return verify->generation;
}

void calyx_verify_end_write(struct calyx_verify *verify, uint64_t length, uint64_t offset, uint32_t generation,
			    bool acknowledged)
{
	uint64_t from = block_of(verify, offset), to = from + length / CALYX_DATA_BLOCK;

	for (uint64_t i = from; verify->writing && i < to; i++) {
		bool alone = !(verify->writing[i] & WRITES_OVERLAP);

		verify->acknowledged[i] = acknowledged && alone ? generation : 0;
		verify->writing[i]--;
		if (verify->writing[i] == WRITES_OVERLAP)
			verify->writing[i] = 0;
	}
}

bool calyx_verify_begin_read(const struct calyx_verify *verify, uint64_t length, uint64_t offset)
{
	uint64_t from = block_of(verify, offset), to = from + length / CALYX_DATA_BLOCK;
	uint32_t writing = 0;

	for (uint64_t i = from; verify->writing && i < to; i++)
		writing |= verify->writing[i];
	return writing == 0;
}

static void note_bad(struct calyx_verify *verify, uint64_t offset, enum calyx_bad why)
{
	struct calyx_verified *found = &verify->found;

	found->bad++;
	if (found->first_bad_count < CALYX_BAD_MAX)
		found->first_bad[found->first_bad_count++] = (struct calyx_bad_block){verify->thread, why, offset};
}

uint32_t calyx_verify_end_read(struct calyx_verify *verify, const void *buffer, uint64_t length, uint64_t offset,
			       uint32_t newest, bool certain)
{
	uint64_t block = block_of(verify, offset), bad = verify->found.bad;

	for (uint64_t at = 0; at + CALYX_DATA_BLOCK <= length; at += CALYX_DATA_BLOCK, block++) {
		uint32_t generation = 0;
		int wrong;

		/* A write that was prepared later than this read may or may not be in it. */
		if (certain && verify->writing && !verify->writing[block] &&
		    (int32_t)(newest - verify->acknowledged[block]) >= 0)
			generation = verify->acknowledged[block];
		wrong = calyx_verify_block((const unsigned char *)buffer + at, offset + at, generation);
		verify->found.checked++;
		if (wrong)
			note_bad(verify, offset + at, (enum calyx_bad)(wrong - 1));
	}
	return (uint32_t)(verify->found.bad - bad);
}
