// Do buffers of a huge page or more begin at one and ask for transparent ones, and does the result say what was taken?
#include <stdatomic.h>
#include <sys/mman.h>

#include "check.h"
#include "memory.h"

#define SIZE (8ull << 20)

static struct calyx_sys table;
static atomic_int advised, advice_error;
static atomic_llong held_bytes; /* of memory without a file behind it */
static uintptr_t advised_at;
static size_t advised_bytes;

static int watching_advise(void *address, size_t length, int advice)
{
	CHECK(advice == MADV_HUGEPAGE, "%d", advice);
	atomic_fetch_add(&advised, 1);
	advised_at = (uintptr_t)address;
	advised_bytes = length;
	if (atomic_load(&advice_error))
		return atomic_load(&advice_error);
	return calyx_sys_linux.advise(address, length, advice);
}

static int watching_map(void **address, size_t length, int flags, int fd, uint64_t offset)
{
	int error = calyx_sys_linux.map(address, length, flags, fd, offset);

	if (!error && (flags & MAP_ANONYMOUS))
		atomic_fetch_add(&held_bytes, (long long)length);
	return error;
}

static int watching_unmap(void *address, size_t length)
{
	int error = calyx_sys_linux.unmap(address, length);

	if (!error)
		atomic_fetch_sub(&held_bytes, (long long)length);
	return error;
}

static bool run_says_transparent(struct calyx_job job)
{
	const struct calyx_result *result;
	struct calyx_crew *crew = open_crew(&job);
	bool said;

	result = run_to_end(crew);
	CHECK(result->failure[0] == 0 && result->submitted > 0, "%s", result->failure);
	CHECK(result->setup.buffer_bytes == (uint64_t)job.iodepth * job.bs, "%" PRIu64, result->setup.buffer_bytes);
	said = result->setup.transparent_huge;
	calyx_crew_close(crew);
	return said;
}

static void test_alignment(uint64_t page_bytes)
{
	size_t length = (size_t)page_bytes * 2 + 4096 * 3;
	bool taken;
	void *address;

	for (int i = 0; i < 8; i++) {
		size_t mapped = length;
		long long before = atomic_load(&held_bytes);

		CHECK(calyx_memory_map_transparent(&address, &mapped, page_bytes, &taken) == 0, "mapped");
		CHECK((uintptr_t)address % page_bytes == 0 && mapped >= length, "%p, %zu", address, mapped);
		CHECK(advised_at == (uintptr_t)address && advised_bytes == page_bytes * 2, "%zu", advised_bytes);
		memset(address, 1, mapped);
		CHECK(atomic_load(&held_bytes) - before == (long long)mapped, "what is beside is given back");
		/* The next one begins elsewhere, odd to a huge page. */
		CHECK(calyx_sys->unmap((char *)address + 4096, mapped - 4096) == 0, "unmapped");
	}
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	uint64_t page_bytes = calyx_transparent_page_bytes();

	scratch_make();
	lay_out(1, SIZE);
	table = calyx_sys_linux;
	table.advise = watching_advise;
	table.map = watching_map;
	table.unmap = watching_unmap;
	calyx_sys = &table;
	job.runtime_ns = 50 * MS;
	calyx_crew_close(open_crew(&job)); /* skips without io_uring */
	CHECK(!run_says_transparent(job) && atomic_load(&advised) == 0, "small buffers are not rounded up");
	job.bs = 1 << 20;
	job.iodepth = 4;
	CHECK(run_says_transparent(job) == (page_bytes > 0 && page_bytes <= 4 << 20), "%" PRIu64, page_bytes);
	if (!page_bytes || page_bytes > 4 << 20) {
		printf("this kernel makes no transparent huge pages that fit\n");
		return 77;
	}
	CHECK(atomic_load(&advised) == 1 && advised_at % page_bytes == 0 && advised_bytes == 4 << 20, "%zu",
	      advised_bytes);
	atomic_store(&advice_error, -EINVAL);
	CHECK(!run_says_transparent(job), "advice that was not taken is not told as taken");
	atomic_store(&advice_error, 0);
	test_alignment(page_bytes);
	return 0;
}
