// When the submission queue is full, does the thread never sleep with nothing that could wake it? A poller shows
// completions before it shows that their places are free; and a batch that fills the queue leaves no place for a timer.
#include <pthread.h>

#include "fake_kernel.h"

#define LATE_NS (3 * MS)       /* longer than a thread looks before it sleeps */
#define ASLEEP_NS (2 * SECOND) /* the engine's timer ends each sleep after 0.1 s */

static atomic_bool ended, sleeps_on;

/* ---- the poller, whose places are free late ---- */

static void *poll_late(void *unused)
{
	(void)unused;
	while (!atomic_load(&ended)) {
		if (fake_take()) {
			fake_complete_held();
			usleep(LATE_NS / 1000);
			fake_show_free();
		}
		fake_fire_timers(false);
		usleep(20);
	}
	return NULL;
}

static int sleep_in_vain(int fd, uint32_t to_submit, uint32_t min_complete, uint32_t flags)
{
	uint64_t until_ns = calyx_now_ns() + ASLEEP_NS;

	(void)fd, (void)flags;
	CHECK(to_submit == 0, "the poller submits");
	while (min_complete && !fake_has_completions()) {
		if (calyx_now_ns() > until_ns) {
			atomic_store(&sleeps_on, true);
			return -EINTR;
		}
		usleep(50);
	}
	return 0;
}

/* ---- no poller: everything happens within the call ---- */

static atomic_uint rounds_left;

/* All completions of a round come with the tick; after the last round I/O hangs. */
static int round_in_one(int fd, uint32_t to_submit, uint32_t min_complete, uint32_t flags)
{
	uint64_t until_ns = calyx_now_ns() + ASLEEP_NS;
	uint32_t left = atomic_load(&rounds_left);

	(void)fd, (void)flags;
	to_submit = fake_take();
	fake_show_free();
	if (min_complete && left > 0) {
		fake_complete_held();
		fake_fire_timers(true);
		atomic_store(&rounds_left, left - 1);
	}
	while (min_complete && !fake_has_completions()) {
		if (calyx_now_ns() > until_ns) {
			atomic_store(&sleeps_on, true);
			return (int)to_submit;
		}
		fake_fire_timers(false);
		usleep(50);
	}
	return (int)to_submit;
}

static struct calyx_job nop_job(uint32_t iodepth, enum calyx_setup setup, enum calyx_refill refill)
{
	static const char *const paths[] = {"NOP"};
	struct calyx_job job = short_job(1 << 20);

	job.paths = paths;
	job.nop = true;
	job.iodepth = iodepth;
	job.setup = setup;
	job.refill = refill;
	return job;
}

/* How many I/Os there were in that time. */
static uint64_t run_with_late_poller(uint32_t iodepth, enum calyx_refill refill, uint64_t runtime_ns)
{
	struct calyx_job job = nop_job(iodepth, CALYX_SETUP_SQPOLL, refill);
	const struct calyx_result *result;
	struct calyx_crew *crew;
	pthread_t poller;
	uint64_t ios;

	job.runtime_ns = runtime_ns;
	fake_begin(sleep_in_vain);
	crew = open_crew(&job);
	atomic_store(&ended, false);
	CHECK(pthread_create(&poller, NULL, poll_late, NULL) == 0, "thread");
	result = run_to_end(crew);
	atomic_store(&ended, true);
	pthread_join(poller, NULL);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	CHECK(!atomic_load(&sleeps_on), "asleep for 2 s with nothing in flight");
	ios = result->directions[CALYX_DIR_READ].ios;
	calyx_crew_close(crew);
	return ios;
}

/* A queue each 3 ms where CPUs are free. Where they are not it is tried for longer; a queue each 0.1 s would be the
 * timer's doing. */
static void ask_poller(uint32_t iodepth, enum calyx_refill refill)
{
	uint64_t ios = 0, least = 0;

	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		least = 2 * iodepth * (RUNTIME_NS(attempt) / (100 * MS) + 1);
		ios = run_with_late_poller(iodepth, refill, RUNTIME_NS(attempt));
		if (ios > least)
			return;
	}
	CHECK(false, "depth %u: %" PRIu64 " I/Os, not more than %" PRIu64, iodepth, ios, least);
}

static void ask_batch(uint32_t iodepth)
{
	struct calyx_job job = nop_job(iodepth, CALYX_SETUP_DEFER, CALYX_REFILL_BATCH);
	struct calyx_progress progress = {0};
	struct calyx_crew *crew;

	fake_begin(round_in_one);
	atomic_store(&rounds_left, 5);
	job.runtime_ns = 60 * SECOND;
	crew = open_crew(&job);
	CHECK(calyx_crew_start(crew, calyx_now_ns() + 20 * MS) == 0, "start");
	while (atomic_load(&rounds_left) && !progress.done) {
		usleep(1000);
		calyx_crew_progress(crew, &progress);
	}
	calyx_crew_stop(crew);
	CHECK(calyx_crew_wait(crew, 60 * SECOND) == 0, "it obeys no stop");
	CHECK(!atomic_load(&sleeps_on), "asleep for 2 s with no timer armed");
	CHECK(!progress.done && calyx_crew_result(crew)->stopped, "%s", calyx_crew_result(crew)->failure);
	calyx_crew_close(crew);
}

int main(void)
{
	uint32_t setups, features;

	if (calyx_ring_probe(&setups, &features) < 0)
		SKIP("no io_uring here");
	ask_batch(8);
	ask_batch(16);
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return 0;
	ask_poller(8, CALYX_REFILL_EACH);
	ask_poller(8, CALYX_REFILL_BATCH);
	ask_poller(16, CALYX_REFILL_EACH);
	ask_poller(1, CALYX_REFILL_EACH);
	return 0;
}
