// When the n-th system call of opening fails, for every n, is the job refused in words, with nothing left open or
// mapped?
#include "failing_calls.h"

#define SIZE (1ull << 20)

static void check_answer(int n, int error, const char *reason)
{
	CHECK(!error || (strstr(reason, "E") && !strstr(reason, "Success")), "call %d: '%s'", n, reason);
}

/* Opens a job with its n-th call failing, n = 1, 2, 3 ... until no call is left to fail. How many were made to fail. */
static int fail_each_of_open(const struct calyx_job *job, int open_files)
{
	char reason[CALYX_REASON_MAX];
	struct calyx_crew *crew;
	int error, overcome = 0, n = 0;

	do {
		fail_call(++n);
		reason[0] = 0;
		error = calyx_crew_open(job, &crew, reason);
		if (!error)
			calyx_crew_close(crew);
		check_nothing_left(n, open_files);
		check_answer(n, error, reason);
		overcome += !error && atomic_load(&calls) >= n;
	} while (error || atomic_load(&calls) >= n);
	CHECK(overcome == 0, "%d failures were swallowed", overcome);
	return n - 1;
}

/* The same for a layout. O_DIRECT that is refused is a failure that it gets over: the file is then written buffered; so
 * is a cache that is not forgotten, since direct I/O does not ask it. */
static int fail_each_of_layout(int open_files)
{
	struct calyx_layout layout;
	char reason[CALYX_REASON_MAX];
	int error, overcome = 0, n = 0;

	do {
		fail_call(++n);
		reason[0] = 0;
		error = calyx_target_layout(scratch_files[5], 2 << 20, 1, 0, NULL, NULL, &layout, reason);
		check_nothing_left(n, open_files);
		CHECK((access(scratch_files[5], F_OK) == 0) == (error == 0), "call %d: the file", n);
		check_answer(n, error, reason);
		overcome += !error && atomic_load(&calls) >= n;
		unlink(scratch_files[5]);
	} while (error || atomic_load(&calls) >= n);
	CHECK(overcome <= 2, "%d failures were swallowed", overcome);
	return n - 1;
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	int open_files, count;

	scratch_make();
	lay_out(2, SIZE);
	calyx_crew_close(open_crew(&job));
	open_files = count_open_files();
	fail_calls();

	job.paths_count = 2;
	job.buffers = CALYX_BUFFERS_REGISTERED;
	count = fail_each_of_open(&job, open_files);
	CHECK(count > 15, "only %d calls were made to fail", count);

	job.iodepth = 1;
	job.setup = CALYX_SETUP_PSYNC;
	job.buffers = CALYX_BUFFERS_AUTO;
	count = fail_each_of_open(&job, open_files);
	CHECK(count > 8, "only %d calls were made to fail", count);

	count = fail_each_of_layout(open_files);
	CHECK(count > 5, "only %d calls were made to fail", count);
	return 0;
}
