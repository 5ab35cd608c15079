/* SPDX-License-Identifier: Apache-2.0
 *
 * The agent: reads commands from stdin, answers on stdout, and ends with its stdin (docs/protocol.md).
 *
 *   calyx-agent                  serves
 *   calyx-agent wait gate=FILE   holds another program until the start line (barrier.h)
 *   calyx-agent --version
 */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "calyx/text.h"
#include "child.h"
#include "guard.h"
#include "moment.h"
#include "owner.h"

#define OUTBOX_MAX_BYTES (512u << 20) /* a reader that left this much unread is gone */
#define END_COMMAND_NS (700 * MS_NS)
#define END_PROGRAMS_NS (300 * MS_NS)
#define END_FLUSH_NS (200 * MS_NS)

/* What a signal handler may touch. */
static volatile sig_atomic_t signal_caught;
static int signal_wake_fd = -1;

struct input {
	char data[LINE_MAX_BYTES];
	size_t length;
	bool overlong; /* the rest of the line is to be skipped */
};

static void on_signal(int signal)
{
	int saved = errno;
	uint64_t one = 1;

	signal_caught = signal;
	if (write(signal_wake_fd, &one, sizeof(one)) < 0)
		errno = saved;
	errno = saved;
}

/* Takes all whole lines out of the input. True at `bye`. */
static bool take_lines(struct agent *agent, struct input *input)
{
	char *from = input->data, *end = input->data + input->length, *newline;
	bool bye = false;

	while (!bye && (newline = memchr(from, '\n', (size_t)(end - from)))) {
		if (!input->overlong && newline > from)
			bye = verbs_take_line(agent, from, (size_t)(newline - from));
		input->overlong = false;
		from = newline + 1;
	}
	input->length = (size_t)(end - from);
	memmove(input->data, from, input->length);
	if (input->length < sizeof(input->data))
		return bye;
	if (!input->overlong)
		verbs_refuse(agent, "", -EMSGSIZE, "a line of more than 65536 bytes was thrown away");
	input->overlong = true;
	input->length = 0;
	return bye;
}

/* 0, or why the agent is to end. */
static const char *read_input(struct agent *agent, struct input *input)
{
	ssize_t got = read(STDIN_FILENO, input->data + input->length, sizeof(input->data) - input->length);

	if (got < 0)
		return errno == EINTR || errno == EAGAIN ? NULL : "its stdin cannot be read";
	if (!got)
		return "its stdin ended";
	atomic_store(&agent->record->heard_ns, moment_now_ns());
	input->length += (size_t)got;
	return take_lines(agent, input) ? "bye" : NULL;
}

static void send_prepare_beat(struct agent *agent)
{
	struct command *command = agent->command;
	struct buffer lines = {0};
	struct json json;
	uint64_t total = command ? atomic_load(&command->total_bytes) : 0;

	if (!total || outbox_waiting(&agent->outbox) > LINE_MAX_BYTES)
		return;
	json = message_begin(&lines, "beat");
	json_text(&json, "phase", "prepare");
	json_u64(&json, "done_bytes", atomic_load(&command->done_bytes));
	json_u64(&json, "total_bytes", total);
	message_end(&json);
	outbox_add(&agent->outbox, &lines);
}

static const char *check_ends(struct agent *agent)
{
	uint64_t lease_ns = atomic_load(&agent->record->lease_ns);

	if (signal_caught)
		return "signal";
	if (outbox_has_failed(&agent->outbox))
		return "memory is short";
	if (outbox_waiting(&agent->outbox) > OUTBOX_MAX_BYTES)
		return "nobody reads its stdout";
	if (lease_ns && moment_now_ns() - atomic_load(&agent->record->heard_ns) > lease_ns)
		return "its lease ran out";
	return NULL;
}

