// Is rate (bytes per second) held within 2 %, with blocks of one size and of several, and never exceeded?
#include "check.h"

#define SIZE (4ull << 20)

static void check_rate(const char *split, uint64_t rate)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_crew *crew;
	double seconds, bytes;

	if (split) {
		job.bs = 65536;
		CHECK(calyx_parse_bssplit(split, &job.bssplit, NULL) == 0, "%s", split);
	}
	job.rate = rate;
	job.runtime_ns = SECOND;
	job.nop = true; /* no disk that may be slow */
	crew = open_crew(&job);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	seconds = (double)job.runtime_ns / 1e9;
	bytes = (double)result->directions[CALYX_DIR_READ].bytes;
	CHECK(bytes > (double)rate * seconds * 0.98 && bytes < (double)rate * seconds * 1.01 + 65536 * 2,
	      "%.0f bytes, %.0f were asked for", bytes, (double)rate * seconds);
	calyx_crew_close(crew);
}

int main(void)
{
	scratch_make();
	check_rate(NULL, 4000000);
	check_rate("4096/60:65536/40", 20000000);
	return 0;
}
