// With numa, do the threads run on the CPUs of that node and nowhere else, as their memory lies there, and is it said
// when the node has none?
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>

#include "check.h"
#include "crew.h"

#define SIZE (1ull << 20)
#define CPUS_OF_NODE "/sys/devices/system/node/node0/cpulist"

static struct calyx_sys table;

static int willing_mbind(void *address, size_t length, int policy, const unsigned long *nodes, unsigned long bits)
{
	(void)address, (void)length, (void)policy, (void)nodes, (void)bits;
	return 0;
}

static void say_cpus(const char *list)
{
	int fd = open(scratch_files[2], O_CREAT | O_TRUNC | O_WRONLY, 0600);

	CHECK(fd >= 0 && write(fd, list, strlen(list)) == (ssize_t)strlen(list), "%s", strerror(errno));
	close(fd);
}

static cpu_set_t cpus_of(const struct calyx_worker *worker)
{
	cpu_set_t cpus;

	CHECK(pthread_getaffinity_np(worker->thread, sizeof(cpus), &cpus) == 0, "affinity");
	return cpus;
}

static struct calyx_crew *open_on_node(const struct calyx_job *job)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_crew *crew;

	CHECK(calyx_crew_open(job, &crew, reason) == 0, "%s", reason);
	return crew;
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	struct calyx_crew *crew;
	cpu_set_t all, found, one;
	char list[64];
	int first = -1, last = 0;

	scratch_make();
	lay_out(2, SIZE);
	CHECK(sched_getaffinity(0, sizeof(all), &all) == 0, "affinity");
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all))
			continue;
		first = first < 0 ? cpu : first;
		last = cpu;
	}
	if (CPU_COUNT(&all) < 2)
		SKIP("one CPU");
	/* A node of one CPU, and of others that this process may not use: a file over the kernel's own, for us alone.
	 */
	snprintf(list, sizeof(list), "%d,%d-%d\n", last, CPU_SETSIZE, CPU_SETSIZE + 7);
	say_cpus(list);
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount(scratch_files[2], CPUS_OF_NODE, NULL, MS_BIND, NULL) < 0)
		SKIP("only root can lay a file over %s, where there is one", CPUS_OF_NODE);
	table = calyx_sys_linux;
	table.mbind = willing_mbind;
	calyx_sys = &table;
	job.setup = CALYX_SETUP_PSYNC;
	job.iodepth = 1;
	job.paths_count = 2;
	job.numa = true;
	CPU_ZERO(&one);
	CPU_SET(last, &one);
	crew = open_on_node(&job);
	for (int i = 0; i < 2; i++) {
		found = cpus_of(&crew->workers[i]);
		CHECK(CPU_EQUAL(&found, &one), "thread %d may run on %d CPUs", i, CPU_COUNT(&found));
	}
	CHECK(calyx_crew_setup(crew)->numa && !calyx_crew_setup(crew)->why[0], "'%s'", calyx_crew_setup(crew)->why);
	calyx_crew_close(crew);

	/* Who says where threads run is obeyed. */
	job.cpus_allowed[first / 64] = 1ull << (first % 64);
	CPU_ZERO(&one);
	CPU_SET(first, &one);
	crew = open_on_node(&job);
	found = cpus_of(&crew->workers[0]);
	CHECK(CPU_EQUAL(&found, &one), "not on the CPU of cpus_allowed");
	calyx_crew_close(crew);
	memset(job.cpus_allowed, 0, sizeof(job.cpus_allowed));

	/* A node of memory alone. */
	say_cpus("\n");
	crew = open_on_node(&job);
	found = cpus_of(&crew->workers[0]);
	CHECK(CPU_EQUAL(&found, &all), "it may run on %d CPUs", CPU_COUNT(&found));
	CHECK(strstr(calyx_crew_setup(crew)->why, "NUMA node 0 has no CPU"), "'%s'", calyx_crew_setup(crew)->why);
	calyx_crew_close(crew);
	return 0;
}
