// Is rate_iops held within 2 % on each thread, for one request at a time and for a deep queue, in both refill policies?
#include <stdbool.h>

#include "check.h"

#define SIZE (4ull << 20)

static double measure(uint64_t rate, uint32_t iodepth, enum calyx_refill refill, enum calyx_setup setup)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_crew *crew;
	double ios;

	job.paths_count = 2;
	job.rate_iops = rate;
	job.iodepth = iodepth;
	job.refill = refill;
	job.setup = setup;
	job.ramp_ns = 50 * MS;
	job.runtime_ns = 500 * MS;
	crew = open_crew(&job);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	ios = (double)result->directions[CALYX_DIR_READ].ios;
	calyx_crew_close(crew);
	return ios;
}

/* A pacer that is off is off each time; a busy machine that stalls at the window's edge is not, so it may try again. */
static void check_rate(uint64_t rate, uint32_t iodepth, enum calyx_refill refill, enum calyx_setup setup)
{
	double wanted = (double)rate * 2 * 0.5, ios = 0;

	for (int attempt = 0; attempt < 4; attempt++) {
		ios = measure(rate, iodepth, refill, setup);
		if (ios > wanted * 0.98 && ios < wanted * 1.02)
			return;
	}
	CHECK(false, "rate %" PRIu64 " depth %u refill %d: %.0f instead of %.0f", rate, iodepth, refill, ios, wanted);
}

int main(void)
{
	scratch_make();
	lay_out(2, SIZE);
	check_rate(400, 1, CALYX_REFILL_EACH, CALYX_SETUP_AUTO);
	check_rate(2000, 16, CALYX_REFILL_EACH, CALYX_SETUP_AUTO);
	check_rate(2000, 16, CALYX_REFILL_BATCH, CALYX_SETUP_PLAIN);
	return 0;
}
