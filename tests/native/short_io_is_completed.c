// Is the rest of a short read or write asked for, the I/O counted once with its exact bytes, and the end of the file an
// error?
#include "bent_ring.h"

#define SIZE (1ull << 20)

static int seen, cut;

/* Every seventh full request is halved: the kernel then really transfers half, and says so. */
static void halve_some(struct io_uring_sqe *sqe)
{
	if (sqe->len == 4096 && ++seen % 7 == 0) {
		sqe->len = 2048;
		cut++;
	}
}

static void end_of_file(struct io_uring_cqe *cqe)
{
	if (++seen == 20)
		cqe->res = 0;
}

/* Returns how many requests were cut. */
static int run_halved(enum calyx_rw rw, enum calyx_direction direction, uint64_t runtime_ns)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_progress progress;
	struct calyx_crew *crew;

	seen = cut = 0;
	job.rw = rw;
	job.runtime_ns = runtime_ns;
	bent.submission = halve_some;
	crew = bent_open(&job);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	CHECK(result->errors_count == 0, "a short transfer is no error");
	CHECK(result->directions[direction].bytes == result->directions[direction].ios * 4096, "bytes are exact");
	/* Those cut in the last moments are not finished any more: they are drained. */
	CHECK(result->short_ios + 8 >= (uint64_t)cut && result->short_ios <= (uint64_t)cut, "%" PRIu64 " of %d counted",
	      result->short_ios, cut);
	calyx_crew_progress(crew, &progress);
	CHECK(result->submitted >= progress.ios + result->short_ios - result->unfinished, "each rest is a submission");
	calyx_crew_close(crew);
	bent.submission = NULL;
	return cut;
}

static void check_halved(enum calyx_rw rw, enum calyx_direction direction)
{
	int count = 0;

	for (int attempt = 0; attempt < ATTEMPTS && count < 4; attempt++)
		count = run_halved(rw, direction, RUNTIME_NS(attempt));
	CHECK(count > 3, "only %d requests were cut", count);
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_crew *crew;

	scratch_make();
	lay_out(1, SIZE);
	check_halved(CALYX_RANDREAD, CALYX_DIR_READ);
	check_halved(CALYX_WRITE, CALYX_DIR_WRITE);

	seen = 0;
	bent.without_disk = true;
	bent.completion = end_of_file;
	crew = bent_open(&job);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	CHECK(result->errors_count == 1 && result->errors[0].error == ENODATA && result->errors[0].count == 1,
	      "0 bytes are an error");
	calyx_crew_close(crew);
	return 0;
}
