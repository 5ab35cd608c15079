// Is iopoll tried by one read before the run: refused by the device's name where it cannot be had, also when the read
// never comes back, and run and reported where it can?
#include <linux/fs.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "calyx/text.h"
#include "check.h"
#include "ring.h"

#define SIZE (1ull << 20)
#define TMPFS_TYPE 0x01021994

static struct calyx_sys table;
static atomic_int polled_setups, probe_answer;
static struct io_uring_params params_seen;
static unsigned char *rings_seen;

static int refused(const struct calyx_job *job, char *reason)
{
	struct calyx_crew *crew;
	int error = calyx_crew_open(job, &crew, reason);

	CHECK(error < 0, "polling was not refused");
	CHECK(strstr(reason, "polling not supported by "), "'%s'", reason);
	return error;
}

/* ---- a kernel and a device that poll, as far as the engine can see: the flag is taken off on the way down ---- */

static int polled_setup(uint32_t entries, struct io_uring_params *params)
{
	int fd;

	if (params->flags & IORING_SETUP_IOPOLL)
		atomic_fetch_add(&polled_setups, 1);
	params->flags &= ~(uint32_t)IORING_SETUP_IOPOLL;
	fd = calyx_sys_linux.io_uring_setup(entries, params);
	params_seen = *params;
	return fd;
}

/* A device number that /sys does not know, so that nothing but the probe read decides. */
static int nameless_fstat(int fd, struct stat *status)
{
	int error = calyx_sys_linux.fstat(fd, status);

	status->st_dev = 0;
	return error;
}

/* A raw device without poll queues: its number is another than that of the file system on which its node lies. */
static dev_t raw_number;

static int raw_fstat(int fd, struct stat *status)
{
	int error = calyx_sys_linux.fstat(fd, status);

	status->st_mode = S_IFBLK | 0600;
	status->st_rdev = raw_number;
	status->st_dev = 0;
	return error;
}

static int raw_ioctl(int fd, unsigned long request, void *argument)
{
	(void)fd;
	CHECK(request == BLKGETSIZE64, "request %#lx", request);
	*(uint64_t *)argument = SIZE;
	return 0;
}

/* The first block device here whose queue says that it does not poll. */
static bool find_deaf_device(char name[64])
{
	DIR *devices = opendir("/sys/block");
	unsigned int major_number, minor_number;
	struct dirent *entry;
	bool found = false;

	while (devices && !found && (entry = readdir(devices))) {
		char path[400], text[32] = "";

		snprintf(path, sizeof(path), "/sys/block/%s/queue/io_poll", entry->d_name);
		if (entry->d_name[0] == '.' || strlen(entry->d_name) > 40 ||
		    calyx_read_text(path, text, sizeof(text)) <= 0 || text[0] != '0')
			continue;
		snprintf(path, sizeof(path), "/sys/block/%s/dev", entry->d_name);
		if (calyx_read_text(path, text, sizeof(text)) <= 0 ||
		    sscanf(text, "%u:%u", &major_number, &minor_number) != 2)
			continue;
		raw_number = makedev(major_number, minor_number);
		snprintf(name, 64, "%.40s", entry->d_name);
		found = true;
	}
	if (devices)
		closedir(devices);
	return found;
}

static void test_a_raw_device(struct calyx_job job)
{
	char reason[CALYX_REASON_MAX] = "", name[64], words[160];

	if (!find_deaf_device(name)) {
		printf("no block device without poll queues here\n");
		return;
	}
	job.devices = true;
	table.fstat = raw_fstat;
	table.ioctl = raw_ioctl;
	CHECK(refused(&job, reason) == -EOPNOTSUPP, "'%s'", reason);
	snprintf(words, sizeof(words), "polling not supported by %s: its queue/io_poll is 0", name);
	CHECK(strstr(reason, words), "'%s' does not say '%s'", reason, words);
	table.fstat = calyx_sys_linux.fstat;
	table.ioctl = calyx_sys_linux.ioctl;
}

