// When the disk is full, does the message name the path, the error and its cause (space or inodes), and is nothing left
// behind?
#include <sched.h>
#include <sys/mount.h>

#include "check.h"

static void refused(const char *path, uint64_t size, const char *cause)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_layout layout;

	CHECK(calyx_target_layout(path, size, 1, 0, NULL, NULL, &layout, reason) == -ENOSPC, "'%s'", reason);
	CHECK(strstr(reason, "ENOSPC (No space left on device)") && strstr(reason, path), "'%s'", reason);
	CHECK(strstr(reason, cause), "'%s' does not say '%s'", reason, cause);
	CHECK(strstr(reason, "inodes are free"), "'%s'", reason);
	CHECK(access(path, F_OK) < 0, "a half-written file stays behind");
}

static struct calyx_sys table;

static int64_t no_space(int fd, const void *buffer, size_t length, uint64_t offset)
{
	if (offset >= 2 << 20)
		return -ENOSPC;
	return calyx_sys_linux.pwrite(fd, buffer, length, offset);
}

int main(void)
{
	char path[600];
	int fd;

	scratch_make();
	table = calyx_sys_linux;
	table.pwrite = no_space;
	calyx_sys = &table;
	refused(scratch_files[0], 4 << 20, "quota"); /* a disk with space and inodes that still says no */
	calyx_sys = &calyx_sys_linux;

	/* A private mount name space: nobody else sees the tiny disk, and it ends with this process. */
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
	    mount("tiny", scratch_directory, "tmpfs", 0, "size=3m,nr_inodes=3") < 0)
		SKIP("only root can mount a tiny disk");
	refused(scratch_files[0], 8 << 20, "run out of space");
	for (int i = 1; i < 3; i++) {
		fd = open(scratch_files[i], O_CREAT | O_WRONLY, 0600);
		CHECK(fd >= 0, "open: %s", strerror(errno));
		close(fd);
	}
	snprintf(path, sizeof(path), "%s/other", scratch_directory);
	refused(path, 4096, "run out of inodes");
	umount(scratch_directory);
	return 0;
}