/* Until the next beat, or the end of the lease if that comes before. */
static int timeout_ms(struct agent *agent, uint64_t beat_ns)
{
	uint64_t lease_ns = atomic_load(&agent->record->lease_ns), now_ns = moment_now_ns(), next_ns = beat_ns;

	if (lease_ns && atomic_load(&agent->record->heard_ns) + lease_ns < next_ns)
		next_ns = atomic_load(&agent->record->heard_ns) + lease_ns;
	return next_ns <= now_ns ? 0 : (int)((next_ns - now_ns) / MS_NS) + 1;
}

/* Waits for input, room for output, an event or the next second. NULL, or why the agent is to end. */
static const char *turn(struct agent *agent, struct input *input, uint64_t *beat_ns)
{
	struct pollfd polled[] = {
		{.fd = STDIN_FILENO, .events = POLLIN},
		{.fd = STDOUT_FILENO, .events = outbox_waiting(&agent->outbox) ? POLLOUT : 0},
		{.fd = agent->outbox.wake_fd, .events = POLLIN},
	};
	const char *end = NULL;
	uint64_t events;

	if (poll(polled, 3, timeout_ms(agent, *beat_ns)) < 0)
		return errno == EINTR ? NULL : "poll failed";
	if (polled[2].revents && read(agent->outbox.wake_fd, &events, sizeof(events)) < 0 && errno != EAGAIN)
		return "its event counter failed";
	if (agent->command && atomic_load(&agent->command->done))
		command_finish(agent->command);
	if (polled[0].revents)
		end = read_input(agent, input);
	if (moment_now_ns() >= *beat_ns) {
		send_prepare_beat(agent);
		*beat_ns = moment_now_ns() + SECOND_NS;
	}
	if (!end && (polled[1].revents & (POLLERR | POLLHUP | POLLNVAL)))
		end = "its stdout was closed";
	if (outbox_flush(&agent->outbox, STDOUT_FILENO) && !end)
		end = "its stdout was closed";
	return end ? end : check_ends(agent);
}

static int send_hello(struct agent *agent)
{
	struct buffer lines = {0};
	struct utsname name;
	struct json json;
	int error;

	error = sha256_file("/proc/self/exe", agent->sha256);
	if (error)
		return error;
	uname(&name);
	buffer_text(&lines, PROTOCOL_MARKER);
	json = message_begin(&lines, "hello");
	json_u64(&json, "protocol", PROTOCOL_VERSION);
	json_text(&json, "version", CALYX_AGENT_VERSION);
	json_text(&json, "sha256", agent->sha256);
	json_text(&json, "arch", name.machine);
	json_i64(&json, "pid", getpid());
	json_text(&json, "path", agent->path);
	json_text(&json, "work", agent->record->work);
	message_end(&json);
	outbox_add(&agent->outbox, &lines);
	return 0;
}

/* Ends what runs, removes what was made. Bounded: a thread that hangs in the kernel is left behind. */
static int finish(struct agent *agent, const char *why)
{
	uint64_t until_ns = moment_now_ns() + END_COMMAND_NS;
	int status = signal_caught ? 128 + signal_caught : 0;

	if (agent->command)
		command_stop(agent->command, true);
	while (agent->command && !atomic_load(&agent->command->done) && moment_now_ns() < until_ns)
		moment_sleep_until(moment_now_ns() + MS_NS);
	child_kill_all(END_PROGRAMS_NS);
	if (files_clean(agent->record, NULL, NULL)) {
		calyx_say(STDERR_FILENO, "calyx-agent: ends (%s), but not all of its files could be removed\n", why);
		status = 1;
	}
	files_remove_work(agent->record);
	until_ns = moment_now_ns() + END_FLUSH_NS;
	while (outbox_waiting(&agent->outbox) && moment_now_ns() < until_ns) {
		if (outbox_flush(&agent->outbox, STDOUT_FILENO))
			break;
		moment_sleep_until(moment_now_ns() + MS_NS);
	}
	device_let_go(&agent->record->devices); /* last, since a disk that hangs holds it up */
	/* A guard that was stopped would stay behind. */
	if (agent->record->guard && getppid() == agent->record->guard)
		kill(agent->record->guard, SIGCONT);
	return status;
}

