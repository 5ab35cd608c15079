// SPDX-License-Identifier: Apache-2.0
// Which io_uring set-up a crew runs with: the one that was named, or the first of defer, coop, plain that the kernel
// accepts.
#include "crew.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "calyx/text.h"
#include "memory.h"
#include "reason.h"

static const char *const setup_names[] = {"auto", "sqpoll", "defer", "coop", "plain", "psync"};

static bool any_cpu(const uint64_t *cpus)
{
	uint64_t all = 0;

	for (int i = 0; i < CALYX_CPU_WORDS; i++)
		all |= cpus[i];
	return all != 0;
}

/* Threads that have no CPU of their own go where their memory is. A node may have none. */
static void keep_to_node(struct calyx_crew *crew)
{
	uint64_t node[CALYX_CPU_WORDS];
	char path[64], text[4096] = "";

	calyx_format(path, sizeof(path), "/sys/devices/system/node/node%" PRIu32 "/cpulist", crew->job.numa_node);
	calyx_read_text(path, text, sizeof(text));
	text[strcspn(text, "\n")] = 0;
	if (calyx_parse_cpus(text, node, NULL))
		return;
	for (int i = 0; i < CALYX_CPU_WORDS; i++)
		node[i] &= crew->allowed_cpus[i];
	crew->on_node = any_cpu(node);
	if (crew->on_node)
		memcpy(crew->allowed_cpus, node, sizeof(node));
}

static int list_allowed_cpus(struct calyx_crew *crew, int *cpus, int capacity)
{
	int count = 0;

	if (syscall(SYS_sched_getaffinity, 0, sizeof(crew->allowed_cpus), crew->allowed_cpus) < 0)
		return 0;
	if (crew->job.numa && !any_cpu(crew->job.cpus_allowed))
		keep_to_node(crew);
	for (int cpu = 0; cpu < CALYX_CPU_WORDS * 64 && count < capacity; cpu++) {
		if (crew->allowed_cpus[cpu / 64] >> (cpu % 64) & 1)
			cpus[count++] = cpu;
	}
	return count;
}

static bool has_cpu(const uint64_t *cpus, int cpu)
{
	return cpus[cpu / 64] >> (cpu % 64) & 1;
}

/* cpus_allowed: one CPU a thread, in turn; else, with numa, all on the CPUs of the node. */
static int place_threads(struct calyx_crew *crew, char *reason)
{
	int cpus[CALYX_CPU_WORDS * 64], count = 0;
	int may = list_allowed_cpus(crew, cpus, CALYX_CPU_WORDS * 64);

	for (int cpu = 0; cpu < CALYX_CPU_WORDS * 64; cpu++) {
		if (!has_cpu(crew->job.cpus_allowed, cpu))
			continue;
		if (may > 0 && !has_cpu(crew->allowed_cpus, cpu))
			return calyx_refuse(reason, -EINVAL,
					    "cpus_allowed names CPU %d: there is none, or this process may not use it",
					    cpu);
		cpus[count++] = cpu;
	}
	for (uint32_t i = 0; i < crew->job.paths_count && count > 0; i++)
		crew->workers[i].cpu = cpus[i % (uint32_t)count];
	if (crew->job.numa && count == 0 && !crew->on_node)
		calyx_reason_add(crew->why,
				 "threads anywhere: NUMA node %" PRIu32 " has no CPU that this process may use",
				 crew->job.numa_node);
	return 0;
}

/* Every second CPU goes to a poller, starting with the last one: the first ones take most interrupts. Threads that are
 * pinned have theirs already. */
static int place_pollers(struct calyx_crew *crew, char *reason)
{
	int cpus[CALYX_CPU_WORDS * 64], left = 0;
	int count = list_allowed_cpus(crew, cpus, CALYX_CPU_WORDS * 64);
	uint32_t step = crew->workers[0].cpu < 0 ? 2 : 1, pollers;

	if (count == 1)
		return calyx_refuse(
			reason, -EINVAL,
			"setup=sqpoll needs two CPUs: its poller and the job would wait for each other on one");
	for (uint32_t i = 0; i < crew->job.paths_count && step == 1; i++)
		crew->allowed_cpus[crew->workers[i].cpu / 64] &= ~(1ull << (crew->workers[i].cpu % 64));
	for (int i = 0; i < count; i++) {
		if (has_cpu(crew->allowed_cpus, cpus[i]))
			cpus[left++] = cpus[i];
	}
	pollers = (uint32_t)left / step;
	if (count > 0 && pollers == 0)
		return calyx_refuse(
			reason, -EINVAL,
			"setup=sqpoll: the threads are pinned to all CPUs (cpus_allowed): leave one for the "
			"pollers");
	for (uint32_t i = 0; i < crew->job.paths_count && pollers > 0; i++) {
		int cpu = cpus[(uint32_t)(left - 1) - step * (i % pollers)];

		crew->workers[i].poller_cpu = cpu;
		crew->poller_cpus[cpu / 64] |= 1ull << (cpu % 64);
	}
	return 0;
}

