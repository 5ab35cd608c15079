// Does a thread take precedence before the start line, and give it up behind it, also where it may have that but may
// not take back all that it asked for (a limit of RLIMIT_RTPRIO without CAP_SYS_NICE)?
#include <linux/capability.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#include "check.h"

#define SIZE (1ull << 20)

static struct calyx_sys table;
static atomic_bool has_privilege = true;

static bool has_precedence(pid_t thread)
{
	return (syscall(SYS_sched_getscheduler, thread) & ~SCHED_RESET_ON_FORK) == SCHED_FIFO;
}

static int count_precedent(void)
{
	DIR *threads = opendir("/proc/self/task");
	struct dirent *entry;
	int count = 0;

	CHECK(threads != NULL, "/proc/self/task: %s", strerror(errno));
	while ((entry = readdir(threads)))
		count += entry->d_name[0] != '.' && has_precedence(atoi(entry->d_name));
	closedir(threads);
	return count;
}

/* Capabilities are each thread's own. */
static void drop_privilege(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];

	CHECK(syscall(SYS_capget, &header, sets) == 0, "capget: %s", strerror(errno));
	sets[CAP_TO_INDEX(CAP_SYS_NICE)].effective &= ~CAP_TO_MASK(CAP_SYS_NICE);
	CHECK(syscall(SYS_capset, &header, sets) == 0, "capset: %s", strerror(errno));
}

/* The first I/O of the run: made with precedence, which is then to be given up. */
static int64_t dropping_pread(int fd, void *buffer, size_t length, uint64_t offset)
{
	if (has_precedence(0) && atomic_exchange(&has_privilege, false))
		drop_privilege();
	return calyx_sys_linux.pread(fd, buffer, length, offset);
}

int main(void)
{
	const struct sched_param least = {.sched_priority = 1}, none = {.sched_priority = 0};
	struct calyx_job job = short_job(SIZE);
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_progress progress;
	struct calyx_crew *crew;

	if (syscall(SYS_sched_setscheduler, 0, SCHED_FIFO, &least))
		SKIP("no real time can be had here: %s", strerror(errno));
	CHECK(syscall(SYS_sched_setscheduler, 0, SCHED_OTHER, &none) == 0, "%s", strerror(errno));
	scratch_make();
	lay_out(1, SIZE);
	table = calyx_sys_linux;
	table.pread = dropping_pread;
	calyx_sys = &table;
	job.setup = CALYX_SETUP_PSYNC; /* whose I/O is made by the thread itself */
	job.iodepth = 1;
	job.runtime_ns = 400 * MS;
	CHECK(calyx_crew_open(&job, &crew, reason) == 0, "%s", reason);
	CHECK(calyx_crew_start(crew, calyx_now_ns() + 300 * MS) == 0, "start");
	CHECK(calyx_crew_wait(crew, 150 * MS) == -ETIME, "it waits for its start");
	CHECK(count_precedent() == 1, "%d threads have precedence before the start", count_precedent());
	do {
		CHECK(calyx_crew_wait(crew, 20 * MS) == -ETIME, "it runs");
		calyx_crew_progress(crew, &progress);
	} while (!progress.ios);
	CHECK(!atomic_load(&has_privilege), "the first I/O was made without precedence");
	CHECK(count_precedent() == 0, "%d threads have precedence in the run", count_precedent());
	CHECK(calyx_crew_wait(crew, 10 * SECOND) == 0, "it ends");
	calyx_crew_close(crew);
	return 0;
}
