// SPDX-License-Identifier: Apache-2.0
// Do the words of fio in this job make sense, each and together? One sentence per refusal (job.c has the rest).
#include <errno.h>
#include <inttypes.h>
#include <math.h>

#include "calyx/text.h"
#include "data.h"
#include "job.h"
#include "offsets.h"
#include "reason.h"

#define DIRECT_ALIGNMENT 512u
#define RATE_BYTES_MAX 18000000000ull /* a second of them in nanoseconds still fits 64 bits */
#define THETA_MAX 10.0
#define DECIMAL_MAX 1e9
#define THINKTIME_NS_MAX (3600ull * 1000000000)

static int check_split(const struct calyx_job *job, const char *name, const struct calyx_bssplit *split, char *reason)
{
	uint32_t sum = 0;

	if (split->count > CALYX_SPLIT_MAX)
		return calyx_refuse(reason, -EINVAL, "%s has more than %d sizes", name, CALYX_SPLIT_MAX);
	for (uint32_t i = 0; i < split->count; i++) {
		if (split->bs[i] < DIRECT_ALIGNMENT)
			return calyx_refuse(reason, -EINVAL, "%s has a block of %" PRIu64 ": the smallest is %u bytes",
					    name, split->bs[i], DIRECT_ALIGNMENT);
		if (split->bs[i] > job->bs)
			return calyx_refuse(reason, -EINVAL,
					    "%s has a block of %" PRIu64 ", bs is %" PRIu64
					    ": bs must be the largest of them",
					    name, split->bs[i], job->bs);
		if (job->direct && split->bs[i] % DIRECT_ALIGNMENT)
			return calyx_refuse(reason, -EINVAL,
					    "%s has a block of %" PRIu64 ": direct I/O needs a multiple of %u bytes",
					    name, split->bs[i], DIRECT_ALIGNMENT);
		sum += split->percent[i];
	}
	if (split->count && sum != 100)
		return calyx_refuse(reason, -EINVAL, "the percents of %s add up to %" PRIu32 ", not to 100", name, sum);
	return 0;
}

static int check_blocks(const struct calyx_job *job, char *reason)
{
	int error;

	if ((error = check_split(job, "bssplit", &job->bssplit, reason)) ||
	    (error = check_split(job, "bssplit_write", &job->bssplit_write, reason)))
		return error;
	if (job->bssplit_write.count && !calyx_rw_writes(job->rw))
		return calyx_refuse(reason, -EINVAL, "bssplit_write is set, but the job writes nothing");
	if (job->offset > INT64_MAX - job->size)
		return calyx_refuse(reason, -EINVAL,
				    "offset is %" PRIu64 ": offset and size are more than a file holds", job->offset);
	if (job->direct && job->offset % DIRECT_ALIGNMENT)
		return calyx_refuse(reason, -EINVAL, "offset is %" PRIu64 ": direct I/O needs a multiple of %u bytes",
				    job->offset, DIRECT_ALIGNMENT);
	return 0;
}

static int check_zones(const struct calyx_distribution *distribution, char *reason)
{
	uint32_t access = 0, share = 0;

	if (distribution->zones_count < 1 || distribution->zones_count > CALYX_ZONES_MAX)
		return calyx_refuse(reason, -EINVAL, "random_distribution has %" PRIu32 " zones: 1 to %d can be had",
				    distribution->zones_count, CALYX_ZONES_MAX);
	for (uint32_t i = 0; i < distribution->zones_count; i++) {
		if (distribution->access[i] && !distribution->share[i])
			return calyx_refuse(reason, -EINVAL,
					    "zone %" PRIu32 " of random_distribution has accesses but no size", i);
		access += distribution->access[i];
		share += distribution->share[i];
	}
	if (access != 100 || share != 100)
		return calyx_refuse(reason, -EINVAL,
				    "the zones of random_distribution add up to %" PRIu32 " %% of the accesses and "
				    "%" PRIu32 " %% of the file, not to 100 each",
				    access, share);
	return 0;
}

struct decimal {
	char text[48];
};

/* As many places as a job's words may have, without zeros at the end. */
static struct decimal decimal(double value)
{
	struct decimal decimal;
	uint64_t billionths;
	int point, last;

	if (!(fabs(value) < DECIMAL_MAX)) {
		calyx_format(decimal.text, sizeof(decimal.text), "%s", isnan(value) ? "nan" : "1000000000 or beyond");
		return decimal;
	}
	billionths = (uint64_t)(fabs(value) * 1e9 + 0.5);
	point = calyx_format(decimal.text, sizeof(decimal.text), "%s%" PRIu64, value < 0 ? "-" : "",
			     billionths / 1000000000);
	/* One billion more keeps the zeros behind the point, which takes the place of its digit. */
	last = point +
	       calyx_format(decimal.text + point, sizeof(decimal.text) - (size_t)point, "%" PRIu64,
			    1000000000 + billionths % 1000000000) -
	       1;
	decimal.text[point] = '.';
	while (decimal.text[last] == '0')
		last--;
	decimal.text[last == point ? point : last + 1] = 0;
	return decimal;
}

