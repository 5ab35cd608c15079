// SPDX-License-Identifier: Apache-2.0
// The clock, and what a read of it costs. All times are CLOCK_MONOTONIC, so that instants of several guests, of fio and
// of the agent can be compared. Where the kernel trusts the TSC (clocksource tsc, or the page that Hyper-V shares) its
// vDSO reads that without a system call; where it does not, neither do we, and the cost says so. Reading the TSC
// directly would save 5 ns of 23 a read (docs/decisions/0006) and would need NTP's steering of the clock done over
// again.
#include <string.h>
#include <time.h>

#include "calyx/engine.h"
#include "calyx/text.h"

#define ROUNDS 16
#define READS_A_ROUND 64
#define SLOW_ENOUGH_NS 2000000ull /* a slow clock is known well before all rounds are over */

uint64_t calyx_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static bool reads_tsc(void)
{
	char name[32] = "";

	calyx_read_text("/sys/devices/system/clocksource/clocksource0/current_clocksource", name, sizeof(name));
	return strncmp(name, "tsc", 3) == 0 || strncmp(name, "hyperv_clocksource_tsc_page", 27) == 0;
}

void calyx_clock_measure(struct calyx_clock *clock)
{
	struct calyx_clock found = {.tsc = reads_tsc(), .cost_ns = UINT64_MAX, .resolution_ns = UINT64_MAX};
	uint64_t began_ns = calyx_now_ns(), from_ns, last_ns, now_ns;

	for (int round = 0; round < ROUNDS; round++) {
		from_ns = last_ns = calyx_now_ns();
		for (int i = 0; i < READS_A_ROUND; i++) {
			now_ns = calyx_now_ns();
			if (now_ns > last_ns && now_ns - last_ns < found.resolution_ns)
				found.resolution_ns = now_ns - last_ns;
			last_ns = now_ns;
		}
		/* The quickest round: in the others something came between. */
		if ((last_ns - from_ns) / READS_A_ROUND < found.cost_ns)
			found.cost_ns = (last_ns - from_ns) / READS_A_ROUND;
		if (last_ns - began_ns > SLOW_ENOUGH_NS && found.resolution_ns != UINT64_MAX)
			break;
	}
	if (found.resolution_ns == UINT64_MAX)
		found.resolution_ns = 0; /* it did not move at all */
	*clock = found;
}
