/* SPDX-License-Identifier: Apache-2.0
 *
 * What every test here needs: CHECK, SKIP, a directory on a real file system that is removed at the end, a short job.
 * A test asks one question; its file name is the question. Exit 0: yes, 1: no, 77: cannot be asked here.
 */
#ifndef CHECK_H
#define CHECK_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calyx/engine.h"
#include "sys.h"

#if defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define HAS_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define HAS_TSAN 1
#endif
#endif

#define CHECK(condition, ...)                                                                                          \
	do {                                                                                                           \
		if (!(condition)) {                                                                                    \
			fprintf(stderr, "%s:%d: not true: %s: ", __FILE__, __LINE__, #condition);                      \
			fprintf(stderr, "" __VA_ARGS__);                                                               \
			fputc('\n', stderr);                                                                           \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

#define SKIP(...)                                                                                                      \
	do {                                                                                                           \
		fprintf(stderr, "skipped: " __VA_ARGS__);                                                              \
		fputc('\n', stderr);                                                                                   \
		exit(77);                                                                                              \
	} while (0)

#define MS ((uint64_t)1000000)
#define SECOND ((uint64_t)1000000000)
#define FILES_MAX 8
/* A disk that others keep busy may do next to nothing in a short run: then a longer one is tried. */
#define ATTEMPTS 4
#define RUNTIME_NS(attempt) (250 * MS << 2 * (attempt))

static char scratch_directory[512];
static char scratch_paths[FILES_MAX][600];
static const char *scratch_files[FILES_MAX];

static inline void scratch_remove(void)
{
	char path[1200];

	for (int i = 0; i < FILES_MAX; i++)
		unlink(scratch_paths[i]);
	snprintf(path, sizeof(path), "%s/other", scratch_directory);
	unlink(path);
	if (rmdir(scratch_directory) && errno == ENOTEMPTY) {
		fprintf(stderr, "%s: this test leaves something there\n", scratch_directory);
		_exit(1);
	}
}

/* A private directory in TMPDIR, else /var/tmp (a disk, where /tmp may be RAM). */
static inline void scratch_make(void)
{
	const char *base = getenv("TMPDIR");

	snprintf(scratch_directory, sizeof(scratch_directory), "%s/calyx-test-XXXXXX",
		 base && base[0] ? base : "/var/tmp");
	CHECK(mkdtemp(scratch_directory) != NULL, "%s: %s", scratch_directory, strerror(errno));
	for (int i = 0; i < FILES_MAX; i++) {
		snprintf(scratch_paths[i], sizeof(scratch_paths[i]), "%s/job.%d", scratch_directory, i);
		scratch_files[i] = scratch_paths[i];
	}
	atexit(scratch_remove);
}

static inline void lay_out(int count, uint64_t size)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_layout layout;

	for (int i = 0; i < count; i++) {
		int error =
			calyx_target_layout(scratch_files[i], size, 1000 + (uint64_t)i, 0, NULL, NULL, &layout, reason);

		CHECK(error == 0, "%s", reason);
	}
}

/* 4 KiB random reads, queue depth 8, 0.25 s, on the first file. */
static inline struct calyx_job short_job(uint64_t size)
{
	return (struct calyx_job){
		.paths = scratch_files,
		.paths_count = 1,
		.rw = CALYX_RANDREAD,
		.bs = 4096,
		.size = size,
		.iodepth = 8,
		.runtime_ns = 250 * MS,
		.interval_ns = 50 * MS,
		.rwmixread = 50,
		.direct = true,
		.seed = 11,
		.data_seed = 12,
		.fixed_files = true,
	};
}

/* Opens a crew, or skips where io_uring cannot be had at all. */
static inline struct calyx_crew *open_crew(const struct calyx_job *job)
{
	char reason[CALYX_REASON_MAX] = "";
	struct calyx_crew *crew;
	uint32_t setups, features;
	int error = calyx_ring_probe(&setups, &features);

	if (error)
		SKIP("no io_uring here (%s)", strerror(-error));
	error = calyx_crew_open(job, &crew, reason);
	CHECK(error == 0, "%s", reason);
	return crew;
}

/* Starts in 20 ms and waits for the end. The caller closes. */
static inline const struct calyx_result *run_to_end(struct calyx_crew *crew)
{
	CHECK(calyx_crew_start(crew, calyx_now_ns() + 20 * MS) == 0, "start");
	CHECK(calyx_crew_wait(crew, 60 * SECOND) == 0, "wait");
	return calyx_crew_result(crew);
}

/* Descriptors of this process; the one that looks is among them. */
static inline int count_open_files(void)
{
	DIR *directory = opendir("/proc/self/fd");
	int count = 0;

	CHECK(directory != NULL, "/proc/self/fd");
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

#endif
