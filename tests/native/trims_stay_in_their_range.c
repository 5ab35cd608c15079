// Is each trim one discard of one block of the job's part of a block device, counted as a write is, its refusal named,
// and is nothing written meanwhile and no file ever trimmed? The kernel is asked for a block device and its discards
// through a table that says it is one.
#include <linux/fs.h>

#include "check.h"

#define SIZE (1ull << 20)
#define OFFSET (64ull << 10)
#define BS (16ull << 10)

static struct calyx_sys table;
static uint64_t discards, last_offset, out_of_range, out_of_order, writes;
static int answer;

static int as_block_device(int fd, struct stat *status)
{
	int error = calyx_sys_linux.fstat(fd, status);

	status->st_mode = (status->st_mode & ~(mode_t)S_IFMT) | S_IFBLK;
	return error;
}

static int64_t no_write(int fd, const void *buffer, size_t length, uint64_t offset)
{
	(void)fd, (void)buffer, (void)offset;
	writes++;
	return (int64_t)length;
}

static int take_request(int fd, unsigned long request, void *argument)
{
	const uint64_t *range = argument;

	(void)fd;
	if (request == BLKGETSIZE64) {
		*(uint64_t *)argument = OFFSET + SIZE;
		return 0;
	}
	if (request != BLKDISCARD)
		return -ENOTTY;
	if (range[1] != BS || range[0] < OFFSET || range[0] + range[1] > OFFSET + SIZE || range[0] % BS)
		out_of_range++;
	if (discards && range[0] != (last_offset + BS - OFFSET) % SIZE + OFFSET)
		out_of_order++;
	last_offset = range[0];
	discards++;
	return answer;
}

static struct calyx_job trim_job(enum calyx_rw rw)
{
	struct calyx_job job = short_job(SIZE);

	job.rw = rw;
	job.setup = CALYX_SETUP_PSYNC;
	job.iodepth = 1;
	job.bs = BS;
	job.offset = OFFSET;
	job.rate_iops = 1000;
	job.devices = true;
	return job;
}

static void check_trims(enum calyx_rw rw)
{
	struct calyx_job job = trim_job(rw);
	const struct calyx_direction_result *trims;
	const struct calyx_result *result;
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_crew *crew;

	discards = out_of_range = out_of_order = 0;
	CHECK(calyx_crew_open(&job, &crew, reason) == 0, "%s", reason);
	result = run_to_end(crew);
	trims = &result->directions[CALYX_DIR_WRITE];
	CHECK(result->failure[0] == 0, "%s", result->failure);
	CHECK(discards > 10, "%" PRIu64 " discards", discards);
	CHECK(trims->ios == discards && trims->bytes == discards * BS && trims->latency.count == discards,
	      "%" PRIu64 " of %" PRIu64 " are counted", trims->ios, discards);
	CHECK(result->directions[CALYX_DIR_READ].ios == 0 && trims->errors == 0, "nothing else");
	CHECK(out_of_range == 0, "%" PRIu64 " are no block of the job's part", out_of_range);
	CHECK(rw == CALYX_TRIM ? out_of_order == 0 : out_of_order > 0, "%" PRIu64 " out of order", out_of_order);
	CHECK(writes == 0, "%" PRIu64 " writes", writes);
	calyx_crew_close(crew);
}

/* A device that cannot discard says so at the first one. */
static void check_refusal(void)
{
	struct calyx_job job = trim_job(CALYX_TRIM);
	const struct calyx_result *result;
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_crew *crew;

	answer = -EOPNOTSUPP;
	CHECK(calyx_crew_open(&job, &crew, reason) == 0, "%s", reason);
	result = run_to_end(crew);
	CHECK(result->directions[CALYX_DIR_WRITE].ios == 0, "no trim was made");
	CHECK(result->errors_count == 1 && result->errors[0].error == EOPNOTSUPP, "%" PRIu32 " kinds, errno %d",
	      result->errors_count, result->errors[0].error);
	calyx_crew_close(crew);
	answer = 0;
}

static void check_file(void)
{
	struct calyx_job job = trim_job(CALYX_TRIM);
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_crew *crew;

	table.fstat = calyx_sys_linux.fstat;
	discards = 0;
	CHECK(calyx_crew_open(&job, &crew, reason) == -EINVAL, "%s", reason);
	CHECK(strstr(reason, "only a block device can be trimmed") && strstr(reason, scratch_files[0]), "%s", reason);
	CHECK(discards == 0, "it was trimmed");
}

int main(void)
{
	scratch_make();
	lay_out(1, OFFSET + SIZE);
	table = calyx_sys_linux;
	table.fstat = as_block_device;
	table.ioctl = take_request;
	table.pwrite = no_write;
	calyx_sys = &table;
	check_trims(CALYX_TRIM);
	check_trims(CALYX_RANDTRIM);
	check_refusal();
	check_file();
	return 0;
}
