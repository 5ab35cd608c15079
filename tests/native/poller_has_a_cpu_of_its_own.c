// Does SQPOLL's kernel thread never share a CPU with the thread it works for, and is one CPU refused with a reason?
#include <dirent.h>
#include <sched.h>

#include "check.h"
#include "crew.h"

#define SIZE (1ull << 20)

/* The CPUs of all tasks whose name begins with `name`. How many tasks there are. */
static int cpus_of(const char *name, cpu_set_t *cpus)
{
	DIR *tasks = opendir("/proc/self/task");
	const struct dirent *entry;
	int count = 0;

	CPU_ZERO(cpus);
	while (tasks && (entry = readdir(tasks))) {
		char path[300], comm[32] = "";
		cpu_set_t one;
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
		file = fopen(path, "re");
		if (!file)
			continue;
		if (!fgets(comm, sizeof(comm), file))
			comm[0] = 0;
		fclose(file);
		if (strncmp(comm, name, strlen(name)) != 0 || sched_getaffinity(atoi(entry->d_name), sizeof(one), &one))
			continue;
		CPU_OR(cpus, cpus, &one);
		count++;
	}
	closedir(tasks);
	return count;
}

static cpu_set_t cpus_of_thread(pthread_t thread)
{
	cpu_set_t cpus;

	CHECK(pthread_getaffinity_np(thread, sizeof(cpus), &cpus) == 0, "affinity");
	return cpus;
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	char reason[CALYX_REASON_MAX] = "";
	uint32_t setups = 0, features;
	cpu_set_t poller, submitter, both, all;
	struct calyx_crew *crew;

	if (calyx_ring_probe(&setups, &features) < 0 || !(setups & 1u << CALYX_SETUP_SQPOLL))
		SKIP("no SQPOLL here");
	CHECK(sched_getaffinity(0, sizeof(all), &all) == 0, "affinity");
	scratch_make();
	lay_out(1, SIZE);
	job.setup = CALYX_SETUP_SQPOLL;
	if (CPU_COUNT(&all) >= 2) {
		crew = open_crew(&job);
		/* That of the ring that was only tried ends a little later. */
		for (int i = 0; i < 1000 && cpus_of("iou-sqp", &poller) > 1; i++)
			usleep(1000);
		CHECK(cpus_of("iou-sqp", &poller) == 1, "%d pollers", cpus_of("iou-sqp", &poller));
		submitter = cpus_of_thread(crew->workers[0].thread);
		CPU_AND(&both, &poller, &submitter);
		CHECK(CPU_COUNT(&poller) == 1, "the poller is bound to %d CPUs", CPU_COUNT(&poller));
		CHECK(CPU_COUNT(&submitter) >= 1 && CPU_COUNT(&both) == 0, "they share a CPU");
		calyx_crew_close(crew);
	}

	/* One CPU only. */
	for (int cpu = 0, kept = 0; cpu < CPU_SETSIZE; cpu++) {
		if (CPU_ISSET(cpu, &all) && kept++)
			CPU_CLR(cpu, &all);
	}
	CHECK(sched_setaffinity(0, sizeof(all), &all) == 0, "one CPU");
	CHECK(calyx_crew_open(&job, &crew, reason) == -EINVAL, "'%s'", reason);
	CHECK(strstr(reason, "two CPUs"), "'%s'", reason);
	return 0;
}
