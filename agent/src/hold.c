/* SPDX-License-Identifier: Apache-2.0
 *
 * The command `exec hold=N`: starts a program early, waits until all N of its parts stand at the gate, releases them at
 * the start line and accounts for the same window as a `run` (docs/protocol.md).
 */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calyx/text.h"
#include "child.h"
#include "moment.h"
#include "proc.h"
#include "usage.h"

#define KEYS "hold arg* ramp_ns runtime_ns collect* deadline_ns timeout_ms arm_within_ms device"
#define TIME_MAX_NS (24 * 366 * 3600ull * SECOND_NS)
#define READY_TIMEOUT_MS 120000
#define DEADLINE_GRACE_NS (30 * SECOND_NS)
/* The counters are watched this long for a first movement: closely at first, then, of a fio that a slow guest takes
 * long to start, less so. */
#define FIRST_IO_NS (500 * MS_NS)
#define FIRST_IO_CLOSE_NS (50 * MS_NS)
#define FIRST_IO_CLOSE_STEP_NS 100000ull
#define FIRST_IO_STEP_NS MS_NS
#define WATCHED_MAX 64

struct hold {
	struct command *command;
	struct gate gate;
	struct child child;
	struct usage *usage;
	const char **arguments, **collect;
	uint64_t waiters, ramp_ns, runtime_ns, deadline_ns, timeout_ms, arm_within_ms, start_ns;
	unsigned int seen;
	uint64_t released_ns, base_bytes;
	pid_t watched[WATCHED_MAX];
	size_t watched_count;
};

static int parse(struct hold *hold, char *why)
{
	const struct line *line = &hold->command->line;
	const uint64_t grace_ns = DEADLINE_GRACE_NS;

	if (line_check(line, KEYS, why) || line_number(line, "hold", 0, CALYX_JOBS_MAX, &hold->waiters, why) ||
	    line_number(line, "ramp_ns", 0, TIME_MAX_NS, &hold->ramp_ns, why) ||
	    line_number(line, "runtime_ns", 0, TIME_MAX_NS, &hold->runtime_ns, why) ||
	    line_number(line, "timeout_ms", READY_TIMEOUT_MS, TIME_MAX_NS / MS_NS, &hold->timeout_ms, why) ||
	    line_number(line, "arm_within_ms", 0, TIME_MAX_NS / MS_NS, &hold->arm_within_ms, why) ||
	    line_number(line, "deadline_ns", hold->ramp_ns + hold->runtime_ns + grace_ns, TIME_MAX_NS,
			&hold->deadline_ns, why))
		return -EINVAL;
	if (!hold->waiters || !hold->runtime_ns || !line_get(line, "arg")) {
		calyx_format(why, WHY_MAX, "a held 'exec' needs hold= of at least 1, runtime_ns= and arg=");
		return -EINVAL;
	}
	if (!hold->arm_within_ms)
		hold->arm_within_ms = ARM_WITHIN_MS;
	hold->arguments = line_list(line, "arg");
	hold->collect = line_list(line, "collect");
	if (!hold->arguments || !hold->collect) {
		calyx_format(why, WHY_MAX, "no memory for the command");
		return -ENOMEM;
	}
	return 0;
}

/* One look at the program, then a sleep until the next, at most until `until_ns`. True when it is over. */
static bool step(struct hold *hold, uint64_t until_ns, uint64_t deadline_ns)
{
	struct child_orders orders = {
		.stop = command_stopped(hold->command),
		.kill = command_killed(hold->command),
		.deadline_ns = deadline_ns,
	};

	if (child_step(&hold->child, &orders))
		return true;
	command_sleep(hold->command, &hold->seen, until_ns);
	return false;
}

/* False when the program ended before all its parts stood at the gate. */
static bool wait_for_arrivals(struct hold *hold)
{
	uint64_t deadline_ns = moment_now_ns() + hold->timeout_ms * MS_NS;
	uint32_t arrived;

	while ((arrived = gate_arrived(&hold->gate)) < hold->waiters || command_stopped(hold->command)) {
		if (step(hold, moment_now_ns() + MS_NS, deadline_ns))
			return false;
		gate_wait_arrival(&hold->gate, arrived, 5 * MS_NS);
	}
	return true;
}

