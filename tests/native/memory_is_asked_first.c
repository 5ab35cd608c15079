// Is a job refused before anything is touched when its buffers, or what verify notes of each block, take more than half
// of the guest's memory?
#include <sys/sysinfo.h>

#include "check.h"

#define NOTE_BYTES 6 /* of each 4 KiB that is written */

static void refused(const struct calyx_job *job, int error, const char *word)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_crew *crew;

	CHECK(calyx_crew_open(job, &crew, reason) == error, "'%s'", reason);
	CHECK(strstr(reason, word), "'%s' does not say '%s'", reason, word);
}

int main(void)
{
	static const char *const missing[] = {"/proc/none/job.0"}; /* never looked for */
	struct calyx_job job = short_job(1 << 20);
	struct sysinfo info;
	uint64_t half;

	CHECK(sysinfo(&info) == 0, "sysinfo");
	half = (uint64_t)info.totalram * info.mem_unit / 2;
	job.paths = missing;
	job.setup = CALYX_SETUP_PSYNC;
	job.iodepth = 1;
	refused(&job, -ENOENT, "/proc/none/job.0");

	job.verify = true;
	job.size = (half / NOTE_BYTES + 4096) * 4096;
	refused(&job, -ENOENT, "/proc/none/job.0"); /* of what is only read nothing is noted */
	job.rw = CALYX_RANDWRITE;
	refused(&job, -ENOMEM, "more than half of the guest's memory");

	job = short_job(1ull << 30);
	job.setup = CALYX_SETUP_PSYNC;
	job.iodepth = 1;
	job.bs = 1ull << 30;
	if (half >> 30 >= CALYX_JOBS_MAX)
		SKIP("so much memory that no job can ask for half of it");
	job.paths_count = (uint32_t)(half >> 30) + 1;
	{
		const char *paths[CALYX_JOBS_MAX];

		for (uint32_t i = 0; i < job.paths_count; i++)
			paths[i] = missing[0];
		job.paths = paths;
		job.devices = true; /* which may share a path */
		refused(&job, -ENOMEM, "more than half of the guest's memory");
	}
	return 0;
}
