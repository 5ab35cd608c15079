// Under a memory-lock limit, do all threads go on with plain buffers and say so, or is the job refused with the bytes
// it needs?
#include <grp.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "check.h"

#define SIZE (4ull << 20)
#define LIMIT (96u << 10) /* enough for one of three jobs: some threads succeed, and must not keep that */

int main(void)
{
	struct rlimit limit = {LIMIT, LIMIT};
	struct calyx_job job = short_job(SIZE);
	char reason[CALYX_REASON_MAX] = "", bytes[64];
	const struct calyx_result *result;
	struct calyx_crew *crew;

	scratch_make();
	lay_out(3, SIZE);
	if (geteuid() == 0) {
		/* Root has CAP_IPC_LOCK and knows no limit. */
		for (int i = 0; i < 3; i++)
			CHECK(chown(scratch_files[i], 64000, 64000) == 0, "chown");
		CHECK(chown(scratch_directory, 64000, 64000) == 0, "chown");
		CHECK(setgroups(0, NULL) == 0 && setgid(64000) == 0 && setuid(64000) == 0, "drop root");
	}
	CHECK(setrlimit(RLIMIT_MEMLOCK, &limit) == 0, "setrlimit");

	job.paths_count = 3;
	job.iodepth = 16;
	crew = open_crew(&job);
	if (calyx_crew_setup(crew)->fixed_buffers)
		SKIP("the memory-lock limit has no effect here");
	snprintf(bytes, sizeof(bytes), "%d bytes", 3 * 16 * 4096);
	CHECK(strstr(calyx_crew_setup(crew)->why, "ENOMEM") && strstr(calyx_crew_setup(crew)->why, bytes), "'%s'",
	      calyx_crew_setup(crew)->why);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0 && result->directions[0].ios > 0 && result->errors_count == 0, "'%s'",
	      result->failure);
	CHECK(!result->setup.fixed_buffers && result->setup.fixed_files, "what took effect");
	calyx_crew_close(crew);

	job.buffers = CALYX_BUFFERS_REGISTERED;
	CHECK(calyx_crew_open(&job, &crew, reason) == -ENOMEM, "'%s'", reason);
	CHECK(strstr(reason, bytes) && strstr(reason, "98304") && strstr(reason, "RLIMIT_MEMLOCK"), "'%s'", reason);

	/* Opened and closed in quick turn: memory of the last ring is given back late, which must not turn into a
	 * refusal. */
	job.paths_count = 1;
	for (int i = 0; i < 50; i++) {
		CHECK(calyx_crew_open(&job, &crew, reason) == 0, "round %d: %s", i, reason);
		calyx_crew_close(crew);
	}
	return 0;
}
