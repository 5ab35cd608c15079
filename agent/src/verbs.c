/* SPDX-License-Identifier: Apache-2.0
 *
 * The verbs of docs/protocol.md: some are answered at once, the others are begun as a command.
 */
#include "agent.h"

#include <errno.h>
#include <string.h>

#include "calyx/text.h"
#include "moment.h"

#define LEASE_MAX_MS (24 * 3600 * 1000ull)

static void reply(struct agent *agent, struct buffer *lines)
{
	outbox_add(&agent->outbox, lines);
}

void verbs_refuse(struct agent *agent, const char *verb, int error, const char *why)
{
	struct buffer lines = {0};

	message_refused(&lines, verb, error, why);
	reply(agent, &lines);
}

/* The verbs that are answered at once. Each returns 0, or -errno with a sentence in why. */

static int do_alive(struct agent *agent, const struct line *line, char *why)
{
	(void)agent;
	return line_check(line, "", why);
}

static int do_clock(struct agent *agent, const struct line *line, char *why)
{
	uint64_t now_ns = moment_now_ns(), n;
	struct buffer lines = {0};
	struct json json;
	int error = line_check(line, "n", why);

	if (!error)
		error = line_number(line, "n", 0, UINT64_MAX, &n, why);
	if (error)
		return error;
	json = message_begin(&lines, "clock");
	json_u64(&json, "n", n);
	json_u64(&json, "now_ns", now_ns);
	message_end(&json);
	reply(agent, &lines);
	return 0;
}

static int do_lease(struct agent *agent, const struct line *line, char *why)
{
	uint64_t ms;
	int error = line_check(line, "ms", why);

	if (!error)
		error = line_number(line, "ms", 0, LEASE_MAX_MS, &ms, why);
	if (!error)
		atomic_store(&agent->record->lease_ns, ms * MS_NS);
	return error;
}

static int do_arm(struct agent *agent, const struct line *line, char *why)
{
	struct buffer lines = {0};
	uint64_t start_ns;
	struct json json;
	int error = line_check(line, "start_ns", why);

	if (!error)
		error = line_number(line, "start_ns", 0, INT64_MAX, &start_ns, why);
	if (error)
		return error;
	if (!agent->command) {
		calyx_format(why, WHY_MAX, "nothing is ready to be armed");
		return -EINVAL;
	}
	error = command_arm(agent->command, start_ns, why);
	if (error)
		return error;
	json = message_begin(&lines, "armed");
	json_u64(&json, "start_ns", start_ns);
	message_end(&json);
	reply(agent, &lines);
	return 0;
}

static int do_stop(struct agent *agent, const struct line *line, char *why)
{
	struct buffer lines = {0};
	struct json json;
	int error = line_check(line, "", why);

	if (error)
		return error;
	if (agent->command) {
		command_stop(agent->command, false);
		return 0;
	}
	json = message_begin(&lines, "stopped");
	message_end(&json);
	reply(agent, &lines);
	return 0;
}

static const struct {
	const char *verb;
	int (*act)(struct agent *agent, const struct line *line, char *why);
} immediate_verbs[] = {
	{"alive", do_alive}, {"arm", do_arm}, {"clock", do_clock}, {"lease", do_lease}, {"stop", do_stop},
};

static const struct {
	const char *verb;
	void (*work)(struct command *command);
} working_verbs[] = {
	{"clean", work_clean}, {"exec", work_exec},	{"facts", work_facts},
	{"floor", work_floor}, {"lost", work_lost},	{"prepare", work_prepare},
	{"run", work_run},     {"settle", work_settle}, {"truth", work_truth},
};

static int begin_work(struct agent *agent, struct line *line, void (*work)(struct command *command), char *why)
{
	int error;

	if (agent->command && atomic_load(&agent->command->done))
		command_finish(agent->command);
	if (agent->command) {
		calyx_format(why, WHY_MAX, "busy with '%s'", agent->command->line.verb);
		return -EBUSY;
	}
	if (work == work_exec && line_get(line, "hold"))
		work = work_hold;
	if (work == work_prepare && line_get(line, "device"))
		work = work_device;
	error = command_begin(agent, line, work);
	if (error)
		calyx_format(why, WHY_MAX, "cannot begin: %s", strerror(-error));
	return error;
}

static int act(struct agent *agent, struct line *line, char *why)
{
	for (size_t i = 0; i < sizeof(immediate_verbs) / sizeof(*immediate_verbs); i++)
		if (!strcmp(line->verb, immediate_verbs[i].verb))
			return immediate_verbs[i].act(agent, line, why);
	for (size_t i = 0; i < sizeof(working_verbs) / sizeof(*working_verbs); i++)
		if (!strcmp(line->verb, working_verbs[i].verb))
			return begin_work(agent, line, working_verbs[i].work, why);
	calyx_format(why, WHY_MAX, "unknown verb '%.60s'", line->verb);
	return -EINVAL;
}

bool verbs_take_line(struct agent *agent, const char *text, size_t length)
{
	char why[WHY_MAX];
	struct line line;
	int error;
	bool bye;

	error = line_parse(text, length, &line, why);
	if (error) {
		verbs_refuse(agent, "", error, why);
		return false;
	}
	bye = !strcmp(line.verb, "bye");
	error = bye ? 0 : act(agent, &line, why);
	if (error)
		verbs_refuse(agent, line.verb, error, why);
	line_free(&line);
	return bye;
}
