/* SPDX-License-Identifier: Apache-2.0
 *
 * The command `run`: opens a crew of the engine, starts it at the start line, tells how it goes and what came out.
 */
#include "agent.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "calyx/text.h"
#include "document.h"
#include "job.h"
#include "moment.h"
#include "usage.h"

#define STARTED_STEP_NS (5 * MS_NS)
#define OVERTIME_NS (5 * SECOND_NS) /* past its deadline, at which the engine ends by itself, it is given up */

static void send_ready(struct command *command, const struct calyx_setup_taken *setup)
{
	struct buffer lines = {0};
	struct json json = message_begin(&lines, "ready");

	json_text(&json, "engine", "calyx");
	document_setup(&json, "setup", setup);
	message_end(&json);
	command_send(command, &lines);
}

static void send_started(struct command *command, uint64_t started_ns)
{
	struct buffer lines = {0};
	struct json json = message_begin(&lines, "started");

	json_u64(&json, "now_ns", started_ns);
	json_u64(&json, "bound_ns", 0);
	json_text(&json, "how", "published");
	message_end(&json);
	command_send(command, &lines);
}

/* I/Os that do not come back, the oldest of them, while they hang. */
static void write_hung(struct json *json, const struct calyx_progress *progress)
{
	json_u64(json, "hung_count", progress->hung_count);
	json_key(json, "hung");
	json_array(json);
	for (uint32_t i = 0; i < progress->hung_count && i < CALYX_HUNG_MAX; i++) {
		const struct calyx_hung *hung = &progress->hung[i];

		json_object(json);
		json_u64(json, "job", hung->job);
		json_text(json, "op", document_direction(hung->direction));
		json_u64(json, "offset", hung->offset);
		json_u64(json, "age_ns", hung->age_ns);
		json_object_end(json);
	}
	json_array_end(json);
}

static void send_beat(struct command *command, const struct calyx_progress *progress, uint64_t window_ns)
{
	struct buffer lines = {0};
	struct json json;

	if (!command_begin_beat(command, &lines, &json, window_ns))
		return;
	json_u64(&json, "ios", progress->ios);
	json_u64(&json, "bytes", progress->bytes);
	json_u64(&json, "oldest_ns", progress->oldest_ns);
	if (progress->hung_count)
		write_hung(&json, progress);
	message_end(&json);
	command_send(command, &lines);
}

static void close_result(struct command *command, const char *status, const char *why)
{
	struct json json = message_begin(&command->closing, "result");

	json_text(&json, "status", status);
	json_text(&json, "why", why);
	message_end(&json);
}

/* The start line, or 0: the command was stopped before, or given up, and can no longer be armed. */
static uint64_t wait_for_arm(struct command *command, uint64_t within_ms)
{
	uint64_t until_ns = moment_now_ns() + within_ms * MS_NS;
	unsigned int seen = 0;

	while (!command_start_ns(command) && !command_stopped(command) && moment_now_ns() < until_ns)
		command_sleep(command, &seen, until_ns);
	return command_withdraw(command);
}

static void close_unstarted(struct command *command, uint64_t within_ms)
{
	char why[WHY_MAX];

	if (command_stopped(command)) {
		close_result(command, "stopped", "stopped before its start");
		return;
	}
	calyx_format(why, sizeof(why), "it was ready, but no start line came within %llu ms",
		     (unsigned long long)within_ms);
	close_result(command, "failed", why);
}

