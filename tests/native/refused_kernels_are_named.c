// When the kernel refuses io_uring, or a set-up of it, does the reason name the error, and never "Success"?
#include "bent_ring.h"

#define SIZE (1ull << 20)

static struct calyx_sys table;
static int answer;
static uint32_t refused_flags;

static int setup(uint32_t entries, struct io_uring_params *params)
{
	if (params->flags & refused_flags || refused_flags == 0)
		return answer;
	return calyx_sys_linux.io_uring_setup(entries, params);
}

static void refused(enum calyx_setup wanted, int error, const char *word)
{
	struct calyx_job job = short_job(SIZE);
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_crew *crew = NULL;

	job.setup = wanted;
	errno = 0;
	answer = error;
	CHECK(calyx_crew_open(&job, &crew, reason) == error, "'%s'", reason);
	CHECK(strstr(reason, word) && !strstr(reason, "Success"), "'%s' does not say %s", reason, word);
	CHECK(crew == NULL, "the out-parameter is untouched");
}

static void took(enum calyx_setup wanted, enum calyx_setup expected, const char *why)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct calyx_crew *crew;

	answer = -EINVAL;
	job.setup = wanted;
	job.runtime_ns = 30 * MS;
	crew = open_crew(&job);
	CHECK(calyx_crew_setup(crew)->took == expected, "took %d", calyx_crew_setup(crew)->took);
	CHECK(strstr(calyx_crew_setup(crew)->why, why), "'%s' does not say %s", calyx_crew_setup(crew)->why, why);
	result = run_to_end(crew);
	CHECK(result->failure[0] == 0 && result->submitted > 0, "%s", result->failure);
	calyx_crew_close(crew);
}

int main(void)
{
	uint32_t setups, features;
	int error = calyx_ring_probe(&setups, &features);

	if (error)
		SKIP("no io_uring here (%s)", strerror(-error));
	scratch_make();
	lay_out(1, SIZE);
	table = calyx_sys_linux;
	table.io_uring_setup = setup;
	calyx_sys = &table;

	refused_flags = 0;
	refused(CALYX_SETUP_AUTO, -EPERM, "EPERM (Operation not permitted)");
	refused(CALYX_SETUP_DEFER, -EPERM, "EPERM");
	refused(CALYX_SETUP_AUTO, -ENOSYS, "ENOSYS");
	refused(CALYX_SETUP_AUTO, -EINVAL, "EINVAL");
	refused(CALYX_SETUP_PLAIN, -EMFILE, "EMFILE");
	refused(CALYX_SETUP_PLAIN, -ENOMEM, "ENOMEM");
	answer = -EPERM;
	CHECK(calyx_ring_probe(&setups, &features) == -EPERM, "the probe says why");

	/* Older kernels, one step after the other. */
	refused_flags = IORING_SETUP_NO_SQARRAY;
	took(CALYX_SETUP_AUTO, CALYX_SETUP_DEFER, "");
	refused_flags |= IORING_SETUP_DEFER_TASKRUN;
	refused(CALYX_SETUP_DEFER, -EINVAL, "setup=defer");
	took(CALYX_SETUP_AUTO, CALYX_SETUP_COOP, "defer: EINVAL");
	refused_flags |= IORING_SETUP_SINGLE_ISSUER;
	took(CALYX_SETUP_COOP, CALYX_SETUP_COOP, "");
	refused_flags |= IORING_SETUP_COOP_TASKRUN;
	refused(CALYX_SETUP_COOP, -EINVAL, "setup=coop");
	took(CALYX_SETUP_AUTO, CALYX_SETUP_PLAIN, "coop: EINVAL");
	took(CALYX_SETUP_PLAIN, CALYX_SETUP_PLAIN, "");
	return 0;
}