static void catch_signals(int wake_fd)
{
	struct sigaction caught = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
	struct sigaction ignored = {.sa_handler = SIG_IGN};

	signal_wake_fd = wake_fd;
	sigaction(SIGTERM, &caught, NULL);
	sigaction(SIGINT, &caught, NULL);
	sigaction(SIGHUP, &caught, NULL);
	sigaction(SIGPIPE, &ignored, NULL);
}

/* Registered buffers count against this limit; what the system allows us is taken, and told among the facts. */
static void raise_memory_lock_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit))
		return;
	limit.rlim_cur = limit.rlim_max;
	prlimit(0, RLIMIT_MEMLOCK, &limit, NULL); /* setrlimit of musl stops all threads, by a kilobyte of code */
}

/* With a note in it, so that what a dead agent left is known for what it is. */
static int make_work(struct record *record, const char *path)
{
	static const struct owner owner = {.kind = "work"};
	int error = files_make_work(record, path);

	if (!error) {
		error = owner_settle(record->work, &owner);
		record->work_held = error > 0 ? error : 0;
	}
	return error < 0 ? error : 0;
}

/* Two controllers that bring an agent at once put the second in the place of the first, by renaming: it has the name of
 * its digest, so it is the same, but to the kernel the first one's path is deleted. 0, or -1 with errno. */
static int find_itself(char path[PATH_MAX])
{
	static const char GONE[] = " (deleted)";
	ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
	const ssize_t gone = sizeof(GONE) - 1;

	if (length < 0)
		return -1;
	path[length] = 0;
	if (length > gone && !strcmp(path + length - gone, GONE)) {
		path[length - gone] = 0;
		if (access(path, X_OK))
			path[length - gone] = GONE[0];
	}
	return 0;
}

static int serve(struct record *record)
{
	static struct agent agent;
	static struct input input;
	uint64_t beat_ns = moment_now_ns() + SECOND_NS;
	const char *end = NULL;
	int error, wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	agent.record = record;
	outbox_init(&agent.outbox, wake_fd);
	catch_signals(wake_fd);
	prctl(PR_SET_NAME, "calyx-agent", 0, 0, 0);
	prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	umask(077);
	raise_memory_lock_limit();
	error = wake_fd < 0 || find_itself(agent.path) ? -errno : make_work(record, agent.path);
	if (!error)
		error = send_hello(&agent);
	if (error) {
		calyx_say(STDERR_FILENO, "calyx-agent: cannot begin: %s\n", strerror(-error));
		files_remove_work(record);
		return 1;
	}
	atomic_store(&record->heard_ns, moment_now_ns());
	while (!end)
		end = turn(&agent, &input, &beat_ns);
	return finish(&agent, end);
}

int main(int argc, char **argv)
{
	struct record *record;

	if (argc >= 2 && !strcmp(argv[1], "wait"))
		_exit(gate_wait_main(argc, argv));
	if (argc == 2 && !strcmp(argv[1], "--version")) {
		calyx_say(STDOUT_FILENO, "calyx-agent %s protocol %d\n", CALYX_AGENT_VERSION, PROTOCOL_VERSION);
		return 0;
	}
	if (argc != 1 || fcntl(STDIN_FILENO, F_GETFD) < 0 || fcntl(STDOUT_FILENO, F_GETFD) < 0) {
		calyx_say(STDERR_FILENO, "usage: calyx-agent | calyx-agent wait gate=FILE | calyx-agent --version\n"
					 "It serves its stdin and stdout, which must be open.\n");
		return 2;
	}
	record = mmap(NULL, sizeof(*record), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (record == MAP_FAILED) {
		calyx_say(STDERR_FILENO, "calyx-agent: no memory\n");
		return 1;
	}
	/* _exit: a thread that hangs in the kernel must not hold up the end. */
	_exit(guard_watch(record, serve));
}
