// Are blocks drawn as often as fio draws them for the same theta, h, deviation and zones, the same way for the same
// seed, and each rank on a block of its own?
#include <math.h>

#include "check.h"
#include "distribution.h"

#define BLOCKS 262144u

static uint32_t hits[BLOCKS];

static int more_first(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? 1 : x > y ? -1 : 0;
}

/* As fio-genzipf counts: one draw for each of 1 GiB of 4 KiB blocks; of the blocks that were hit at all, the share of
 * the hits that the most popular tenth, and half, got. */
static void check_popularity(const char *text, double tenth, double half)
{
	struct calyx_distribution distribution;
	uint64_t state = 42, sum = 0, of_tenth = 0, of_half = 0;
	struct calyx_spread spread;
	uint32_t hit = 0;

	CHECK(calyx_parse_distribution(text, &distribution, NULL) == 0, "%s", text);
	calyx_spread_init(&spread, &distribution, BLOCKS, 7);
	memset(hits, 0, sizeof(hits));
	for (uint32_t i = 0; i < BLOCKS; i++) {
		uint64_t block = calyx_spread_next(&spread, &state);

		CHECK(block < BLOCKS, "%s: block %" PRIu64, text, block);
		hits[block]++;
	}
	qsort(hits, BLOCKS, sizeof(hits[0]), more_first);
	while (hit < BLOCKS && hits[hit])
		hit++;
	for (uint32_t i = 0; i < hit; i++) {
		sum += hits[i];
		of_tenth += i < hit / 10 ? hits[i] : 0;
		of_half += i < hit / 2 ? hits[i] : 0;
	}
	CHECK(sum == BLOCKS, "all draws are counted");
	CHECK(fabs((double)of_tenth * 100 / BLOCKS - tenth) < 1 && fabs((double)of_half * 100 / BLOCKS - half) < 1,
	      "%s: %.2f and %.2f %% of the hits, fio-genzipf 3.33 says %.2f and %.2f", text,
	      (double)of_tenth * 100 / BLOCKS, (double)of_half * 100 / BLOCKS, tenth, half);
}

/* Zipf's law itself, where the formula is exact: P(rank k) = k^-theta / zeta. */
static void check_zipf_law(double theta)
{
	struct calyx_distribution distribution = {.kind = CALYX_RANDOM_ZIPF, .parameter = theta};
	uint64_t state = 1, first = 0, second = 0;
	const int draws = 1000000;
	struct calyx_spread spread;
	double zeta = 0, p1, p2;

	calyx_spread_init(&spread, &distribution, 1000, 7);
	for (int k = 1000; k > 0; k--)
		zeta += pow(k, -theta);
	for (int i = 0; i < draws; i++) {
		uint64_t rank = calyx_spread_rank(&spread, &state);

		first += rank == 0;
		second += rank == 1;
	}
	p1 = 1 / zeta;
	p2 = pow(2, -theta) / zeta;
	/* Five standard deviations of a binomial; the seed is fixed. */
	CHECK(fabs((double)first / draws - p1) < 5 * sqrt(p1 / draws) &&
		      fabs((double)second / draws - p2) < 5 * sqrt(p2 / draws),
	      "theta %g: ranks 1 and 2 at %.5f and %.5f, not %.5f and %.5f", theta, (double)first / draws,
	      (double)second / draws, p1, p2);
}

/* The sum for a large file is not made term by term: it must still be the sum. */
static void check_large_zeta(void)
{
	struct calyx_distribution distribution = {.kind = CALYX_RANDOM_ZIPF, .parameter = 1.2};
	struct calyx_spread spread;
	double zeta = 0;

	calyx_spread_init(&spread, &distribution, 3000000, 7);
	for (int k = 3000000; k > 0; k--)
		zeta += pow(k, -1.2);
	CHECK(fabs(spread.zeta - zeta) < 1e-9, "%.15g is not %.15g", spread.zeta, zeta);
}

