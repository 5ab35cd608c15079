// SPDX-License-Identifier: Apache-2.0
// The start line: sleep to shortly before it, then spin on the clock. On a busy guest a thread that wakes may wait for
// a whole time slice (3 ms and more), so until its first I/O is submitted it asks for precedence.
#include "crew.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define SPIN_BEFORE_START_NS 150000ull /* a sleep may end this late */
#define SHORT_SLICE_NS 100000u
#define POLICY_OTHER 0u
#define POLICY_FIFO 1u
#define FLAG_RESET_ON_FORK 1u

/* struct sched_attr of linux/sched/types.h, which cannot be included beside sched.h everywhere. */
struct precedence {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};
_Static_assert(sizeof(struct precedence) == 48, "SCHED_ATTR_SIZE_VER0");

/* Real time where that is allowed, else a short slice, which wakes sooner (6.12). Kernel threads that are made
 * meanwhile do not inherit it. What is refused is simply not had: it shows in the measured skew. */
static void ask_for_precedence(void)
{
	struct precedence real_time = {
		.size = sizeof(real_time), .policy = POLICY_FIFO, .flags = FLAG_RESET_ON_FORK, .priority = 1};
	struct precedence short_slice = {
		.size = sizeof(short_slice), .policy = POLICY_OTHER, .runtime = SHORT_SLICE_NS};

	if (syscall(SYS_sched_setattr, 0, &real_time, 0) < 0)
		syscall(SYS_sched_setattr, 0, &short_slice, 0);
}

void calyx_startline_leave(void)
{
	struct precedence none = {.size = sizeof(none), .policy = POLICY_OTHER, .nice = getpriority(PRIO_PROCESS, 0)};

	if (syscall(SYS_sched_setattr, 0, &none, 0) == 0)
		return;
	/* Whoever may take precedence by a limit alone (RLIMIT_RTPRIO) may give it up, but not this flag. */
	none.flags = FLAG_RESET_ON_FORK;
	syscall(SYS_sched_setattr, 0, &none, 0);
}

bool calyx_startline_wait(struct calyx_crew *crew, uint64_t start_ns)
{
	uint64_t spin_from_ns = start_ns - SPIN_BEFORE_START_NS;

	ask_for_precedence();
	while (calyx_now_ns() < spin_from_ns) {
		if (calyx_crew_await(crew, CALYX_START, spin_from_ns) != CALYX_START)
			return false;
	}
	while (calyx_now_ns() < start_ns)
		calyx_relax();
	return atomic_load(&crew->stop) == CALYX_STOP_NONE;
}
