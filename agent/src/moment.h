/* SPDX-License-Identifier: Apache-2.0
 *
 * Instants of CLOCK_MONOTONIC in nanoseconds, and sleeping until one.
 */
#ifndef CALYX_AGENT_MOMENT_H
#define CALYX_AGENT_MOMENT_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <time.h>

#define MS_NS 1000000ull
#define SECOND_NS 1000000000ull

static inline struct timespec moment_timespec(uint64_t ns)
{
	return (struct timespec){.tv_sec = (time_t)(ns / SECOND_NS), .tv_nsec = (long)(ns % SECOND_NS)};
}

static inline uint64_t moment_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * SECOND_NS + (uint64_t)now.tv_nsec;
}

static inline void moment_sleep_until(uint64_t ns)
{
	struct timespec until = moment_timespec(ns);

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
		;
}

/* The calling thread's timers are not rounded by the default slack of 50 us. */
static inline void moment_fine_timers(void)
{
	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
}

#endif
