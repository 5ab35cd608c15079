// Is the noise floor the engine's loop without any I/O: counted, far below a disk, in every set-up, and refused in
// words?
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "check.h"
#include "ring.h"

#define IOS_LEAST 100
#define ENOUGH_NS 1000000u /* a NOP takes under a microsecond; a machine that others keep busy some more */

/* Where others keep the CPUs busy a poller and the thread it works for may hardly run at once: then the same is asked
 * over a longer time. */
static void measure(enum calyx_setup setup, uint32_t iodepth)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_floor floor = {0};
	uint64_t runtime_ns = 0;

	for (int attempt = 0; attempt < ATTEMPTS && floor.ios <= IOS_LEAST; attempt++) {
		int error;

		runtime_ns = RUNTIME_NS(attempt) / 4;
		error = calyx_floor_measure(setup, CALYX_REFILL_EACH, iodepth, runtime_ns, &floor, reason);
		CHECK(error == 0 || attempt + 1 < ATTEMPTS, "setup %d: %s", (int)setup, reason);
	}
	CHECK(floor.ios > IOS_LEAST, "setup %d: %" PRIu64 " NOPs", (int)setup, floor.ios);
	/* At most wall time by NOP, and what it ran of that. */
	CHECK(floor.ns_per_io > 0 && floor.ns_per_io <= runtime_ns / floor.ios, "%" PRIu64 " ns each", floor.ns_per_io);
	CHECK(floor.p50_ns > 0 && floor.p50_ns <= floor.p99_ns, "p50 %" PRIu64 " p99 %" PRIu64, floor.p50_ns,
	      floor.p99_ns);
	CHECK(floor.p50_ns < ENOUGH_NS * iodepth, "p50 %" PRIu64 " ns", floor.p50_ns);
	CHECK(floor.setup.took == setup && floor.clock.cost_ns > 0, "set-up and clock are told");
}

/* Another process has the same CPU half of the time: that half is no share of the tool's. */
static void check_shared_cpu(void)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_floor floor;
	uint64_t runtime_ns = 500 * MS;
	cpu_set_t before, one;
	pid_t other;

	CHECK(!sched_getaffinity(0, sizeof(before), &before), "%s", strerror(errno));
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
		if (CPU_ISSET(cpu, &before))
			CPU_SET(cpu, &one);
	CHECK(!sched_setaffinity(0, sizeof(one), &one), "%s", strerror(errno));
	other = fork();
	if (!other)
		for (;;)
			;
	CHECK(other > 0, "%s", strerror(errno));
	CHECK(calyx_floor_measure(CALYX_SETUP_AUTO, CALYX_REFILL_EACH, 1, runtime_ns, &floor, reason) == 0, "%s",
	      reason);
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	sched_setaffinity(0, sizeof(before), &before);
	CHECK(floor.ns_per_io * floor.ios < runtime_ns / 4 * 3, "%" PRIu64 " of %" PRIu64 " ms were the tool's",
	      floor.ns_per_io * floor.ios / MS, runtime_ns / MS);
}

int main(void)
{
	char reason[CALYX_REASON_MAX] = "";
	uint32_t setups, features;
	struct calyx_floor floor;

	if (calyx_ring_probe(&setups, &features) < 0)
		SKIP("no io_uring here");
	for (enum calyx_setup setup = CALYX_SETUP_SQPOLL; setup <= CALYX_SETUP_PLAIN; setup++) {
		if (!(setups & 1u << setup) || (setup == CALYX_SETUP_SQPOLL && sysconf(_SC_NPROCESSORS_ONLN) < 2))
			continue;
		measure(setup, 1);
		measure(setup, 32);
	}
	check_shared_cpu();
	CHECK(calyx_floor_measure(CALYX_SETUP_PSYNC, CALYX_REFILL_EACH, 2, 50 * MS, &floor, reason) == -EINVAL, "'%s'",
	      reason);
	CHECK(reason[0] != 0, "in words");
	return 0;
}
