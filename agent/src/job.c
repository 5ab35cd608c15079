/* SPDX-License-Identifier: Apache-2.0
 *
 * From a `run` line to a calyx_job: see job.h and docs/protocol.md.
 */
#include "job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "calyx/text.h"

#define KEYS                                                                                                           \
	"path* rw bs iodepth size ramp_ns runtime_ns rwmixread rate_iops direct fsync seed data_seed interval_ns "     \
	"setup "                                                                                                       \
	"refill buffers files deadline_ns ramp_extra_ns iopoll huge numa "                                             \
	"bssplit bssplit_write offset rate arrival random_distribution fdatasync sync end_fsync "                      \
	"buffer_compress_percentage dedupe_percentage verify thinktime_us thinktime_blocks cpus_allowed "              \
	"arm_within_ms devices"
#define HOUR_NS (3600ull * 1000000000ull)
#define TIME_MAX_NS (24 * 366 * HOUR_NS)
#define DEADLINE_GRACE_NS 30000000000ull

/* Names in the order of their enumerations. */
static const char *const rw_names[] = {"read",	 "write", "randread", "randwrite", "rw",
				       "randrw", "trim",  "randtrim", NULL};
static const char *const setup_names[] = {"auto", "sqpoll", "defer", "coop", "plain", "psync", NULL};
static const char *const refill_names[] = {"each", "batch", NULL};
static const char *const buffers_names[] = {"auto", "registered", "plain", NULL};
static const char *const files_names[] = {"registered", "plain", NULL};
static const char *const arrival_names[] = {"closed", "constant", "poisson", NULL};
static const char *const verify_names[] = {"none", "crc32c", NULL};

const char *job_setup_name(enum calyx_setup setup)
{
	return setup_names[setup];
}

const char *job_refill_name(enum calyx_refill refill)
{
	return refill_names[refill];
}

/* The index of the key's value in names; 0, the first, when the key is absent. */
static int parse_name(const struct line *line, const char *key, const char *const *names, unsigned int *index,
		      char *why)
{
	const char *text = line_get(line, key);

	*index = 0;
	if (!text)
		return 0;
	for (; names[*index]; ++*index)
		if (!strcmp(names[*index], text))
			return 0;
	calyx_format(why, WHY_MAX, "%s=%.60s is unknown", key, text);
	return -EINVAL;
}

int job_parse_setup(const struct line *line, enum calyx_setup *setup, enum calyx_refill *refill, char *why)
{
	unsigned int setup_index, refill_index;

	if (parse_name(line, "setup", setup_names, &setup_index, why) ||
	    parse_name(line, "refill", refill_names, &refill_index, why))
		return -EINVAL;
	*setup = (enum calyx_setup)setup_index;
	*refill = (enum calyx_refill)refill_index;
	return 0;
}

/* Where completions and buffers come from. Absent: by interrupt, ordinary pages, any node. */
static int parse_places(const struct line *line, struct calyx_job *job, char *why)
{
	uint64_t iopoll, huge, numa, devices;

	if (line_number(line, "iopoll", 0, 1, &iopoll, why) || line_number(line, "huge", 0, 1, &huge, why) ||
	    line_number(line, "numa", 0, UINT32_MAX, &numa, why) || line_number(line, "devices", 0, 1, &devices, why))
		return -EINVAL;
	job->devices = devices;
	job->iopoll = iopoll;
	job->huge = huge;
	job->numa = line_get(line, "numa") != NULL;
	job->numa_node = (uint32_t)numa;
	return 0;
}

static int parse_names(const struct line *line, struct calyx_job *job, char *why)
{
	unsigned int rw, buffers, files;

	if (parse_name(line, "rw", rw_names, &rw, why) || job_parse_setup(line, &job->setup, &job->refill, why) ||
	    parse_name(line, "buffers", buffers_names, &buffers, why) ||
	    parse_name(line, "files", files_names, &files, why))
		return -EINVAL;
	job->rw = (enum calyx_rw)rw;
	job->buffers = (enum calyx_buffers)buffers;
	job->fixed_files = files == 0;
	return 0;
}

