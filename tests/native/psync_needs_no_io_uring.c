// Where io_uring is forbidden, does setup=psync read, write and flush all the same, paced and counted, and say so?
#include "check.h"

#define SIZE (4ull << 20)

static struct calyx_sys table;
static int setups;

static int no_setup(uint32_t entries, struct io_uring_params *params)
{
	(void)entries;
	(void)params;
	setups++;
	return -EPERM;
}

static struct calyx_job psync_job(enum calyx_rw rw)
{
	struct calyx_job job = short_job(SIZE);

	job.setup = CALYX_SETUP_PSYNC;
	job.iodepth = 1;
	job.rw = rw;
	return job;
}

static const struct calyx_result *run(const struct calyx_job *job, struct calyx_crew **crew)
{
	char reason[CALYX_REASON_MAX] = "";
	const struct calyx_result *result;
	int error = calyx_crew_open(job, crew, reason);

	CHECK(error == 0, "%s", reason);
	result = run_to_end(*crew);
	CHECK(result->failure[0] == 0 && result->unfinished == 0 && result->errors_count == 0, "%s", result->failure);
	CHECK(result->setup.psync && result->setup.took == CALYX_SETUP_PSYNC, "the result says psync");
	CHECK(!result->setup.fixed_buffers && !result->setup.fixed_files && !result->setup.ring_fd,
	      "nothing registered");
	return result;
}

static void refused(struct calyx_job job, const char *word)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_crew *crew;

	CHECK(calyx_crew_open(&job, &crew, reason) == -EINVAL, "'%s'", reason);
	CHECK(strstr(reason, word), "'%s' does not say %s", reason, word);
}

int main(void)
{
	struct calyx_job job = psync_job(CALYX_RANDRW);
	const struct calyx_result *result;
	struct calyx_floor floor;
	struct calyx_crew *crew;
	char reason[CALYX_REASON_MAX] = "";

	scratch_make();
	lay_out(2, SIZE);
	table = calyx_sys_linux;
	table.io_uring_setup = no_setup;
	calyx_sys = &table;

	job.paths_count = 2;
	job.fsync = 3;
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		job.runtime_ns = RUNTIME_NS(attempt);
		result = run(&job, &crew);
		if (result->directions[CALYX_DIR_SYNC].ios > 0 && result->directions[CALYX_DIR_READ].ios > 0)
			break;
		CHECK(attempt + 1 < ATTEMPTS, "no reads or no syncs");
		calyx_crew_close(crew);
	}
	CHECK(result->directions[CALYX_DIR_WRITE].bytes == result->directions[CALYX_DIR_WRITE].ios * 4096, "bytes");
	CHECK(result->directions[CALYX_DIR_READ].latency.count == result->directions[CALYX_DIR_READ].ios, "latencies");
	calyx_crew_close(crew);

	/* Paced: 100 a second for half a second, so at most 50 and one more at the edge, and the pauses are no spin. */
	job = psync_job(CALYX_RANDREAD);
	job.rate_iops = 100;
	job.runtime_ns = 500 * MS;
	result = run(&job, &crew);
	CHECK(result->directions[CALYX_DIR_READ].ios >= 1 && result->directions[CALYX_DIR_READ].ios <= 51,
	      "%" PRIu64 " reads", result->directions[CALYX_DIR_READ].ios);
	CHECK(result->enter_calls < 400, "%" PRIu64 " turns of the loop", result->enter_calls);
	calyx_crew_close(crew);

	CHECK(calyx_floor_measure(CALYX_SETUP_PSYNC, CALYX_REFILL_EACH, 1, 50 * MS, &floor, reason) == 0, "%s", reason);
	CHECK(floor.ios > 0 && floor.setup.psync, "a floor without io_uring");
	CHECK(setups == 0, "io_uring_setup was called %d times", setups);

	job.iodepth = 2;
	refused(job, "iodepth=1");
	job.iodepth = 1;
	job.iopoll = true;
	refused(job, "iopoll");
	job.iopoll = false;
	job.buffers = CALYX_BUFFERS_REGISTERED;
	refused(job, "registered");
	return 0;
}
