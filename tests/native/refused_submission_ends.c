// When io_uring_enter answers EAGAIN, does the job go on once that is over, and fail with the name of the error if it
// never is?
#include "bent_ring.h"

#define SIZE (1ull << 20)

static int left, error = -EAGAIN;

static int refuse(uint32_t to_submit, uint32_t min_complete)
{
	(void)min_complete;
	if (to_submit == 0 || left == 0)
		return 0;
	left -= left > 0;
	return error;
}

static const struct calyx_result *run(int times, struct calyx_crew **crew)
{
	struct calyx_job job = short_job(SIZE);

	left = times;
	bent.enter = refuse;
	bent.without_disk = true;
	job.deadline_ns = 20 * SECOND;
	*crew = bent_open(&job);
	return run_to_end(*crew);
}

int main(void)
{
	const struct calyx_result *result;
	struct calyx_crew *crew;
	uint64_t before;

	scratch_make();
	lay_out(1, SIZE);
	result = run(3, &crew);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	CHECK(result->directions[0].ios > 100, "it went on");
	calyx_crew_close(crew);

	/* The window is long over when it gives up: the wait is bounded by the engine, not by the deadline. */
	before = calyx_now_ns();
	result = run(-1, &crew);
	CHECK(calyx_now_ns() - before < 5 * SECOND, "it took %" PRIu64 " ms", (calyx_now_ns() - before) / MS);
	CHECK(strstr(result->failure, "EAGAIN") && strstr(result->failure, "nothing in flight"), "'%s'",
	      result->failure);
	CHECK(result->unfinished > 0, "what was never submitted is unfinished");
	calyx_crew_close(crew);

	error = -EINVAL;
	result = run(-1, &crew);
	CHECK(strstr(result->failure, "io_uring_enter: EINVAL"), "'%s'", result->failure);
	calyx_crew_close(crew);
	return 0;
}
