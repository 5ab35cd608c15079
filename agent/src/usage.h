/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU over the measured window: a thread samples the counters at the window's start and at its end, and the difference
 * is told.
 */
#ifndef CALYX_AGENT_USAGE_H
#define CALYX_AGENT_USAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "json.h"

struct usage;

/* Whose CPU the engine's is: the agent itself, or all its descendants. */
enum usage_of { USAGE_SELF, USAGE_DESCENDANTS };

/* NULL when memory or a thread cannot be had. */
struct usage *usage_begin(enum usage_of of, uint64_t window_start_ns, uint64_t window_end_ns);
/* Takes the closing sample now when the window's end has not come. False when the window had not begun: nothing to
 * tell. */
bool usage_end(struct usage *usage);
/* Writes the `usage` message; after usage_end returned true. */
void usage_write(const struct usage *usage, struct buffer *out);
void usage_free(struct usage *usage);

#endif
