/* SPDX-License-Identifier: Apache-2.0
 *
 * Is /proc/schedstat read as the kernels write it? The texts in tests/golden/schedstat were recorded on them.
 */
#include "check.h"

#include "proc.h"

static void check(const char *kernel, uint64_t ran_ns, uint64_t waited_ns)
{
	uint64_t ran = 7, waited = 7;
	char path[512];

	snprintf(path, sizeof(path), GOLDEN "/schedstat/%s", kernel);
	CHECK(proc_schedstat(path, &ran, &waited), "%s", path);
	CHECK(ran == ran_ns, "%s: %" PRIu64, kernel, ran);
	CHECK(waited == waited_ns, "%s: %" PRIu64, kernel, waited);
}

int main(void)
{
	uint64_t ran = 7, waited = 7;

	check("5.10", 4132521685 + 4502122501, 920306008 + 649534962);
	check("6.1", 54668910585 + 65942959958, 4476130611 + 3454097204);
	check("6.12", 5315113060 + 6702940110, 3780724643 + 2387835380);
	CHECK(!proc_schedstat(GOLDEN "/schedstat/none", &ran, &waited), "a file that is not there");
	CHECK(ran == 7 && waited == 7, "untouched");
	return 0;
}