static int check_distribution(const struct calyx_job *job, char *reason)
{
	double parameter = job->distribution.parameter;

	if (job->distribution.kind == CALYX_RANDOM_UNIFORM)
		return 0;
	if ((unsigned)job->distribution.kind > CALYX_RANDOM_ZONED)
		return calyx_refuse(reason, -EINVAL,
				    "random_distribution is %d: not one of random zipf pareto normal zoned",
				    (int)job->distribution.kind);
	if (!calyx_rw_is_random(job->rw))
		return calyx_refuse(reason, -EINVAL, "random_distribution needs randread, randwrite or randrw");
	if (job->distribution.kind == CALYX_RANDOM_ZONED)
		return check_zones(&job->distribution, reason);
	/* Written so that NaN is refused too. */
	if (job->distribution.kind == CALYX_RANDOM_ZIPF &&
	    !(parameter > 0 && parameter <= THETA_MAX && fabs(parameter - 1) > 1e-6))
		return calyx_refuse(
			reason, -EINVAL,
			"zipf's theta is %s: it goes from above 0 to %s, without 1, where the formula has no value",
			decimal(parameter).text, decimal(THETA_MAX).text);
	if (job->distribution.kind == CALYX_RANDOM_PARETO && !(parameter > 0 && parameter < 1))
		return calyx_refuse(reason, -EINVAL, "pareto's h is %s: it lies between 0 and 1",
				    decimal(parameter).text);
	if (job->distribution.kind == CALYX_RANDOM_NORMAL && !(parameter >= 0 && parameter <= 100))
		return calyx_refuse(reason, -EINVAL, "the deviation of normal is %s: it is a percentage, 0 to 100",
				    decimal(parameter).text);
	return 0;
}

static int check_pace(const struct calyx_job *job, char *reason)
{
	if (job->rate > RATE_BYTES_MAX)
		return calyx_refuse(reason, -EINVAL, "rate is %" PRIu64 ": the largest rate is %llu bytes a second",
				    job->rate, RATE_BYTES_MAX);
	if (job->rate && job->rate_iops)
		return calyx_refuse(reason, -EINVAL, "rate and rate_iops are both set: choose one");
	if ((unsigned)job->arrival > CALYX_ARRIVAL_POISSON)
		return calyx_refuse(reason, -EINVAL, "arrival is %d: not one of closed constant poisson",
				    (int)job->arrival);
	if (job->arrival != CALYX_ARRIVAL_CLOSED && !job->rate_iops)
		return calyx_refuse(reason, -EINVAL, "an open loop (arrival) needs rate_iops");
	if (job->arrival != CALYX_ARRIVAL_CLOSED && job->thinktime_ns)
		return calyx_refuse(
			reason, -EINVAL,
			"thinktime makes the next I/O wait for the last one: an open loop (arrival) does not");
	if (job->thinktime_ns > THINKTIME_NS_MAX)
		return calyx_refuse(reason, -EINVAL, "thinktime is %" PRIu64 " ns: longer than an hour",
				    job->thinktime_ns);
	if (job->thinktime_blocks && !job->thinktime_ns)
		return calyx_refuse(reason, -EINVAL, "thinktime_blocks is set without a thinktime");
	return 0;
}

/* What is said of writes needs writes. */
static int check_writes(const struct calyx_job *job, char *reason)
{
	const struct {
		const char *name;
		bool set;
	} words[] = {
		{"fdatasync", job->fdatasync > 0},
		{"sync", job->sync},
		{"end_fsync", job->end_fsync},
		{"buffer_compress_percentage", job->compress_percentage > 0},
		{"dedupe_percentage", job->dedupe_percentage > 0},
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]) && !calyx_rw_writes(job->rw); i++) {
		if (words[i].set)
			return calyx_refuse(reason, -EINVAL, "%s is set, but the job writes nothing", words[i].name);
	}
	if (job->fsync && job->fdatasync)
		return calyx_refuse(reason, -EINVAL, "fsync and fdatasync are both set: choose one");
	if (job->iopoll && (job->fdatasync || job->end_fsync))
		return calyx_refuse(reason, -EINVAL, "iopoll with %s: a polled ring has no fsync",
				    job->fdatasync ? "fdatasync" : "end_fsync");
	return 0;
}

static bool are_whole_blocks(const struct calyx_bssplit *split)
{
	for (uint32_t i = 0; i < split->count; i++) {
		if (split->bs[i] % CALYX_DATA_BLOCK)
			return false;
	}
	return true;
}

static int check_data(const struct calyx_job *job, char *reason)
{
	uint32_t turns;

	if (job->compress_percentage > 99)
		return calyx_refuse(reason, -EINVAL,
				    "buffer_compress_percentage is %" PRIu32
				    ": 0 to 99; blocks of zeros alone would not be stored by thin storage",
				    job->compress_percentage);
	if (job->dedupe_percentage > 100)
		return calyx_refuse(reason, -EINVAL, "dedupe_percentage is %" PRIu32 ": it is a percentage, 0 to 100",
				    job->dedupe_percentage);
	if (job->dedupe_percentage && job->verify)
		return calyx_refuse(reason, -EINVAL,
				    "verify writes its offset into each block, so no two are equal: leave "
				    "dedupe_percentage out");
	if (calyx_pool_bytes(job, &turns) > CALYX_BUFFER_BYTES_MAX)
		return calyx_refuse(reason, -EINVAL,
				    "bs=%" PRIu64 " times iodepth=%" PRIu32 " with its data is more than %llu bytes of "
				    "buffers a thread",
				    job->bs, job->iodepth, CALYX_BUFFER_BYTES_MAX);
	if (job->verify && (!are_whole_blocks(&job->bssplit) || !are_whole_blocks(&job->bssplit_write) ||
			    job->bs % CALYX_DATA_BLOCK || job->offset % CALYX_DATA_BLOCK))
		return calyx_refuse(reason, -EINVAL,
				    "verify checks blocks of %u bytes: bs and offset are multiples of that",
				    CALYX_DATA_BLOCK);
	return 0;
}

int calyx_job_check_words(const struct calyx_job *job, char *reason)
{
	int error;

	if ((error = check_blocks(job, reason)) || (error = check_distribution(job, reason)) ||
	    (error = check_pace(job, reason)) || (error = check_writes(job, reason)))
		return error;
	return check_data(job, reason);
}
