// Is a failed I/O counted by operation and errno, kept out of the histogram, and is there an end to patience?
#include "bent_ring.h"

#define SIZE (1ull << 20)

static int seen;

static void fail_some(struct io_uring_cqe *cqe)
{
	seen++;
	if (seen == 10 || seen == 20)
		cqe->res = -EIO;
	if (seen == 30)
		cqe->res = -ENOSPC;
	if (seen == 40)
		cqe->res = 8192; /* more than was asked for: never to be believed */
}

static void fail_all(struct io_uring_cqe *cqe)
{
	cqe->res = -EIO;
}

/* Completions in another order than submissions: user_data alone says whose they are. */
static void swap_pairs(struct io_uring_cqe *cqe)
{
	static struct io_uring_cqe *first;
	struct io_uring_cqe other;

	if (!first || bent.first_of_batch) {
		first = cqe;
		return;
	}
	if (cqe == first + 1) {
		other = *first;
		*first = *cqe;
		*cqe = other;
		seen++;
	}
	first = NULL;
}

static const struct calyx_result *run(void (*completion)(struct io_uring_cqe *cqe), enum calyx_refill refill,
				      struct calyx_crew **crew)
{
	struct calyx_job job = short_job(SIZE);

	seen = 0;
	job.refill = refill;
	bent.completion = completion;
	bent.without_disk = true;
	*crew = bent_open(&job);
	return run_to_end(*crew);
}

int main(void)
{
	const struct calyx_result *result;
	struct calyx_crew *crew;

	scratch_make();
	lay_out(1, SIZE);
	result = run(fail_some, CALYX_REFILL_EACH, &crew);
	CHECK(result->failure[0] == 0, "a few errors do not end a job: %s", result->failure);
	CHECK(result->errors_count == 2, "%u kinds of errors", result->errors_count);
	CHECK(result->errors[0].error == EIO && result->errors[0].count == 3 &&
		      result->errors[0].direction == CALYX_DIR_READ,
	      "EIO twice, and once for the impossible answer");
	CHECK(result->errors[0].first_offset % 4096 == 0 && result->errors[0].first_offset < SIZE, "offset");
	CHECK(result->errors[1].error == ENOSPC && result->errors[1].count == 1, "ENOSPC once");
	CHECK(result->directions[0].errors == 4, "%" PRIu64, result->directions[0].errors);
	CHECK(result->directions[0].latency.count == result->directions[0].ios, "no failed I/O is in the histogram");
	calyx_crew_close(crew);

	result = run(fail_all, CALYX_REFILL_EACH, &crew);
	CHECK(strstr(result->failure, "EIO") && strstr(result->failure, "I/Os failed"), "'%s'", result->failure);
	CHECK(result->directions[0].ios == 0 && !result->stopped, "nothing was measured");
	CHECK(result->ended_ns < result->window_end_ns, "it did not wait for the end");
	calyx_crew_close(crew);

	/* In batches, so that several completions come at once. */
	result = run(swap_pairs, CALYX_REFILL_BATCH, &crew);
	CHECK(result->failure[0] == 0 && result->errors_count == 0 && result->unfinished == 0, "'%s'", result->failure);
	CHECK(seen > 10, "only %d pairs were swapped", seen);
	CHECK(result->directions[0].ios > 100, "swapped completions do no harm");
	calyx_crew_close(crew);
	return 0;
}
