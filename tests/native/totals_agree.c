// Do histogram counts, totals and the sums of the series agree, over several threads, and stay within the window?
#include "check.h"

#define SIZE (4ull << 20)

static void check_totals(const struct calyx_result *result)
{
	const struct calyx_direction_result *read = &result->directions[CALYX_DIR_READ];
	const struct calyx_direction_result *write = &result->directions[CALYX_DIR_WRITE];
	struct calyx_interval sum = {0};
	uint64_t buckets = 0, latency_max = 0;

	CHECK(result->failure[0] == 0, "%s", result->failure);
	CHECK(result->intervals_count == 7, "300 ms by 45 ms are 7 intervals, not %u", result->intervals_count);
	for (uint32_t i = 0; i < result->intervals_count; i++) {
		sum.read_ios += result->intervals[i].read_ios;
		sum.read_bytes += result->intervals[i].read_bytes;
		sum.write_ios += result->intervals[i].write_ios;
		sum.write_bytes += result->intervals[i].write_bytes;
		if (result->intervals[i].latency_max_ns > latency_max)
			latency_max = result->intervals[i].latency_max_ns;
	}
	CHECK(sum.read_ios == read->ios && sum.read_bytes == read->bytes, "reads");
	CHECK(sum.write_ios == write->ios && sum.write_bytes == write->bytes, "writes");
	CHECK(read->bytes == read->ios * 4096 && write->bytes == write->ios * 4096, "bytes");
	for (int d = 0; d < CALYX_DIRECTIONS; d++) {
		const struct calyx_histogram *h = &result->directions[d].latency;

		buckets = 0;
		for (uint32_t i = 0; i < CALYX_HISTOGRAM_BUCKETS; i++)
			buckets += h->buckets[i];
		CHECK(buckets == h->count && h->count == result->directions[d].ios, "direction %d", d);
	}
	CHECK(read->ios > 0 && write->ios > 0, "something was measured");
	CHECK(latency_max ==
		      (read->latency.max_ns > write->latency.max_ns ? read->latency.max_ns : write->latency.max_ns),
	      "the longest latency is in the series");
	/* 70 % of reads: a draw of n is within 5 standard deviations. */
	CHECK(read->ios > write->ios, "the mix is 70 %% reads: %" PRIu64 " and %" PRIu64, read->ios, write->ios);
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_progress progress;
	struct calyx_crew *crew;
	uint64_t start_ns;

	scratch_make();
	lay_out(3, SIZE);
	job.rw = CALYX_RANDRW;
	job.paths_count = 3;
	job.rwmixread = 70;
	job.ramp_ns = 100 * MS;
	job.runtime_ns = 300 * MS;
	job.interval_ns = 45 * MS;
	crew = open_crew(&job);
	start_ns = calyx_now_ns() + 20 * MS;
	CHECK(calyx_crew_start(crew, start_ns) == 0, "start");
	CHECK(calyx_crew_wait(crew, 30 * SECOND) == 0, "wait");
	result = calyx_crew_result(crew);
	check_totals(result);

	CHECK(result->window_start_ns == start_ns + 100 * MS, "the window starts after the ramp");
	CHECK(result->window_end_ns == result->window_start_ns + 300 * MS, "the window ends after the runtime");
	CHECK(result->started_ns >= start_ns && result->started_ns < start_ns + 50 * MS, "started %" PRIu64 " us late",
	      (result->started_ns - start_ns) / 1000);
	CHECK(result->ended_ns >= result->window_end_ns, "it ended after the window");
	calyx_crew_progress(crew, &progress);
	CHECK(progress.done && progress.started_ns == result->started_ns, "progress knows");
	CHECK(progress.ios > result->directions[0].ios + result->directions[1].ios, "progress counts the ramp too");
	CHECK(progress.oldest_ns == 0, "nothing is in flight");
	CHECK(!result->stopped && result->unfinished == 0, "it ran to its end");
	calyx_crew_close(crew);
	return 0;
}