static int watching_map(void **address, size_t length, int flags, int fd, uint64_t offset)
{
	int error = calyx_sys_linux.map(address, length, flags, fd, offset);

	if (!error && fd >= 0 && offset == IORING_OFF_SQ_RING)
		rings_seen = *address;
	return error;
}

static int deaf_enter(int fd, uint32_t to_submit, uint32_t min_complete, uint32_t flags)
{
	(void)fd;
	(void)min_complete;
	(void)flags;
	return (int)to_submit;
}

/* What 6.12 answers at the first read of a device without poll queues. */
static int unwilling_enter(int fd, uint32_t to_submit, uint32_t min_complete, uint32_t flags)
{
	int taken = calyx_sys_linux.io_uring_enter(fd, to_submit, min_complete ? min_complete : 1, flags);
	struct io_uring_cqe *cqes = (struct io_uring_cqe *)(rings_seen + params_seen.cq_off.cqes);

	for (uint32_t i = 0; i < params_seen.cq_entries; i++)
		cqes[i].res = atomic_load(&probe_answer);
	return taken;
}

static void test_a_device_that_polls(struct calyx_job job)
{
	const struct calyx_result *result;
	struct calyx_crew *crew;

	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		job.runtime_ns = RUNTIME_NS(attempt);
		atomic_store(&polled_setups, 0);
		crew = open_crew(&job);
		CHECK(atomic_load(&polled_setups) >= 2, "the probe and the run poll");
		result = run_to_end(crew);
		CHECK(result->failure[0] == 0 && result->errors_count == 0, "%s", result->failure);
		CHECK(result->setup.iopoll, "the result says so");
		if (result->directions[CALYX_DIR_READ].ios > 0) {
			calyx_crew_close(crew);
			return;
		}
		calyx_crew_close(crew);
	}
	CHECK(false, "no I/O");
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	char reason[CALYX_REASON_MAX], shm[] = "/dev/shm/calyx-test-XXXXXX";
	const char *path = shm;
	struct calyx_layout layout;
	struct statfs status;
	uint32_t setups, features;

	if (calyx_ring_probe(&setups, &features) < 0)
		SKIP("no io_uring here");
	scratch_make();
	lay_out(1, SIZE);
	table = calyx_sys_linux;
	calyx_sys = &table;
	job.iopoll = true;

	/* A real file system that cannot poll. */
	if (statfs("/dev/shm", &status) == 0 && status.f_type == TMPFS_TYPE && mkdtemp(shm)) {
		char file[64];

		snprintf(file, sizeof(file), "%s/job.0", shm);
		path = file;
		CHECK(calyx_target_layout(file, SIZE, 1, 0, NULL, NULL, &layout, reason) == 0, "%s", reason);
		job.paths = &path;
		reason[0] = 0;
		if (calyx_sys_linux.open(file, O_RDONLY | O_DIRECT, 0) >= 0)
			CHECK(refused(&job, reason) == -EOPNOTSUPP, "'%s'", reason);
		unlink(file);
		rmdir(shm);
		job.paths = scratch_files;
	}

	test_a_raw_device(job);
	table.io_uring_setup = polled_setup;
	table.fstat = nameless_fstat;
	table.map = watching_map;
	test_a_device_that_polls(job);
	table.io_uring_enter = unwilling_enter;
	atomic_store(&probe_answer, -EOPNOTSUPP);
	CHECK(refused(&job, reason) == -EOPNOTSUPP && strstr(reason, "EOPNOTSUPP"), "'%s'", reason);
	table.io_uring_enter = deaf_enter;
	CHECK(refused(&job, reason) == -ETIME && strstr(reason, "did not come back"), "'%s'", reason);

	job.direct = false;
	CHECK(calyx_job_check(&job, reason) == -EINVAL && strstr(reason, "direct=1"), "'%s'", reason);
	job.direct = true;
	job.fsync = 1;
	CHECK(calyx_job_check(&job, reason) == -EINVAL && strstr(reason, "fsync"), "'%s'", reason);
	return 0;
}
