// SPDX-License-Identifier: Apache-2.0
// Pacing as fio's rate_iops does it (pace.h).
#include "pace.h"

#include <math.h>

#include "cold.h"
#include "offsets.h"
#include "power.h"

#define SECOND_NS 1000000000ull

CALYX_COLD void calyx_pace_init(struct calyx_pace *pace, uint64_t rate, uint64_t start_ns)
{
	*pace = (struct calyx_pace){.rate = rate, .start_ns = start_ns};
}

CALYX_COLD void calyx_pace_make_poisson(struct calyx_pace *pace, uint64_t seed)
{
	pace->poisson = true;
	pace->state = seed;
	pace->next_ns = pace->start_ns;
}

void calyx_pace_advance(struct calyx_pace *pace, uint64_t amount)
{
	double u, gap_ns;

	pace->issued += amount;
	if (!pace->poisson)
		return;
	u = (double)(calyx_random_next(&pace->state) >> 11) * 0x1p-53;
	gap_ns = -calyx_log(1 - u) / (double)pace->rate * 1e9 + pace->fraction_ns;
	pace->next_ns += (uint64_t)gap_ns;
	pace->fraction_ns = gap_ns - floor(gap_ns);
}

uint64_t calyx_pace_due_ns(const struct calyx_pace *pace)
{
	if (!pace->rate)
		return pace->start_ns;
	if (pace->poisson)
		return pace->next_ns;
	/* Whole seconds apart, so that issued * 10^9 cannot overflow and no rounding adds up. */
	return pace->start_ns + pace->issued / pace->rate * SECOND_NS +
	       pace->issued % pace->rate * SECOND_NS / pace->rate;
}

bool calyx_pace_is_due(const struct calyx_pace *pace, uint64_t now_ns)
{
	return !pace->rate || calyx_pace_due_ns(pace) <= now_ns;
}
