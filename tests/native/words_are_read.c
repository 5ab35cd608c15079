// Are fio's words for sizes, distributions and CPUs read as they are written, and is everything else refused by name?
#include "check.h"

static char reason[CALYX_REASON_MAX];

static void refuse_splits(void)
{
	static const char *const bad[] = {"",	      "4096",	   "4096/",	"/50",
					  "4096/50:", "4096/101",  "4096/50x",	"-4096/100",
					  "4k/100",   " 4096/100", "4096//100", "99999999999999999999/100"};
	struct calyx_bssplit split = {.count = 7};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK(calyx_parse_bssplit(bad[i], &split, reason) == -EINVAL, "'%s' was taken", bad[i]);
		CHECK(strstr(reason, "bssplit"), "%s", reason);
	}
	CHECK(split.count == 7, "a refusal leaves the split alone");
	CHECK(calyx_parse_bssplit("1/1:1/1:1/1:1/1:1/1:1/1:1/1:1/1:1/1:1/1:1/1:1/1:1/1:1/1:1/1:1/1:1/1", &split,
				  reason) == -EINVAL,
	      "17 sizes");
}

static void refuse_distributions(void)
{
	static const char *const bad[] = {
		"",	   "zipf",     "zipf:",	 "zipf:x",   "zipf:1.2.3", "zipf:1e3",	"zipf:.5",	"zipf:1.",
		"gauss:1", "Zipf:1.2", "zoned:", "zoned:50", "random:1",   "pareto:-1", "zoned:50/50:", "zoned:50/101"};
	struct calyx_distribution distribution;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK(calyx_parse_distribution(bad[i], &distribution, reason) == -EINVAL, "'%s' was taken", bad[i]);
		CHECK(strstr(reason, "random_distribution"), "%s", reason);
	}
}

static void refuse_cpus(void)
{
	static const char *const bad[] = {"", "a", "1,", "3-2", "1-", "-1", "4096", "0 1", "0-4096"};
	uint64_t cpus[CALYX_CPU_WORDS];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		CHECK(calyx_parse_cpus(bad[i], cpus, reason) == -EINVAL, "'%s' was taken", bad[i]);
		CHECK(strstr(reason, "cpus_allowed"), "%s", reason);
	}
}

int main(void)
{
	struct calyx_distribution distribution;
	uint64_t cpus[CALYX_CPU_WORDS];
	struct calyx_bssplit split;

	CHECK(calyx_parse_bssplit("4096/50:65536/30:512/20", &split, reason) == 0, "%s", reason);
	CHECK(split.count == 3 && split.bs[1] == 65536 && split.percent[1] == 30 && split.bs[2] == 512, "a split");
	CHECK(calyx_parse_distribution("random", &distribution, reason) == 0 &&
		      distribution.kind == CALYX_RANDOM_UNIFORM,
	      "random");
	CHECK(calyx_parse_distribution("zipf:1.25", &distribution, reason) == 0 &&
		      distribution.kind == CALYX_RANDOM_ZIPF && distribution.parameter == 1.25,
	      "zipf: %g", distribution.parameter);
	CHECK(calyx_parse_distribution("pareto:0.2", &distribution, reason) == 0 &&
		      distribution.kind == CALYX_RANDOM_PARETO && distribution.parameter > 0.1999999 &&
		      distribution.parameter < 0.2000001,
	      "pareto");
	CHECK(calyx_parse_distribution("normal:40", &distribution, reason) == 0 &&
		      distribution.kind == CALYX_RANDOM_NORMAL && distribution.parameter == 40,
	      "normal");
	CHECK(calyx_parse_distribution("zoned:60/10:40/90", &distribution, reason) == 0 &&
		      distribution.kind == CALYX_RANDOM_ZONED && distribution.zones_count == 2 &&
		      distribution.access[0] == 60 && distribution.share[1] == 90,
	      "zoned");
	CHECK(calyx_parse_cpus("0,2-3,64,4095", cpus, reason) == 0, "%s", reason);
	CHECK(cpus[0] == 0xd && cpus[1] == 1 && cpus[63] == 1ull << 63, "CPUs");
	refuse_splits();
	refuse_distributions();
	refuse_cpus();
	return 0;
}
