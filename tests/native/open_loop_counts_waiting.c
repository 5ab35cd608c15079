// In an open loop, does an I/O that waits behind a slow one count its waiting in the latency from the intended start,
// and not in the latency from its own start?
#include <time.h>

#include "bent_ring.h"
#include "calyx/text.h"

#define SIZE (1ull << 20)
#define STALL_NS (60 * MS)

static int submitted;
static uint64_t off_cpu_first_ns, off_cpu_ns;

/* How long this thread could run and found no CPU: its second number. 0 where the kernel does not count that. */
static uint64_t read_off_cpu_ns(void)
{
	char text[80] = "";
	const char *second;

	calyx_read_text("/proc/thread-self/schedstat", text, sizeof(text));
	calyx_number(text, &second);
	return calyx_number(second, NULL);
}

/* One I/O takes 60 ms: at one in 1 ms, some 60 are due meanwhile. */
static void stall_once(struct io_uring_sqe *sqe)
{
	struct timespec pause = {.tv_nsec = (long)STALL_NS};

	(void)sqe;
	if (!submitted)
		off_cpu_first_ns = read_off_cpu_ns();
	off_cpu_ns = read_off_cpu_ns() - off_cpu_first_ns;
	if (++submitted == 100)
		nanosleep(&pause, NULL);
}

static uint64_t count_above(const struct calyx_histogram *latency, uint64_t bound_ns)
{
	uint64_t count = 0;

	for (uint32_t i = calyx_histogram_index(bound_ns); i < CALYX_HISTOGRAM_BUCKETS; i++)
		count += latency->buckets[i];
	return count;
}

static void check_arrival(enum calyx_arrival arrival)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_histogram *intended;
	const struct calyx_result *result;
	struct calyx_crew *crew;
	uint64_t ios, slow, waited, off_cpu_ms;

	submitted = 0;
	job.iodepth = 1;
	job.rate_iops = 1000;
	job.arrival = arrival;
	job.runtime_ns = 500 * MS;
	bent.without_disk = true;
	bent.submission = stall_once;
	crew = bent_open(&job);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	intended = &result->latency_intended[CALYX_DIR_READ];
	ios = result->directions[CALYX_DIR_READ].ios;
	off_cpu_ms = off_cpu_ns / MS;
	CHECK(submitted >= 100, "no stall");
	CHECK(intended->count == ios && result->directions[CALYX_DIR_READ].latency.count == ios, "both hold every I/O");
	/* A busy machine may hold up one more by itself, not as many as waited; it says for how long it did. */
	slow = count_above(&result->directions[CALYX_DIR_READ].latency, 30 * MS);
	CHECK(slow >= 1 && slow <= 4 + off_cpu_ms / 30, "%" PRIu64 " I/Os were slow by themselves", slow);
	/* Those due in the first half of the stall waited for 30 ms and more, and one more a millisecond off the CPU;
	 * of a Poisson stream as many as twice that may be due in it. */
	waited = count_above(intended, 30 * MS);
	CHECK(waited >= 15 && waited <= 60 + 2 * off_cpu_ms,
	      "%" PRIu64 " I/Os waited for 30 ms; %" PRIu64 " ms off the CPU", waited, off_cpu_ms);
	CHECK(result->directions[CALYX_DIR_READ].late >= 30, "%" PRIu64 " are late",
	      result->directions[CALYX_DIR_READ].late);
	CHECK(result->latency_intended[CALYX_DIR_WRITE].count == 0, "no writes");
	/* What was missed is caught up with. */
	CHECK(ios + off_cpu_ms > (arrival == CALYX_ARRIVAL_CONSTANT ? 480u : 380u) && ios < 640, "%" PRIu64 " I/Os",
	      ios);
	calyx_crew_close(crew);
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	struct calyx_crew *crew;

	scratch_make();
	lay_out(1, SIZE);
	check_arrival(CALYX_ARRIVAL_CONSTANT);
	check_arrival(CALYX_ARRIVAL_POISSON);
	bent.submission = NULL;
	job.rate_iops = 1000;
	crew = bent_open(&job);
	CHECK(run_to_end(crew)->latency_intended == NULL, "a closed loop has no intended starts");
	calyx_crew_close(crew);
	return 0;
}
