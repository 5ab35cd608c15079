// SPDX-License-Identifier: Apache-2.0
// Random blocks that are not uniform (distribution.h).
#include "distribution.h"

#include <math.h>
#include <string.h>

#include "offsets.h"
#include "power.h"

#define ZETA_TERMS_MAX 1000000u /* summed one by one; the rest by Euler and Maclaurin, to 15 digits */
#define NORMAL_DRAWS 12
#define GOLDEN 0.6180339887498949

static double uniform(uint64_t *state)
{
	return (double)(calyx_random_next(state) >> 11) * 0x1p-53;
}

/* sum of k^-theta for k = 1 .. blocks */
static double zeta(uint64_t blocks, double theta)
{
	uint64_t terms = blocks < ZETA_TERMS_MAX ? blocks : ZETA_TERMS_MAX;
	double sum = 0, from = (double)terms, to = (double)blocks;

	for (uint64_t k = terms; k > 0; k--)
		sum += calyx_power((double)k, -theta);
	if (terms == blocks)
		return sum;
	sum += (calyx_power(to, 1 - theta) - calyx_power(from, 1 - theta)) / (1 - theta);
	return sum + (calyx_power(to, -theta) - calyx_power(from, -theta)) / 2;
}

static void init_zipf(struct calyx_spread *spread, double theta)
{
	double n = (double)spread->blocks;

	spread->zeta = zeta(spread->blocks, theta);
	spread->second = 1 + calyx_power(0.5, theta);
	spread->alpha = 1 / (1 - theta);
	/* With one or two blocks the first two ranks are all there is, and the denominator is 0. */
	if (spread->blocks > 2)
		spread->eta = (1 - calyx_power(2 / n, 1 - theta)) / (1 - spread->second / spread->zeta);
}

static void init_zones(struct calyx_spread *spread, const struct calyx_distribution *distribution)
{
	uint32_t access = 0, share = 0;

	for (uint32_t i = 0; i < distribution->zones_count; i++) {
		uint64_t from = spread->blocks * share / 100, to;

		share += distribution->share[i];
		to = spread->blocks * share / 100;
		spread->zone_from[i] = from < spread->blocks ? from : spread->blocks - 1;
		spread->zone_blocks[i] = to > from ? to - from : 1;
		for (uint32_t j = 0; j < distribution->access[i] && access < 100; j++)
			spread->zone_of[access++] = (uint8_t)i;
	}
}

static uint64_t common_divisor(uint64_t a, uint64_t b)
{
	while (b) {
		uint64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

void calyx_spread_init(struct calyx_spread *spread, const struct calyx_distribution *distribution, uint64_t blocks,
		       uint64_t seed)
{
	uint64_t state = seed;

	*spread = (struct calyx_spread){.kind = distribution->kind, .blocks = blocks};
	spread->shift = calyx_random_below(&state, blocks);
	spread->multiplier = (uint64_t)((double)blocks * GOLDEN) | 1;
	while (common_divisor(spread->multiplier, blocks) != 1)
		spread->multiplier += 2;
	if (distribution->kind == CALYX_RANDOM_ZIPF)
		init_zipf(spread, distribution->parameter);
	if (distribution->kind == CALYX_RANDOM_PARETO)
		spread->power = calyx_log(distribution->parameter) / calyx_log(1 - distribution->parameter);
	if (distribution->kind == CALYX_RANDOM_NORMAL) {
		spread->deviation = (uint64_t)ceil((double)blocks * distribution->parameter / 100);
		if (spread->deviation > blocks / 2)
			spread->deviation = blocks / 2;
	}
	if (distribution->kind == CALYX_RANDOM_ZONED)
		init_zones(spread, distribution);
}

static uint64_t zipf_rank(const struct calyx_spread *spread, double u)
{
	double z = u * spread->zeta;

	if (z < 1 || spread->blocks == 1)
		return 0;
	if (z < spread->second || spread->blocks == 2)
		return 1;
	return (uint64_t)((double)spread->blocks * calyx_power(spread->eta * u - spread->eta + 1, spread->alpha));
}

static uint64_t normal_rank(const struct calyx_spread *spread, uint64_t *state)
{
	uint64_t sum = 0;

	for (int i = 0; i < NORMAL_DRAWS; i++)
		sum += calyx_random_below(state, spread->blocks + 1);
	sum = (sum + NORMAL_DRAWS - 1) / NORMAL_DRAWS;
	if (spread->deviation)
		sum += spread->blocks + calyx_random_below(state, spread->deviation) - spread->deviation / 2;
	return sum % spread->blocks;
}

uint64_t calyx_spread_rank(const struct calyx_spread *spread, uint64_t *state)
{
	uint64_t rank;

	switch (spread->kind) {
	case CALYX_RANDOM_ZIPF:
		rank = zipf_rank(spread, uniform(state));
		break;
	case CALYX_RANDOM_PARETO:
		rank = (uint64_t)((double)(spread->blocks - 1) * calyx_power(uniform(state), spread->power));
		break;
	case CALYX_RANDOM_NORMAL:
		rank = normal_rank(spread, state);
		break;
	default:
		return calyx_random_below(state, spread->blocks);
	}
	return rank < spread->blocks ? rank : spread->blocks - 1;
}

uint64_t calyx_spread_next(const struct calyx_spread *spread, uint64_t *state)
{
	uint64_t rank;
	uint32_t zone;

	if (spread->kind == CALYX_RANDOM_UNIFORM)
		return calyx_random_below(state, spread->blocks);
	if (spread->kind == CALYX_RANDOM_ZONED) {
		zone = spread->zone_of[calyx_random_below(state, 100)];
		return spread->zone_from[zone] + calyx_random_below(state, spread->zone_blocks[zone]);
	}
	rank = calyx_spread_rank(spread, state);
	if (spread->blocks <= UINT32_MAX)
		return (rank * spread->multiplier + spread->shift) % spread->blocks;
	return (uint64_t)(((unsigned __int128)rank * spread->multiplier + spread->shift) % spread->blocks);
}
