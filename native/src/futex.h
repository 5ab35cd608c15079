/* SPDX-License-Identifier: Apache-2.0
 *
 * Waiting for a word to change, until an instant of CLOCK_MONOTONIC. A plain futex, because waking must be allowed in a
 * signal handler and the wait must follow the monotonic clock, which no portable primitive of both libcs offers.
 */
#ifndef CALYX_FUTEX_H
#define CALYX_FUTEX_H

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#if !defined(SYS_futex) && defined(SYS_futex_time64)
#define SYS_futex SYS_futex_time64
#endif

#define CALYX_FOREVER_NS UINT64_MAX

/* Returns when the word is no longer `from`, at until_ns, or for no reason at all. */
static inline void calyx_futex_wait(_Atomic uint32_t *word, uint32_t from, uint64_t until_ns)
{
	struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000), .tv_nsec = (long)(until_ns % 1000000000)};

	/* The bitset form takes an absolute time of CLOCK_MONOTONIC. */
	syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG, from,
		until_ns == CALYX_FOREVER_NS ? NULL : &until, NULL, FUTEX_BITSET_MATCH_ANY);
}

/* Safe in a signal handler: errno is kept. */
static inline void calyx_futex_wake_all(_Atomic uint32_t *word)
{
	int saved = errno;

	syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX, NULL, NULL, 0);
	errno = saved;
}

#endif
