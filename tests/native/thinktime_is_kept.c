// With thinktime, is there a pause after each N I/Os, that begins when all of them have ended?
#include "bent_ring.h"

#define SIZE (1ull << 20)

static uint64_t ended_ns, pause_min_ns;
static uint32_t submitted, in_flight, group;

/* The first I/O of each group of N comes after the pause, with nothing in flight. */
static void on_submission(struct io_uring_sqe *sqe)
{
	uint64_t pause_ns = calyx_now_ns() - ended_ns;

	(void)sqe;
	if (submitted > 0 && submitted % group == 0) {
		CHECK(in_flight == 0, "%" PRIu32 " I/Os in flight at the end of a pause", in_flight);
		pause_min_ns = pause_ns < pause_min_ns ? pause_ns : pause_min_ns;
	}
	submitted++;
	in_flight++;
}

static void on_completion(struct io_uring_cqe *cqe)
{
	(void)cqe;
	in_flight--;
	ended_ns = calyx_now_ns();
}

static void check_pauses(uint32_t iodepth, uint32_t blocks, enum calyx_refill refill)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_crew *crew;
	uint64_t ios;

	pause_min_ns = UINT64_MAX;
	submitted = in_flight = 0;
	group = blocks ? blocks : 1;
	job.iodepth = iodepth;
	job.refill = refill;
	job.thinktime_ns = 10 * MS;
	job.thinktime_blocks = blocks;
	job.runtime_ns = 500 * MS;
	bent.without_disk = true;
	bent.submission = on_submission;
	bent.completion = on_completion;
	crew = bent_open(&job);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	ios = result->directions[CALYX_DIR_READ].ios;
	CHECK(pause_min_ns >= 99 * MS / 10 && pause_min_ns < SECOND, "a pause of %" PRIu64 " ns", pause_min_ns);
	CHECK(ios <= 51 * group && ios >= 2 * group, "%" PRIu64 " I/Os", ios);
	calyx_crew_close(crew);
}

int main(void)
{
	scratch_make();
	lay_out(1, SIZE);
	check_pauses(1, 0, CALYX_REFILL_EACH);
	check_pauses(4, 3, CALYX_REFILL_EACH);
	check_pauses(4, 10, CALYX_REFILL_BATCH);
	return 0;
}