/* False when the program ended before it was armed, also because it was not armed in time. */
static bool wait_for_arm(struct hold *hold)
{
	uint64_t until_ns = moment_now_ns() + hold->arm_within_ms * MS_NS;
	bool given_up = false;

	while (!(hold->start_ns = command_start_ns(hold->command))) {
		if (!given_up && moment_now_ns() >= until_ns && !command_stopped(hold->command)) {
			if (command_withdraw(hold->command))
				continue;
			given_up = hold->child.timed_out = true;
			calyx_format(hold->child.given_up, sizeof(hold->child.given_up),
				     "it was ready, but no start line came within %llu ms",
				     (unsigned long long)hold->arm_within_ms);
			gate_abort(&hold->gate);
		}
		if (step(hold, moment_now_ns() + 50 * MS_NS, given_up ? until_ns : UINT64_MAX))
			return false;
	}
	return true;
}

static uint64_t watched_bytes(const struct hold *hold)
{
	uint64_t sum = 0, bytes;

	for (size_t i = 0; i < hold->watched_count; i++)
		if (proc_io_bytes(hold->watched[i], &bytes))
			sum += bytes;
	return sum;
}

static void send_started(struct hold *hold, uint64_t now_ns, uint64_t bound_ns, const char *how)
{
	struct buffer lines = {0};
	struct json json = message_begin(&lines, "started");

	json_u64(&json, "now_ns", now_ns);
	json_u64(&json, "bound_ns", bound_ns);
	json_text(&json, "how", how);
	message_end(&json);
	command_send(hold->command, &lines);
}

/* Watches the I/O counters of the program and its descendants from the start line on. */
static void watch_first_io(struct hold *hold)
{
	const uint64_t close_ns = hold->start_ns + FIRST_IO_CLOSE_NS;
	uint64_t until_ns = hold->start_ns + (hold->deadline_ns < FIRST_IO_NS ? hold->deadline_ns : FIRST_IO_NS);
	uint64_t before_ns, now_ns;

	moment_fine_timers();
	moment_sleep_until(hold->start_ns - 2 * MS_NS);
	hold->watched_count = proc_descendants(getpid(), true, hold->watched, WATCHED_MAX);
	hold->base_bytes = watched_bytes(hold);
	moment_sleep_until(hold->start_ns);
	before_ns = hold->start_ns;
	while ((now_ns = moment_now_ns()) < until_ns && !command_stopped(hold->command)) {
		bool moved = watched_bytes(hold) > hold->base_bytes;

		now_ns = moment_now_ns();
		if (moved) {
			send_started(hold, now_ns, now_ns - before_ns, "first-io");
			return;
		}
		before_ns = now_ns;
		moment_sleep_until(now_ns + (now_ns < close_ns ? FIRST_IO_CLOSE_STEP_NS : FIRST_IO_STEP_NS));
	}
	now_ns = gate_released_ns(&hold->gate);
	send_started(hold, now_ns ? now_ns : hold->start_ns, 0, "released");
}

static void send_beat(struct hold *hold)
{
	uint64_t bytes = watched_bytes(hold);
	struct buffer lines = {0};
	struct json json;

	if (!command_begin_beat(hold->command, &lines, &json, hold->start_ns + hold->ramp_ns))
		return;
	json_null(&json, "ios"); /* the kernel counts bytes of a process, not I/Os */
	json_u64(&json, "bytes", bytes > hold->base_bytes ? bytes - hold->base_bytes : 0);
	json_null(&json, "oldest_ns");
	message_end(&json);
	command_send(hold->command, &lines);
}

/* From the start line to the end of the program. */
static void watch(struct hold *hold)
{
	uint64_t beat_ns = hold->start_ns + SECOND_NS, window_ns = hold->start_ns + hold->ramp_ns;

	hold->usage = usage_begin(USAGE_DESCENDANTS, window_ns, window_ns + hold->runtime_ns);
	while (moment_now_ns() + 20 * MS_NS < hold->start_ns)
		if (step(hold, hold->start_ns - 20 * MS_NS, UINT64_MAX))
			return;
	if (!command_stopped(hold->command))
		watch_first_io(hold);
	while (!step(hold, child_next_look_ns(&hold->child, hold->start_ns), hold->start_ns + hold->deadline_ns)) {
		if (moment_now_ns() < beat_ns)
			continue;
		send_beat(hold);
		beat_ns += SECOND_NS;
	}
}

