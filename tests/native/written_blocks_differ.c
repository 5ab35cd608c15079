// After a write run, are more than 99 % of the 4 KiB blocks distinct, and is no copy near enough for a compressor?
#include "check.h"

#define SIZE (4ull << 20)
#define BLOCKS (SIZE / 4096)
#define WINDOW 8 /* 32 KiB, gzip's */

static unsigned char data[SIZE];

static int compare(const void *a, const void *b)
{
	return memcmp(*(unsigned char *const *)a, *(unsigned char *const *)b, 4096);
}

static void check_file(const char *path, uint32_t iodepth)
{
	static unsigned char *blocks[BLOCKS];
	size_t distinct = 1, repeats = 0;
	int fd = open(path, O_RDONLY);

	CHECK(fd >= 0 && read(fd, data, sizeof(data)) == (ssize_t)sizeof(data), "read back");
	close(fd);
	for (size_t i = 0; i < BLOCKS; i++) {
		blocks[i] = data + i * 4096;
		/* Past the tag, the bodies must differ too, or a window of a compressor sees one block again and again.
		 */
		for (size_t j = i > WINDOW ? i - WINDOW : 0; j < i; j++)
			repeats += memcmp(blocks[i] + 16, blocks[j] + 16, 64) == 0;
	}
	/* A few may meet at the seam where the last pass over the file ended. */
	CHECK(repeats * 100 < BLOCKS, "depth %u: %zu of %zu blocks repeat a near one", iodepth, repeats,
	      (size_t)BLOCKS);
	qsort(blocks, BLOCKS, sizeof(blocks[0]), compare);
	for (size_t i = 1; i < BLOCKS; i++)
		distinct += memcmp(blocks[i], blocks[i - 1], 4096) != 0;
	CHECK(distinct * 100 > BLOCKS * 99, "%zu of %zu blocks are distinct", distinct, (size_t)BLOCKS);
}

/* Writes both files from their beginning; returns how many bytes that were. */
static uint64_t write_files(uint32_t iodepth, uint64_t bs, uint64_t runtime_ns)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_crew *crew;
	uint64_t bytes;

	job.rw = CALYX_WRITE;
	job.paths_count = 2;
	job.iodepth = iodepth;
	job.bs = bs;
	job.runtime_ns = runtime_ns;
	crew = open_crew(&job);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	bytes = result->directions[CALYX_DIR_WRITE].bytes;
	calyx_crew_close(crew);
	return bytes;
}

static void write_and_check(uint32_t iodepth, uint64_t bs)
{
	uint64_t bytes = 0;

	/* More than both files' size: what is read back is the engine's and not the layout's. */
	for (int attempt = 0; attempt < ATTEMPTS && bytes < 3 * SIZE; attempt++)
		bytes = write_files(iodepth, bs, RUNTIME_NS(attempt));
	CHECK(bytes >= 3 * SIZE, "too slow a disk: %" PRIu64 " bytes", bytes);
	check_file(scratch_files[0], iodepth);
	check_file(scratch_files[1], iodepth);
}

int main(void)
{
	scratch_make();
	lay_out(2, SIZE);
	write_and_check(1, 4096);
	write_and_check(8, 4096);
	write_and_check(4, 65536);
	return 0;
}
