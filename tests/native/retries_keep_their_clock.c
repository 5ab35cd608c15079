// Is a completion with EAGAIN tried again, counted, given up after a limit, and measured from its first submission?
#include <time.h>

#include "bent_ring.h"

#define SIZE (1ull << 20)

static int seen, bent_count, times;
static uint64_t victim = UINT64_MAX;

static void pause_ms(long ms)
{
	struct timespec length = {.tv_nsec = ms * 1000000};

	nanosleep(&length, NULL);
}

static void some_again(struct io_uring_cqe *cqe)
{
	if (++seen % 100 == 0) {
		cqe->res = -EAGAIN;
		bent_count++;
	}
}

/* One request is answered EAGAIN `times` times, 10 ms each. */
static void one_again(struct io_uring_cqe *cqe)
{
	if (victim == UINT64_MAX && ++seen == 20)
		victim = cqe->user_data;
	if (cqe->user_data != victim || bent_count >= times)
		return;
	bent_count++;
	cqe->res = -EAGAIN;
	if (times < 10)
		pause_ms(10);
}

static const struct calyx_result *run(void (*completion)(struct io_uring_cqe *cqe), struct calyx_crew **crew)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;

	seen = bent_count = 0;
	victim = UINT64_MAX;
	bent.completion = completion;
	bent.without_disk = true;
	*crew = bent_open(&job);
	result = run_to_end(*crew);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	return result;
}

int main(void)
{
	const struct calyx_result *result;
	struct calyx_crew *crew;

	scratch_make();
	lay_out(1, SIZE);

	result = run(some_again, &crew);
	CHECK(bent_count > 0 && result->errors_count == 0, "no error");
	CHECK(result->eagain + result->unfinished >= (uint64_t)bent_count, "%" PRIu64 " of %d retries", result->eagain,
	      bent_count);
	CHECK(result->directions[0].bytes == result->directions[0].ios * 4096, "bytes are counted once");
	calyx_crew_close(crew);

	times = 3;
	result = run(one_again, &crew);
	CHECK(result->eagain == 3, "%" PRIu64 " retries", result->eagain);
	CHECK(result->directions[0].latency.max_ns >= 30 * MS,
	      "three pauses of 10 ms are in the latency: %" PRIu64 " us", result->directions[0].latency.max_ns / 1000);
	calyx_crew_close(crew);

	times = 1000;
	result = run(one_again, &crew);
	CHECK(result->errors_count == 1 && result->errors[0].error == EAGAIN, "a thousand retries are an error");
	calyx_crew_close(crew);
	return 0;
}
