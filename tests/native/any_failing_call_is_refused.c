// When the n-th system call of opening fails, for every n, is the job refused in words, with nothing left open or
// mapped?
#include <dirent.h>
#include <stdatomic.h>

#include "check.h"

#define SIZE (1ull << 20)

static struct calyx_sys table;
static atomic_int calls, fail_at, live_maps;

static bool fails(void)
{
	return atomic_fetch_add(&calls, 1) + 1 == atomic_load(&fail_at);
}

static int try_setup(uint32_t entries, struct io_uring_params *params)
{
	return fails() ? -EMFILE : calyx_sys_linux.io_uring_setup(entries, params);
}

static int try_register(int fd, uint32_t opcode, const void *argument, uint32_t count)
{
	return fails() ? -EIO : calyx_sys_linux.io_uring_register(fd, opcode, argument, count);
}

static int try_map(void **address, size_t length, int flags, int fd, uint64_t offset)
{
	int error = fails() ? -ENOMEM : calyx_sys_linux.map(address, length, flags, fd, offset);

	atomic_fetch_add(&live_maps, error == 0);
	return error;
}

static int try_unmap(void *address, size_t length)
{
	atomic_fetch_sub(&live_maps, 1);
	return calyx_sys_linux.unmap(address, length);
}

static int try_open(const char *path, int flags, mode_t mode)
{
	return fails() ? -EMFILE : calyx_sys_linux.open(path, flags, mode);
}

static int try_fstat(int fd, struct stat *status)
{
	return fails() ? -EIO : calyx_sys_linux.fstat(fd, status);
}

static int try_set_flags(int fd, int flags)
{
	return fails() ? -EINVAL : calyx_sys_linux.set_flags(fd, flags);
}

static int64_t try_pread(int fd, void *buffer, size_t length, uint64_t offset)
{
	return fails() ? -EIO : calyx_sys_linux.pread(fd, buffer, length, offset);
}

static int64_t try_pwrite(int fd, const void *buffer, size_t length, uint64_t offset)
{
	return fails() ? -EIO : calyx_sys_linux.pwrite(fd, buffer, length, offset);
}

static int try_fsync(int fd)
{
	return fails() ? -EIO : calyx_sys_linux.fsync(fd);
}

static int try_ioctl(int fd, unsigned long request, void *argument)
{
	return fails() ? -EIO : calyx_sys_linux.ioctl(fd, request, argument);
}

static int count_open_files(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	CHECK(directory != NULL, "/proc/self/fd");
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

static void check_nothing_left(int n, int open_files)
{
	CHECK(atomic_load(&live_maps) == 0, "call %d: %d mappings are left", n, atomic_load(&live_maps));
	CHECK(count_open_files() == open_files, "call %d: files are left open", n);
}

/* Opens a job with its n-th call failing, n = 1, 2, 3 ... until no call is left to fail. */
static int fail_each_of_open(int open_files)
{
	struct calyx_job job = short_job(SIZE);
	char reason[CALYX_REASON_MAX];
	struct calyx_crew *crew;
	int error = -1, n = 0;

	job.paths_count = 2;
	job.buffers = CALYX_BUFFERS_REGISTERED;
	while (error) {
		atomic_store(&calls, 0);
		atomic_store(&fail_at, ++n);
		reason[0] = 0;
		error = calyx_crew_open(&job, &crew, reason);
		if (!error)
			calyx_crew_close(crew);
		check_nothing_left(n, open_files);
		CHECK(!error || (reason[0] && !strstr(reason, "Success")), "call %d: '%s'", n, reason);
	}
	return n - 1;
}

/* The same for a layout. O_DIRECT that is refused is the one failure that it gets over: the file is then written
 * buffered. */
static int fail_each_of_layout(int open_files)
{
	struct calyx_layout layout;
	char reason[CALYX_REASON_MAX];
	int error, overcome = 0, n = 0;

	do {
		atomic_store(&calls, 0);
		atomic_store(&fail_at, ++n);
		reason[0] = 0;
		error = calyx_target_layout(scratch_files[5], 2 << 20, 1, 0, NULL, NULL, &layout, reason);
		check_nothing_left(n, open_files);
		CHECK((access(scratch_files[5], F_OK) == 0) == (error == 0), "call %d: the file", n);
		CHECK(!error || (strstr(reason, "E") && !strstr(reason, "Success")), "call %d: '%s'", n, reason);
		overcome += error == 0;
		unlink(scratch_files[5]);
	} while (error || atomic_load(&calls) >= n);
	CHECK(overcome <= 2, "%d failures were swallowed", overcome - 1);
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

	table = calyx_sys_linux;
	table.io_uring_setup = try_setup;
	table.io_uring_register = try_register;
	table.map = try_map;
	table.unmap = try_unmap;
	table.open = try_open;
	table.fstat = try_fstat;
	table.set_flags = try_set_flags;
	table.pread = try_pread;
	table.pwrite = try_pwrite;
	table.fsync = try_fsync;
	table.ioctl = try_ioctl;
	calyx_sys = &table;
	count = fail_each_of_open(open_files);
	CHECK(count > 15, "only %d calls were made to fail", count);
	count = fail_each_of_layout(open_files);
	CHECK(count > 5, "only %d calls were made to fail", count);
	return 0;
}
