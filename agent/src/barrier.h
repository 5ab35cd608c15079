/* SPDX-License-Identifier: Apache-2.0
 *
 * The gate at which another program is held until the start line: a small file that the agent and the waiters share.
 *
 *   agent                                   calyx-agent wait gate=FILE (one per fio job, as its exec_prerun)
 *   gate_create(N)                          maps FILE, arrived += 1, sleeps until opened or aborted
 *   gate_arrived() == N  -> ready           ...
 *   gate_open(start_ns)  -> armed           sleeps until shortly before start_ns, spins the rest, exits 0
 *   gate_abort()                            exits 1
 */
#ifndef CALYX_AGENT_BARRIER_H
#define CALYX_AGENT_BARRIER_H

#include <limits.h>
#include <stdint.h>

struct gate_page;

struct gate {
	struct gate_page *page;
	char path[PATH_MAX];
};

int gate_create(struct gate *gate, const char *path);
uint32_t gate_arrived(const struct gate *gate);
/* Returns when the count of arrived waiters changed from `seen`, or after timeout_ns. */
void gate_wait_arrival(const struct gate *gate, uint32_t seen, uint64_t timeout_ns);
void gate_open(struct gate *gate, uint64_t start_ns);
void gate_abort(struct gate *gate);
/* When the last waiter left for its program; 0 when none did. */
uint64_t gate_released_ns(const struct gate *gate);
void gate_close(struct gate *gate);

/* The `wait` door: the exit status. */
int gate_wait_main(int argc, char **argv);

#endif
