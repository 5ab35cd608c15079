/* SPDX-License-Identifier: Apache-2.0
 *
 * The guard: a small parent process of the agent that does the agent's last duties when the agent was killed.
 */
#ifndef CALYX_AGENT_GUARD_H
#define CALYX_AGENT_GUARD_H

#include "files.h"

/* Forks; runs `serve` in the child and watches it from the parent. The exit status of both. */
int guard_watch(struct record *record, int (*serve)(struct record *record));

#endif
