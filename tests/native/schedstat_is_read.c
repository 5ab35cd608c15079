/* SPDX-License-Identifier: Apache-2.0
 *
 * Is /proc/schedstat read as the kernels write it? The texts in tests/golden/schedstat were recorded on them. And the
 * line of a process, which has a negative number when that has no terminal?
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

static void check_process(void)
{
	uint64_t numbers[3] = {0};
	struct proc_stat stat = {0};

	CHECK(proc_numbers("12 -1 34 5", numbers, 3) && numbers[0] == 12 && numbers[2] == 34, "a negative number");
	CHECK(!proc_numbers("12 34 ", numbers, 3) && !proc_numbers("12 34 x", numbers, 3), "two are not three");
	setsid(); /* without a terminal, unless it leads a group */
	CHECK(!proc_stat(getpid(), &stat) && stat.ppid == getppid() && stat.state == 'R', "parent %d, state %c",
	      (int)stat.ppid, stat.state);
}

int main(void)
{
	uint64_t ran = 7, waited = 7;

	check_process();

	check("5.10", 4132521685 + 4502122501, 920306008 + 649534962);
	check("6.1", 54668910585 + 65942959958, 4476130611 + 3454097204);
	check("6.12", 5315113060 + 6702940110, 3780724643 + 2387835380);
	CHECK(!proc_schedstat(GOLDEN "/schedstat/none", &ran, &waited), "a file that is not there");
	CHECK(ran == 7 && waited == 7, "untouched");
	return 0;
}
