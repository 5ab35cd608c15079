// Is every senseless job refused, with a sentence that names what is wrong?
#include "check.h"

#define SPLIT(n, ...) split_of(n, (struct two_lists){__VA_ARGS__})
#define ZONES(n, ...) zones_of(n, (struct two_lists){__VA_ARGS__})
#define DISTRIBUTION(of, value) ((struct calyx_distribution){.kind = CALYX_RANDOM_##of, .parameter = (value)})

struct two_lists {
	uint32_t a[2], b[2];
};

static struct calyx_bssplit split_of(uint32_t count, struct two_lists lists)
{
	return (struct calyx_bssplit){
		.count = count, .bs = {lists.a[0], lists.a[1]}, .percent = {lists.b[0], lists.b[1]}};
}

static struct calyx_distribution zones_of(uint32_t count, struct two_lists lists)
{
	return (struct calyx_distribution){.kind = CALYX_RANDOM_ZONED,
					   .zones_count = count,
					   .access = {lists.a[0], lists.a[1]},
					   .share = {lists.b[0], lists.b[1]}};
}

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

	/* The words of fio, each and together. */
	REFUSED("add up to 90", job.bssplit = SPLIT(2, {4096, 4096}, {50, 40}));
	REFUSED("block of 100", job.bssplit = SPLIT(1, {100}, {100}));
	REFUSED("bs must be the largest", job.bssplit = SPLIT(1, {8192}, {100}));
	REFUSED("multiple of 512", job.bssplit = SPLIT(1, {1000}, {100}));
	REFUSED("more than 16", job.bssplit.count = CALYX_SPLIT_MAX + 1);
	REFUSED("bssplit_write", job.bssplit_write = SPLIT(1, {4096}, {100}));
	REFUSED("offset and size", job.offset = INT64_MAX);
	REFUSED("offset is 100", job.offset = 100);
	REFUSED("largest rate", job.rate = UINT64_MAX);
	REFUSED("choose one", job.rate = 4096; job.rate_iops = 1);
	REFUSED("arrival is 3", job.arrival = (enum calyx_arrival)3; job.rate_iops = 1);
	REFUSED("needs rate_iops", job.arrival = CALYX_ARRIVAL_POISSON);
	REFUSED("thinktime", job.arrival = CALYX_ARRIVAL_CONSTANT; job.rate_iops = 1; job.thinktime_ns = 1);
	REFUSED("an hour", job.thinktime_ns = UINT64_MAX);
	REFUSED("without a thinktime", job.thinktime_blocks = 1);
	REFUSED("needs randread", job.rw = CALYX_READ; job.distribution = DISTRIBUTION(ZIPF, 1.2));
	REFUSED("random_distribution is 9", job.distribution.kind = (enum calyx_random)9);
	REFUSED("theta is 1:", job.distribution = DISTRIBUTION(ZIPF, 1));
	REFUSED("theta is 0:", job.distribution = DISTRIBUTION(ZIPF, 0));
	REFUSED("theta is 11: it goes from above 0 to 10, without 1", job.distribution = DISTRIBUTION(ZIPF, 11));
	REFUSED("theta is 10.05:", job.distribution = DISTRIBUTION(ZIPF, 10.05));
	REFUSED("theta is 1.0000001:", job.distribution = DISTRIBUTION(ZIPF, 1.0000001));
	REFUSED("theta is -0.5:", job.distribution = DISTRIBUTION(ZIPF, -0.5));
	REFUSED("theta is 1000000000 or beyond:", job.distribution = DISTRIBUTION(ZIPF, 1e300));
	REFUSED("theta is nan", job.distribution = DISTRIBUTION(ZIPF, __builtin_nan("")));
	REFUSED("h is 1:", job.distribution = DISTRIBUTION(PARETO, 1));
	REFUSED("deviation of normal is 101", job.distribution = DISTRIBUTION(NORMAL, 101));
	REFUSED("has 0 zones", job.distribution = DISTRIBUTION(ZONED, 0));
	REFUSED("90 % of the accesses", job.distribution = ZONES(2, {50, 40}, {50, 50}));
	REFUSED("accesses but no size", job.distribution = ZONES(2, {50, 50}, {100, 0}));
	REFUSED("fdatasync is set", job.fdatasync = 1);
	REFUSED("sync is set", job.sync = true);
	REFUSED("end_fsync is set", job.end_fsync = true);
	REFUSED("buffer_compress_percentage is set", job.compress_percentage = 1);
	REFUSED("dedupe_percentage is set", job.dedupe_percentage = 1);
	REFUSED("fsync and fdatasync", job.rw = CALYX_WRITE; job.fsync = job.fdatasync = 1);
	REFUSED("blocks of zeros", job.rw = CALYX_WRITE; job.compress_percentage = 100);
	REFUSED("dedupe_percentage is 101", job.rw = CALYX_WRITE; job.dedupe_percentage = 101);
	REFUSED("no two are equal", job.rw = CALYX_WRITE; job.dedupe_percentage = 1; job.verify = true);
	REFUSED("blocks of 4096 bytes", job.verify = true; job.bs = 6144);
	REFUSED("blocks of 4096 bytes", job.verify = true; job.offset = 512);
	REFUSED("blocks of 4096 bytes", job.verify = true; job.bssplit = SPLIT(2, {4096, 512}, {50, 50}));
	REFUSED("each other's blocks", job.rw = CALYX_RANDRW; job.verify = job.devices = true; job.paths = twice;
		job.paths_count = 3);
	REFUSED("with its data", job.rw = CALYX_RW; job.verify = true; job.bs = 1 << 20; job.iodepth = 1024;
		job.size = 1ull << 31);

	job = good;
	job.verify = job.devices = true;
	job.paths = twice;
	job.paths_count = 3;
	CHECK(calyx_job_check(&job, reason) == 0, "whoever only reads may share: %s", reason);
	job = good;
	job.bs = 1000;
	job.direct = false;
	CHECK(calyx_job_check(&job, reason) == 0, "buffered I/O takes any block size: %s", reason);
	CHECK(calyx_job_check(&good, NULL) == 0, "a reason is not needed");
	return 0;
}
