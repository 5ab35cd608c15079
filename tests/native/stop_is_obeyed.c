// Does a crew end soon when it is stopped before its start, while waiting for it, and in the middle of a run?
#include <signal.h>

#include "check.h"

#define SIZE (4ull << 20)

static struct calyx_crew *crew_of_signal;

static void on_signal(int number)
{
	(void)number;
	calyx_crew_stop(crew_of_signal);
}

static const struct calyx_result *wait_stopped(struct calyx_crew *crew)
{
	uint64_t before = calyx_now_ns();

	CHECK(calyx_crew_wait(crew, 5 * SECOND) == 0, "it did not end");
	CHECK(calyx_now_ns() - before < 2 * SECOND, "it took %" PRIu64 " ms", (calyx_now_ns() - before) / MS);
	CHECK(calyx_crew_result(crew)->stopped, "the result says that it was stopped");
	CHECK(calyx_crew_result(crew)->failure[0] == 0, "a stop is no failure: %s", calyx_crew_result(crew)->failure);
	return calyx_crew_result(crew);
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_progress progress;
	struct calyx_crew *crew;

	scratch_make();
	lay_out(2, SIZE);
	job.paths_count = 2;
	job.runtime_ns = 30 * SECOND;

	crew = open_crew(&job);
	CHECK(calyx_crew_start(crew, calyx_now_ns() - 1) == -ETIME, "a start in the past is refused");
	CHECK(calyx_crew_wait(crew, 10 * MS) == -ETIME, "it waits for its start");
	calyx_crew_stop(crew);
	result = wait_stopped(crew);
	CHECK(result->started_ns == 0 && result->submitted == 0, "nothing was started");
	CHECK(calyx_crew_start(crew, calyx_now_ns() + SECOND) == 0, "a start after a stop does nothing");
	calyx_crew_close(crew);

	crew = open_crew(&job);
	CHECK(calyx_crew_start(crew, calyx_now_ns() + 20 * SECOND) == 0, "armed");
	CHECK(calyx_crew_start(crew, calyx_now_ns() + 20 * SECOND) == -EALREADY, "armed twice");
	calyx_crew_stop(crew);
	CHECK(wait_stopped(crew)->started_ns == 0, "nothing was started");
	calyx_crew_close(crew);

	crew = crew_of_signal = open_crew(&job);
	CHECK(calyx_crew_start(crew, calyx_now_ns() + 20 * MS) == 0, "started");
	CHECK(calyx_crew_wait(crew, 150 * MS) == -ETIME, "it runs");
	calyx_crew_progress(crew, &progress);
	CHECK(progress.started_ns && progress.ios > 0 && progress.bytes == progress.ios * 4096 && !progress.done,
	      "progress");
	signal(SIGUSR1, on_signal);
	raise(SIGUSR1);
	result = wait_stopped(crew);
	CHECK(result->directions[CALYX_DIR_READ].ios > 0, "what was measured is kept");
	CHECK(result->ended_ns < result->window_end_ns, "it ended early");
	calyx_crew_close(crew);

	crew = open_crew(&job);
	calyx_crew_close(crew); /* never started, never waited for */
	return 0;
}
