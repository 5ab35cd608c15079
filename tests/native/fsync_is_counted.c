// Does fsync=N make one fsync after each N writes, with its latency in the sync direction and no bytes?
#include "check.h"

#define SIZE (4ull << 20)

/* Returns the number of fsyncs. */
static uint64_t check_run(uint64_t runtime_ns)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_direction_result *write, *sync;
	const struct calyx_result *result;
	struct calyx_crew *crew;
	uint64_t count;

	job.rw = CALYX_RANDWRITE;
	job.iodepth = 1;
	job.fsync = 4;
	job.runtime_ns = runtime_ns;
	crew = open_crew(&job);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	write = &result->directions[CALYX_DIR_WRITE];
	sync = &result->directions[CALYX_DIR_SYNC];
	CHECK(sync->bytes == 0 && sync->latency.count == sync->ios, "%" PRIu64 " fsyncs", sync->ios);
	CHECK(write->ios <= sync->ios * 4 + 4 && write->ios + 4 >= sync->ios * 4,
	      "%" PRIu64 " writes, %" PRIu64 " fsyncs", write->ios, sync->ios);
	CHECK(write->bytes == write->ios * 4096, "bytes are of writes alone");
	count = sync->ios;
	calyx_crew_close(crew);
	return count;
}

int main(void)
{
	uint64_t count = 0;

	scratch_make();
	lay_out(1, SIZE);
	for (int attempt = 0; attempt < ATTEMPTS && count < 2; attempt++)
		count = check_run(RUNTIME_NS(attempt));
	CHECK(count >= 2, "too slow a disk: %" PRIu64 " fsyncs", count);
	return 0;
}
