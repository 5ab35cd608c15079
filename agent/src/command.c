/* SPDX-License-Identifier: Apache-2.0
 *
 * The one command that is worked on: see agent.h.
 */
#include "agent.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calyx/text.h"
#include "moment.h"
#include "proc.h"

#define STACK_BYTES (512 << 10)

static void *command_thread(void *argument)
{
	struct command *command = argument;
	struct agent *agent = command->agent;
	uint64_t one = 1;

	command->work(command);
	atomic_store(&command->done, true);
	if (write(agent->outbox.wake_fd, &one, sizeof(one)) < 0)
		return NULL; /* the main thread is awake anyway */
	return NULL;
}

int command_begin(struct agent *agent, struct line *line, void (*work)(struct command *command))
{
	struct command *command = calloc(1, sizeof(*command));
	pthread_condattr_t clock;
	pthread_attr_t stack;
	int error;

	if (!command)
		return -ENOMEM;
	command->agent = agent;
	command->work = work;
	command->line = *line;
	pthread_mutex_init(&command->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&command->changed, &clock);
	pthread_attr_init(&stack);
	pthread_attr_setstacksize(&stack, STACK_BYTES);
	error = pthread_create(&command->thread, &stack, command_thread, command);
	if (error) {
		free(command);
		return -error;
	}
	*line = (struct line){0};
	agent->command = command;
	return 0;
}

void command_stop(struct command *command, bool kill)
{
	pthread_mutex_lock(&command->lock);
	command->stop = true;
	command->kill |= kill;
	command->changes++;
	if (command->crew)
		calyx_crew_stop(command->crew);
	if (command->gate && command->state != COMMAND_ARMED)
		gate_abort(command->gate);
	pthread_cond_broadcast(&command->changed);
	pthread_mutex_unlock(&command->lock);
}

static int arm_locked(struct command *command, uint64_t start_ns, char *why)
{
	uint64_t now_ns = moment_now_ns();
	int error = -EINVAL;

	if (command->state == COMMAND_ARMED) {
		calyx_format(why, WHY_MAX, "'%s' is armed already", command->line.verb);
		return error;
	}
	if (command->state != COMMAND_READY || command->stop) {
		calyx_format(why, WHY_MAX, "'%s' is not ready to be armed", command->line.verb);
		return error;
	}
	error = 0;
	if (start_ns <= now_ns)
		error = -ETIME;
	else if (command->crew)
		error = calyx_crew_start(command->crew, start_ns);
	else
		gate_open(command->gate, start_ns);
	if (error == -ETIME)
		calyx_format(why, WHY_MAX, "that start line passed %llu us ago",
			     (unsigned long long)(moment_now_ns() - start_ns) / 1000);
	else if (error)
		calyx_format(why, WHY_MAX, "the engine cannot be armed: %s", strerror(-error));
	if (error)
		return error;
	command->state = COMMAND_ARMED;
	command->changes++;
	command->start_ns = start_ns;
	pthread_cond_broadcast(&command->changed);
	return 0;
}

int command_arm(struct command *command, uint64_t start_ns, char *why)
{
	int error;

	pthread_mutex_lock(&command->lock);
	error = arm_locked(command, start_ns, why);
	pthread_mutex_unlock(&command->lock);
	return error;
}

void command_finish(struct command *command)
{
	struct agent *agent = command->agent;

	pthread_join(command->thread, NULL);
	outbox_add(&agent->outbox, &command->closing);
	pthread_cond_destroy(&command->changed);
	pthread_mutex_destroy(&command->lock);
	line_free(&command->line);
	free(command);
	agent->command = NULL;
}

void command_send(struct command *command, struct buffer *lines)
{
	outbox_add(&command->agent->outbox, lines);
}

bool command_begin_beat(struct command *command, struct buffer *lines, struct json *json, uint64_t window_ns)
{
	uint64_t times_ns[PROC_TIMES], now_ns = moment_now_ns();

	if (outbox_waiting(&command->agent->outbox) > LINE_MAX_BYTES)
		return false;
	*json = message_begin(lines, "beat");
	json_text(json, "phase", now_ns < window_ns ? "ramp" : "run");
	json_u64(json, "now_ns", now_ns);
	json_u64(json, "cpus", proc_times(times_ns));
	json_u64(json, "steal_ns", times_ns[PROC_STEAL]);
	return true;
}

bool command_stopped(struct command *command)
{
	bool stop;

	pthread_mutex_lock(&command->lock);
	stop = command->stop;
	pthread_mutex_unlock(&command->lock);
	return stop;
}

bool command_killed(struct command *command)
{
	bool kill;

	pthread_mutex_lock(&command->lock);
	kill = command->kill;
	pthread_mutex_unlock(&command->lock);
	return kill;
}

void command_sleep(struct command *command, unsigned int *seen, uint64_t until_ns)
{
	struct timespec until = moment_timespec(until_ns);

	pthread_mutex_lock(&command->lock);
	while (*seen == command->changes)
		if (pthread_cond_timedwait(&command->changed, &command->lock, &until))
			break;
	*seen = command->changes;
	pthread_mutex_unlock(&command->lock);
}

void command_offer(struct command *command, struct calyx_crew *crew, struct gate *gate)
{
	pthread_mutex_lock(&command->lock);
	command->crew = crew;
	command->gate = gate;
	command->state = crew || gate ? COMMAND_READY : COMMAND_WORKING;
	pthread_mutex_unlock(&command->lock);
}

uint64_t command_withdraw(struct command *command)
{
	uint64_t start_ns;

	pthread_mutex_lock(&command->lock);
	start_ns = command->start_ns;
	if (!start_ns) {
		command->crew = NULL;
		command->gate = NULL;
		command->state = COMMAND_WORKING;
	}
	pthread_mutex_unlock(&command->lock);
	return start_ns;
}

uint64_t command_start_ns(struct command *command)
{
	uint64_t start_ns;

	pthread_mutex_lock(&command->lock);
	start_ns = command->start_ns;
	pthread_mutex_unlock(&command->lock);
	return start_ns;
}

void command_refuse(struct command *command, int error, const char *format, ...)
{
	char why[WHY_MAX];
	va_list arguments;

	va_start(arguments, format);
	calyx_format_list(why, sizeof(why), format, arguments);
	va_end(arguments);
	message_refused(&command->closing, command->line.verb, error, why);
}
