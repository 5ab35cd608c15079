// Does fdatasync=N flush data alone after each N writes, end_fsync one fsync that is counted after the window, and
// sync=1 open the file with O_SYNC?
#include "bent_ring.h"

#define SIZE (1ull << 20)

static int data_syncs, full_syncs, open_flags;

static void count_syncs(struct io_uring_sqe *sqe)
{
	if (sqe->opcode != IORING_OP_FSYNC)
		return;
	if (sqe->fsync_flags & IORING_FSYNC_DATASYNC)
		data_syncs++;
	else
		full_syncs++;
}

static int note_open(const char *path, int flags, mode_t mode)
{
	open_flags = flags;
	return calyx_sys_linux.open(path, flags, mode);
}

static const struct calyx_result *run(const struct calyx_job *job, struct calyx_crew **crew)
{
	const struct calyx_result *result;

	data_syncs = full_syncs = 0;
	bent.submission = count_syncs;
	*crew = bent_open(job);
	result = run_to_end(*crew);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	return result;
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_crew *crew;
	uint64_t syncs;

	scratch_make();
	lay_out(1, SIZE);
	job.rw = CALYX_RANDWRITE;
	job.iodepth = 1;
	job.fdatasync = 4;
	job.runtime_ns = SECOND;
	result = run(&job, &crew);
	syncs = result->directions[CALYX_DIR_SYNC].ios;
	CHECK(data_syncs > 0 && full_syncs == 0, "%d data syncs, %d full ones", data_syncs, full_syncs);
	CHECK(syncs > 0 && result->directions[CALYX_DIR_WRITE].ios <= syncs * 4 + 4 &&
		      result->directions[CALYX_DIR_WRITE].ios + 4 >= syncs * 4,
	      "%" PRIu64 " syncs", syncs);
	calyx_crew_close(crew);

	job.fdatasync = 0;
	job.end_fsync = true;
	job.runtime_ns = 100 * MS;
	for (int shaped = 0; shaped < 2; shaped++) {
		job.rate_iops = 0;
		job.rate = shaped ? 4096 * 100 : 0;
		job.fsync = 0;
		result = run(&job, &crew);
		CHECK(full_syncs == 1 && result->directions[CALYX_DIR_SYNC].ios == 1 &&
			      result->directions[CALYX_DIR_SYNC].latency.count == 1,
		      "%d fsyncs, %" PRIu64 " counted", full_syncs, result->directions[CALYX_DIR_SYNC].ios);
		CHECK(result->ended_ns >= result->window_end_ns, "after the window");
		calyx_crew_close(crew);
	}

	job.rate = 0;
	job.end_fsync = false;
	job.sync = true;
	/* Opened by hand, to see the flags. */
	{
		char reason[CALYX_REASON_MAX] = "";
		struct calyx_sys table = calyx_sys_linux;

		table.open = note_open;
		calyx_sys = &table;
		CHECK(calyx_crew_open(&job, &crew, reason) == 0, "%s", reason);
		CHECK((open_flags & O_SYNC) == O_SYNC, "flags %#x", (unsigned)open_flags);
		calyx_crew_close(crew);
		job.sync = false;
		CHECK(calyx_crew_open(&job, &crew, reason) == 0, "%s", reason);
		CHECK(!(open_flags & O_SYNC), "flags %#x", (unsigned)open_flags);
		calyx_crew_close(crew);
		calyx_sys = &calyx_sys_linux;
	}
	return 0;
}
