// Are the first bytes of what is open written as a file of the same seed is laid out, and none behind them, its blocks
// such that they can be checked when that is wanted, and is it named what kept it from that?
#include "check.h"

#define SIZE ((3ull << 20) + 8192)
#define BEHIND (1ull << 20)

static unsigned char filled[SIZE + BEHIND], laid[SIZE];
static uint64_t stop_at;

static bool note_progress(void *context, uint64_t written)
{
	*(uint64_t *)context = written;
	return stop_at && written >= stop_at;
}

/* A file of zeros stands for the device. */
static int open_blank(void)
{
	int fd = open(scratch_files[0], O_CREAT | O_RDWR | O_TRUNC, 0600);

	CHECK(fd >= 0 && ftruncate(fd, SIZE + BEHIND) == 0, "%s", strerror(errno));
	return fd;
}

static void read_whole(const char *path, unsigned char *data, size_t length)
{
	int fd = open(path, O_RDONLY);

	for (size_t at = 0; at < length;) {
		ssize_t got = read(fd, data + at, length - at);

		CHECK(got > 0, "%s: %s", path, strerror(errno));
		at += (size_t)got;
	}
	close(fd);
}

static void check_filled(bool verify)
{
	char reason[CALYX_REASON_MAX] = "";
	uint64_t written = 0, seen = 0;
	struct calyx_layout layout;
	int fd = open_blank();

	CHECK(calyx_target_fill(fd, "the device", SIZE, 5, 0, verify, note_progress, &seen, &written, reason) == 0,
	      "%s", reason);
	close(fd);
	CHECK(written == SIZE && seen == SIZE, "%" PRIu64 " written, %" PRIu64 " seen", written, seen);
	CHECK((verify ? calyx_target_layout_verified : calyx_target_layout)(scratch_files[1], SIZE, 5, 0, NULL, NULL,
									    &layout, reason) == 0,
	      "%s", reason);
	read_whole(scratch_files[0], filled, sizeof(filled));
	read_whole(scratch_files[1], laid, sizeof(laid));
	unlink(scratch_files[1]);
	CHECK(!memcmp(filled, laid, SIZE), "not as a file of that seed");
	for (size_t at = SIZE; at < sizeof(filled); at++)
		CHECK(!filled[at], "byte %zu, which is behind it", at);
}

static void check_stopped(void)
{
	char reason[CALYX_REASON_MAX] = "";
	uint64_t written = 0, seen = 0;
	int fd = open_blank();

	stop_at = 2 << 20;
	CHECK(calyx_target_fill(fd, "the device", SIZE, 5, 0, false, note_progress, &seen, &written, reason) ==
		      -ECANCELED,
	      "%s", reason);
	CHECK(written == stop_at && strstr(reason, "writing the device was stopped after 2097152 bytes"), "%s", reason);
	stop_at = 0;
	close(fd);
}

static void check_rate(void)
{
	char reason[CALYX_REASON_MAX] = "";
	uint64_t written, began_ns = calyx_now_ns();
	int fd = open_blank();

	CHECK(calyx_target_fill(fd, "the device", SIZE, 5, 30 << 20, false, NULL, NULL, &written, reason) == 0, "%s",
	      reason);
	CHECK(calyx_now_ns() - began_ns >= 100 * MS, "3 MiB at 30 MiB/s took %" PRIu64 " ms",
	      (calyx_now_ns() - began_ns) / MS);
	close(fd);
}

static void check_refused(void)
{
	char reason[CALYX_REASON_MAX] = "";
	uint64_t written = 0;
	int fd;

	close(open_blank());
	fd = open(scratch_files[0], O_RDONLY);
	CHECK(calyx_target_fill(fd, "the device", SIZE, 5, 0, false, NULL, NULL, &written, reason) == -EBADF, "%s",
	      reason);
	CHECK(strstr(reason, "cannot write the device: EBADF") && written == 0, "%s", reason);
	close(fd);
}

int main(void)
{
	scratch_make();
	check_filled(false);
	check_filled(true);
	check_stopped();
	check_rate();
	check_refused();
	return 0;
}
