/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the next I/O goes, and in which direction: pure, and the same for the same seed. Random offsets are drawn
 * without a map (a block may come twice in a pass); sequential reads and writes of a mix each have a position of their
 * own.
 */
#ifndef CALYX_OFFSETS_H
#define CALYX_OFFSETS_H

#include <stdbool.h>
#include <stdint.h>

#include "calyx/engine.h"
#include "distribution.h"

struct calyx_offsets {
	enum calyx_rw rw;
	uint64_t bs, blocks;
	uint32_t rwmixread, fsync;
	uint64_t offset_state, mix_state;
	uint64_t position[2]; /* next block of sequential reads and writes */
	uint32_t writes_since_sync;

	/* Of a shaped job alone, by direction: */
	uint64_t base, size, split_state;
	struct {
		uint64_t align, at; /* offsets are multiples of it; where the next sequential I/O begins */
		struct calyx_spread spread;
		uint32_t length[CALYX_SPLIT_MAX];
		uint8_t length_of[100]; /* by percent of the I/Os */
	} shape[2];
};

struct calyx_offset {
	enum calyx_direction direction;
	uint64_t offset; /* bytes; 0 for an fsync */
};

/* One step of SplitMix64 (Steele, Lea, Flood 2014). */
static inline uint64_t calyx_random_next(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15ull);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

/* Uniform in [0, below). The bias of the multiplication is below/2^32, that of the remainder below/2^64. */
static inline uint64_t calyx_random_below(uint64_t *state, uint64_t below)
{
	uint64_t value = calyx_random_next(state);

	if (below <= UINT32_MAX)
		return ((value >> 32) * below) >> 32;
	return value % below;
}

bool calyx_rw_trims(enum calyx_rw rw);
bool calyx_rw_reads(enum calyx_rw rw);
bool calyx_rw_writes(enum calyx_rw rw);
bool calyx_rw_is_random(enum calyx_rw rw);
void calyx_offsets_init(struct calyx_offsets *offsets, const struct calyx_job *job, uint32_t thread);
struct calyx_offset calyx_offsets_next(struct calyx_offsets *offsets);
/* The same with all of fio's words: an offset, sizes by percent, a distribution. length is untouched for an fsync. */
struct calyx_offset calyx_offsets_next_shaped(struct calyx_offsets *offsets, uint32_t *length);
/* The smallest block of a direction. */
uint64_t calyx_bs_min(const struct calyx_job *job, enum calyx_direction direction);

#endif
