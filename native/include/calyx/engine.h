/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine: a job goes in, a result comes out. It makes I/O and measures it; it has no main, prints nothing
 * and knows nothing of agents. Life of one job:
 *
 *   calyx_job_check -> calyx_crew_open (all that allocates, opens, registers, starts threads)
 *       -> calyx_crew_start(start_ns) -> [ calyx_crew_progress ... ] -> calyx_crew_wait
 *       -> calyx_crew_result -> calyx_crew_close
 *
 * One crew runs one job with one thread, one ring and one file for each path. Functions return 0 or -errno and leave
 * out-parameters untouched on failure. Times are CLOCK_MONOTONIC nanoseconds.
 */
#ifndef CALYX_ENGINE_H
#define CALYX_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "calyx/histogram.h"

/* TRIM discards: of block devices only, by setup PSYNC, since what io_uring could do for it blocks as well. Where the
 * rest speaks of writes these are meant, too. */
enum calyx_rw {
	CALYX_READ,
	CALYX_WRITE,
	CALYX_RANDREAD,
	CALYX_RANDWRITE,
	CALYX_RW,
	CALYX_RANDRW,
	CALYX_TRIM,
	CALYX_RANDTRIM
};
/* PSYNC is no io_uring: one pread or pwrite after the other, for guests where io_uring is forbidden; never by auto. */
enum calyx_setup {
	CALYX_SETUP_AUTO,
	CALYX_SETUP_SQPOLL,
	CALYX_SETUP_DEFER,
	CALYX_SETUP_COOP,
	CALYX_SETUP_PLAIN,
	CALYX_SETUP_PSYNC
};
enum calyx_refill { CALYX_REFILL_EACH, CALYX_REFILL_BATCH };
enum calyx_buffers { CALYX_BUFFERS_AUTO, CALYX_BUFFERS_REGISTERED, CALYX_BUFFERS_PLAIN };
enum calyx_arrival { CALYX_ARRIVAL_CLOSED, CALYX_ARRIVAL_CONSTANT, CALYX_ARRIVAL_POISSON };
enum calyx_random {
	CALYX_RANDOM_UNIFORM,
	CALYX_RANDOM_ZIPF,
	CALYX_RANDOM_PARETO,
	CALYX_RANDOM_NORMAL,
	CALYX_RANDOM_ZONED
};
enum calyx_bad { CALYX_BAD_CRC, CALYX_BAD_OFFSET, CALYX_BAD_GENERATION };
enum calyx_direction { CALYX_DIR_READ, CALYX_DIR_WRITE, CALYX_DIR_SYNC, CALYX_DIRECTIONS };

#define CALYX_JOBS_MAX 256
#define CALYX_IODEPTH_MAX 4096
#define CALYX_REASON_MAX 256
#define CALYX_ERRORS_MAX 32
#define CALYX_HUNG_MAX 4
#define CALYX_HUNG_NS 1000000000ull /* an I/O older than this is reported while it hangs */
#define CALYX_SPLIT_MAX 16
#define CALYX_ZONES_MAX 16
#define CALYX_BAD_MAX 16
#define CALYX_CPU_WORDS 64 /* 4096 CPUs */

/* bssplit: blocks of these sizes, by percent of the I/Os; count 0: all have the size bs. */
struct calyx_bssplit {
	uint32_t count;
	uint64_t bs[CALYX_SPLIT_MAX];
	uint32_t percent[CALYX_SPLIT_MAX];
};

/* random_distribution: `parameter` is zipf's theta, pareto's h, or the deviation of normal in percent. Zones follow
 * each other from the start of the file, percent of the accesses and of the blocks. */
struct calyx_distribution {
	enum calyx_random kind;
	double parameter;
	uint32_t zones_count;
	uint32_t access[CALYX_ZONES_MAX], share[CALYX_ZONES_MAX];
};

struct calyx_job {
	const char *const *paths; /* one a thread */
	uint32_t paths_count;
	bool devices; /* the paths may be block devices, whose content may be destroyed and which threads may share */
	enum calyx_rw rw;
	uint64_t bs, size; /* bytes; size of each file that is used */
	uint32_t iodepth;
	uint64_t ramp_ns, runtime_ns, interval_ns, deadline_ns; /* deadline is relative to start */
	uint32_t rwmixread;
	uint64_t rate_iops; /* per thread, 0 none */
	bool direct;
	uint32_t fsync; /* after each N writes, 0 never */
	uint64_t seed, data_seed;
	enum calyx_setup setup;
	enum calyx_refill refill;
	enum calyx_buffers buffers;
	bool fixed_files;
	bool iopoll, huge, numa; /* completions are polled for; huge pages if there are any; memory of numa_node */
	uint32_t numa_node;
	bool nop; /* no file is touched: each I/O is an IORING_OP_NOP (calyx_floor_measure) */

