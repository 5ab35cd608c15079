// Fuzz: is any `run` line either refused with a sentence or a job whose every I/O stays within its file?
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "job.h"
#include "offsets.h"
#include "require.h"

#define DRAWS 64
#define BLOCKS_QUICK 4096 /* a sum over more blocks than this takes too long to be done often */

static void check_numbers(const struct calyx_job *job)
{
	REQUIRE(job->paths_count >= 1 && job->paths_count <= CALYX_JOBS_MAX && job->paths[0][0]);
	REQUIRE(job->iodepth >= 1 && job->iodepth <= CALYX_IODEPTH_MAX && job->rwmixread <= 100);
	REQUIRE(job->bs >= 512 && job->size >= job->bs && job->runtime_ns > 0);
	REQUIRE(job->deadline_ns == 0 || job->deadline_ns >= job->ramp_ns + job->runtime_ns);
	REQUIRE(job->setup != CALYX_SETUP_PSYNC || job->iodepth == 1);
}

static void check_offsets(const struct calyx_job *job)
{
	static struct calyx_offsets offsets;

	calyx_offsets_init(&offsets, job, 0);
	for (int i = 0; i < DRAWS; i++) {
		uint32_t length = (uint32_t)job->bs;
		struct calyx_offset next = calyx_offsets_next_shaped(&offsets, &length);

		if (next.direction == CALYX_DIR_SYNC)
			continue;
		REQUIRE(next.direction != CALYX_DIR_READ || calyx_rw_reads(job->rw));
		REQUIRE(next.direction != CALYX_DIR_WRITE || calyx_rw_writes(job->rw));
		REQUIRE(length > 0 && length <= job->bs);
		REQUIRE(next.offset >= job->offset && next.offset + length <= job->offset + job->size);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char why[WHY_MAX] = "";
	struct line line;
	struct job job;

	if (line_parse((const char *)data, size, &line, why))
		return 0;
	if (job_parse(&line, &job, why)) {
		REQUIRE(why[0] && memchr(why, 0, sizeof(why)));
		line_free(&line);
		return 0;
	}
	REQUIRE(calyx_job_check(&job.job, why) == 0);
	check_numbers(&job.job);
	if (job.job.size / calyx_bs_min(&job.job, CALYX_DIR_READ) < BLOCKS_QUICK &&
	    job.job.size / calyx_bs_min(&job.job, CALYX_DIR_WRITE) < BLOCKS_QUICK)
		check_offsets(&job.job);
	job_free(&job);
	line_free(&line);
	return 0;
}
