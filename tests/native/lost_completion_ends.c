// When a completion never comes, does the job end at its deadline, with that I/O counted, and show its age until then?
#include "bent_ring.h"

#define SIZE (1ull << 20)

static int seen;

/* A NOP that posts no completion, in place of the tenth request. */
static void lose_one(struct io_uring_sqe *sqe)
{
	if (++seen != 10)
		return;
	sqe->opcode = IORING_OP_NOP;
	sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
	sqe->off = sqe->addr = sqe->len = 0;
	sqe->fd = -1;
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_progress progress;
	struct calyx_crew *crew;
	uint64_t start_ns;

	scratch_make();
	lay_out(1, SIZE);
	job.deadline_ns = 400 * MS;
	bent.submission = lose_one;
	bent.without_disk = true;
	crew = bent_open(&job);
	start_ns = calyx_now_ns() + 20 * MS;
	CHECK(calyx_crew_start(crew, start_ns) == 0, "start");
	CHECK(calyx_crew_wait(crew, 220 * MS) == -ETIME, "it runs");
	calyx_crew_progress(crew, &progress);
	CHECK(progress.oldest_ns > 100 * MS, "the oldest I/O is only %" PRIu64 " us old", progress.oldest_ns / 1000);
	CHECK(progress.ios > 100, "the others go on: %" PRIu64, progress.ios);
	CHECK(calyx_crew_wait(crew, 5 * SECOND) == 0, "it ends");
	result = calyx_crew_result(crew);
	CHECK(result->ended_ns >= start_ns + 400 * MS && result->ended_ns < start_ns + 1500 * MS,
	      "ended after %" PRIu64 " ms", (result->ended_ns - start_ns) / MS);
	CHECK(result->unfinished == 1, "%" PRIu64 " unfinished", result->unfinished);
	CHECK(strstr(result->failure, "1 I/Os did not end before the deadline"), "'%s'", result->failure);
	CHECK(result->directions[0].ios > 100, "what was measured is kept");
	calyx_crew_close(crew);
	return 0;
}
