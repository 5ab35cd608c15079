// When a thread hangs in the kernel, does the wait still end after the deadline, say so, and close without it?
#include <time.h>

#include "bent_ring.h"

#define SIZE (1ull << 20)

static int seen;

static int hang(uint32_t to_submit, uint32_t min_complete)
{
	struct timespec rest = {.tv_sec = 1000};

	(void)to_submit;
	(void)min_complete;
	if (++seen == 50)
		nanosleep(&rest, NULL);
	return 0;
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_progress progress;
	struct calyx_crew *crew;
	uint64_t before;

#ifdef HAS_TSAN
	SKIP("what a thread measured that hangs is read without it: a race on purpose");
#endif
	scratch_make();
	lay_out(1, SIZE);
	job.deadline_ns = 300 * MS;
	bent.enter = hang;
	bent.without_disk = true;
	crew = bent_open(&job);
	before = calyx_now_ns();
	result = run_to_end(crew);
	CHECK(calyx_now_ns() - before < 4 * SECOND, "it took %" PRIu64 " ms", (calyx_now_ns() - before) / MS);
	CHECK(strstr(result->failure, "left behind"), "'%s'", result->failure);
	CHECK(result->unfinished > 0 && result->unfinished <= 8, "%" PRIu64 " in flight", result->unfinished);
	calyx_crew_progress(crew, &progress);
	CHECK(progress.done, "progress says that it is over");
	calyx_crew_close(crew);
	CHECK(calyx_now_ns() - before < 4 * SECOND, "closing does not wait for it");
	/* The thread is still asleep and keeps its memory, on purpose: leave without the leak check at exit. */
	scratch_remove();
	_exit(0);
}