static int refuse_io_uring(int error, const char *name, char *reason)
{
	char text[8] = "";

	if (error == -EPERM) {
		calyx_read_text("/proc/sys/kernel/io_uring_disabled", text, sizeof(text));
		if (text[0] == '1' || text[0] == '2')
			return calyx_refuse(reason, error,
					    "io_uring_setup: %s: the sysctl kernel.io_uring_disabled is %c",
					    calyx_error_text(error).text, text[0]);
		return calyx_refuse(
			reason, error,
			"io_uring_setup (%s): %s: a seccomp filter, a security module or a missing privilege "
			"forbids it",
			name, calyx_error_text(error).text);
	}
	if (error == -ENOSYS)
		return calyx_refuse(reason, error,
				    "io_uring_setup: %s: the kernel has no io_uring, or a filter hides it",
				    calyx_error_text(error).text);
	if (error == -EINVAL)
		return calyx_refuse(reason, error, "io_uring_setup: %s: this kernel does not have setup=%s",
				    calyx_error_text(error).text, name);
	return calyx_refuse(reason, error, "io_uring_setup (%s): %s", name, calyx_error_text(error).text);
}

/* Huge pages for all threads or for none. */
static void choose_pages(struct calyx_crew *crew)
{
	uint64_t page_bytes, free_pages, there, wanted;
	uint32_t turns;

	if (!crew->job.huge)
		return;
	calyx_huge_pages(&page_bytes, &free_pages);
	/* What is reserved may lie on other nodes: the kernel kills who touches a page that cannot be had. */
	there = crew->job.numa ? calyx_huge_pages_on(crew->job.numa_node, page_bytes) : free_pages;
	free_pages = there < free_pages ? there : free_pages;
	wanted = page_bytes ? (calyx_pool_bytes(&crew->job, &turns) + page_bytes - 1) / page_bytes : 0;
	wanted *= crew->job.paths_count;
	if (page_bytes && wanted <= free_pages)
		crew->huge_page_bytes = page_bytes;
	else
		calyx_reason_add(crew->why,
				 "ordinary pages: %" PRIu64 " huge pages of %" PRIu64 " bytes are needed, %" PRIu64
				 " are free%s",
				 wanted, page_bytes, free_pages, crew->job.numa ? " on the NUMA node" : "");
}

int calyx_choose_setup(struct calyx_crew *crew, char *reason)
{
	static const enum calyx_setup ladder[] = {CALYX_SETUP_DEFER, CALYX_SETUP_COOP, CALYX_SETUP_PLAIN};
	enum calyx_setup wanted = crew->job.setup;
	uint32_t entries = crew->ring_entries, always = crew->job.iopoll ? IORING_SETUP_IOPOLL : 0;
	int error = -EINVAL;

	choose_pages(crew);
	error = place_threads(crew, reason);
	if (error)
		return error;
	if (wanted == CALYX_SETUP_PSYNC) {
		crew->took = wanted;
		return 0;
	}
	if (wanted == CALYX_SETUP_SQPOLL && (error = place_pollers(crew, reason)))
		return error;
	if (wanted != CALYX_SETUP_AUTO) {
		crew->took = wanted;
		error = calyx_ring_choose(wanted, entries, crew->workers[0].poller_cpu, always, &crew->ring_flags);
		if (error)
			return refuse_io_uring(error, setup_names[wanted], reason);
		if (wanted == CALYX_SETUP_SQPOLL && !(crew->ring_flags & IORING_SETUP_SQ_AFF))
			return calyx_refuse(
				reason, -EINVAL,
				"setup=sqpoll: the kernel does not keep the poller on CPU %d, so it could come "
				"to that of the job",
				crew->workers[0].poller_cpu);
		return 0;
	}
	for (size_t i = 0; i < sizeof(ladder) / sizeof(ladder[0]); i++) {
		crew->took = ladder[i];
		error = calyx_ring_choose(ladder[i], entries, -1, always, &crew->ring_flags);
		if (!error)
			return 0;
		if (error != -EINVAL)
			break;
		calyx_reason_add(crew->why, "setup=%s: %s", setup_names[ladder[i]], calyx_error_text(error).text);
	}
	return refuse_io_uring(error, setup_names[crew->took], reason);
}
