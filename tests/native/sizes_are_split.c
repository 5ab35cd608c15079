// Do block sizes come in the percents of bssplit, each direction by its own, within [offset, offset + size) and on
// multiples of the smallest block, at random and in sequence?
#include "check.h"
#include "offsets.h"

#define DRAWS 200000
#define OFFSET (1000 * 4096ull)
#define SIZE (1000 * 4096ull + 100)

static struct calyx_job split_job(enum calyx_rw rw)
{
	struct calyx_job job = {.rw = rw, .bs = 65536, .size = SIZE, .offset = OFFSET, .seed = 5, .rwmixread = 50};

	CHECK(calyx_parse_bssplit("4096/50:65536/30:16384/20", &job.bssplit, NULL) == 0, "split");
	return job;
}

static void check_percents(enum calyx_rw rw, bool split_write)
{
	struct calyx_job job = split_job(rw);
	uint32_t seen[2][3] = {{0}}, counts[2];
	struct calyx_offsets offsets;

	if (split_write)
		CHECK(calyx_parse_bssplit("8192/100", &job.bssplit_write, NULL) == 0, "split");
	calyx_offsets_init(&offsets, &job, 0);
	for (int i = 0; i < DRAWS; i++) {
		uint32_t length = 0;
		struct calyx_offset next = calyx_offsets_next_shaped(&offsets, &length);

		CHECK(next.offset >= OFFSET && next.offset + length <= OFFSET + SIZE, "%" PRIu64 "+%" PRIu32,
		      next.offset, length);
		CHECK(next.offset % 4096 == 0, "offset %" PRIu64, next.offset);
		if (split_write && next.direction == CALYX_DIR_WRITE) {
			CHECK(length == 8192 && next.offset % 8192 == OFFSET % 8192, "writes have a size of their own");
			continue;
		}
		CHECK(length == 4096 || length == 16384 || length == 65536, "length %" PRIu32, length);
		seen[next.direction][length == 4096 ? 0 : length == 65536 ? 1 : 2]++;
	}
	for (int d = 0; d < 2; d++) {
		counts[d] = seen[d][0] + seen[d][1] + seen[d][2];
		CHECK(counts[d] == 0 || (abs((int)(seen[d][0] * 100.0 / counts[d] * 100) - 5000) < 100 &&
					 abs((int)(seen[d][1] * 100.0 / counts[d] * 100) - 3000) < 100),
		      "%" PRIu32 " %" PRIu32 " %" PRIu32, seen[d][0], seen[d][1], seen[d][2]);
	}
	CHECK(counts[CALYX_DIR_READ] > 0, "there are reads");
}

static void check_sequence(void)
{
	struct calyx_job job = split_job(CALYX_READ);
	struct calyx_offsets offsets;
	uint64_t at = 0;
	int passes = 0;

	calyx_offsets_init(&offsets, &job, 0);
	for (int i = 0; i < 10000; i++) {
		uint32_t length = 0;
		struct calyx_offset next = calyx_offsets_next_shaped(&offsets, &length);

		if (at + length > SIZE) {
			at = 0;
			passes++;
		}
		CHECK(next.offset == OFFSET + at, "each I/O begins where the last one ended");
		at += length;
	}
	CHECK(passes > 10, "%d passes", passes);
}

int main(void)
{
	check_percents(CALYX_RANDREAD, false);
	check_percents(CALYX_RANDRW, false);
	check_percents(CALYX_RANDRW, true);
	check_percents(CALYX_READ, false);
	check_sequence();
	return 0;
}
