// When a job is stopped after its window, while an I/O still hangs, does it end soon, or only at its deadline? And is
// that said as what it is?
#include "bent_ring.h"

#define SIZE (1ull << 20)
#define PATIENCE_NS (5 * SECOND) /* after a stop, for what is in flight */

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
	struct calyx_crew *crew;
	uint64_t stopped_ns, took_ns;

	scratch_make();
	lay_out(1, SIZE);
	job.runtime_ns = 200 * MS;
	job.deadline_ns = 60 * SECOND;
	bent.submission = lose_one;
	bent.without_disk = true;
	crew = bent_open(&job);
	CHECK(calyx_crew_start(crew, calyx_now_ns() + 20 * MS) == 0, "start");
	CHECK(calyx_crew_wait(crew, 500 * MS) == -ETIME, "it waits for what hangs");
	stopped_ns = calyx_now_ns();
	calyx_crew_stop(crew);
	CHECK(calyx_crew_wait(crew, 2 * PATIENCE_NS) == 0, "it does not end");
	took_ns = calyx_now_ns() - stopped_ns;
	CHECK(took_ns > PATIENCE_NS - SECOND && took_ns < PATIENCE_NS + 2 * SECOND, "it took %" PRIu64 " ms",
	      took_ns / MS);
	result = calyx_crew_result(crew);
	CHECK(!result->stopped, "its window was whole");
	CHECK(result->unfinished == 1 && strstr(result->failure, "1 I/Os did not end within 5 s of a stop"), "'%s'",
	      result->failure);
	CHECK(result->directions[CALYX_DIR_READ].ios > 100, "what was measured is kept");
	calyx_crew_close(crew);
	return 0;
}
