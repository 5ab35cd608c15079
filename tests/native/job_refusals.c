// Is every senseless job refused, with a sentence that names what is wrong?
#include "check.h"

static void refused(struct calyx_job job, const char *word)
{
	char reason[CALYX_REASON_MAX] = "";
	int error = calyx_job_check(&job, reason);

	CHECK(error == -EINVAL, "expected a refusal that says '%s', got %d", word, error);
	CHECK(strstr(reason, word), "'%s' does not say '%s'", reason, word);
}

int main(void)
{
	static const char *twice[] = {"/a", "/b", "/a"}, *empty[] = {""};
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_job good, job;

	scratch_paths[0][0] = '/';
	scratch_files[0] = "/data/job.0";
	good = short_job(1 << 20);
	CHECK(calyx_job_check(&good, reason) == 0, "%s", reason);

#define REFUSED(word, ...)                                                                                             \
	do {                                                                                                           \
		job = good;                                                                                            \
		__VA_ARGS__;                                                                                           \
		refused(job, word);                                                                                    \
	} while (0)
	REFUSED("paths", job.paths_count = 0);
	REFUSED("paths", job.paths_count = CALYX_JOBS_MAX + 1);
	REFUSED("empty", job.paths = empty);
	REFUSED("twice", job.paths = twice; job.paths_count = 3);
	REFUSED("rw is 9", job.rw = (enum calyx_rw)9);
	REFUSED("bs is 0", job.bs = 0);
	REFUSED("bs is 100", job.bs = 100);
	REFUSED("multiple of 512", job.bs = 1000);
	REFUSED("iodepth is 0", job.iodepth = 0);
	REFUSED("iodepth is 4097", job.iodepth = CALYX_IODEPTH_MAX + 1);
	REFUSED("buffers a thread", job.bs = 1 << 20; job.iodepth = 2048; job.size = 1 << 30);
	REFUSED("size is 4095", job.size = 4095);
	REFUSED("file can hold", job.size = UINT64_MAX);
	REFUSED("rwmixread is 101", job.rwmixread = 101);
	REFUSED("rate_iops", job.rate_iops = UINT64_MAX);
	REFUSED("runtime is 0", job.runtime_ns = 0);
	REFUSED("30 days", job.runtime_ns = UINT64_MAX);
	REFUSED("30 days", job.ramp_ns = UINT64_MAX);
	REFUSED("deadline", job.deadline_ns = job.runtime_ns - 1);
	REFUSED("interval is 1 ns", job.interval_ns = 1);
	REFUSED("intervals", job.interval_ns = MS; job.runtime_ns = 2000 * SECOND);
	REFUSED("setup is 7", job.setup = (enum calyx_setup)7);
	REFUSED("refill is 2", job.refill = (enum calyx_refill)2);
	REFUSED("buffers is 3", job.buffers = (enum calyx_buffers)3);

	job = good;
	job.bs = 1000;
	job.direct = false;
	CHECK(calyx_job_check(&job, reason) == 0, "buffered I/O takes any block size: %s", reason);
	CHECK(calyx_job_check(&good, NULL) == 0, "a reason is not needed");
	return 0;
}
