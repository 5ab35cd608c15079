// Does each set-up, refill policy and kind of registration run, and does the result say what took effect?
#include "check.h"
#include "ring.h"

#define SIZE (4ull << 20)

static void check_flags(const struct calyx_setup_taken *took, enum calyx_setup setup)
{
	CHECK(took->requested == setup && took->took == setup, "requested %d, took %d", took->requested, took->took);
	CHECK(took->sqpoll == (setup == CALYX_SETUP_SQPOLL), "sqpoll");
	CHECK(took->defer_taskrun == (setup == CALYX_SETUP_DEFER), "defer");
	CHECK(took->coop_taskrun == (setup == CALYX_SETUP_COOP), "coop");
	CHECK(setup != CALYX_SETUP_DEFER || took->single_issuer, "defer implies a single issuer");
	CHECK(took->why[0] == 0, "%s", took->why);
	CHECK(took->sq_entries >= 8 && took->cq_entries >= took->sq_entries, "entries");
}

/* Did the run read and write? */
static bool run_once(enum calyx_setup setup, enum calyx_refill refill, enum calyx_buffers buffers, bool fixed_files,
		     uint64_t runtime_ns)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_crew *crew;
	bool did;

	job.rw = CALYX_RANDRW;
	job.paths_count = 2;
	job.setup = setup;
	job.refill = refill;
	job.buffers = buffers;
	job.fixed_files = fixed_files;
	job.runtime_ns = runtime_ns;
	crew = open_crew(&job);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0, "%s", result->failure);
	check_flags(&result->setup, setup);
	CHECK(memcmp(&result->setup, calyx_crew_setup(crew), sizeof(result->setup)) == 0, "known before the start");
	CHECK(result->setup.refill == refill && result->setup.direct, "refill, direct");
	CHECK(result->setup.fixed_buffers == (buffers == CALYX_BUFFERS_REGISTERED), "buffers");
	CHECK(result->setup.fixed_files == fixed_files, "files");
	CHECK(result->setup.buffer_bytes >= 2 * 8 * 4096, "%" PRIu64 " bytes of buffers", result->setup.buffer_bytes);
	CHECK(result->unfinished == 0 && result->errors_count == 0, "unfinished or failed I/O");
	did = result->directions[CALYX_DIR_READ].ios > 0 && result->directions[CALYX_DIR_WRITE].ios > 0;
	calyx_crew_close(crew);
	return did;
}

static void run_one(enum calyx_setup setup, enum calyx_refill refill, enum calyx_buffers buffers, bool fixed_files)
{
	for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
		if (run_once(setup, refill, buffers, fixed_files, RUNTIME_NS(attempt) / 4))
			return;
	}
	CHECK(false, "setup %d refill %d: no I/O", (int)setup, (int)refill);
}

int main(void)
{
	uint32_t setups, features;
	int error = calyx_ring_probe(&setups, &features), ran = 0;

	if (error)
		SKIP("no io_uring here: %s", strerror(-error));
	CHECK(setups & 1u << CALYX_SETUP_PLAIN, "plain is always there");
	CHECK(features & IORING_FEAT_SINGLE_MMAP, "features");
	scratch_make();
	lay_out(2, SIZE);
	for (enum calyx_setup setup = CALYX_SETUP_SQPOLL; setup <= CALYX_SETUP_PLAIN; setup++) {
		if (!(setups & 1u << setup) || (setup == CALYX_SETUP_SQPOLL && sysconf(_SC_NPROCESSORS_ONLN) < 2))
			continue;
		run_one(setup, CALYX_REFILL_EACH, CALYX_BUFFERS_REGISTERED, true);
		run_one(setup, CALYX_REFILL_BATCH, CALYX_BUFFERS_REGISTERED, true);
		run_one(setup, CALYX_REFILL_EACH, CALYX_BUFFERS_PLAIN, false);
		ran++;
	}
	CHECK(ran > 0, "no set-up ran");
	return 0;
}
