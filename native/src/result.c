// SPDX-License-Identifier: Apache-2.0
// Adding up what the threads of a crew measured.
#include "crew.h"

#include <inttypes.h>
#include <string.h>

#include "reason.h"

static void merge_errors(struct calyx_result *result, const struct calyx_worker *w)
{
	for (uint32_t i = 0; i < w->errors_count; i++) {
		const struct calyx_error_count *from = &w->errors[i];
		uint32_t j = 0;

		while (j < result->errors_count &&
		       (result->errors[j].direction != from->direction || result->errors[j].error != from->error))
			j++;
		if (j < result->errors_count)
			result->errors[j].count += from->count;
		else if (j < CALYX_ERRORS_MAX)
			result->errors[result->errors_count++] = *from;
	}
}

static void merge_verified(struct calyx_verified *into, const struct calyx_verified *from)
{
	into->checked += from->checked;
	into->bad += from->bad;
	into->left += from->left;
	for (uint32_t i = 0; i < from->first_bad_count && into->first_bad_count < CALYX_BAD_MAX; i++)
		into->first_bad[into->first_bad_count++] = from->first_bad[i];
}

static void merge_worker(struct calyx_crew *crew, const struct calyx_worker *w)
{
	struct calyx_result *result = &crew->result;
	uint64_t started_ns = atomic_load(&w->started_ns);

	if (started_ns && (!result->started_ns || started_ns < result->started_ns))
		result->started_ns = started_ns;
	if (w->ended_ns > result->ended_ns)
		result->ended_ns = w->ended_ns;
	for (int d = 0; d < CALYX_DIRECTIONS; d++) {
		struct calyx_direction_result *into = &result->directions[d];

		into->ios += w->directions[d].ios;
		into->bytes += w->directions[d].bytes;
		into->errors += w->directions[d].errors;
		into->short_ios += w->directions[d].short_ios;
		into->late += w->directions[d].late;
		calyx_histogram_merge(&into->latency, &w->directions[d].latency);
	}
	for (uint32_t i = 0; i < crew->intervals_count; i++) {
		struct calyx_interval *into = &crew->intervals[i];
		const struct calyx_interval *from = &w->intervals[i];

		into->read_ios += from->read_ios;
		into->read_bytes += from->read_bytes;
		into->write_ios += from->write_ios;
		into->write_bytes += from->write_bytes;
		if (from->latency_max_ns > into->latency_max_ns)
			into->latency_max_ns = from->latency_max_ns;
	}
	for (int d = 0; w->intended && d < CALYX_DIR_SYNC; d++)
		calyx_histogram_merge(&crew->intended[d], &w->intended[d]);
	merge_verified(&result->verified, &w->verify.found);
	result->enter_calls += w->ring.enter_calls;
	result->wakeups += w->ring.wakeups;
	result->submitted += w->counts.submitted;
	result->eagain += w->counts.eagain;
	result->short_ios += w->counts.short_ios;
	result->unfinished += w->counts.unfinished;
	result->stopped |= w->stopped;
	merge_errors(result, w);
	if (w->failure[0] && !result->failure[0])
		memcpy(result->failure, w->failure, sizeof(result->failure));
}

void calyx_crew_merge(struct calyx_crew *crew)
{
	struct calyx_result *result = &crew->result;
	uint64_t start_ns = atomic_load(&crew->start_ns);

	if (crew->merged)
		return;
	crew->merged = true;
	result->setup = crew->setup;
	result->interval_ns = crew->job.interval_ns;
	result->intervals = crew->intervals;
	result->intervals_count = crew->intervals_count;
	if (start_ns) {
		result->window_start_ns = start_ns + crew->job.ramp_ns;
		result->window_end_ns = result->window_start_ns + crew->job.runtime_ns;
	}
	for (int d = 0; d < CALYX_DIRECTIONS; d++)
		calyx_histogram_init(&result->directions[d].latency);
	result->latency_intended = crew->intended;
	for (int d = 0; crew->intended && d < CALYX_DIR_SYNC; d++)
		calyx_histogram_init(&crew->intended[d]);
	for (uint32_t i = 0; i < crew->spawned; i++) {
		const struct calyx_worker *w = &crew->workers[i];

		merge_worker(crew, w);
		if (atomic_load(&w->finished))
			continue;
		crew->abandoned = true;
		result->unfinished += w->in_flight;
		result->ended_ns = calyx_now_ns();
		calyx_refuse(result->failure, 0,
			     "job %" PRIu32
			     " (%s) hangs in the kernel past its deadline and was left behind with %" PRIu32
			     " I/Os in flight",
			     i, crew->paths[i], w->in_flight);
	}
}

const struct calyx_result *calyx_crew_result(struct calyx_crew *crew)
{
	return &crew->result;
}
