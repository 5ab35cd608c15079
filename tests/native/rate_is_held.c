// Is rate_iops held within 2 %, and never exceeded, for one request at a time and for a deep queue, in both refill
// policies?
#include <stdbool.h>

#include "check.h"

#define SIZE (4ull << 20)

static char memory_path[64];
static const char *memory_file[] = {memory_path};

static void remove_memory_file(void)
{
	unlink(memory_path);
}

/* The question is about the pacer, so a file in memory is better than a disk that others keep busy. */
static const char *const *make_file(void)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_layout layout;

	snprintf(memory_path, sizeof(memory_path), "/dev/shm/calyx-test-%ld", (long)getpid());
	if (calyx_target_layout(memory_path, SIZE, 1, 0, NULL, NULL, &layout, reason) == 0) {
		atexit(remove_memory_file);
		return memory_file;
	}
	lay_out(1, SIZE);
	return scratch_files;
}

static double measure(const char *const *paths, uint64_t rate, uint32_t iodepth, enum calyx_refill refill,
		      enum calyx_setup setup)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_crew *crew;
	double ios;

	job.paths = paths;
	job.direct = false;
	job.rate_iops = rate;
	job.iodepth = iodepth;
	job.refill = refill;
	job.setup = setup;
	job.runtime_ns = 500 * MS;
	crew = open_crew(&job);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	ios = (double)result->directions[CALYX_DIR_READ].ios;
	calyx_crew_close(crew);
	return ios;
}

/* Never more than the rate allows. A machine that stalls at the window's end makes it less, so it may try again; a
 * pacer that is too slow is so each time. */
static void check_rate(const char *const *paths, uint64_t rate, uint32_t iodepth, enum calyx_refill refill,
		       enum calyx_setup setup)
{
	double wanted = (double)rate * 0.5, ios = 0;

	for (int attempt = 0; attempt < 5; attempt++) {
		ios = measure(paths, rate, iodepth, refill, setup);
		CHECK(ios <= wanted + 1, "rate %" PRIu64 ": %.0f are more than %.0f", rate, ios, wanted);
		if (ios > wanted * 0.98)
			return;
	}
	CHECK(false, "rate %" PRIu64 " depth %u refill %d: %.0f instead of %.0f", rate, iodepth, refill, ios, wanted);
}

int main(void)
{
	const char *const *paths;

	scratch_make();
	paths = make_file();
	check_rate(paths, 400, 1, CALYX_REFILL_EACH, CALYX_SETUP_AUTO);
	check_rate(paths, 2000, 16, CALYX_REFILL_EACH, CALYX_SETUP_AUTO);
	check_rate(paths, 2000, 16, CALYX_REFILL_BATCH, CALYX_SETUP_PLAIN);
	return 0;
}
