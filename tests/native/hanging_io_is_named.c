// While an I/O hangs for more than a second, does progress say which: its offset, its direction, its age?
#include "bent_ring.h"

#define SIZE (1ull << 20)

static int seen;
static _Atomic uint64_t lost_offsets[6];

/* NOPs that post no completion, in place of six requests. */
static void lose_six(struct io_uring_sqe *sqe)
{
	if (++seen < 40 || seen >= 46)
		return;
	lost_offsets[seen - 40] = sqe->off;
	sqe->opcode = IORING_OP_NOP;
	sqe->flags = IOSQE_CQE_SKIP_SUCCESS;
	sqe->off = sqe->addr = sqe->len = 0;
	sqe->fd = -1;
}

/* bent_ring's own NOPs forget the offset before the hook sees it. */
static void nop_others(struct io_uring_cqe *cqe)
{
	cqe->res = 4096;
}

static void lose_or_nop(struct io_uring_sqe *sqe)
{
	lose_six(sqe);
	if (sqe->opcode != IORING_OP_NOP)
		bent_become_nop(sqe);
}

static bool is_lost(uint64_t offset)
{
	for (int i = 0; i < 6; i++) {
		if (lost_offsets[i] == offset)
			return true;
	}
	return false;
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
	job.runtime_ns = 1300 * MS;
	job.deadline_ns = 1500 * MS;
	bent.submission = lose_or_nop;
	bent.completion = nop_others;
	crew = bent_open(&job);
	start_ns = calyx_now_ns() + 20 * MS;
	CHECK(calyx_crew_start(crew, start_ns) == 0, "start");
	CHECK(calyx_crew_wait(crew, 500 * MS) == -ETIME, "it runs");
	calyx_crew_progress(crew, &progress);
	CHECK(progress.hung_count == 0, "nothing hangs for a second yet");
	CHECK(calyx_crew_wait(crew, start_ns + 1250 * MS - calyx_now_ns()) == -ETIME, "it runs");
	calyx_crew_progress(crew, &progress);
	CHECK(progress.hung_count == 6, "%u I/Os hang", progress.hung_count);
	for (int i = 0; i < CALYX_HUNG_MAX; i++) {
		const struct calyx_hung *hung = &progress.hung[i];

		CHECK(is_lost(hung->offset), "offset %" PRIu64 " does not hang", hung->offset);
		CHECK(hung->direction == CALYX_DIR_READ && hung->job == 0, "a read of job 0");
		CHECK(hung->age_ns > CALYX_HUNG_NS && hung->age_ns < 1500 * MS, "age %" PRIu64, hung->age_ns);
		CHECK(i == 0 || hung->age_ns <= hung[-1].age_ns, "the oldest first");
	}
	CHECK(progress.hung[0].age_ns <= progress.oldest_ns, "none is older than the oldest");
	CHECK(calyx_crew_wait(crew, 5 * SECOND) == 0, "it ends");
	result = calyx_crew_result(crew);
	CHECK(result->unfinished == 6 && strstr(result->failure, "6 I/Os did not end"), "'%s'", result->failure);
	calyx_crew_close(crew);
	return 0;
}
