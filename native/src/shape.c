// SPDX-License-Identifier: Apache-2.0
// The I/O of a shaped job: one whose I/Os are not all alike (bssplit, a distribution, an open loop, data of a certain
// kind, verify, thinktime). A plain job never comes here, so that what most people run costs nothing more.
#include "crew.h"

#include "data.h"

bool calyx_job_is_shaped(const struct calyx_job *job)
{
	return job->bssplit.count || job->bssplit_write.count || job->offset || job->rate ||
	       job->arrival != CALYX_ARRIVAL_CLOSED || job->distribution.kind != CALYX_RANDOM_UNIFORM ||
	       job->compress_percentage || job->dedupe_percentage || job->verify || job->thinktime_ns;
}

/* Where the data of a write comes from, and what is stamped into it. */
static void take_data(struct calyx_worker *w, uint32_t index, uint32_t length)
{
	const struct calyx_job *job = &w->crew->job;
	struct calyx_slot *slot = &w->slots[index];
	uint32_t original = job->dedupe_percentage ? calyx_dedupe_next(&w->dedupe) : UINT32_MAX;

	if (original != UINT32_MAX) {
		/* Many I/Os may write from one original at once: nothing changes it. */
		slot->buffer = w->originals + original * job->bs;
		return;
	}
	slot->buffer = w->pool + ((uint64_t)index * w->turns + slot->turn) * job->bs;
	slot->turn = slot->turn + 1 < w->turns ? slot->turn + 1 : 0;
	calyx_data_stamp(slot->buffer, length, &w->data_stamp);
	if (job->verify)
		w->shapes[index].generation =
			calyx_verify_begin_write(&w->verify, slot->buffer, length, slot->offset, w->data_tag);
}

void calyx_shape_prepare(struct calyx_worker *w, uint32_t index, uint32_t length)
{
	const struct calyx_job *job = &w->crew->job;
	struct calyx_slot *slot = &w->slots[index];
	struct calyx_shape *shape = &w->shapes[index];

	if (slot->direction == CALYX_DIR_SYNC)
		return;
	shape->length = length;
	shape->due_ns = calyx_pace_due_ns(&w->pace);
	calyx_pace_advance(&w->pace, job->rate ? length : 1);
	if (slot->direction == CALYX_DIR_WRITE) {
		take_data(w, index, length);
	} else {
		slot->buffer = w->reads + (uint64_t)index * w->reads_stride;
		if (job->verify) {
			shape->generation = w->verify.generation;
			shape->certain = calyx_verify_begin_read(&w->verify, length, slot->offset);
		}
	}
	if (job->thinktime_ns && --w->think_left == 0) {
		w->thinking = true;
		w->think_until_ns = 0;
	}
}

/* fio's thinktime: after so many I/Os all that is in flight ends, then the pause begins. */
bool calyx_shape_may_issue(struct calyx_worker *w)
{
	const struct calyx_job *job = &w->crew->job;

	if (!w->thinking)
		return true;
	if (w->in_flight > 0 || w->ring.prepared != w->ring.published)
		return false;
	if (!w->think_until_ns)
		w->think_until_ns = w->now_ns + job->thinktime_ns;
	if (w->now_ns < w->think_until_ns)
		return false;
	w->thinking = false;
	w->think_left = job->thinktime_blocks ? job->thinktime_blocks : 1;
	return true;
}

bool calyx_shape_end(struct calyx_worker *w, uint32_t index, bool done)
{
	const struct calyx_slot *slot = &w->slots[index];
	const struct calyx_shape *shape = &w->shapes[index];

	if (!w->crew->job.verify || slot->direction == CALYX_DIR_SYNC)
		return done;
	if (slot->direction == CALYX_DIR_WRITE) {
		calyx_verify_end_write(&w->verify, shape->length, slot->offset, shape->generation, done);
		return done;
	}
	return done && calyx_verify_end_read(&w->verify, slot->buffer, shape->length, slot->offset, shape->generation,
					     shape->certain) == 0;
}
