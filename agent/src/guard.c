/* SPDX-License-Identifier: Apache-2.0
 *
 * The guard: see guard.h. It is the parent, and not a child, because orphans of a killed agent then become its own
 * children, so that it finds every one of them. It holds neither stdin nor stdout: the channel closes when the agent
 * ends.
 */
#include "guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calyx/text.h"
#include "child.h"
#include "moment.h"

#define TICK_NS (500 * MS_NS)
#define LEASE_GRACE_TICKS 4 /* the agent ends itself at the end of its lease: then it is taken for dead */
#define SIGNAL_GRACE_TICKS 12

struct watch {
	struct record *record;
	pid_t agent;
	uint64_t heard_ns;
	unsigned int silent_ticks, signal_ticks;
	bool signalled;
};

/* Counts ticks, not the clock: a guest that was paused for an hour must find its agent alive when it goes on. */
static bool is_agent_dead(struct watch *watch)
{
	uint64_t lease_ns = atomic_load(&watch->record->lease_ns), heard_ns = atomic_load(&watch->record->heard_ns);

	watch->signal_ticks += watch->signalled;
	watch->silent_ticks = heard_ns == watch->heard_ns ? watch->silent_ticks + 1 : 0;
	watch->heard_ns = heard_ns;
	if (watch->signal_ticks > SIGNAL_GRACE_TICKS)
		return true;
	return lease_ns && watch->silent_ticks > lease_ns / TICK_NS + LEASE_GRACE_TICKS;
}

/* Says why on stderr, where the controller finds an agent's last words. */
static int clean_after(struct watch *watch, const char *why, int number)
{
	const char *ended = "its fio and its files are gone";
	int error;

	child_kill_all(5 * SECOND_NS);
	/* Those were descriptors of another process, which took them along. */
	memset(watch->record->held, 0, sizeof(watch->record->held));
	watch->record->work_held = 0;
	device_let_go_of_dead(&watch->record->devices);
	error = files_clean(watch->record, NULL, NULL);
	for (unsigned int i = 0; i < MADE_MAX; i++)
		if (watch->record->kept[i].how == KEPT_CLOSED)
			ended = "its fio is gone, its kept files stay";
	if (error)
		ended = "not all of its files could be removed";
	files_remove_work(watch->record);
	calyx_say(STDERR_FILENO, "calyx-agent: %s %d; %s\n", why, number, ended);
	return 1;
}

static int watch_agent(struct watch *watch, const sigset_t *signals)
{
	struct timespec tick = moment_timespec(TICK_NS);
	int status;

	for (;;) {
		int signal = sigtimedwait(signals, NULL, &tick);

		while (signal == SIGCHLD) {
			pid_t ended = waitpid(-1, &status, WNOHANG);

			if (ended <= 0)
				break;
			if (ended == watch->agent)
				return WIFEXITED(status) ? WEXITSTATUS(status)
							 : clean_after(watch, "killed by signal", WTERMSIG(status));
		}
		if (signal == SIGTERM || signal == SIGINT || signal == SIGHUP) {
			watch->signalled = true;
			kill(watch->agent, signal);
		}
		if (signal < 0 && errno == EAGAIN && is_agent_dead(watch)) {
			kill(watch->agent, SIGKILL);
			return clean_after(watch, "stood still beyond its lease; ended by signal", SIGKILL);
		}
	}
}

static void let_go_of_channel(void)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null < 0)
		return;
	dup2(null, STDIN_FILENO);
	dup2(null, STDOUT_FILENO);
	if (null > STDERR_FILENO)
		close(null);
}

int guard_watch(struct record *record, int (*serve)(struct record *record))
{
	struct watch watch = {.record = record};
	pid_t guard = getpid();
	sigset_t signals, before;

	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, &before);
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	record->guard = guard;
	watch.agent = fork();
	if (watch.agent < 0)
		record->guard = 0;
	if (watch.agent <= 0) {
		sigprocmask(SIG_SETMASK, &before, NULL);
		if (!watch.agent) {
			prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
			if (getppid() != guard)
				return 1;
		}
		return serve(record); /* without a guard when the fork failed */
	}
	prctl(PR_SET_NAME, "calyx-guard", 0, 0, 0);
	let_go_of_channel();
	return watch_agent(&watch, &signals);
}
