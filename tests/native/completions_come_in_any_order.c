// When completions are turned round, is each still given to its own request: its latency, its direction, its data?
#include "bent_ring.h"

#define SIZE (1ull << 20)
#define SLOW_NS (30ll * 1000 * 1000)
#define BATCH_MAX 64

static struct io_uring_cqe *batch[BATCH_MAX];
static int batch_count, turned, submitted, slow_done;

/* What came first in a call is last. */
static void turn_round(struct io_uring_cqe *cqe)
{
	struct io_uring_cqe mine = *cqe;

	if (bent.first_of_batch)
		batch_count = 0;
	CHECK(batch_count < BATCH_MAX, "more completions than requests");
	batch[batch_count] = cqe;
	for (int i = batch_count++; i > 0; i--)
		*batch[i] = *batch[i - 1];
	*batch[0] = mine;
	turned += batch_count > 1;
}

static struct __kernel_timespec slowness = {.tv_nsec = SLOW_NS};

/* Each eighth request takes 30 ms, the others next to nothing. */
static void slow_some(struct io_uring_sqe *sqe)
{
	if (++submitted % 8)
		return;
	sqe->opcode = IORING_OP_TIMEOUT;
	sqe->addr = (uint64_t)(uintptr_t)&slowness;
	sqe->len = 1;
}

static void end_slow(struct io_uring_cqe *cqe)
{
	if (cqe->res == -ETIME) {
		slow_done++;
		cqe->res = 4096;
	}
	turn_round(cqe);
}

static uint64_t slower_than(const struct calyx_histogram *h, uint64_t limit_ns)
{
	uint64_t count = 0;

	for (uint32_t i = calyx_histogram_index(limit_ns); i < CALYX_HISTOGRAM_BUCKETS; i++)
		count += h->buckets[i];
	return count;
}

static void nop_says_4096(struct io_uring_sqe *sqe)
{
	bent_become_nop(sqe);
	slow_some(sqe);
}

static void end_nop(struct io_uring_cqe *cqe)
{
	if (cqe->res == 0)
		cqe->res = 4096;
	end_slow(cqe);
}

static void check_latency(void)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_crew *crew;
	uint64_t slow;

	job.iodepth = 32;
	job.runtime_ns = 400 * MS;
	bent.submission = nop_says_4096;
	bent.completion = end_nop;
	crew = bent_open(&job);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0 && result->errors_count == 0, "%s", result->failure);
	CHECK(turned > 100 && slow_done > 100, "%d turned, %d slow", turned, slow_done);
	slow = slower_than(&result->directions[CALYX_DIR_READ].latency, SLOW_NS - MS);
	/* Those that ended after the window are in no histogram; a quick one is that slow where the machine stood
	 * still. */
	CHECK(slow <= (uint64_t)slow_done + 40 && slow + 40 >= (uint64_t)slow_done, "%" PRIu64 " slow, not %d", slow,
	      slow_done);
	calyx_crew_close(crew);
	bent.submission = NULL;
}

static void check_data(void)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_crew *crew;

	job.rw = CALYX_RANDRW;
	job.verify = true;
	job.iodepth = 16;
	turned = 0;
	bent.completion = turn_round;
	crew = bent_open(&job);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	CHECK(result->errors_count == 0, "%" PRIu32 " kinds of errors", result->errors_count);
	CHECK(result->directions[CALYX_DIR_READ].ios > 0 && result->directions[CALYX_DIR_WRITE].ios > 0, "both");
	if (turned == 0)
		printf("the disk never answered two requests at once\n");
	calyx_crew_close(crew);
}

int main(void)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_layout layout;

	scratch_make();
	CHECK(calyx_target_layout_verified(scratch_files[0], SIZE, 1, 0, NULL, NULL, &layout, reason) == 0, "%s",
	      reason);
	check_latency();
	check_data();
	return 0;
}