	/* The rest of fio's words; 0 is fio's default. */
	struct calyx_bssplit bssplit, bssplit_write; /* reads and, unless it has its own, writes; bs: the largest */
	uint64_t offset;			     /* I/O stays in [offset, offset + size) of each file */
	uint64_t rate;				     /* bytes per second and thread, 0 none */
	enum calyx_arrival arrival;		     /* other than closed: by rate_iops */
	struct calyx_distribution distribution;
	uint32_t fdatasync; /* after each N writes, 0 never */
	bool sync, end_fsync;
	uint32_t compress_percentage, dedupe_percentage;
	bool verify; /* crc32c in each 4 KiB */
	uint64_t thinktime_ns;
	uint32_t thinktime_blocks;		/* 0: 1 */
	uint64_t cpus_allowed[CALYX_CPU_WORDS]; /* bit by CPU, a thread each in turn; none: as the process may */
};

/* What took effect; equal for all threads of a crew, or the crew is refused. */
struct calyx_setup_taken {
	enum calyx_setup requested, took;
	bool sqpoll, defer_taskrun, coop_taskrun, single_issuer, no_sqarray;
	bool fixed_files, fixed_buffers, direct;
	bool iopoll, huge, transparent_huge, numa, ring_fd, psync; /* transparent: the kernel was asked for them */
	uint32_t numa_node;
	enum calyx_refill refill;
	uint64_t buffer_bytes;
	uint32_t sq_entries, cq_entries;
	uint32_t cpus_count; /* 0: threads are not pinned; else one a thread */
	uint16_t cpus[CALYX_JOBS_MAX];
	char why[CALYX_REASON_MAX]; /* why less than asked took effect; else empty */
};

/* The clock that all times come from: CLOCK_MONOTONIC. Where the kernel trusts the TSC its vDSO reads that (tsc), else
 * each read is a system call or a slower device; cost is of one read, resolution the smallest step that was seen. */
struct calyx_clock {
	bool tsc;
	uint64_t cost_ns, resolution_ns;
};

struct calyx_error_count {
	enum calyx_direction direction;
	int error; /* positive errno */
	uint64_t count, first_offset;
};

struct calyx_interval {
	uint64_t read_ios, read_bytes, write_ios, write_bytes, latency_max_ns;
};

struct calyx_direction_result {
	uint64_t ios, bytes, errors, short_ios;
	uint64_t late; /* open loop: began more than 1 ms after their intended start */
	struct calyx_histogram latency;
};

/* A block of 4 KiB that read back wrong: its checksum, the place it was written for, or older than what was written. */
struct calyx_bad_block {
	uint32_t thread;
	enum calyx_bad why;
	uint64_t offset;
};

struct calyx_verified {
	uint64_t checked, bad; /* blocks of 4 KiB */
	uint64_t left;	       /* written, and not read back before the deadline or a stop */
	struct calyx_bad_block first_bad[CALYX_BAD_MAX];
	uint32_t first_bad_count;
};

struct calyx_result {
	uint64_t started_ns; /* first published I/O of any thread; 0 when there was none */
	uint64_t window_start_ns, window_end_ns, ended_ns;
	struct calyx_direction_result directions[CALYX_DIRECTIONS];
	const struct calyx_histogram
		*latency_intended; /* open loop: of reads and writes, from the intended start; or NULL */
	struct calyx_verified verified;
	const struct calyx_interval *intervals;
	uint32_t intervals_count;
	uint64_t interval_ns;
	struct calyx_setup_taken setup;
	struct calyx_clock clock;
	uint64_t enter_calls, submitted, eagain, short_ios, unfinished, wakeups;
	struct calyx_error_count errors[CALYX_ERRORS_MAX];
	uint32_t errors_count;
	bool stopped;			/* ended by calyx_crew_stop, before the window's end */
	char failure[CALYX_REASON_MAX]; /* empty when the job ran to its end */
};

/* One I/O that does not come back. */
struct calyx_hung {
	uint64_t offset, age_ns;
	enum calyx_direction direction;
	uint32_t job;
};

struct calyx_progress {
	uint64_t started_ns; /* 0 before the first I/O */
	uint64_t ios, bytes, oldest_ns /* age of the oldest I/O in flight */;
	bool done;
	uint32_t hung_count; /* I/Os older than CALYX_HUNG_NS, all of them; the oldest are named, oldest first */
	struct calyx_hung hung[CALYX_HUNG_MAX];
};

struct calyx_crew;

/* fio's words (words.c): 4096/50:65536/50, zipf:1.2, zoned:60/10:40/90, 0,2-3. 0, or -EINVAL with a sentence in reason.
 */
int calyx_parse_bssplit(const char *text, struct calyx_bssplit *split, char *reason);
int calyx_parse_distribution(const char *text, struct calyx_distribution *distribution, char *reason);
int calyx_parse_cpus(const char *text, uint64_t cpus[CALYX_CPU_WORDS], char *reason);

