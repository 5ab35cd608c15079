// SPDX-License-Identifier: Apache-2.0
// Is this job sensible? One sentence per refusal; nothing here asks the machine.
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "job.h"
#include "offsets.h"
#include "reason.h"

#define DIRECT_ALIGNMENT 512u
#define DURATION_NS_MAX (30ull * 24 * 3600 * 1000000000)
#define INTERVALS_MAX 1000000u
#define INTERVAL_NS_MIN 1000000u
#define RATE_IOPS_MAX 100000000u

static int check_paths(const struct calyx_job *job, char *reason)
{
	if (job->paths_count < 1 || job->paths_count > CALYX_JOBS_MAX)
		return calyx_refuse(reason, -EINVAL, "a job needs 1 to %d paths, one a thread; it has %" PRIu32,
				    CALYX_JOBS_MAX, job->paths_count);
	for (uint32_t i = 0; i < job->paths_count; i++) {
		if (!job->paths || !job->paths[i] || !job->paths[i][0])
			return calyx_refuse(reason, -EINVAL, "path %" PRIu32 " is empty", i);
		for (uint32_t j = 0; j < i; j++) {
			if (strcmp(job->paths[i], job->paths[j]) != 0)
				continue;
			if (!job->devices)
				return calyx_refuse(reason, -EINVAL,
						    "path %s is named twice: each thread needs its own file",
						    job->paths[i]);
			if (job->verify && calyx_rw_writes(job->rw))
				return calyx_refuse(reason, -EINVAL,
						    "verify: threads that write on one device would take each other's "
						    "blocks for bad");
		}
	}
	return 0;
}

static int check_pattern(const struct calyx_job *job, char *reason)
{
	if ((unsigned)job->rw > CALYX_RANDTRIM)
		return calyx_refuse(reason, -EINVAL,
				    "rw is %d: not one of read write randread randwrite rw randrw trim randtrim",
				    (int)job->rw);
	if (job->bs < DIRECT_ALIGNMENT)
		return calyx_refuse(reason, -EINVAL, "bs is %" PRIu64 ": the smallest block is %u bytes", job->bs,
				    DIRECT_ALIGNMENT);
	if (job->direct && job->bs % DIRECT_ALIGNMENT)
		return calyx_refuse(reason, -EINVAL, "bs is %" PRIu64 ": direct I/O needs a multiple of %u bytes",
				    job->bs, DIRECT_ALIGNMENT);
	if (job->iodepth < 1 || job->iodepth > CALYX_IODEPTH_MAX)
		return calyx_refuse(reason, -EINVAL, "iodepth is %" PRIu32 ": it goes from 1 to %d", job->iodepth,
				    CALYX_IODEPTH_MAX);
	if (job->bs > CALYX_BUFFER_BYTES_MAX / job->iodepth)
		return calyx_refuse(reason, -EINVAL,
				    "bs=%" PRIu64 " times iodepth=%" PRIu32
				    " is more than %llu bytes of buffers a thread",
				    job->bs, job->iodepth, CALYX_BUFFER_BYTES_MAX);
	if (job->size < job->bs)
		return calyx_refuse(reason, -EINVAL, "size is %" PRIu64 ": smaller than one block of %" PRIu64,
				    job->size, job->bs);
	if (job->size > INT64_MAX)
		return calyx_refuse(reason, -EINVAL, "size is %" PRIu64 ": more than a file can hold", job->size);
	if (job->rwmixread > 100)
		return calyx_refuse(reason, -EINVAL, "rwmixread is %" PRIu32 ": it is a percentage, 0 to 100",
				    job->rwmixread);
	if (job->rate_iops > RATE_IOPS_MAX)
		return calyx_refuse(reason, -EINVAL, "rate_iops is %" PRIu64 ": the largest rate is %u", job->rate_iops,
				    RATE_IOPS_MAX);
	return 0;
}

