// SPDX-License-Identifier: Apache-2.0
// Where the next I/O goes, and in which direction (offsets.h).
#include "offsets.h"

#include "cold.h"

bool calyx_rw_trims(enum calyx_rw rw)
{
	return rw == CALYX_TRIM || rw == CALYX_RANDTRIM;
}

bool calyx_rw_reads(enum calyx_rw rw)
{
	return rw != CALYX_WRITE && rw != CALYX_RANDWRITE && !calyx_rw_trims(rw);
}

bool calyx_rw_writes(enum calyx_rw rw)
{
	return rw != CALYX_READ && rw != CALYX_RANDREAD;
}

bool calyx_rw_is_random(enum calyx_rw rw)
{
	return rw == CALYX_RANDREAD || rw == CALYX_RANDWRITE || rw == CALYX_RANDRW || rw == CALYX_RANDTRIM;
}

static const struct calyx_bssplit *split_of(const struct calyx_job *job, enum calyx_direction direction)
{
	return direction == CALYX_DIR_WRITE && job->bssplit_write.count ? &job->bssplit_write : &job->bssplit;
}

CALYX_COLD uint64_t calyx_bs_min(const struct calyx_job *job, enum calyx_direction direction)
{
	const struct calyx_bssplit *split = split_of(job, direction);
	uint64_t least = job->bs;

	for (uint32_t i = 0; i < split->count; i++)
		least = split->bs[i] < least ? split->bs[i] : least;
	return least;
}

static CALYX_COLD void init_shape(struct calyx_offsets *offsets, const struct calyx_job *job,
				  enum calyx_direction direction, uint64_t seed)
{
	const struct calyx_bssplit *split = split_of(job, direction);
	uint32_t percent = 0;

	offsets->shape[direction].align = calyx_bs_min(job, direction);
	/* The same seed: hot blocks are the same for reads and for writes of the same size. */
	calyx_spread_init(&offsets->shape[direction].spread, &job->distribution,
			  job->size / offsets->shape[direction].align, seed);
	offsets->shape[direction].length[0] = (uint32_t)job->bs;
	for (uint32_t i = 0; i < split->count; i++) {
		offsets->shape[direction].length[i] = (uint32_t)split->bs[i];
		for (uint32_t j = 0; j < split->percent[i] && percent < 100; j++)
			offsets->shape[direction].length_of[percent++] = (uint8_t)i;
	}
}

CALYX_COLD void calyx_offsets_init(struct calyx_offsets *offsets, const struct calyx_job *job, uint32_t thread)
{
	uint64_t state = job->seed + thread;

	*offsets = (struct calyx_offsets){
		.rw = job->rw,
		.bs = job->bs,
		.blocks = job->size / job->bs,
		.rwmixread = job->rwmixread,
		.fsync = job->fsync ? job->fsync : job->fdatasync,
		.base = job->offset,
		.size = job->size,
	};
	/* Neighbouring seeds would walk neighbouring states: draw the two states instead of taking the seed itself. */
	offsets->offset_state = calyx_random_next(&state);
	offsets->mix_state = calyx_random_next(&state);
	offsets->split_state = calyx_random_next(&state);
	init_shape(offsets, job, CALYX_DIR_READ, state);
	init_shape(offsets, job, CALYX_DIR_WRITE, state);
}

static enum calyx_direction direction_next(struct calyx_offsets *offsets)
{
	if (!calyx_rw_writes(offsets->rw))
		return CALYX_DIR_READ;
	if (offsets->fsync && offsets->writes_since_sync >= offsets->fsync)
		return CALYX_DIR_SYNC;
	if (!calyx_rw_reads(offsets->rw))
		return CALYX_DIR_WRITE;
	return calyx_random_below(&offsets->mix_state, 100) < offsets->rwmixread ? CALYX_DIR_READ : CALYX_DIR_WRITE;
}

struct calyx_offset calyx_offsets_next(struct calyx_offsets *offsets)
{
	struct calyx_offset next = {.direction = direction_next(offsets)};
	uint64_t block;

	if (next.direction == CALYX_DIR_SYNC) {
		offsets->writes_since_sync = 0;
		return next;
	}
	if (next.direction == CALYX_DIR_WRITE)
		offsets->writes_since_sync++;
	if (calyx_rw_is_random(offsets->rw)) {
		block = calyx_random_below(&offsets->offset_state, offsets->blocks);
	} else {
		block = offsets->position[next.direction];
		offsets->position[next.direction] = block + 1 < offsets->blocks ? block + 1 : 0;
	}
	next.offset = block * offsets->bs;
	return next;
}

struct calyx_offset calyx_offsets_next_shaped(struct calyx_offsets *offsets, uint32_t *length)
{
	struct calyx_offset next = {.direction = direction_next(offsets)};
	uint64_t at;

	if (next.direction == CALYX_DIR_SYNC) {
		offsets->writes_since_sync = 0;
		return next;
	}
	if (next.direction == CALYX_DIR_WRITE)
		offsets->writes_since_sync++;
	*length = offsets->shape[next.direction].length[offsets->shape[next.direction].length_of[calyx_random_below(
		&offsets->split_state, 100)]];
	if (calyx_rw_is_random(offsets->rw)) {
		uint64_t align = offsets->shape[next.direction].align;

		at = calyx_spread_next(&offsets->shape[next.direction].spread, &offsets->offset_state) * align;
		/* What would reach over the end ends there. */
		if (at + *length > offsets->size)
			at = (offsets->size - *length) / align * align;
	} else {
		at = offsets->shape[next.direction].at;
		if (at + *length > offsets->size)
			at = 0;
		offsets->shape[next.direction].at = at + *length;
	}
	next.offset = offsets->base + at;
	return next;
}
