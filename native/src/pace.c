// SPDX-License-Identifier: Apache-2.0
// Pacing as fio's rate_iops does it (pace.h).
#include "pace.h"

#define SECOND_NS 1000000000ull

void calyx_pace_init(struct calyx_pace *pace, uint64_t rate_iops, uint64_t start_ns)
{
	*pace = (struct calyx_pace){.rate_iops = rate_iops, .start_ns = start_ns};
}

uint64_t calyx_pace_due_ns(const struct calyx_pace *pace)
{
	if (!pace->rate_iops)
		return pace->start_ns;
	/* Whole seconds apart, so that issued * 10^9 cannot overflow and no rounding adds up. */
	return pace->start_ns + pace->issued / pace->rate_iops * SECOND_NS +
	       pace->issued % pace->rate_iops * SECOND_NS / pace->rate_iops;
}

bool calyx_pace_is_due(const struct calyx_pace *pace, uint64_t now_ns)
{
	return !pace->rate_iops || calyx_pace_due_ns(pace) <= now_ns;
}
