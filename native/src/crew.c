// SPDX-License-Identifier: Apache-2.0
// A crew's life after opening (opening.c): start, watch, stop, wait, close; and what its threads do in turn.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "crew.h"

#include <errno.h>
#include <stdlib.h>

#include "futex.h"

#define SECOND_NS 1000000000ull
#define DEADLINE_GRACE_NS (2 * SECOND_NS) /* cancelling, and closing the ring */
#define CLOSE_TIMEOUT_NS (7 * SECOND_NS)
#define PARKED_NS (3600 * SECOND_NS)

uint32_t calyx_crew_await(struct calyx_crew *crew, uint32_t from, uint64_t until_ns)
{
	uint32_t command;

	while ((command = atomic_load(&crew->command)) == from && calyx_now_ns() < until_ns)
		calyx_futex_wait(&crew->command, from, until_ns);
	return command;
}

void calyx_crew_command(struct calyx_crew *crew, uint32_t command)
{
	atomic_store(&crew->command, command);
	calyx_futex_wake_all(&crew->command);
}

/* ---- the threads' side ---- */

static void report(struct calyx_crew *crew)
{
	atomic_fetch_add(&crew->reports, 1);
	calyx_futex_wake_all(&crew->reports);
}

/* The kernel would hold this thread on its way out until its I/O ends; and musl lets no other thread begin or end while
 * one is on its way out. So it never goes. */
static void park(void)
{
	_Atomic uint32_t never = 0;

	for (;;)
		calyx_futex_wait(&never, 0, calyx_now_ns() + PARKED_NS);
}

void *calyx_crew_thread(void *argument)
{
	struct calyx_worker *w = argument;
	struct calyx_crew *crew = w->crew;
	uint32_t command;

	calyx_worker_open(w);
	report(crew);
	command = calyx_crew_await(crew, CALYX_OPENING, CALYX_FOREVER_NS);
	if (command == CALYX_DROP_BUFFERS) {
		calyx_worker_drop_buffers(w);
		report(crew);
		command = calyx_crew_await(crew, CALYX_DROP_BUFFERS, CALYX_FOREVER_NS);
	}
	if (command == CALYX_READY)
		command = calyx_crew_await(crew, CALYX_READY, CALYX_FOREVER_NS);
	if (command == CALYX_START)
		calyx_worker_run(w);
	else
		w->stopped = true;
	calyx_worker_close(w);
	atomic_store(&w->finished, true);
	atomic_fetch_add(&crew->finished, 1);
	calyx_futex_wake_all(&crew->finished);
	if (w->in_flight > 0)
		park();
	return NULL;
}

/* ---- running ---- */

int calyx_crew_start(struct calyx_crew *crew, uint64_t start_ns)
{
	uint32_t ready = CALYX_READY;

	if (start_ns <= calyx_now_ns())
		return -ETIME;
	if (atomic_load(&crew->start_ns))
		return -EALREADY;
	atomic_store(&crew->start_ns, start_ns);
	/* A stop that came first stands. */
	atomic_compare_exchange_strong(&crew->command, &ready, CALYX_START);
	calyx_futex_wake_all(&crew->command);
	return 0;
}

/* Has the deadline passed, with all that a thread may still do after it? Then what has not ended hangs in the kernel.
 */
static bool is_overdue(const struct calyx_crew *crew, uint64_t now_ns)
{
	uint64_t start_ns = atomic_load(&crew->start_ns);

	return start_ns && now_ns > start_ns + crew->job.deadline_ns + DEADLINE_GRACE_NS;
}

/* Puts one I/O among the oldest that are named, oldest first. */
static void note_hung(struct calyx_progress *progress, const struct calyx_hung *hung)
{
	uint32_t at = progress->hung_count < CALYX_HUNG_MAX ? progress->hung_count : CALYX_HUNG_MAX;

	progress->hung_count++;
	while (at > 0 && progress->hung[at - 1].age_ns < hung->age_ns) {
		if (at < CALYX_HUNG_MAX)
			progress->hung[at] = progress->hung[at - 1];
		at--;
	}
	if (at < CALYX_HUNG_MAX)
		progress->hung[at] = *hung;
}

/* Another thread's slot is read without a lock: the publication of a hanging I/O is long past, so what it is stands
 * still, and if it ended in between, the second look at its time tells. Checked by that, not by the memory model. */
__attribute__((no_sanitize("thread"))) static void find_hung(const struct calyx_crew *crew, uint64_t now_ns,
							     struct calyx_progress *progress)
{
	for (uint32_t i = 0; i < crew->spawned; i++) {
		for (uint32_t j = 0; j < crew->job.iodepth; j++) {
			const struct calyx_slot *slot = &crew->workers[i].slots[j];
			uint64_t published_ns = atomic_load_explicit(&slot->published_ns, memory_order_acquire);
			struct calyx_hung hung = {.offset = slot->offset, .direction = slot->direction, .job = i};

			atomic_thread_fence(memory_order_acquire);
			if (!published_ns || published_ns + CALYX_HUNG_NS > now_ns ||
			    atomic_load_explicit(&slot->published_ns, memory_order_relaxed) != published_ns)
				continue;
			hung.age_ns = now_ns - published_ns;
			note_hung(progress, &hung);
		}
	}
}

