// Is a file that was laid out free of holes and unwritten extents, private, incompressible, and never made over
// another?
#include "check.h"

#define SIZE ((8ull << 20) + 12345)

static uint64_t stop_at;

static bool count_progress(void *context, uint64_t written)
{
	*(uint64_t *)context = written;
	return stop_at && written >= stop_at;
}

static void check_whole(void)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_layout layout = {0};
	uint64_t seen = 0;
	struct stat status;
	int error = calyx_target_layout(scratch_files[0], SIZE, 1, 0, count_progress, &seen, &layout, reason);

	CHECK(error == 0, "%s", reason);
	CHECK(seen == SIZE && layout.written_bytes == SIZE, "%" PRIu64 " written", layout.written_bytes);
	CHECK(stat(scratch_files[0], &status) == 0 && status.st_size == (off_t)SIZE, "size");
	CHECK((status.st_mode & 07777) == 0600, "mode %o", status.st_mode);
	if (!layout.fiemap)
		SKIP("this file system has no FIEMAP");
	CHECK(layout.extents > 0 && layout.hole_bytes == 0 && layout.unwritten_bytes == 0,
	      "%" PRIu64 " holes, %" PRIu64 " unwritten", layout.hole_bytes, layout.unwritten_bytes);
}

static void check_refused(void)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_layout layout = {.extents = 77};

	CHECK(calyx_target_layout(scratch_files[0], 4096, 1, 0, NULL, NULL, &layout, reason) == -EEXIST, "%s", reason);
	CHECK(strstr(reason, "EEXIST") && strstr(reason, scratch_files[0]), "%s", reason);
	CHECK(layout.extents == 77, "the out-parameter is untouched");
	CHECK(access(scratch_files[0], F_OK) == 0, "the file that was there is still there");
	CHECK(calyx_target_layout("/proc/none/job.0", 4096, 1, 0, NULL, NULL, &layout, reason) == -ENOENT, "%s",
	      reason);
}

static void check_stopped(void)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_layout layout;
	uint64_t seen = 0;

	stop_at = 2 << 20;
	CHECK(calyx_target_layout(scratch_files[1], SIZE, 1, 0, count_progress, &seen, &layout, reason) == -ECANCELED,
	      "%s", reason);
	CHECK(access(scratch_files[1], F_OK) < 0, "a half-written file stays behind");
	stop_at = 0;
}

static void check_rate(void)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_layout layout;
	uint64_t before = calyx_now_ns(), took;

	CHECK(calyx_target_layout(scratch_files[1], 4 << 20, 1, 20 << 20, NULL, NULL, &layout, reason) == 0, "%s",
	      reason);
	took = calyx_now_ns() - before;
	CHECK(took >= 200 * MS, "4 MiB at 20 MiB/s took %" PRIu64 " ms", took / MS);
}

static bool stop_soon(void *context, uint64_t written)
{
	(void)written;
	return calyx_now_ns() > *(uint64_t *)context;
}

/* 4 MiB at 256 KiB/s would take 16 s, the first chunk four of them. */
static void check_stopped_at_a_rate(void)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_layout layout;
	uint64_t before = calyx_now_ns(), until = before + 300 * MS, took;

	unlink(scratch_files[1]);
	CHECK(calyx_target_layout(scratch_files[1], 4 << 20, 1, 256 << 10, stop_soon, &until, &layout, reason) ==
		      -ECANCELED,
	      "%s", reason);
	took = calyx_now_ns() - before;
	CHECK(took >= 300 * MS && took < 2 * SECOND, "a stop after 300 ms was seen after %" PRIu64 " ms", took / MS);
	CHECK(access(scratch_files[1], F_OK) < 0, "a half-written file stays behind");
}

/* The check itself must see what it is there for. */
static void check_eyes(void)
{
	struct calyx_layout layout = {0};
	int fd = open(scratch_files[2], O_CREAT | O_RDWR, 0600);

	CHECK(fd >= 0, "open");
	CHECK(ftruncate(fd, 1 << 20) == 0 && pwrite(fd, "x", 1, 512 << 10) == 1 && fsync(fd) == 0, "sparse");
	CHECK(calyx_target_extents(fd, 1 << 20, &layout) == 0, "extents");
	CHECK(layout.hole_bytes == (1 << 20) - 4096, "%" PRIu64 " bytes of holes seen", layout.hole_bytes);
	if (fallocate(fd, 0, 0, 1 << 20) == 0) {
		CHECK(calyx_target_extents(fd, 1 << 20, &layout) == 0, "extents");
		CHECK(layout.hole_bytes == 0 && layout.unwritten_bytes == (1 << 20) - 4096,
		      "%" PRIu64 " unwritten bytes seen", layout.unwritten_bytes);
	}
	close(fd);
}

/* Bytes of a file of noise are even: 256 counts of 32768 each, chi squared about 255 +- 23. */
static void check_noise(void)
{
	static unsigned char data[8 << 20];
	static uint64_t counts[256];
	double chi_squared = 0, expected = sizeof(data) / 256.0;
	int fd = open(scratch_files[0], O_RDONLY);

	CHECK(fd >= 0 && read(fd, data, sizeof(data)) == (ssize_t)sizeof(data), "read");
	close(fd);
	for (size_t i = 0; i < sizeof(data); i++)
		counts[data[i]]++;
	for (int i = 0; i < 256; i++)
		chi_squared += (counts[i] - expected) * (counts[i] - expected) / expected;
	CHECK(chi_squared < 400, "chi squared %.0f", chi_squared);
	for (size_t at = 4096; at < sizeof(data); at += 4096)
		CHECK(memcmp(data, data + at, 16) != 0, "two blocks begin alike");
}

int main(void)
{
	scratch_make();
	check_whole();
	check_refused();
	check_stopped();
	check_rate();
	check_stopped_at_a_rate();
	check_eyes();
	check_noise();
	return 0;
}