/* Pareto by its definition: the share 1-h of the accesses to the share h of the blocks. */
static void check_pareto_rule(double h)
{
	struct calyx_distribution distribution = {.kind = CALYX_RANDOM_PARETO, .parameter = h};
	uint64_t state = 1, hot = 0;
	struct calyx_spread spread;

	calyx_spread_init(&spread, &distribution, 100000, 7);
	for (int i = 0; i < 1000000; i++)
		hot += (double)calyx_spread_rank(&spread, &state) < h * 100000;
	CHECK(fabs((double)hot / 1e6 - (1 - h)) < 0.003, "h %g: %.4f of the accesses", h, (double)hot / 1e6);
}

static void check_zones(void)
{
	uint64_t state = 1, per_zone[4] = {0}, to[4] = {100, 300, 380, 1000};
	struct calyx_distribution distribution;
	struct calyx_spread spread;

	CHECK(calyx_parse_distribution("zoned:60/10:30/20:8/8:2/62", &distribution, NULL) == 0, "zones");
	calyx_spread_init(&spread, &distribution, 1000, 7);
	for (int i = 0; i < 1000000; i++) {
		uint64_t block = calyx_spread_next(&spread, &state);
		int zone = 0;

		CHECK(block < 1000, "block %" PRIu64, block);
		while (block >= to[zone])
			zone++;
		per_zone[zone]++;
	}
	CHECK(fabs((double)per_zone[0] - 6e5) < 3000 && fabs((double)per_zone[1] - 3e5) < 3000 &&
		      fabs((double)per_zone[2] - 8e4) < 1500 && fabs((double)per_zone[3] - 2e4) < 800,
	      "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, per_zone[0], per_zone[1], per_zone[2], per_zone[3]);
}

/* For every number of blocks, also very few and prime ones: in range, the same for the same seed, one block a rank. */
static void check_ranges(const char *text)
{
	static unsigned char taken[1200];

	for (uint64_t blocks = 1; blocks < 1200; blocks = blocks < 70 ? blocks + 1 : blocks * 3 / 2) {
		struct calyx_spread spread, same;
		struct calyx_distribution distribution;
		uint64_t state = 9, state_same = 9;

		CHECK(calyx_parse_distribution(text, &distribution, NULL) == 0, "%s", text);
		calyx_spread_init(&spread, &distribution, blocks, 5);
		calyx_spread_init(&same, &distribution, blocks, 5);
		for (int i = 0; i < 2000; i++) {
			uint64_t block = calyx_spread_next(&spread, &state);

			CHECK(block < blocks, "%s: block %" PRIu64 " of %" PRIu64, text, block, blocks);
			CHECK(block == calyx_spread_next(&same, &state_same), "%s: draw %d differs", text, i);
		}
		memset(taken, 0, sizeof(taken));
		for (uint64_t rank = 0; rank < blocks; rank++) {
			uint64_t block = (rank * spread.multiplier + spread.shift) % blocks;

			CHECK(!taken[block], "two ranks on block %" PRIu64 " of %" PRIu64, block, blocks);
			taken[block] = 1;
		}
	}
}

int main(void)
{
	/* What `fio-genzipf -t zipf -i 1.2 -b 4096 -g 1 -o 10` of fio 3.33 prints, and so on. */
	check_popularity("zipf:1.2", 88.76, 95.29);
	check_popularity("zipf:0.8", 51.54, 80.28);
	check_popularity("pareto:0.2", 63.55, 84.55);
	check_popularity("normal:10", 23.95, 75.96);
	check_popularity("normal:40", 22.62, 72.16);
	check_zipf_law(0.8);
	check_zipf_law(1.2);
	check_large_zeta();
	check_pareto_rule(0.2);
	check_pareto_rule(0.05);
	check_zones();
	check_ranges("zipf:1.2");
	check_ranges("zipf:0.5");
	check_ranges("pareto:0.2");
	check_ranges("normal:20");
	check_ranges("zoned:60/10:30/20:8/30:2/40");
	return 0;
}
