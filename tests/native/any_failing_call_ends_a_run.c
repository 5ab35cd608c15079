// When the n-th system call of a whole run fails, from opening to closing, does the job end soon, with a reason, and
// with nothing left open or mapped; and does the truth probe, too?
#include "failing_calls.h"

#define SIZE (1ull << 20)
#define CALLS_OF_A_RUN 24 /* that many of the run's own, beyond those of opening */
#define SOON_NS (4 * SECOND)

/* How many calls opening makes. */
static int count_opening(const struct calyx_job *job)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_crew *crew;
	int count;

	fail_call(0);
	CHECK(calyx_crew_open(job, &crew, reason) == 0, "%s", reason);
	count = atomic_load(&calls);
	calyx_crew_close(crew);
	return count;
}

/* How many of the failures ended the run. */
static int fail_each_of_run(const struct calyx_job *job, int open_files)
{
	int opening = count_opening(job), ended = 0;

	for (int n = opening + 1; n <= opening + CALLS_OF_A_RUN; n++) {
		uint64_t began_ns = calyx_now_ns();
		const struct calyx_result *result;
		char reason[CALYX_REASON_MAX] = "";
		struct calyx_crew *crew;

		fail_call(n);
		CHECK(calyx_crew_open(job, &crew, reason) == 0, "call %d: %s", n, reason);
		CHECK(calyx_crew_start(crew, calyx_now_ns() + 5 * MS) == 0, "start");
		CHECK(calyx_crew_wait(crew, SOON_NS) == 0, "call %d: it hangs", n);
		result = calyx_crew_result(crew);
		CHECK(!strstr(result->failure, "Success"), "call %d: '%s'", n, result->failure);
		/* Failed submissions end the run, failed I/O of psync is counted: neither is silent. */
		if (atomic_load(&calls) >= n)
			CHECK(strstr(result->failure, "EIO") || result->errors_count == 1, "call %d: '%s'", n,
			      result->failure);
		ended += result->failure[0] != 0;
		calyx_crew_close(crew);
		CHECK(calyx_now_ns() - began_ns < SOON_NS, "call %d took %" PRIu64 " ms", n,
		      (calyx_now_ns() - began_ns) / MS);
		check_nothing_left(n, open_files);
	}
	return ended;
}

static void fail_each_of_truth(int open_files)
{
	struct calyx_truth truth;
	char reason[CALYX_REASON_MAX];
	int error, overcome = 0, n = 0;

	do {
		fail_call(++n);
		reason[0] = 0;
		error = calyx_truth_measure(scratch_files[0], 3, &truth, reason);
		check_nothing_left(n, open_files);
		CHECK(!error || (reason[0] && !strstr(reason, "Success")), "call %d: '%s'", n, reason);
		overcome += !error && atomic_load(&calls) >= n;
	} while (error || atomic_load(&calls) >= n);
	CHECK(n > 30, "only %d calls were made to fail", n - 1);
	CHECK(overcome <= 1, "%d failures were swallowed", overcome); /* O_DIRECT refused: told by `direct` */
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	int open_files, ended;

	scratch_make();
	lay_out(2, SIZE);
	calyx_crew_close(open_crew(&job));
	open_files = count_open_files();
	fail_calls();

	job.paths_count = 2;
	job.runtime_ns = 60 * MS;
	job.deadline_ns = 2 * SECOND;
	ended = fail_each_of_run(&job, open_files);
	CHECK(ended >= CALLS_OF_A_RUN / 2, "only %d failing calls were noticed", ended);

	job.iodepth = 1;
	job.paths_count = 1;
	job.setup = CALYX_SETUP_PSYNC;
	fail_each_of_run(&job, open_files);
	fail_each_of_truth(open_files);
	return 0;
}
