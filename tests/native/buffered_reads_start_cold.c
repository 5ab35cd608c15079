// With direct=0, is the page cache emptied of the file first, also of pages that were not written back, and does the
// set-up say that the I/O is not direct?
#include <sys/mman.h>

#include "check.h"

#define SIZE (4ull << 20)

static uint32_t resident_pages(void)
{
	static unsigned char pages[SIZE / 4096];
	int fd = open(scratch_files[0], O_RDONLY | O_CLOEXEC);
	void *at = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, fd, 0);
	uint32_t count = 0;

	CHECK(at != MAP_FAILED && mincore(at, SIZE, pages) == 0, "mincore: %s", strerror(errno));
	for (size_t i = 0; i < sizeof(pages); i++)
		count += pages[i] & 1;
	munmap(at, SIZE);
	close(fd);
	return count;
}

int main(void)
{
	static unsigned char chunk[SIZE];
	struct calyx_job job = short_job(SIZE);
	struct calyx_crew *crew;
	int fd;

	scratch_make();
	lay_out(1, SIZE);
	fd = open(scratch_files[0], O_RDWR | O_CLOEXEC);
	/* Read whole, and dirty in the first half. */
	CHECK(pread(fd, chunk, SIZE, 0) == (ssize_t)SIZE && pwrite(fd, chunk, SIZE / 2, 0) == (ssize_t)SIZE / 2, "I/O");
	close(fd);
	if (resident_pages() < SIZE / 4096 / 2)
		SKIP("this file system keeps no pages");
	job.direct = false;
	crew = open_crew(&job);
	CHECK(resident_pages() == 0, "%" PRIu32 " pages are still there", resident_pages());
	CHECK(!calyx_crew_setup(crew)->direct, "labelled");
	CHECK(run_to_end(crew)->directions[CALYX_DIR_READ].ios > 0, "and reads");
	CHECK(resident_pages() > 0, "through the cache");
	calyx_crew_close(crew);
	return 0;
}
