// With verify=crc32c, is all that a job wrote read back after the window, and is a write that the disk lost found and
// named?
#include <linux/io_uring.h>

#include "bent_ring.h"

#define SIZE (1ull << 20)

static uint64_t lost_offset;
static int writes;

/* The 50th write is acknowledged, but goes nowhere. */
static void lose_one(struct io_uring_sqe *sqe)
{
	if (sqe->opcode != IORING_OP_WRITE_FIXED && sqe->opcode != IORING_OP_WRITE)
		return;
	if (++writes != 50)
		return;
	lost_offset = sqe->off;
	bent_become_nop(sqe);
}

/* A NOP says 0: this one says that it moved 4096 bytes. */
static void acknowledge(struct io_uring_cqe *cqe)
{
	if (cqe->res == 0)
		cqe->res = 4096;
}

static void check_run(enum calyx_rw rw, bool lose)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_crew *crew;

	writes = 0;
	job.rw = rw;
	job.verify = true;
	/* Slow enough that no block is written twice, so that the lost one is not made good. */
	job.rate_iops = lose ? 900 : 0;
	bent.submission = lose ? lose_one : NULL;
	bent.completion = lose ? acknowledge : NULL;
	crew = bent_open(&job);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	CHECK(result->verified.left == 0, "%" PRIu64 " left", result->verified.left);
	CHECK(result->verified.checked > 0, "nothing was read back");
	if (lose) {
		CHECK(writes >= 50, "too slow a disk: %d writes", writes);
		CHECK(result->verified.bad == 1 && result->verified.first_bad[0].offset == lost_offset &&
			      result->verified.first_bad[0].why == CALYX_BAD_GENERATION,
		      "%" PRIu64 " bad blocks, the lost write went to %" PRIu64, result->verified.bad, lost_offset);
	} else {
		CHECK(result->verified.bad == 0, "%" PRIu64 " bad blocks", result->verified.bad);
	}
	calyx_crew_close(crew);
}

int main(void)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_layout layout;

	scratch_make();
	CHECK(calyx_target_layout_verified(scratch_files[0], SIZE, 1, 0, NULL, NULL, &layout, reason) == 0, "%s",
	      reason);
	check_run(CALYX_RANDWRITE, false);
	check_run(CALYX_RANDRW, false);
	check_run(CALYX_WRITE, true);
	return 0;
}
