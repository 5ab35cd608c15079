// Between the start line and the end of a run, is no memory asked for, neither of the C library nor of the kernel?
#include <dlfcn.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "check.h"

#define SIZE (4ull << 20)

#if defined(HAS_ASAN) || defined(HAS_TSAN) || !defined(__GLIBC__)
int main(void)
{
	SKIP("the C library's allocator cannot be watched in this build");
}
#else

static atomic_int armed, library_calls, kernel_calls;

/* The program's own malloc stands in front of the C library's. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);

static void count_call(void)
{
	if (atomic_load(&armed))
		atomic_fetch_add(&library_calls, 1);
}

void *malloc(size_t size)
{
	count_call();
	return __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
	count_call();
	return __libc_calloc(count, size);
}

void *realloc(void *memory, size_t size)
{
	count_call();
	return __libc_realloc(memory, size);
}

static void on_forbidden_call(int number)
{
	(void)number;
	atomic_fetch_add(&kernel_calls, 1);
}

#define FORBID(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP)

/* From here on, in every thread, calls that get memory end in a signal that is counted. */
static bool forbid_memory_calls(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		FORBID(mmap),
		FORBID(mremap),
		FORBID(brk),
		FORBID(clone),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};

	signal(SIGSYS, on_forbidden_call);
	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
	       syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0;
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	const struct calyx_result *result;
	struct rusage before, after;
	struct calyx_crew *crew;
	void *volatile memory;
	long faults;

	scratch_make();
	lay_out(2, SIZE);
	job.paths_count = 2;
	job.rw = CALYX_RANDRW;
	job.iodepth = 32;
	job.ramp_ns = 50 * MS;
	job.fsync = 100;
#ifdef SHAPED
	CHECK(calyx_parse_bssplit("4096/50:16384/50", &job.bssplit, NULL) == 0 &&
		      calyx_parse_distribution("zipf:1.2", &job.distribution, NULL) == 0,
	      "words");
	job.bs = 16384;
	job.offset = 65536;
	job.size = SIZE - 65536;
	job.rate_iops = 20000;
	job.arrival = CALYX_ARRIVAL_POISSON;
	job.compress_percentage = 50;
	job.dedupe_percentage = 30;
	job.end_fsync = true;
#endif
	crew = open_crew(&job);
	if (!forbid_memory_calls())
		SKIP("no seccomp filter for all threads here");
	getrusage(RUSAGE_SELF, &before);
	atomic_store(&armed, 1);
	result = run_to_end(crew);
	atomic_store(&armed, 0);
	getrusage(RUSAGE_SELF, &after);

	CHECK(result->failure[0] == 0 && result->directions[0].ios > 0, "%s", result->failure);
	CHECK(atomic_load(&library_calls) == 0, "%d calls of malloc", atomic_load(&library_calls));
	CHECK(atomic_load(&kernel_calls) == 0, "%d calls for memory", atomic_load(&kernel_calls));
	/* Every page was there before: a few faults are this test's own (and of the merge), not one per buffer. */
	faults = after.ru_minflt - before.ru_minflt;
	CHECK(faults < 32, "%ld page faults during the run", faults);

	/* The watch itself must see: an allocation now counts. */
	atomic_store(&armed, 1);
	memory = malloc(10);
	free(memory);
	atomic_store(&armed, 0);
	CHECK(atomic_load(&library_calls) == 1, "the watch is blind");
	syscall(SYS_brk, 0);
	CHECK(atomic_load(&kernel_calls) == 1, "the filter is blind");
	calyx_crew_close(crew);
	return 0;
}
#endif