static int check_times(const struct calyx_job *job, char *reason)
{
	if (!job->runtime_ns)
		return calyx_refuse(reason, -EINVAL, "runtime is 0: every job is time based");
	if (job->runtime_ns > DURATION_NS_MAX || job->ramp_ns > DURATION_NS_MAX ||
	    job->deadline_ns > 3 * DURATION_NS_MAX)
		return calyx_refuse(reason, -EINVAL, "ramp, runtime or deadline is longer than 30 days");
	if (job->deadline_ns && job->deadline_ns < job->ramp_ns + job->runtime_ns)
		return calyx_refuse(reason, -EINVAL,
				    "the deadline (%" PRIu64 " ns) lies before the end of ramp and runtime",
				    job->deadline_ns);
	if (job->interval_ns && job->interval_ns < INTERVAL_NS_MIN)
		return calyx_refuse(reason, -EINVAL, "interval is %" PRIu64 " ns: the shortest is %u ns, 0 is none",
				    job->interval_ns, INTERVAL_NS_MIN);
	if (job->interval_ns && job->runtime_ns / job->interval_ns >= INTERVALS_MAX)
		return calyx_refuse(reason, -EINVAL, "runtime holds more than %u intervals: choose a longer interval",
				    INTERVALS_MAX);
	return 0;
}

/* A discard blocks its caller whoever asks for it, so it is asked for one after the other; it carries no data. */
static int check_trim(const struct calyx_job *job, char *reason)
{
	if (!calyx_rw_trims(job->rw))
		return 0;
	if (job->setup != CALYX_SETUP_PSYNC)
		return calyx_refuse(reason, -EINVAL, "rw=trim needs setup=psync and iodepth=1: a discard blocks");
	if (!job->direct || job->verify || job->fsync || job->fdatasync || job->sync || job->end_fsync ||
	    job->compress_percentage || job->dedupe_percentage)
		return calyx_refuse(
			reason, -EINVAL,
			"rw=trim carries no data: it goes with direct=1, and without verify, syncs and data words");
	return 0;
}

/* What cannot go together. */
static int check_setup(const struct calyx_job *job, char *reason)
{
	if ((unsigned)job->setup > CALYX_SETUP_PSYNC)
		return calyx_refuse(reason, -EINVAL, "setup is %d: not one of auto sqpoll defer coop plain psync",
				    (int)job->setup);
	if (job->setup == CALYX_SETUP_PSYNC && job->iodepth != 1)
		return calyx_refuse(reason, -EINVAL,
				    "setup=psync does one I/O after the other: it needs iodepth=1, not %" PRIu32,
				    job->iodepth);
	if (job->setup == CALYX_SETUP_PSYNC && job->iopoll)
		return calyx_refuse(reason, -EINVAL, "setup=psync cannot poll: iopoll is io_uring's");
	if (job->setup == CALYX_SETUP_PSYNC && job->buffers == CALYX_BUFFERS_REGISTERED)
		return calyx_refuse(reason, -EINVAL,
				    "setup=psync has no registered buffers: use buffers=auto or plain");
	if (job->iopoll && !job->direct)
		return calyx_refuse(reason, -EINVAL, "iopoll needs direct=1: buffered I/O cannot be polled for");
	if (job->iopoll && job->fsync)
		return calyx_refuse(reason, -EINVAL, "iopoll cannot go with fsync: a polled ring has no fsync");
	return 0;
}

int calyx_job_check(const struct calyx_job *job, char *reason)
{
	int error;

	if ((error = check_paths(job, reason)) || (error = check_pattern(job, reason)) ||
	    (error = check_times(job, reason)) || (error = check_setup(job, reason)) ||
	    (error = check_trim(job, reason)) || (error = calyx_job_check_words(job, reason)))
		return error;
	if ((unsigned)job->refill > CALYX_REFILL_BATCH)
		return calyx_refuse(reason, -EINVAL, "refill is %d: not one of each batch", (int)job->refill);
	if ((unsigned)job->buffers > CALYX_BUFFERS_PLAIN)
		return calyx_refuse(reason, -EINVAL, "buffers is %d: not one of auto registered plain",
				    (int)job->buffers);
	return 0;
}
