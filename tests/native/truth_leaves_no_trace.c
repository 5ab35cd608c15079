// Does the truth probe leave the file as it was, also when one of its calls fails, and are its times in order?
#include "check.h"

#define SIZE (1ull << 20)

static struct calyx_sys table;
static int writes, fail_write;
static unsigned char before[SIZE], after[SIZE];

static int64_t failing_pwrite(int fd, const void *buffer, size_t length, uint64_t offset)
{
	if (++writes == fail_write)
		return -EIO;
	return calyx_sys_linux.pwrite(fd, buffer, length, offset);
}

static void read_file(unsigned char *into)
{
	int fd = open(scratch_files[0], O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0 && read(fd, into, SIZE) == (ssize_t)SIZE, "cannot read the file");
	close(fd);
}

static void in_order(uint64_t least, uint64_t median, uint64_t greatest)
{
	CHECK(0 < least && least <= median && median <= greatest, "%" PRIu64 " %" PRIu64 " %" PRIu64, least, median,
	      greatest);
}

int main(void)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_truth truth = {0};
	int error;

	scratch_make();
	lay_out(1, SIZE);
	read_file(before);
	table = calyx_sys_linux;
	table.pwrite = failing_pwrite;
	calyx_sys = &table;

	error = calyx_truth_measure(scratch_files[0], 7, &truth, reason);
	CHECK(error == 0, "%s", reason);
	CHECK(truth.reads >= 8 && truth.reads <= 64 && truth.writes >= 16, "%u reads, %u writes", truth.reads,
	      truth.writes);
	in_order(truth.cold_min_ns, truth.cold_read_ns, truth.cold_max_ns);
	in_order(truth.hot_min_ns, truth.hot_read_ns, truth.hot_max_ns);
	in_order(truth.flush_min_ns, truth.flush_write_ns, truth.flush_max_ns);
	CHECK(truth.write_ns > 0 && truth.write_ns <= truth.flush_max_ns, "the write is part of the flushed write");
	read_file(after);
	CHECK(memcmp(before, after, SIZE) == 0, "the file has changed");

	/* The n-th write fails; the last one that can fail and be made good again is the 16th. */
	for (fail_write = 1; fail_write <= 16; fail_write += 5) {
		writes = 0;
		CHECK(calyx_truth_measure(scratch_files[0], 7, &truth, reason) == -EIO && strstr(reason, "EIO"), "'%s'",
		      reason);
		read_file(after);
		CHECK(memcmp(before, after, SIZE) == 0, "the file has changed after write %d failed", fail_write);
	}
	fail_write = 0;
	CHECK(calyx_truth_measure("/nowhere/at/all", 7, &truth, reason) == -ENOENT, "'%s'", reason);
	CHECK(truncate(scratch_files[0], 4096) == 0, "truncate");
	CHECK(calyx_truth_measure(scratch_files[0], 7, &truth, reason) == -EINVAL && strstr(reason, "lay one out"),
	      "'%s'", reason);
	return 0;
}
