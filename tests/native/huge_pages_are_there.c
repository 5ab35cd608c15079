// Do huge pages count as free only when nobody was promised them and they lie on the NUMA node that is asked for, so
// that the job goes on with ordinary ones and says so?
#include <sched.h>
#include <sys/mount.h>

#include "check.h"
#include "memory.h"

#define SIZE (1ull << 20)
#define OF_NODE "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages"

static struct calyx_sys table;

static int willing_mbind(void *address, size_t length, int policy, const unsigned long *nodes, unsigned long bits)
{
	(void)address, (void)length, (void)policy, (void)nodes, (void)bits;
	return 0;
}

static void write_text(const char *path, const char *text)
{
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);

	CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "%s: %s", path, strerror(errno));
	close(fd);
}

static void say_meminfo(int free_pages, int promised)
{
	char text[256];

	snprintf(text, sizeof(text), "HugePages_Free: %d\nHugePages_Rsvd: %d\nHugepagesize: 2048 kB\n", free_pages,
		 promised);
	write_text(scratch_files[1], text);
}

static void check_ordinary(const struct calyx_job *job, const char *why)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_crew *crew;

	CHECK(calyx_crew_open(job, &crew, reason) == 0, "%s", reason);
	CHECK(!calyx_crew_setup(crew)->huge && strstr(calyx_crew_setup(crew)->why, why), "'%s' does not say '%s'",
	      calyx_crew_setup(crew)->why, why);
	calyx_crew_close(crew);
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	uint64_t page_bytes, free_pages;

	scratch_make();
	lay_out(1, SIZE);
	/* A kernel that a test plays by files over its own, which nobody else sees. */
	say_meminfo(1000, 1000);
	write_text(scratch_files[2], "0\n");
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount(scratch_files[1], "/proc/meminfo", NULL, MS_BIND, NULL) < 0)
		SKIP("only root can lay a file over /proc/meminfo");
	job.setup = CALYX_SETUP_PSYNC;
	job.iodepth = 1;
	job.huge = true;
	check_ordinary(&job, "1 huge pages of 2097152 bytes are needed, 0 are free");
	say_meminfo(1000, 998);
	calyx_huge_pages(&page_bytes, &free_pages);
	CHECK(page_bytes == 2 << 20 && free_pages == 2, "%" PRIu64 " are free", free_pages);
	say_meminfo(3, 998);
	calyx_huge_pages(&page_bytes, &free_pages);
	CHECK(free_pages == 0, "%" PRIu64 " are free", free_pages);

	say_meminfo(1000, 0);
	if (mount(scratch_files[2], OF_NODE, NULL, MS_BIND, NULL) < 0) {
		printf("no huge pages by node here: %s\n", strerror(errno));
		return 0;
	}
	table = calyx_sys_linux;
	table.mbind = willing_mbind;
	calyx_sys = &table;
	job.numa = true;
	check_ordinary(&job, "0 are free on the NUMA node");
	return 0;
}
