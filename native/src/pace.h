/* SPDX-License-Identifier: Apache-2.0
 *
 * Pacing as fio's rate_iops does it: the n-th I/O is due n/rate after the start. It is a closed loop: an I/O also needs
 * a free place in the queue, and one that comes late is caught up with. An open loop is paced the same way, and its
 * latency counts from when the I/O was due (wrk2: what waits behind a slow I/O has waited, too). Poisson arrivals lie
 * an exponentially distributed time apart, -ln(1-u)/rate (Knuth, volume 2, 3.4.1 D). Pure: the clock is an argument.
 */
#ifndef CALYX_PACE_H
#define CALYX_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct calyx_pace {
	uint64_t rate; /* I/Os or bytes per second; 0: no pacing, everything is due at once */
	uint64_t start_ns, issued;
	/* Poisson arrivals: */
	bool poisson;
	uint64_t state, next_ns;
	double fraction_ns;
};

void calyx_pace_init(struct calyx_pace *pace, uint64_t rate, uint64_t start_ns);
/* Arrivals are a Poisson process of this rate; the first one is at the start. */
void calyx_pace_make_poisson(struct calyx_pace *pace, uint64_t seed);
/* One I/O was issued: it counts as `amount` (1, or its bytes). */
void calyx_pace_advance(struct calyx_pace *pace, uint64_t amount);
uint64_t calyx_pace_due_ns(const struct calyx_pace *pace);
bool calyx_pace_is_due(const struct calyx_pace *pace, uint64_t now_ns);

#endif
