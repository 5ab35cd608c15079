// While a job runs, is io_uring_enter the only system call of its thread: once per I/O that is submitted and once per
// pass that is reaped, and under SQPOLL only to wake a poller that asks for it, or to sleep when it is silent?
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "bent_ring.h"
#include "crew.h"

#define SIZE (4ull << 20)
#define TICKS_MAX 20 /* ten a second, and what is counted on one side of the slice only */
#define SLICE_NS (100 * MS)
#define SLICES 300
#define SILENCE_NS (1 * MS) /* SQPOLL: how long the thread looks before it sleeps */
#define IOS_ENOUGH 1000

#if defined(HAS_ASAN) || defined(HAS_TSAN)
int main(void)
{
	SKIP("the sanitizer makes system calls of its own");
}
#else

static atomic_int forbidden, first_forbidden, filtered;
static _Atomic uint64_t submits, waits, empty_waits;
/* Of SQPOLL: calls that wake, among them those that the poller did not ask for; that sleep, among them those that came
 * before the silence was long enough; that are neither. */
static _Atomic uint64_t wakes, unasked, sleeps, hasty, others;

static void on_forbidden_call(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	if (!atomic_fetch_add(&forbidden, 1))
		atomic_store(&first_forbidden, info->si_syscall);
}

#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

/* Runs in the job's thread, on a signal, whatever it is doing: from here on any other call of this thread ends in a
 * signal and is not made. A thread does not come back from this, so the process is one of its own; clock_gettime is a
 * call only where the clock is slow. */
static void forbid_other_calls(int number)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(io_uring_enter),
		ALLOW(clock_gettime),
		ALLOW(rt_sigreturn),
		ALLOW(exit_group),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	};
	struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
	bool done =
		!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) && !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);

	(void)number;
	atomic_store(&filtered, done ? 1 : -1);
}

/* Runs in the job's thread while it opens: the engine blocks all signals there. */
static int let_signal_in(int fd, uint32_t opcode, const void *argument, uint32_t count)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGSYS);
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
	return calyx_sys_linux.io_uring_register(fd, opcode, argument, count);
}

/* Runs in the job's thread. */
static void judge_poller_call(uint32_t min_complete, uint32_t flags, uint64_t returned_ns)
{
	bool asked = __atomic_load_n(bent_word(bent.params.sq_off.flags), __ATOMIC_RELAXED) & IORING_SQ_NEED_WAKEUP;

	if (flags & IORING_ENTER_SQ_WAKEUP) {
		atomic_fetch_add(&wakes, 1);
		atomic_fetch_add(&unasked, !asked);
	} else if (min_complete) {
		atomic_fetch_add(&sleeps, 1);
		atomic_fetch_add(&hasty, calyx_now_ns() - returned_ns < SILENCE_NS);
	} else {
		atomic_fetch_add(&others, 1);
	}
}

/* Runs in the job's thread. */
static int count_enter(int fd, uint32_t to_submit, uint32_t min_complete, uint32_t flags)
{
	static uint64_t returned_ns;
	int answer;

	if (bent.params.flags & IORING_SETUP_SQPOLL)
		judge_poller_call(min_complete, flags, returned_ns);
	if (!min_complete)
		atomic_fetch_add(&submits, 1);
	answer = calyx_sys_linux.io_uring_enter(fd, to_submit, min_complete, flags);
	returned_ns = calyx_now_ns();
	if (!min_complete)
		return answer;
	atomic_fetch_add(&waits, 1);
	if (bent.rings && __atomic_load_n(bent_word(bent.params.cq_off.tail), __ATOMIC_ACQUIRE) ==
				  __atomic_load_n(bent_word(bent.params.cq_off.head), __ATOMIC_ACQUIRE))
		atomic_fetch_add(&empty_waits, 1);
	return answer;
}

static struct calyx_crew *start(const struct calyx_job *wanted)
{
	struct calyx_job job = *wanted;
	struct sigaction trap = {.sa_sigaction = on_forbidden_call, .sa_flags = SA_SIGINFO};
	struct sigaction filter = {.sa_handler = forbid_other_calls};
	struct calyx_progress progress;
	struct calyx_crew *crew;

	bent.table = calyx_sys_linux;
	bent.table.io_uring_setup = bent_setup;
	bent.table.io_uring_register = let_signal_in;
	bent.table.map = bent_map;
	bent.table.io_uring_enter = count_enter;
	calyx_sys = &bent.table;
	sigaction(SIGSYS, &trap, NULL);
	sigaction(SIGUSR1, &filter, NULL);
	job.runtime_ns = 60 * SECOND;
	crew = open_crew(&job);
	CHECK(calyx_crew_start(crew, calyx_now_ns() + 20 * MS) == 0, "start");
	/* Beyond the start line, and the queue that was prepared for it. */
	do {
		usleep(10000);
		calyx_crew_progress(crew, &progress);
	} while (progress.ios < 2 * job.iodepth && !progress.done);
	CHECK(!progress.done, "it ended by itself");
	CHECK(pthread_kill(crew->workers[0].thread, SIGUSR1) == 0, "signal");
	while (!atomic_load(&filtered))
		usleep(1000);
	if (atomic_load(&filtered) < 0)
		_exit(77);
	return crew;
}

