/* SPDX-License-Identifier: Apache-2.0
 *
 * Running a program: see child.h.
 */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "calyx/text.h"
#include "moment.h"
#include "proc.h"
#include "protocol.h"

#define DESCENDANTS_MAX 1024

static int memory_file(const char *name)
{
	int fd = (int)syscall(SYS_memfd_create, name, 1 /* MFD_CLOEXEC */);

	return fd < 0 ? -errno : fd;
}

/* Between fork and exec: only what a process with threads may do there. Tells errno through the pipe when exec fails.
 */
static void become(const char *const *arguments, const char *directory, int blocked, const int output_fd[2],
		   int tell_fd)
{
	struct sigaction standard = {.sa_handler = SIG_DFL};
	sigset_t mask;
	int error, null;

	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int signal = 1; signal < NSIG; signal++)
		sigaction(signal, &standard, NULL);
	sigemptyset(&mask);
	if (blocked)
		sigaddset(&mask, blocked);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	null = open("/dev/null", O_RDONLY);
	if (null < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(output_fd[0], STDOUT_FILENO) < 0 ||
	    dup2(output_fd[1], STDERR_FILENO) < 0 || (directory && chdir(directory)))
		goto fail;
	if (null > STDERR_FILENO)
		close(null);
	execvp(arguments[0], (char *const *)arguments);
fail:
	error = errno;
	if (write(tell_fd, &error, sizeof(error)) < 0)
		_exit(126);
	_exit(127);
}

static int spawn(struct child *child, const char *const *arguments, const char *directory, int blocked)
{
	int tell[2], error = 0;

	if (pipe2(tell, O_CLOEXEC))
		return -errno;
	child->pid = fork();
	if (child->pid < 0) {
		error = -errno;
		close(tell[0]);
		close(tell[1]);
		return error;
	}
	if (!child->pid)
		become(arguments, directory, blocked, child->output_fd, tell[1]);
	setpgid(child->pid, child->pid);
	close(tell[1]);
	while (read(tell[0], &error, sizeof(error)) < 0 && errno == EINTR)
		;
	close(tell[0]);
	if (error)
		waitpid(child->pid, NULL, 0);
	return -error;
}

int child_spawn(struct child *child, const char *const *arguments, const char *directory, int blocked, char *why)
{
	struct child made = {.output_fd = {-1, -1}};
	int error = 0;

	made.output_fd[0] = memory_file("stdout");
	made.output_fd[1] = memory_file("stderr");
	for (int i = 0; i < 2; i++)
		if (made.output_fd[i] < 0 && !error)
			error = made.output_fd[i];
	if (!error)
		error = spawn(&made, arguments, directory, blocked);
	if (error) {
		calyx_format(why, WHY_MAX, "cannot run %.200s: %s", arguments[0], strerror(-error));
		made.pid = 0;
		child_free(&made);
		return error;
	}
	*child = made;
	return 0;
}

/* Reaps what ended. True when the program and all its descendants are over. */
static bool is_over(struct child *child)
{
	pid_t pids[DESCENDANTS_MAX];
	size_t count;

	if (!child->ended) {
		if (!waitpid(child->pid, &child->status, WNOHANG))
			return false;
		child->ended = true;
		child->ended_at_ns = moment_now_ns();
	}
	count = proc_descendants(getpid(), false, pids, DESCENDANTS_MAX);
	for (size_t i = 0; i < count; i++)
		waitpid(pids[i], NULL, WNOHANG);
	return !proc_descendants(getpid(), false, pids, DESCENDANTS_MAX);
}

static void signal_all(const struct child *child, int signal)
{
	pid_t pids[DESCENDANTS_MAX];
	size_t count;

	if (!child->ended)
		kill(-child->pid, signal);
	/* Workers of fio call setsid and so leave the group. TERM is for the program, which tells them; KILL is for
	 * all. */
	if (signal != SIGKILL && !child->ended)
		return;
	count = proc_descendants(getpid(), true, pids, DESCENDANTS_MAX);
	for (size_t i = 0; i < count; i++)
		kill(pids[i], signal);
}

static bool is_too_long(const struct child *child)
{
	struct stat status;

	for (int i = 0; i < 2; i++)
		if (!fstat(child->output_fd[i], &status) && status.st_size > (off_t)DOCUMENT_MAX_BYTES)
			return true;
	return false;
}

