// SPDX-License-Identifier: Apache-2.0
// The buffers of one thread, in one piece of memory:
//
//   writes     iodepth places with `turns` variants of data each; also for reads, unless these lie apart
//   reads      iodepth places: in a mix whose data must stay what it was made (reads would overwrite it)
//   originals  what dedupe_percentage writes again and again
#include "crew.h"

#include <string.h>

#include "data.h"
#include "job.h"

static bool reads_lie_apart(const struct calyx_job *job)
{
	return calyx_rw_reads(job->rw) && calyx_rw_writes(job->rw) &&
	       (job->compress_percentage || job->dedupe_percentage || job->verify);
}

static uint32_t count_originals(const struct calyx_job *job)
{
	if (!job->dedupe_percentage)
		return 0;
	return job->bs * 2 < CALYX_DATA_TWICE_BYTES ? (uint32_t)(CALYX_DATA_TWICE_BYTES / job->bs) : 2;
}

uint64_t calyx_pool_bytes(const struct calyx_job *job, uint32_t *turns)
{
	uint64_t once = job->bs * job->iodepth;

	*turns = 1;
	if (calyx_rw_writes(job->rw) && once < CALYX_DATA_POOL_MIN)
		*turns = (uint32_t)((CALYX_DATA_POOL_MIN + once - 1) / once);
	return once * *turns + (reads_lie_apart(job) ? once : 0) + count_originals(job) * job->bs;
}

void calyx_pool_fill(struct calyx_worker *w)
{
	const struct calyx_job *job = &w->crew->job;
	uint64_t once = job->bs * job->iodepth, stamp;

	w->data_tag = w->data_stamp = calyx_data_tag(job->data_seed, w->index);
	stamp = w->data_tag + (1ull << 63); /* as far from the stamps of writes as can be */
	if (calyx_rw_writes(job->rw))
		calyx_data_fill_compressible(w->pool, w->pool_bytes, w->data_tag, job->compress_percentage);
	else
		memset(w->pool, 0, w->pool_bytes);
	w->reads = w->pool;
	w->reads_stride = job->bs * w->turns;
	if (reads_lie_apart(job)) {
		w->reads = w->pool + once * w->turns;
		w->reads_stride = job->bs;
	}
	w->dedupe = (struct calyx_dedupe){.percent = job->dedupe_percentage, .originals = count_originals(job)};
	w->originals = w->pool + w->pool_bytes - w->dedupe.originals * job->bs;
	calyx_data_stamp(w->originals, w->dedupe.originals * job->bs, &stamp);
}