/* In a process of its own: 0, 1 with a sentence, 77. */
static int judge(const struct calyx_job *job)
{
	bool sqpoll = job->setup == CALYX_SETUP_SQPOLL, flowed = false;
	struct calyx_progress before, after;
	struct calyx_crew *crew = start(job);
	uint64_t ios = 0, ios_first, calls, best_ios = 0, best_calls = 0;

	atomic_store(&submits, 0);
	atomic_store(&waits, 0);
	atomic_store(&empty_waits, 0);
	calyx_crew_progress(crew, &before);
	ios_first = before.ios;
	/* Six slices; more while others keep the disk or the CPUs busy. */
	for (int slice = 0; slice < SLICES && (slice < 6 || !flowed); slice++) {
		calls = atomic_load(&submits) + atomic_load(&waits);
		usleep(SLICE_NS / 1000);
		calyx_crew_progress(crew, &after);
		calls = atomic_load(&submits) + atomic_load(&waits) - calls;
		ios = after.ios - before.ios;
		before = after;
		if (ios > best_ios) {
			best_ios = ios;
			best_calls = calls;
		}
		flowed = sqpoll ? best_ios >= IOS_ENOUGH && best_calls <= best_ios / 100 : after.ios - ios_first >= 100;
	}
	ios = after.ios - ios_first;
	CHECK(!atomic_load(&forbidden), "%d other calls, the first one number %d", atomic_load(&forbidden),
	      atomic_load(&first_forbidden));
	if (sqpoll) {
		CHECK(!atomic_load(&others), "%" PRIu64 " calls neither wake nor sleep", atomic_load(&others));
		CHECK(!atomic_load(&hasty), "%" PRIu64 " of %" PRIu64 " sleeps came before %llu ns of silence",
		      atomic_load(&hasty), atomic_load(&sleeps), (unsigned long long)SILENCE_NS);
		/* The poller may wake up between the look at its flag and ours. */
		CHECK(atomic_load(&unasked) <= job->iodepth, "%" PRIu64 " of %" PRIu64 " wake-ups nobody asked for",
		      atomic_load(&unasked), atomic_load(&wakes));
		CHECK(flowed, "at best %" PRIu64 " calls for %" PRIu64 " I/Os in %llu ms", best_calls, best_ios,
		      (unsigned long long)(SLICE_NS / MS));
		return 0;
	}
	CHECK(flowed, "%" PRIu64 " I/Os in all", ios);
	/* In flight at either end, and the timers, may be counted on one side only. */
	calls = atomic_load(&submits);
	CHECK(calls <= ios + job->iodepth + TICKS_MAX, "%" PRIu64 " submitting calls for %" PRIu64 " I/Os", calls, ios);
	CHECK(atomic_load(&empty_waits) <= TICKS_MAX, "%" PRIu64 " of %" PRIu64 " waits brought nothing",
	      atomic_load(&empty_waits), atomic_load(&waits));
	return 0;
}

static void ask(const struct calyx_job *job)
{
	int status = 0;
	pid_t child = fork();

	CHECK(child >= 0, "fork");
	if (child == 0)
		_exit(judge(job));
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status), "the judge died: %x", status);
	if (WEXITSTATUS(status) == 77)
		SKIP("no seccomp filter, or no io_uring here");
	CHECK(WEXITSTATUS(status) == 0, "setup %d refill %d", (int)job->setup, (int)job->refill);
}

int main(void)
{
	struct calyx_job job = short_job(SIZE);
	uint32_t setups = 0, features;

	if (calyx_ring_probe(&setups, &features) < 0)
		SKIP("no io_uring here");
	scratch_make();
	lay_out(1, SIZE);
	for (enum calyx_setup setup = CALYX_SETUP_DEFER; setup <= CALYX_SETUP_PLAIN; setup++) {
		if (!(setups & 1u << setup))
			continue;
		job.setup = setup;
		job.refill = CALYX_REFILL_EACH;
		ask(&job);
		job.refill = CALYX_REFILL_BATCH;
		ask(&job);
	}
	/* Without a disk: an I/O that takes longer than the silence is slept for. */
	if (setups & 1u << CALYX_SETUP_SQPOLL && sysconf(_SC_NPROCESSORS_ONLN) >= 2) {
		job.setup = CALYX_SETUP_SQPOLL;
		job.nop = true;
		ask(&job);
	}
	return 0;
}
#endif