static void collect_file(struct hold *hold, const char *path, struct json *missing)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char full[2 * PATH_MAX];
	int fd, error;

	calyx_format(full, sizeof(full), "%s/%s", *path == '/' ? "" : hold->command->agent->record->work, path);
	fd = open(full, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	error = fd < 0 ? -errno : child_write_file(&hold->command->closing, name, fd);
	if (fd >= 0)
		close(fd);
	if (!error)
		return;
	json_object(missing);
	json_text(missing, "name", name);
	json_text(missing, "why", strerror(-error));
	json_object_end(missing);
}

static void tell(struct hold *hold)
{
	struct buffer *closing = &hold->command->closing, missing = {0};
	struct json missing_json = {.out = &missing}, json;

	if (hold->usage && usage_end(hold->usage))
		usage_write(hold->usage, closing);
	usage_free(hold->usage);
	child_write_outputs(&hold->child, closing);
	json_array(&missing_json);
	for (size_t i = 0; hold->collect[i]; i++)
		collect_file(hold, hold->collect[i], &missing_json);
	json_array_end(&missing_json);
	json = child_exited_begin(&hold->child, closing);
	if (hold->released_ns)
		json_u64(&json, "released_ns", hold->released_ns);
	else
		json_null(&json, "released_ns");
	json_u64(&json, "waiting", gate_arrived(&hold->gate));
	json_key(&json, "missing");
	buffer_append(closing, missing.data, missing.length);
	json.comma = true;
	message_end(&json);
	buffer_free(&missing);
}

static void hold_program(struct hold *hold)
{
	struct buffer lines = {0};
	struct json json;

	if (wait_for_arrivals(hold)) {
		command_offer(hold->command, NULL, &hold->gate);
		json = message_begin(&lines, "ready");
		json_text(&json, "engine", "exec");
		json_u64(&json, "waiting", gate_arrived(&hold->gate));
		message_end(&json);
		command_send(hold->command, &lines);
		if (wait_for_arm(hold))
			watch(hold);
		command_offer(hold->command, NULL, NULL);
	}
	hold->released_ns = gate_released_ns(&hold->gate);
	tell(hold);
}

/* The program is about to use a raw device, which must be the one that is held. */
static int check_device(struct command *command, char *why)
{
	int64_t used = device_is_held(&command->agent->record->devices, line_get(&command->line, "device"), why);

	if (!used)
		calyx_format(why, WHY_MAX, "%.300s is no block device", line_get(&command->line, "device"));
	return used > 0 ? 0 : used ? (int)used : -ENOTBLK;
}

void work_hold(struct command *command)
{
	struct hold hold = {.command = command};
	const char *work = command->agent->record->work;
	char why[WHY_MAX], path[PATH_MAX + 8];
	int error;

	calyx_format(path, sizeof(path), "%s/" GATE, work);
	error = parse(&hold, why);
	if (!error) {
		error = gate_create(&hold.gate, path);
		if (error)
			calyx_format(why, sizeof(why), "cannot make the gate in %.300s: %s", work, strerror(-error));
	}
	if (!error && line_get(&command->line, "device"))
		error = check_device(command, why);
	/* SIGCHLD is blocked in all threads of the program: the end of one job's `exec_prerun` would interrupt the
	 * io_uring_enter() of a job that already runs. fio (3.33 to 3.42 at least) makes that system call without
	 * libc, looks into an errno that was never set, takes 0 for "no error" and ends the job: error 0, exit status
	 * 0. */
	if (!error)
		error = child_spawn(&hold.child, (const char *const *)hold.arguments, work, SIGCHLD, why);
	if (error) {
		command_refuse(command, error, "%s", why);
	} else {
		hold_program(&hold);
		child_free(&hold.child);
	}
	gate_close(&hold.gate);
	files_empty(work);
	free(hold.arguments);
	free(hold.collect);
}
