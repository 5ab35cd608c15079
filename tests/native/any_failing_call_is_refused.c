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

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	char reason[CALYX_REASON_MAX];
	struct calyx_crew *crew;
	int open_files, error, n;

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
	calyx_sys = &table;
	job.paths_count = 2;
	job.buffers = CALYX_BUFFERS_REGISTERED;
	for (n = 1;; n++) {
		atomic_store(&calls, 0);
		atomic_store(&fail_at, n);
		reason[0] = 0;
		error = calyx_crew_open(&job, &crew, reason);
		if (!error)
			calyx_crew_close(crew);
		CHECK(atomic_load(&live_maps) == 0, "call %d: %d mappings are left", n, atomic_load(&live_maps));
		CHECK(count_open_files() == open_files, "call %d: files are left open", n);
		if (!error)
			break;
		CHECK(reason[0] && !strstr(reason, "Success"), "call %d: '%s'", n, reason);
	}
	CHECK(n > 15, "only %d calls were made to fail", n - 1);
	return 0;
}