void calyx_crew_progress(const struct calyx_crew *crew, struct calyx_progress *progress)
{
	uint64_t now_ns = calyx_now_ns(), oldest_ns = now_ns, started_ns;
	struct calyx_progress sum = {0};

	for (uint32_t i = 0; i < crew->spawned; i++) {
		const struct calyx_worker *w = &crew->workers[i];

		sum.ios += atomic_load_explicit(&w->ios, memory_order_relaxed);
		sum.bytes += atomic_load_explicit(&w->bytes, memory_order_relaxed);
		started_ns = atomic_load_explicit(&w->started_ns, memory_order_relaxed);
		if (started_ns && (!sum.started_ns || started_ns < sum.started_ns))
			sum.started_ns = started_ns;
		for (uint32_t j = 0; j < crew->job.iodepth; j++) {
			uint64_t published_ns = atomic_load_explicit(&w->slots[j].published_ns, memory_order_relaxed);

			if (published_ns && published_ns < oldest_ns)
				oldest_ns = published_ns;
		}
	}
	sum.oldest_ns = now_ns - oldest_ns;
	if (sum.oldest_ns > CALYX_HUNG_NS)
		find_hung(crew, now_ns, &sum);
	sum.done = atomic_load(&crew->finished) == crew->spawned || is_overdue(crew, now_ns);
	*progress = sum;
}

void calyx_crew_stop(struct calyx_crew *crew)
{
	uint32_t none = CALYX_STOP_NONE;

	atomic_compare_exchange_strong(&crew->stop, &none, CALYX_STOP_BY_CALLER);
	calyx_crew_command(crew, CALYX_QUIT);
}

int calyx_crew_wait(struct calyx_crew *crew, uint64_t timeout_ns)
{
	uint64_t now_ns = calyx_now_ns(), start_ns, until_ns, overdue_ns;
	uint32_t finished;

	until_ns = timeout_ns > UINT64_MAX - 1 - now_ns ? UINT64_MAX - 1 : now_ns + timeout_ns;
	while ((finished = atomic_load(&crew->finished)) < crew->spawned) {
		now_ns = calyx_now_ns();
		if (is_overdue(crew, now_ns))
			break;
		if (now_ns >= until_ns)
			return -ETIME;
		start_ns = atomic_load(&crew->start_ns);
		overdue_ns = start_ns ? start_ns + crew->job.deadline_ns + DEADLINE_GRACE_NS + 1 : until_ns;
		/* At most a second at a time: a start may set a deadline while this waits. */
		overdue_ns = overdue_ns < now_ns + SECOND_NS ? overdue_ns : now_ns + SECOND_NS;
		calyx_futex_wait(&crew->finished, finished, until_ns < overdue_ns ? until_ns : overdue_ns);
	}
	calyx_crew_merge(crew);
	return 0;
}

static void free_crew(struct calyx_crew *crew)
{
	for (uint32_t i = 0; crew->workers && i < crew->job.paths_count; i++) {
		free(crew->workers[i].slots);
		free(crew->workers[i].free_slots);
		free(crew->workers[i].resume_slots);
		free(crew->workers[i].directions);
		free(crew->workers[i].shapes);
		free(crew->workers[i].intended);
		calyx_verify_free(&crew->workers[i].verify);
		free(crew->workers[i].intervals);
	}
	for (uint32_t i = 0; crew->paths && i < crew->job.paths_count; i++)
		free(crew->paths[i]);
	free(crew->paths);
	free(crew->workers);
	free(crew->intervals);
	free(crew->intended);
	free(crew);
}

void calyx_crew_close(struct calyx_crew *crew)
{
	uint64_t until_ns = calyx_now_ns() + CLOSE_TIMEOUT_NS;
	bool parked = false;
	uint32_t finished;

	if (!crew)
		return;
	calyx_crew_stop(crew);
	while ((finished = atomic_load(&crew->finished)) < crew->spawned) {
		/* A thread that hangs in the kernel still uses all of this: it is left behind with it. */
		if (crew->abandoned || calyx_now_ns() >= until_ns)
			return;
		calyx_futex_wait(&crew->finished, finished, until_ns);
	}
	for (uint32_t i = 0; i < crew->spawned; i++) {
		if (crew->workers[i].in_flight > 0) {
			pthread_detach(crew->workers[i].thread);
			parked = true;
		} else {
			pthread_join(crew->workers[i].thread, NULL);
		}
	}
	if (!parked) /* else what it still uses is left with it */
		free_crew(crew);
}
