// Are offsets aligned and in range, the same for the same seed, spread evenly, and mixed in the ratio that was asked
// for?
#include "check.h"
#include "offsets.h"

#define DRAWS 200000
#define SIZE (1000 * 4096ull + 100)

static struct calyx_offsets offsets_of(enum calyx_rw rw, uint64_t seed, uint32_t thread)
{
	struct calyx_job job = {.rw = rw, .bs = 4096, .size = SIZE, .seed = seed, .rwmixread = 70};
	struct calyx_offsets offsets;

	calyx_offsets_init(&offsets, &job, thread);
	return offsets;
}

static void check_random(void)
{
	static uint32_t seen[1000];
	struct calyx_offsets offsets = offsets_of(CALYX_RANDREAD, 5, 0);
	double chi_squared = 0, expected = DRAWS / 1000.0;

	for (int i = 0; i < DRAWS; i++) {
		struct calyx_offset next = calyx_offsets_next(&offsets);

		CHECK(next.direction == CALYX_DIR_READ, "a read");
		CHECK(next.offset % 4096 == 0 && next.offset + 4096 <= SIZE, "offset %" PRIu64, next.offset);
		seen[next.offset / 4096]++;
	}
	for (int i = 0; i < 1000; i++)
		chi_squared += (seen[i] - expected) * (seen[i] - expected) / expected;
	/* 999 degrees of freedom: mean 999, standard deviation 45; the seed is fixed, so this never flickers. */
	CHECK(chi_squared > 800 && chi_squared < 1200, "chi squared %.0f", chi_squared);
}

static void check_seeds(void)
{
	struct calyx_offsets a = offsets_of(CALYX_RANDRW, 5, 0), same = offsets_of(CALYX_RANDRW, 5, 0);
	struct calyx_offsets thread = offsets_of(CALYX_RANDRW, 5, 1), seed = offsets_of(CALYX_RANDRW, 99, 0);
	int equal_thread = 0, equal_seed = 0;

	for (int i = 0; i < 10000; i++) {
		struct calyx_offset x = calyx_offsets_next(&a), y = calyx_offsets_next(&same);

		CHECK(x.offset == y.offset && x.direction == y.direction, "draw %d differs for the same seed", i);
		equal_thread += x.offset == calyx_offsets_next(&thread).offset;
		equal_seed += x.offset == calyx_offsets_next(&seed).offset;
	}
	CHECK(equal_thread < 50 && equal_seed < 50, "%d and %d of 10000 are equal", equal_thread, equal_seed);
}

static void check_mix(void)
{
	struct calyx_offsets offsets = offsets_of(CALYX_RANDRW, 5, 0);
	int reads = 0;

	for (int i = 0; i < DRAWS; i++)
		reads += calyx_offsets_next(&offsets).direction == CALYX_DIR_READ;
	CHECK(reads > DRAWS * 0.695 && reads < DRAWS * 0.705, "%d of %d are reads", reads, DRAWS);
	offsets.rwmixread = 100;
	for (int i = 0; i < 1000; i++)
		CHECK(calyx_offsets_next(&offsets).direction == CALYX_DIR_READ, "100 %% reads");
	offsets.rwmixread = 0;
	for (int i = 0; i < 1000; i++)
		CHECK(calyx_offsets_next(&offsets).direction == CALYX_DIR_WRITE, "0 %% reads");
}

static void check_sequential(void)
{
	struct calyx_offsets offsets = offsets_of(CALYX_WRITE, 5, 0);
	uint64_t position[2] = {0, 0};

	for (uint64_t i = 0; i < 2500; i++)
		CHECK(calyx_offsets_next(&offsets).offset == i % 1000 * 4096, "draw %" PRIu64, i);
	offsets = offsets_of(CALYX_RW, 5, 0);
	for (int i = 0; i < 5000; i++) {
		struct calyx_offset next = calyx_offsets_next(&offsets);

		CHECK(next.offset == position[next.direction]++ % 1000 * 4096, "each direction has its own position");
	}
}

static void check_fsync(void)
{
	struct calyx_offsets offsets = offsets_of(CALYX_RANDRW, 5, 0);
	int writes = 0;

	offsets.fsync = 3;
	for (int i = 0; i < 10000; i++) {
		struct calyx_offset next = calyx_offsets_next(&offsets);

		if (next.direction == CALYX_DIR_SYNC) {
			CHECK(writes == 3, "an fsync came after %d writes", writes);
			writes = 0;
		}
		writes += next.direction == CALYX_DIR_WRITE;
		CHECK(writes <= 3, "no fsync after 3 writes");
	}
}

int main(void)
{
	check_random();
	check_seeds();
	check_mix();
	check_sequential();
	check_fsync();
	return 0;
}
