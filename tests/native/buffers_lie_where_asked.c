// Do buffers lie on the NUMA node and on the huge pages that were asked for, and does the result say so, or why not?
#include <stdatomic.h>
#include <sys/mman.h>

#include "check.h"
#include "memory.h"

#define SIZE (1ull << 20)

static struct calyx_sys table;
static atomic_int bound, huge_maps;
static unsigned long bound_nodes;

static int watching_mbind(void *address, size_t length, int policy, const unsigned long *nodes, unsigned long bits)
{
	atomic_fetch_add(&bound, 1);
	bound_nodes = nodes[0];
	return calyx_sys_linux.mbind(address, length, policy, nodes, bits);
}

static int watching_map(void **address, size_t length, int flags, int fd, uint64_t offset)
{
	if (flags & MAP_HUGETLB)
		atomic_fetch_add(&huge_maps, 1);
	return calyx_sys_linux.map(address, length, flags, fd, offset);
}

static void test_node(struct calyx_job job)
{
	char reason[CALYX_REASON_MAX] = "";
	const struct calyx_result *result;
	struct calyx_crew *crew;
	int error;

	job.numa = true;
	job.numa_node = 0;
	job.runtime_ns = 50 * MS;
	error = calyx_crew_open(&job, &crew, reason);
	if (error == -ENOSYS || error == -EPERM) {
		CHECK(strstr(reason, "NUMA node 0"), "'%s'", reason);
		return; /* a kernel without NUMA, or a container that forbids it, says so */
	}
	CHECK(error == 0, "%s", reason);
	CHECK(atomic_load(&bound) == 1 && bound_nodes == 1, "bound %d times, to %lx", atomic_load(&bound), bound_nodes);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0 && result->setup.numa && result->setup.numa_node == 0, "%s", result->failure);
	calyx_crew_close(crew);
	job.numa_node = 900;
	CHECK(calyx_crew_open(&job, &crew, reason) == -EINVAL && strstr(reason, "node 900"), "'%s'", reason);
	job.numa_node = UINT32_MAX;
	CHECK(calyx_crew_open(&job, &crew, reason) == -EINVAL && strstr(reason, "node 4294967295"), "'%s'", reason);
}

static void test_pages(struct calyx_job job)
{
	const struct calyx_result *result;
	uint64_t page_bytes, free_pages, before;
	struct calyx_crew *crew;

	calyx_huge_pages(&page_bytes, &free_pages);
	job.huge = true;
	job.runtime_ns = 50 * MS;
	crew = open_crew(&job);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0 && result->submitted > 0, "%s", result->failure);
	CHECK(result->setup.huge == (atomic_load(&huge_maps) > 0), "huge pages: %d", atomic_load(&huge_maps));
	CHECK(result->setup.huge == (page_bytes && free_pages > 0), "%" PRIu64 " are free", free_pages);
	CHECK(result->setup.huge || strstr(result->setup.why, "huge pages"), "'%s'", result->setup.why);
	CHECK(result->setup.buffer_bytes == 8 * 4096, "only what is used counts: %" PRIu64, result->setup.buffer_bytes);
	calyx_crew_close(crew);
	before = free_pages;
	calyx_huge_pages(&page_bytes, &free_pages);
	CHECK(free_pages == before, "they are given back");
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);

	scratch_make();
	lay_out(1, SIZE);
	table = calyx_sys_linux;
	table.mbind = watching_mbind;
	table.map = watching_map;
	calyx_sys = &table;
	calyx_crew_close(open_crew(&job)); /* skips without io_uring */
	CHECK(atomic_load(&bound) == 0 && atomic_load(&huge_maps) == 0, "not unless asked for");
	test_node(job);
	test_pages(job);
	return 0;
}
