/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel says about processes under /proc.
 */
#ifndef CALYX_AGENT_PROC_H
#define CALYX_AGENT_PROC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "calyx/text.h"

struct proc_stat {
	pid_t ppid;
	char state;
	/* The process with all its threads, and its children that ended and were waited for. */
	uint64_t user_ns, system_ns, children_user_ns, children_system_ns;
};

/* Reads `count` decimal numbers parted by blanks, without their signs; false when there are fewer. */
bool proc_numbers(const char *text, uint64_t *numbers, size_t count);
int proc_stat(pid_t pid, struct proc_stat *stat);
/* Descendants of root, without root, and without zombies when `living`; how many there are in pids. */
size_t proc_descendants(pid_t root, bool living, pid_t *pids, size_t max);
/* Bytes that a process moved from and to block devices. False when the kernel does not say. */
bool proc_io_bytes(pid_t pid, uint64_t *bytes);
/* CPU time of a process with all its threads, also ended ones, from the scheduler. False when it is gone. */
bool proc_cpu_ns(pid_t pid, uint64_t *ns);
/* How long tasks have run on all CPUs and how long they waited for one, from a file like /proc/schedstat. A task counts
 * up to when it last left its CPU; interrupts of an idle CPU do not. False without such a file. */
bool proc_schedstat(const char *path, uint64_t *ran_ns, uint64_t *waited_ns);
uint64_t proc_tick_ns(void);
/* What the CPUs of the guest have done since it booted, summed over all of them and sampled at ticks: the columns of
 * /proc/stat. Returns how many CPUs there are. */
enum { PROC_STEAL = 7, PROC_TIMES };
uint32_t proc_times(uint64_t times_ns[PROC_TIMES]);
/* How many CPUs the caller may run on; 0 when the kernel does not say. */
uint32_t proc_cpus(void);

#endif
