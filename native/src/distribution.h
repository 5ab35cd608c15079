/* SPDX-License-Identifier: Apache-2.0
 *
 * Which block a random I/O goes to, other than uniformly: pure, the same for the same seed, and as fio 3.33 draws it,
 * so that both engines have the same hot blocks:
 *
 *   zipf:THETA   rank k is drawn in proportion to 1/k^THETA: Gray, Sundaresan, Englert, Baclawski, Weinberger, "Quickly
 *                generating billion-record synthetic databases", SIGMOD 1994, section 3.2 (ranks 1 and 2 exact, the
 *                others by the inverse of the integral)
 *   pareto:H     rank (n-1) * u^(log H / log(1-H)): the share 1-H of the accesses goes to the share H of the blocks
 *                (fio's lib/zipf.c; H = 0.2 is the rule of 80 and 20)
 *   normal:DEV   the mean of 12 uniform draws (Irwin-Hall, close to normal) with a uniform part as wide as DEV percent
 *                of the blocks on top (fio's lib/gauss.c)
 *   zoned:A/S... A percent of the accesses go evenly to the next S percent of the blocks
 *
 * Ranks of the first three are spread over the file by a multiplier without a common divisor with n, so that each rank
 * keeps a block of its own (fio hashes, where ranks may share one). Zones stay where they are.
 */
#ifndef CALYX_DISTRIBUTION_H
#define CALYX_DISTRIBUTION_H

#include <stdint.h>

#include "calyx/engine.h"

struct calyx_spread {
	enum calyx_random kind;
	uint64_t blocks;
	uint64_t multiplier, shift;	 /* rank -> block */
	double zeta, second, alpha, eta; /* zipf: sum of 1/k^theta; 1 + 1/2^theta; 1/(1-theta); Gray's eta */
	double power;			 /* pareto */
	uint64_t deviation;		 /* normal, in blocks */
	uint64_t zone_from[CALYX_ZONES_MAX], zone_blocks[CALYX_ZONES_MAX];
	uint8_t zone_of[100]; /* by percent of the accesses */
};

/* Works for up to a fraction of a second (zipf's sum); seed chooses where the hot blocks lie. */
void calyx_spread_init(struct calyx_spread *spread, const struct calyx_distribution *distribution, uint64_t blocks,
		       uint64_t seed);
/* The rank: 0 is drawn most often (zipf, pareto). */
uint64_t calyx_spread_rank(const struct calyx_spread *spread, uint64_t *state);
/* The block, in [0, blocks). */
uint64_t calyx_spread_next(const struct calyx_spread *spread, uint64_t *state);

#endif
