// With cpus_allowed, does each thread run on its own CPU of the list, in turn, and is a CPU that cannot be had refused,
// as is a poller beside its submitter?
#include <dirent.h>
#include <linux/io_uring.h>
#include <sched.h>
#include <sys/syscall.h>

#include "check.h"

#define SIZE (1ull << 20)

static int allowed[CALYX_CPU_WORDS * 64], allowed_count;

static void list_allowed(void)
{
	uint64_t cpus[CALYX_CPU_WORDS] = {0};

	CHECK(syscall(SYS_sched_getaffinity, 0, sizeof(cpus), cpus) > 0, "affinity");
	for (int i = 0; i < CALYX_CPU_WORDS * 64; i++) {
		if (cpus[i / 64] >> (i % 64) & 1)
			allowed[allowed_count++] = i;
	}
}

/* How many threads of this process may run on exactly this one CPU. */
static int count_pinned_to(int cpu)
{
	DIR *directory = opendir("/proc/self/task");
	struct dirent *entry;
	int count = 0;

	CHECK(directory != NULL, "/proc/self/task");
	while ((entry = readdir(directory))) {
		uint64_t cpus[CALYX_CPU_WORDS] = {0};
		bool only = true;

		if (entry->d_name[0] == '.' ||
		    syscall(SYS_sched_getaffinity, atoi(entry->d_name), sizeof(cpus), cpus) < 0)
			continue;
		for (int i = 0; i < CALYX_CPU_WORDS; i++)
			only &= cpus[i] == (i == cpu / 64 ? 1ull << (cpu % 64) : 0);
		count += only;
	}
	closedir(directory);
	return count;
}

static void allow(struct calyx_job *job, int cpu)
{
	job->cpus_allowed[cpu / 64] |= 1ull << (cpu % 64);
}

/* As where a cpuset forbids the poller's CPU. */
static int forbid_affinity(uint32_t entries, struct io_uring_params *params)
{
	return params->flags & IORING_SETUP_SQ_AFF ? -EINVAL : calyx_sys_linux.io_uring_setup(entries, params);
}

static void check_free_poller(struct calyx_job job)
{
	struct calyx_sys table = calyx_sys_linux;
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_crew *crew;

	table.io_uring_setup = forbid_affinity;
	calyx_sys = &table;
	CHECK(calyx_crew_open(&job, &crew, reason) < 0 && strstr(reason, "does not keep the poller"), "'%s'", reason);
	calyx_sys = &calyx_sys_linux;
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_crew *crew;

	scratch_make();
	list_allowed();
	if (allowed_count < 2)
		SKIP("one CPU");
	lay_out(3, SIZE);
	job.paths_count = 3;
	allow(&job, allowed[0]);
	allow(&job, allowed[1]);
	crew = open_crew(&job);
	CHECK(count_pinned_to(allowed[0]) == 2 && count_pinned_to(allowed[1]) == 1, "%d and %d threads",
	      count_pinned_to(allowed[0]), count_pinned_to(allowed[1]));
	CHECK(calyx_crew_setup(crew)->cpus_count == 3 && calyx_crew_setup(crew)->cpus[0] == allowed[0] &&
		      calyx_crew_setup(crew)->cpus[1] == allowed[1] && calyx_crew_setup(crew)->cpus[2] == allowed[0],
	      "the set-up says where");
	CHECK(run_to_end(crew)->directions[CALYX_DIR_READ].ios > 0, "and they run");
	calyx_crew_close(crew);

	allow(&job, CALYX_CPU_WORDS * 64 - 1);
	CHECK(calyx_crew_open(&job, &crew, reason) == -EINVAL && strstr(reason, "CPU 4095"), "%s", reason);

	memset(job.cpus_allowed, 0, sizeof(job.cpus_allowed));
	for (int i = 0; i < allowed_count; i++)
		allow(&job, allowed[i]);
	job.paths_count = 3;
	job.setup = CALYX_SETUP_SQPOLL;
	if (allowed_count <= 3)
		CHECK(calyx_crew_open(&job, &crew, reason) == -EINVAL && strstr(reason, "leave one for the pollers"),
		      "%s", reason);
	/* One thread on the last CPU: the poller, which would take that one first, goes elsewhere. */
	memset(job.cpus_allowed, 0, sizeof(job.cpus_allowed));
	allow(&job, allowed[allowed_count - 1]);
	job.paths_count = 1;
	crew = open_crew(&job);
	/* A poller is born with its maker's CPU, and moves to its own as its first act. */
	for (int i = 0; i < 2000 && count_pinned_to(allowed[allowed_count - 1]) > 1; i++)
		usleep(1000);
	CHECK(count_pinned_to(allowed[allowed_count - 1]) == 1, "the thread alone, not the poller");
	calyx_crew_close(crew);
	check_free_poller(job);
	return 0;
}
