/* SPDX-License-Identifier: Apache-2.0
 *
 * Pacing as fio's rate_iops does it: the n-th I/O is due n/rate after the start. It is a closed loop: an I/O also needs
 * a free place in the queue, and one that comes late is caught up with. Pure: the clock is an argument.
 */
#ifndef CALYX_PACE_H
#define CALYX_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct calyx_pace {
	uint64_t rate_iops; /* 0: no pacing, everything is due at once */
	uint64_t start_ns, issued;
};

void calyx_pace_init(struct calyx_pace *pace, uint64_t rate_iops, uint64_t start_ns);
uint64_t calyx_pace_due_ns(const struct calyx_pace *pace);
bool calyx_pace_is_due(const struct calyx_pace *pace, uint64_t now_ns);

#endif
