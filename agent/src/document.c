/* SPDX-License-Identifier: Apache-2.0
 *
 * The result document: see document.h and docs/protocol.md.
 */
#include "document.h"

#include "job.h"

static const char *const direction_names[CALYX_DIRECTIONS] = {"read", "write", "sync"};

static void write_latency(struct json *json, const char *key, const struct calyx_histogram *latency)
{
	json_key(json, key);
	json_object(json);
	if (latency->count) {
		json_u64(json, "min_ns", latency->min_ns);
		json_u64(json, "max_ns", latency->max_ns);
	} else {
		json_null(json, "min_ns");
		json_null(json, "max_ns");
	}
	json_u64(json, "sum_ns", latency->sum_ns);
	json_u64(json, "overflow", latency->overflow);
	json_key(json, "buckets");
	json_array(json);
	for (uint32_t i = 0; i < CALYX_HISTOGRAM_BUCKETS; i++) {
		if (!latency->buckets[i])
			continue;
		json_array(json);
		json_u64(json, NULL, i);
		json_u64(json, NULL, latency->buckets[i]);
		json_array_end(json);
	}
	json_array_end(json);
	json_object_end(json);
}

/* `intended` is NULL but for reads and writes of an open loop. */
static void write_direction(struct json *json, const char *key, const struct calyx_direction_result *direction,
			    const struct calyx_histogram *intended)
{
	json_key(json, key);
	json_object(json);
	json_u64(json, "ios", direction->ios);
	json_u64(json, "bytes", direction->bytes);
	json_u64(json, "errors", direction->errors);
	json_u64(json, "short", direction->short_ios);
	write_latency(json, "latency", &direction->latency);
	if (intended) {
		write_latency(json, "latency_intended", intended);
		json_u64(json, "late", direction->late);
	}
	json_object_end(json);
}

/* One column of the series: the field at `offset` of each interval. */
static void write_column(struct json *json, const char *key, const struct calyx_result *result, size_t offset)
{
	json_key(json, key);
	json_array(json);
	for (uint32_t i = 0; i < result->intervals_count; i++)
		json_u64(json, NULL, *(const uint64_t *)(const void *)((const char *)&result->intervals[i] + offset));
	json_array_end(json);
}

static void write_series(struct json *json, const struct calyx_result *result)
{
	json_key(json, "series");
	json_object(json);
	json_u64(json, "interval_ns", result->interval_ns);
	write_column(json, "read_ios", result, offsetof(struct calyx_interval, read_ios));
	write_column(json, "read_bytes", result, offsetof(struct calyx_interval, read_bytes));
	write_column(json, "write_ios", result, offsetof(struct calyx_interval, write_ios));
	write_column(json, "write_bytes", result, offsetof(struct calyx_interval, write_bytes));
	write_column(json, "latency_max_ns", result, offsetof(struct calyx_interval, latency_max_ns));
	json_object_end(json);
}

void document_setup(struct json *json, const char *key, const struct calyx_setup_taken *setup)
{
	json_key(json, key);
	json_object(json);
	json_text(json, "requested", job_setup_name(setup->requested));
	json_text(json, "took", job_setup_name(setup->took));
	json_bool(json, "sqpoll", setup->sqpoll);
	json_bool(json, "defer_taskrun", setup->defer_taskrun);
	json_bool(json, "coop_taskrun", setup->coop_taskrun);
	json_bool(json, "single_issuer", setup->single_issuer);
	json_bool(json, "no_sqarray", setup->no_sqarray);
	json_bool(json, "fixed_files", setup->fixed_files);
	json_bool(json, "fixed_buffers", setup->fixed_buffers);
	json_u64(json, "buffer_bytes", setup->buffer_bytes);
	json_text(json, "refill", job_refill_name(setup->refill));
	json_bool(json, "direct", setup->direct);
	json_u64(json, "sq_entries", setup->sq_entries);
	json_u64(json, "cq_entries", setup->cq_entries);
	json_bool(json, "iopoll", setup->iopoll);
	json_bool(json, "huge", setup->huge);
	json_bool(json, "transparent_huge", setup->transparent_huge);
	if (setup->numa)
		json_u64(json, "numa", setup->numa_node);
	else
		json_null(json, "numa");
	json_bool(json, "ring_fd", setup->ring_fd);
	json_bool(json, "psync", setup->psync);
	json_key(json, "cpus");
	json_array(json);
	for (uint32_t i = 0; i < setup->cpus_count; i++)
		json_u64(json, NULL, setup->cpus[i]);
	json_array_end(json);
	json_text(json, "why", setup->why);
	json_object_end(json);
}