/* From the start line to the end. 0, or -ETIME when not even the deadline ended the crew. */
static int watch(struct command *command, const struct calyx_job *job, struct calyx_crew *crew, uint64_t start_ns)
{
	uint64_t beat_ns = start_ns + SECOND_NS, give_up_ns = start_ns + job->deadline_ns + OVERTIME_NS;
	struct calyx_progress progress = {0};
	bool started = false;

	for (;;) {
		uint64_t now_ns = moment_now_ns(), next_ns = beat_ns;
		int error;

		calyx_crew_progress(crew, &progress);
		if (!started && progress.started_ns) {
			send_started(command, progress.started_ns);
			started = true;
		}
		if (now_ns >= beat_ns) {
			send_beat(command, &progress, start_ns + job->ramp_ns);
			beat_ns += SECOND_NS;
			continue;
		}
		if (!started && now_ns >= start_ns)
			next_ns = now_ns + STARTED_STEP_NS;
		else if (!started && start_ns + STARTED_STEP_NS < beat_ns)
			next_ns = start_ns + MS_NS;
		error = calyx_crew_wait(crew, next_ns > now_ns ? next_ns - now_ns : 1);
		if (!error)
			break;
		if (now_ns > give_up_ns)
			return -ETIME;
	}
	calyx_crew_progress(crew, &progress);
	if (!started && progress.started_ns)
		send_started(command, progress.started_ns);
	return 0;
}

static void tell(struct command *command, const struct calyx_job *job, struct calyx_crew *crew, struct usage *usage)
{
	const struct calyx_result *result = calyx_crew_result(crew);
	struct buffer document = {0};

	if (usage && usage_end(usage))
		usage_write(usage, &command->closing);
	document_write(&document, job, result);
	message_document(&command->closing, "result", document.data, document.length);
	command->closing.failed |= document.failed;
	buffer_free(&document);
	if (result->failure[0])
		close_result(command, "failed", result->failure);
	else
		close_result(command, result->stopped ? "stopped" : "ok", "");
}

/* False when the crew hangs in the kernel: its threads still use the job's memory, and all of it is left behind. */
static bool run_job(struct command *command, const struct job *told, struct calyx_crew *crew)
{
	uint64_t within_ms = told->arm_within_ms ? told->arm_within_ms : ARM_WITHIN_MS;
	const struct calyx_job *job = &told->job;
	struct usage *usage = NULL;
	uint64_t start_ns;
	int error;

	command_offer(command, crew, NULL);
	send_ready(command, calyx_crew_setup(crew));
	start_ns = wait_for_arm(command, within_ms);
	if (start_ns) {
		usage = usage_begin(USAGE_SELF, start_ns + job->ramp_ns, start_ns + job->ramp_ns + job->runtime_ns);
		error = watch(command, job, crew, start_ns);
		if (error) {
			command_offer(command, NULL, NULL);
			close_result(command, "failed", "stuck in the kernel: the I/O did not end at the deadline");
			command->line = (struct line){0};
			return false;
		}
		tell(command, job, crew, usage);
	} else {
		close_unstarted(command, within_ms);
	}
	command_offer(command, NULL, NULL);
	calyx_crew_close(crew);
	usage_free(usage);
	return true;
}

/* Block devices may be used only while they are held, and are still those that were prepared. */
static int check_devices(struct command *command, const struct calyx_job *job, char *why)
{
	for (uint32_t i = 0; job->devices && i < job->paths_count; i++) {
		int64_t used = device_is_held(&command->agent->record->devices, job->paths[i], why);

		if (used < 0)
			return (int)used;
		if (used && job->offset + job->size > (uint64_t)used) {
			calyx_format(why, WHY_MAX, "%.200s was prepared for %" PRId64 " bytes; the job uses %" PRIu64,
				     job->paths[i], used, job->offset + job->size);
			return -EINVAL;
		}
	}
	return 0;
}

void work_run(struct command *command)
{
	struct calyx_crew *crew;
	char why[WHY_MAX];
	struct job job;
	int error;

	error = job_parse(&command->line, &job, why);
	if (error) {
		command_refuse(command, error, "%s", why);
		return;
	}
	error = check_devices(command, &job.job, why);
	if (!error)
		error = calyx_crew_open(&job.job, &crew, why);
	if (error)
		command_refuse(command, error, "%s", why);
	if (error || run_job(command, &job, crew))
		job_free(&job);
}