static int parse_numbers(const struct line *line, struct calyx_job *job, char *why)
{
	uint64_t iodepth, rwmixread, fsync, direct, extra, all = UINT64_MAX;

	if (line_number(line, "bs", 0, all, &job->bs, why) || line_number(line, "size", 0, all, &job->size, why) ||
	    line_number(line, "iodepth", 1, CALYX_IODEPTH_MAX, &iodepth, why) ||
	    line_number(line, "ramp_ns", 0, TIME_MAX_NS, &job->ramp_ns, why) ||
	    line_number(line, "runtime_ns", 0, TIME_MAX_NS, &job->runtime_ns, why) ||
	    line_number(line, "rwmixread", 50, 100, &rwmixread, why) ||
	    line_number(line, "rate_iops", 0, all, &job->rate_iops, why) ||
	    line_number(line, "direct", 1, 1, &direct, why) || line_number(line, "fsync", 0, UINT32_MAX, &fsync, why) ||
	    line_number(line, "seed", 1, all, &job->seed, why) ||
	    line_number(line, "data_seed", 1, all, &job->data_seed, why) ||
	    line_number(line, "interval_ns", 100000000, TIME_MAX_NS, &job->interval_ns, why) ||
	    line_number(line, "ramp_extra_ns", 0, TIME_MAX_NS, &extra, why) ||
	    line_number(line, "deadline_ns", job->ramp_ns + extra + job->runtime_ns + DEADLINE_GRACE_NS, TIME_MAX_NS,
			&job->deadline_ns, why))
		return -EINVAL;
	job->ramp_ns += extra;
	job->iodepth = (uint32_t)iodepth;
	job->rwmixread = (uint32_t)rwmixread;
	job->fsync = (uint32_t)fsync;
	job->direct = direct;
	return 0;
}

static int parse_words(const struct line *line, struct calyx_job *job, char *why)
{
	const char *split = line_get(line, "bssplit"), *split_write = line_get(line, "bssplit_write");
	const char *distribution = line_get(line, "random_distribution"), *cpus = line_get(line, "cpus_allowed");
	unsigned int arrival, verify;

	if (parse_name(line, "arrival", arrival_names, &arrival, why) ||
	    parse_name(line, "verify", verify_names, &verify, why) ||
	    (split && calyx_parse_bssplit(split, &job->bssplit, why)) ||
	    (split_write && calyx_parse_bssplit(split_write, &job->bssplit_write, why)) ||
	    (distribution && calyx_parse_distribution(distribution, &job->distribution, why)) ||
	    (cpus && calyx_parse_cpus(cpus, job->cpus_allowed, why)))
		return -EINVAL;
	job->arrival = (enum calyx_arrival)arrival;
	job->verify = verify != 0;
	return 0;
}

static int parse_word_numbers(const struct line *line, struct calyx_job *job, char *why)
{
	uint64_t fdatasync, sync, end_fsync, compress, dedupe, think_us, think_blocks;

	if (line_number(line, "offset", 0, UINT64_MAX, &job->offset, why) ||
	    line_number(line, "rate", 0, UINT64_MAX, &job->rate, why) ||
	    line_number(line, "fdatasync", 0, UINT32_MAX, &fdatasync, why) ||
	    line_number(line, "sync", 0, 1, &sync, why) || line_number(line, "end_fsync", 0, 1, &end_fsync, why) ||
	    line_number(line, "buffer_compress_percentage", 0, 100, &compress, why) ||
	    line_number(line, "dedupe_percentage", 0, 100, &dedupe, why) ||
	    line_number(line, "thinktime_us", 0, TIME_MAX_NS / 1000, &think_us, why) ||
	    line_number(line, "thinktime_blocks", 0, UINT32_MAX, &think_blocks, why))
		return -EINVAL;
	job->fdatasync = (uint32_t)fdatasync;
	job->sync = sync;
	job->end_fsync = end_fsync;
	job->compress_percentage = (uint32_t)compress;
	job->dedupe_percentage = (uint32_t)dedupe;
	job->thinktime_ns = think_us * 1000;
	job->thinktime_blocks = (uint32_t)think_blocks;
	return 0;
}

int job_parse(const struct line *line, struct job *job, char *why)
{
	static const char *const required[] = {"path", "rw", "bs", "size", "runtime_ns"};
	struct job parsed = {0};
	int error;

	error = line_check(line, KEYS, why);
	if (error)
		return error;
	for (size_t i = 0; i < sizeof(required) / sizeof(*required); i++) {
		if (!line_get(line, required[i])) {
			calyx_format(why, WHY_MAX, "'run' needs %s=", required[i]);
			return -EINVAL;
		}
	}
	error = parse_names(line, &parsed.job, why);
	if (!error)
		error = parse_numbers(line, &parsed.job, why);
	if (!error)
		error = parse_words(line, &parsed.job, why);
	if (!error)
		error = parse_word_numbers(line, &parsed.job, why);
	if (!error)
		error = line_number(line, "arm_within_ms", 0, TIME_MAX_NS / 1000000, &parsed.arm_within_ms, why);
	if (!error)
		error = parse_places(line, &parsed.job, why);
	if (error)
		return error;
	parsed.paths = line_list(line, "path");
	if (!parsed.paths) {
		calyx_format(why, WHY_MAX, "no memory for the job's paths");
		return -ENOMEM;
	}
	parsed.job.paths = (const char *const *)parsed.paths;
	parsed.job.paths_count = (uint32_t)line_count(line, "path");
	error = calyx_job_check(&parsed.job, why);
	if (error) {
		job_free(&parsed);
		return error;
	}
	*job = parsed;
	return 0;
}

void job_free(struct job *job)
{
	free(job->paths);
	*job = (struct job){0};
}