void document_clock(struct json *json, const char *key, const struct calyx_clock *clock)
{
	json_key(json, key);
	json_object(json);
	json_text(json, "source", clock->tsc ? "tsc" : "monotonic");
	json_u64(json, "cost_ns", clock->cost_ns);
	json_u64(json, "resolution_ns", clock->resolution_ns);
	json_object_end(json);
}

const char *document_direction(enum calyx_direction direction)
{
	return direction_names[direction];
}

static void write_counts(struct json *json, const struct calyx_result *result)
{
	json_key(json, "counts");
	json_object(json);
	json_u64(json, "enter", result->enter_calls);
	json_u64(json, "submitted", result->submitted);
	json_u64(json, "eagain", result->eagain);
	json_u64(json, "short", result->short_ios);
	json_u64(json, "unfinished", result->unfinished);
	json_u64(json, "wakeups", result->wakeups);
	json_object_end(json);
}

static void write_errors(struct json *json, const struct calyx_result *result)
{
	json_key(json, "errors");
	json_array(json);
	for (uint32_t i = 0; i < result->errors_count; i++) {
		const struct calyx_error_count *error = &result->errors[i];

		json_object(json);
		json_text(json, "op", direction_names[error->direction]);
		json_i64(json, "errno", error->error);
		json_u64(json, "count", error->count);
		json_u64(json, "first_offset", error->first_offset);
		json_object_end(json);
	}
	json_array_end(json);
}

static void write_verified(struct json *json, const struct calyx_job *job, const struct calyx_verified *verified)
{
	static const char *const why_names[] = {"crc", "offset", "generation"};

	json_key(json, "verify");
	json_object(json);
	json_u64(json, "checked", verified->checked);
	json_u64(json, "bad", verified->bad);
	json_u64(json, "left", verified->left);
	json_key(json, "first_bad");
	json_array(json);
	for (uint32_t i = 0; i < verified->first_bad_count; i++) {
		json_object(json);
		json_text(json, "path", job->paths[verified->first_bad[i].thread]);
		json_u64(json, "offset", verified->first_bad[i].offset);
		json_text(json, "why", why_names[verified->first_bad[i].why]);
		json_object_end(json);
	}
	json_array_end(json);
	json_object_end(json);
}

void document_write(struct buffer *out, const struct calyx_job *job, const struct calyx_result *result)
{
	struct json json = {.out = out};

	json_object(&json);
	json_text(&json, "engine", "calyx");
	json_u64(&json, "jobs", job->paths_count);
	json_u64(&json, "started_ns", result->started_ns);
	json_u64(&json, "window_start_ns", result->window_start_ns);
	json_u64(&json, "window_end_ns", result->window_end_ns);
	json_u64(&json, "ended_ns", result->ended_ns);
	for (int i = 0; i < CALYX_DIRECTIONS; i++)
		write_direction(&json, direction_names[i], &result->directions[i],
				result->latency_intended && i != CALYX_DIR_SYNC ? &result->latency_intended[i] : NULL);
	write_series(&json, result);
	document_setup(&json, "setup", &result->setup);
	document_clock(&json, "clock", &result->clock);
	write_counts(&json, result);
	write_errors(&json, result);
	if (job->verify)
		write_verified(&json, job, &result->verified);
	json_u64(&json, "seed", job->seed);
	json_u64(&json, "data_seed", job->data_seed);
	json_object_end(&json);
}
