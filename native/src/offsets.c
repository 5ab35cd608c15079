// SPDX-License-Identifier: Apache-2.0
// Where the next I/O goes, and in which direction (offsets.h).
#include "offsets.h"

bool calyx_rw_reads(enum calyx_rw rw)
{
	return rw != CALYX_WRITE && rw != CALYX_RANDWRITE;
}

bool calyx_rw_writes(enum calyx_rw rw)
{
	return rw != CALYX_READ && rw != CALYX_RANDREAD;
}

static bool is_random(enum calyx_rw rw)
{
	return rw == CALYX_RANDREAD || rw == CALYX_RANDWRITE || rw == CALYX_RANDRW;
}

void calyx_offsets_init(struct calyx_offsets *offsets, const struct calyx_job *job, uint32_t thread)
{
	uint64_t state = job->seed + thread;

	*offsets = (struct calyx_offsets){
		.rw = job->rw,
		.bs = job->bs,
		.blocks = job->size / job->bs,
		.rwmixread = job->rwmixread,
		.fsync = job->fsync,
	};
	/* Neighbouring seeds would walk neighbouring states: draw the two states instead of taking the seed itself. */
	offsets->offset_state = calyx_random_next(&state);
	offsets->mix_state = calyx_random_next(&state);
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
	if (is_random(offsets->rw)) {
		block = calyx_random_below(&offsets->offset_state, offsets->blocks);
	} else {
		block = offsets->position[next.direction];
		offsets->position[next.direction] = block + 1 < offsets->blocks ? block + 1 : 0;
	}
	next.offset = block * offsets->bs;
	return next;
}
