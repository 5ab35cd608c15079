// On a kernel whose SQPOLL takes only registered files (before 5.11), are they registered, or the job refused in words?
#include <linux/io_uring.h>

#include "check.h"
#include "ring.h"

#define SIZE (1ull << 20)

static struct calyx_sys table;

static int old_setup(uint32_t entries, struct io_uring_params *params)
{
	int fd = calyx_sys_linux.io_uring_setup(entries, params);

	params->features &= ~(uint32_t)IORING_FEAT_SQPOLL_NONFIXED;
	return fd;
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	char reason[CALYX_REASON_MAX] = "";
	const struct calyx_result *result;
	uint32_t setups = 0, features;
	struct calyx_crew *crew;

	if (calyx_ring_probe(&setups, &features) < 0 || !(setups & 1u << CALYX_SETUP_SQPOLL) ||
	    sysconf(_SC_NPROCESSORS_ONLN) < 2)
		SKIP("no SQPOLL here");
	scratch_make();
	lay_out(1, SIZE);
	table = calyx_sys_linux;
	table.io_uring_setup = old_setup;
	calyx_sys = &table;
	job.setup = CALYX_SETUP_SQPOLL;

	job.fixed_files = false;
	CHECK(calyx_crew_open(&job, &crew, reason) == -EINVAL, "'%s'", reason);
	CHECK(strstr(reason, "registered files"), "'%s'", reason);

	job.fixed_files = true;
	crew = open_crew(&job);
	CHECK(calyx_crew_setup(crew)->sqpoll && calyx_crew_setup(crew)->fixed_files, "SQPOLL with registered files");
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0 && result->errors_count == 0 && result->submitted > 0, "%s", result->failure);
	calyx_crew_close(crew);
	return 0;
}
