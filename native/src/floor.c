// SPDX-License-Identifier: Apache-2.0
// The noise floor: the loop of a run with IORING_OP_NOP in place of I/O, so what is left is the tool's own share.
#include <errno.h>
#include <time.h>

#include "calyx/engine.h"
#include "reason.h"

#define BLOCK_BYTES 4096u
#define FILE_BYTES (1ull << 30) /* of the offsets that are drawn; nothing is touched */
#define START_AHEAD_NS 5000000ull
#define OVERTIME_NS 2000000000ull
#define STARTS 5 /* on a guest that is not scheduled for 5 ms the start line may have passed */

/* The middle of the bucket that holds the n-th smallest of count, n from 1. */
static uint64_t percentile_ns(const struct calyx_histogram *latency, uint64_t per_mille)
{
	uint64_t wanted = (latency->count * per_mille + 999) / 1000, seen = 0;

	for (uint32_t i = 0; i < CALYX_HISTOGRAM_BUCKETS; i++) {
		seen += latency->buckets[i];
		if (seen >= wanted)
			return (calyx_histogram_lower_ns(i) + calyx_histogram_upper_ns(i) - 1) / 2;
	}
	return latency->max_ns;
}

static uint64_t cpu_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* *busy_ns: what the loop ran of its runtime. Where others keep the CPUs busy that is less than the time that passed,
 * and time in which it did not run is no share of the tool's. A poller runs beside the loop: the runtime is the most.
 */
static int run(struct calyx_crew *crew, uint64_t runtime_ns, uint64_t *busy_ns, char *reason)
{
	uint64_t began_ns = cpu_now_ns(), used_ns;
	int error = -ETIME;

	for (int i = 0; i < STARTS && error == -ETIME; i++)
		error = calyx_crew_start(crew, calyx_now_ns() + START_AHEAD_NS);
	if (!error)
		error = calyx_crew_wait(crew, runtime_ns + 2 * OVERTIME_NS);
	used_ns = cpu_now_ns() - began_ns;
	*busy_ns = used_ns < runtime_ns ? used_ns : runtime_ns;
	if (error)
		calyx_refuse(reason, error, "the noise floor was not measured: %s", calyx_error_text(error).text);
	return error;
}

int calyx_floor_measure(enum calyx_setup setup, enum calyx_refill refill, uint32_t iodepth, uint64_t runtime_ns,
			struct calyx_floor *out, char *reason)
{
	static const char *const paths[] = {"NOP"};
	struct calyx_job job = {
		.paths = paths,
		.paths_count = 1,
		.rw = CALYX_RANDREAD,
		.bs = BLOCK_BYTES,
		.size = FILE_BYTES,
		.iodepth = iodepth,
		.runtime_ns = runtime_ns,
		.deadline_ns = runtime_ns + OVERTIME_NS,
		.seed = 1,
		.data_seed = 1,
		.setup = setup,
		.refill = refill,
		.nop = true,
	};
	const struct calyx_result *result;
	const struct calyx_histogram *latency;
	struct calyx_crew *crew;
	uint64_t busy_ns;
	int error;

	error = calyx_crew_open(&job, &crew, reason);
	if (error)
		return error;
	error = run(crew, runtime_ns, &busy_ns, reason);
	if (!error) {
		result = calyx_crew_result(crew);
		latency = &result->directions[CALYX_DIR_READ].latency;
		if (result->failure[0])
			error = calyx_refuse(reason, -EIO, "%s", result->failure);
		else if (!latency->count)
			error = calyx_refuse(reason, -EIO, "no NOP completed within %llu ms",
					     (unsigned long long)runtime_ns / 1000000);
		else
			*out = (struct calyx_floor){.ios = latency->count,
						    .ns_per_io = busy_ns / latency->count,
						    .p50_ns = percentile_ns(latency, 500),
						    .p99_ns = percentile_ns(latency, 990),
						    .setup = result->setup,
						    .clock = result->clock};
	}
	calyx_crew_close(crew);
	return error;
}
