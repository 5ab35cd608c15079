/* SPDX-License-Identifier: Apache-2.0
 *
 * The command `exec` without a gate: runs a program at once and tells its output.
 */
#include "agent.h"

#include <errno.h>
#include <stdlib.h>

#include "child.h"
#include "moment.h"

#define TIMEOUT_MS 60000
#define TIMEOUT_MAX_MS (24 * 3600 * 1000ull)

static void run_program(struct command *command, const char *const *arguments, uint64_t timeout_ms)
{
	uint64_t began_ns = moment_now_ns();
	struct child_orders orders = {.deadline_ns = began_ns + timeout_ms * MS_NS};
	char why[WHY_MAX];
	struct child child;
	struct json json;
	unsigned int seen = 0;
	int error;

	error = child_spawn(&child, arguments, command->agent->record->work, 0, why);
	if (error) {
		command_refuse(command, error, "%s", why);
		return;
	}
	while (!child_step(&child, &orders)) {
		command_sleep(command, &seen, child_next_look_ns(&child, began_ns));
		orders.stop = command_stopped(command);
		orders.kill = command_killed(command);
	}
	child_write_outputs(&child, &command->closing);
	json = child_exited_begin(&child, &command->closing);
	message_end(&json);
	child_free(&child);
}

void work_exec(struct command *command)
{
	const char **arguments;
	uint64_t timeout_ms;
	char why[WHY_MAX];

	if (line_check(&command->line, "arg* timeout_ms", why) ||
	    line_number(&command->line, "timeout_ms", TIMEOUT_MS, TIMEOUT_MAX_MS, &timeout_ms, why)) {
		command_refuse(command, EINVAL, "%s", why);
		return;
	}
	arguments = line_list(&command->line, "arg");
	if (!arguments || !arguments[0])
		command_refuse(command, EINVAL, "'exec' needs arg=, the program to run");
	else
		run_program(command, (const char *const *)arguments, timeout_ms);
	free(arguments);
}