bool child_step(struct child *child, const struct child_orders *orders)
{
	uint64_t now_ns = moment_now_ns();

	if (is_over(child)) {
		child->too_long = is_too_long(child);
		return true;
	}
	if (!child->term_ns) {
		child->too_long = is_too_long(child);
		child->timed_out = now_ns >= orders->deadline_ns;
		child->stopped = orders->stop;
		if (!child->too_long && !child->timed_out && !child->stopped)
			return false;
		child->term_ns = now_ns;
		signal_all(child, SIGTERM);
	}
	if (!child->kill_ns && !orders->kill && now_ns < child->term_ns + CHILD_GRACE_NS)
		return false;
	if (!child->kill_ns)
		child->kill_ns = now_ns;
	signal_all(child, SIGKILL);
	child->stuck = now_ns >= child->kill_ns + CHILD_GRACE_NS;
	return child->stuck;
}

uint64_t child_next_look_ns(const struct child *child, uint64_t began_ns)
{
	uint64_t now_ns = moment_now_ns(), age_ns = now_ns - began_ns;

	if (child->kill_ns || child->ended || age_ns < 20 * MS_NS)
		return now_ns + MS_NS;
	return now_ns + (age_ns < SECOND_NS ? 5 : 20) * MS_NS;
}

bool child_kill_all(uint64_t timeout_ns)
{
	uint64_t until_ns = moment_now_ns() + timeout_ns;
	pid_t pids[DESCENDANTS_MAX];
	size_t count;

	while ((count = proc_descendants(getpid(), false, pids, DESCENDANTS_MAX))) {
		for (size_t i = 0; i < count; i++) {
			kill(pids[i], SIGKILL);
			waitpid(pids[i], NULL, WNOHANG);
		}
		if (moment_now_ns() >= until_ns)
			return false;
		moment_sleep_until(moment_now_ns() + MS_NS);
	}
	return true;
}

int child_write_file(struct buffer *out, const char *name, int fd)
{
	struct stat status;
	char *data;

	if (fstat(fd, &status))
		return -errno;
	if (!S_ISREG(status.st_mode))
		return -EINVAL;
	if (status.st_size > (off_t)DOCUMENT_MAX_BYTES)
		return -EFBIG;
	if (!status.st_size) {
		message_document(out, name, "", 0);
		return 0;
	}
	data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (data == MAP_FAILED)
		return -errno;
	message_document(out, name, data, (size_t)status.st_size);
	munmap(data, (size_t)status.st_size);
	return 0;
}

void child_write_outputs(const struct child *child, struct buffer *out)
{
	static const char *const names[] = {"stdout", "stderr"};

	for (int i = 0; i < 2; i++) {
		int error = child_write_file(out, names[i], child->output_fd[i]);

		if (error)
			message_document(out, names[i], "", 0);
	}
}

static const char *why_ended(const struct child *child)
{
	if (child->stuck)
		return "stuck in the kernel: not even KILL ended it within 5 s (D state?)";
	if (child->too_long)
		return "its output passed 64 MiB and was thrown away";
	if (child->given_up[0])
		return child->given_up;
	if (child->timed_out)
		return child->kill_ns ? "ended by KILL: it went on past its deadline and ignored TERM"
				      : "ended by TERM: it went on past its deadline";
	return child->stopped ? "stopped" : "";
}

struct json child_exited_begin(const struct child *child, struct buffer *out)
{
	struct json json = message_begin(out, "exited");

	if (child->stopped)
		json_text(&json, "status", "stopped");
	else if (child->ended && WIFEXITED(child->status))
		json_i64(&json, "status", WEXITSTATUS(child->status));
	else
		json_null(&json, "status");
	if (child->ended && WIFSIGNALED(child->status))
		json_i64(&json, "signal", WTERMSIG(child->status));
	else
		json_null(&json, "signal");
	json_bool(&json, "timed_out", child->timed_out);
	json_bool(&json, "stopped", child->stopped);
	json_text(&json, "why", why_ended(child));
	return json;
}

void child_free(struct child *child)
{
	for (int i = 0; i < 2; i++)
		if (child->output_fd[i] >= 0)
			close(child->output_fd[i]);
	child->output_fd[0] = child->output_fd[1] = -1;
}
