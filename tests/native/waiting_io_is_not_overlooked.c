// While the kernel takes no submission, is an I/O that it took before still waited for, however long it needs, although
// a timer of ours is among what was not taken?
#include "bent_ring.h"

#define SIZE (1ull << 20)
#define SLOW_NS (2600 * MS) /* longer than the engine bears a kernel that takes nothing, with nothing in flight */

static struct __kernel_timespec slowness = {.tv_sec = SLOW_NS / SECOND, .tv_nsec = SLOW_NS % SECOND};
static uint64_t refused_until_ns;
static int seen, refused;

static void slow_first(struct io_uring_sqe *sqe)
{
	if (seen++ > 0)
		return;
	sqe->opcode = IORING_OP_TIMEOUT;
	sqe->addr = (uint64_t)(uintptr_t)&slowness;
	sqe->len = 1;
}

/* All but the first submission, which is the I/O. */
static int refuse(uint32_t to_submit, uint32_t min_complete)
{
	(void)min_complete;
	if (to_submit == 0 || seen == 0 || calyx_now_ns() > refused_until_ns)
		return 0;
	refused++;
	return -EAGAIN;
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_crew *crew;

	scratch_make();
	lay_out(1, SIZE);
	job.iodepth = 1;
	job.runtime_ns = SLOW_NS + 200 * MS;
	bent.submission = slow_first;
	bent.enter = refuse;
	bent.without_disk = true;
	crew = bent_open(&job);
	refused_until_ns = calyx_now_ns() + SLOW_NS - 100 * MS;
	result = run_to_end(crew);
	CHECK(refused > 100, "refused only %d times", refused);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	CHECK(result->unfinished == 0 && result->errors_count == 0, "%" PRIu64 " unfinished", result->unfinished);
	CHECK(result->directions[CALYX_DIR_READ].latency.max_ns >= SLOW_NS, "the slow one counts");
	CHECK(result->directions[CALYX_DIR_READ].ios > 1, "and others after it");
	calyx_crew_close(crew);
	return 0;
}