/* Is this job sensible? 0, or -EINVAL with a sentence in reason (CALYX_REASON_MAX bytes). */
int calyx_job_check(const struct calyx_job *job, char *reason);

/* After success all that a run needs is allocated, opened and registered, and the threads wait for their start. */
int calyx_crew_open(const struct calyx_job *job, struct calyx_crew **crew, char *reason);
const struct calyx_setup_taken *calyx_crew_setup(const struct calyx_crew *crew);
/* Sets the start line; never blocks. -ETIME when it has passed. */
int calyx_crew_start(struct calyx_crew *crew, uint64_t start_ns);
void calyx_crew_progress(const struct calyx_crew *crew, struct calyx_progress *progress);
/* May be called from any thread and from a signal handler; also before start. */
void calyx_crew_stop(struct calyx_crew *crew);
/* Waits at most timeout_ns: 0 done, -ETIME still running. */
int calyx_crew_wait(struct calyx_crew *crew, uint64_t timeout_ns);
/* Valid after calyx_crew_wait returned 0 (or close), until close. */
const struct calyx_result *calyx_crew_result(struct calyx_crew *crew);
void calyx_crew_close(struct calyx_crew *crew);

/* Laying out a file (target.c): made with O_EXCL, written with data that no layer can compress or deduplicate, synced,
 * and checked for unwritten extents and holes. progress may be NULL; when it returns true the layout stops with
 * -ECANCELED. */
struct calyx_layout {
	uint64_t written_bytes, extents, unwritten_bytes, hole_bytes;
	/* However many extents the file system makes of them: parts that lie together on the disk, and a digest of
	 * where each begins, in the file and there. */
	uint64_t pieces, placed;
	bool fiemap; /* false: the file system cannot say */
};
/* The data_seed of one of several files by a seed of them all: no two are alike, whatever the seeds. */
uint64_t calyx_layout_seed(uint64_t seed, uint32_t file);
int calyx_target_layout(const char *path, uint64_t size, uint64_t data_seed, uint64_t max_bytes_per_s,
			bool (*progress)(void *context, uint64_t written_bytes), void *context,
			struct calyx_layout *layout, char *reason);
/* The same with blocks that verify=crc32c can check. */
int calyx_target_layout_verified(const char *path, uint64_t size, uint64_t data_seed, uint64_t max_bytes_per_s,
				 bool (*progress)(void *context, uint64_t written_bytes), void *context,
				 struct calyx_layout *layout, char *reason);
/* The same, direct, over the first bytes of what is open: a block device, whose name `path` is only told. */
int calyx_target_fill(int fd, const char *path, uint64_t size, uint64_t data_seed, uint64_t max_bytes_per_s,
		      bool verify, bool (*progress)(void *context, uint64_t written_bytes), void *context,
		      uint64_t *written_bytes, char *reason);
int calyx_target_extents(int fd, uint64_t size, struct calyx_layout *layout);

/* Which set-ups does this kernel accept? Bits 1u << enum calyx_setup; features as IORING_FEAT_*. 0 or -errno of
 * io_uring_setup. */
int calyx_ring_probe(uint32_t *setups, uint32_t *features);

uint64_t calyx_now_ns(void);
/* Free huge pages of the default size; 0 bytes a page where there are none. */
void calyx_huge_pages(uint64_t *page_bytes, uint64_t *free_pages);
/* Takes some 50 us with a quick clock, at most some ms with a slow one. */
void calyx_clock_measure(struct calyx_clock *clock);

/* The engine's own overhead: the loop of a run, with NOPs in place of I/O. ns_per_io is CPU time of this process by
 * NOP, at most wall time by NOP, so that a busy machine does not count. */
struct calyx_floor {
	uint64_t ios, ns_per_io, p50_ns, p99_ns;
	struct calyx_setup_taken setup;
	struct calyx_clock clock;
};
int calyx_floor_measure(enum calyx_setup setup, enum calyx_refill refill, uint32_t iodepth, uint64_t runtime_ns,
			struct calyx_floor *floor, char *reason);

/* What lies below a file that was laid out: each of reads blocks of 4 KiB is read once (cold) and at once again (hot),
 * direct; one block is written writes times, each time followed by fdatasync, and then restored. Medians. */
struct calyx_truth {
	uint32_t reads, writes;
	uint64_t cold_read_ns, hot_read_ns, write_ns, flush_write_ns; /* flush_write: write and fdatasync together */
	uint64_t cold_min_ns, cold_max_ns, hot_min_ns, hot_max_ns, flush_min_ns, flush_max_ns;
	bool direct;
};
int calyx_truth_measure(const char *path, uint64_t seed, struct calyx_truth *truth, char *reason);
/* The same on the first `size` bytes of a block device. */
int calyx_truth_measure_device(const char *path, uint64_t size, uint64_t seed, struct calyx_truth *truth, char *reason);

#endif
