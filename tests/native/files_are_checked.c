// Is a file that does not fit its job refused before anything starts, in a sentence that names it, and nothing leaked?
#include "check.h"

#define SIZE (1ull << 20)

static void refused(const struct calyx_job *job, int error, const char *word)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_crew *crew = NULL;
	int before = count_open_files(), got;

	got = calyx_crew_open(job, &crew, reason);
	CHECK(got == error, "expected %d for %s, got %d: '%s'", error, word, got, reason);
	CHECK(strstr(reason, word), "'%s' does not say %s", reason, word);
	CHECK(count_open_files() == before, "files are left open");
}

static struct calyx_sys table;

static int64_t sector_of_4k(int fd, void *buffer, size_t length, uint64_t offset)
{
	if (length % 4096 || offset % 4096)
		return -EINVAL;
	return calyx_sys_linux.pread(fd, buffer, length, offset);
}

static int no_direct(int fd, int flags)
{
	return flags & O_DIRECT ? -EINVAL : calyx_sys_linux.set_flags(fd, flags);
}

int main(void)
{
	const char *directory[1], *missing[] = {"/proc/none/job.0"}, *fifo[1];
	struct calyx_job job = short_job(SIZE);
	struct calyx_crew *crew;

	scratch_make();
	lay_out(2, SIZE);
	crew = open_crew(&job);
	calyx_crew_close(crew);

	job.paths = missing;
	refused(&job, -ENOENT, "/proc/none/job.0: ENOENT");
	directory[0] = scratch_directory;
	job.paths = directory;
	refused(&job, -EINVAL, "is not a regular file");
	CHECK(mkfifo(scratch_files[3], 0600) == 0, "mkfifo");
	fifo[0] = scratch_files[3];
	job.paths = fifo;
	refused(&job, -EINVAL, "is not a regular file");
	job.paths = scratch_files;
	job.size = 2 * SIZE;
	refused(&job, -EINVAL, "has 1048576 bytes; the job uses 2097152");
	job.size = SIZE;
	job.paths_count = 3; /* the third file is missing: the two threads that opened theirs end too */
	refused(&job, -ENOENT, scratch_files[2]);
	job.paths_count = 1;

	table = calyx_sys_linux;
	calyx_sys = &table;
	table.pread = sector_of_4k;
	job.bs = 512;
	refused(&job, -EINVAL, "bs=512 does not fit direct I/O here: use a multiple of 4096");
	job.bs = 4096;
	table.pread = calyx_sys_linux.pread;
	table.set_flags = no_direct;
	refused(&job, -EINVAL, "refuses direct I/O");
	job.direct = false;
	crew = open_crew(&job);
	CHECK(!calyx_crew_setup(crew)->direct, "buffered");
	CHECK(run_to_end(crew)->directions[0].ios > 0, "buffered I/O runs");
	calyx_crew_close(crew);
	return 0;
}
