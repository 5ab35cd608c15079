/* SPDX-License-Identifier: Apache-2.0
 *
 * The commands that tell what a guest's figures are worth: `floor` is what the engine itself adds to each I/O, `truth`
 * shows caches below a file that was laid out, and what a flush costs there.
 */
#include "agent.h"

#include <errno.h>

#include "document.h"
#include "job.h"
#include "moment.h"

#define FLOOR_MS 200
#define FLOOR_MAX_MS 10000

static void send_floor(struct command *command, uint64_t iodepth, const struct calyx_floor *floor)
{
	struct json json = message_begin(&command->closing, "floor");

	json_u64(&json, "iodepth", iodepth);
	json_u64(&json, "ios", floor->ios);
	json_u64(&json, "ns_per_io", floor->ns_per_io);
	json_u64(&json, "p50_ns", floor->p50_ns);
	json_u64(&json, "p99_ns", floor->p99_ns);
	document_setup(&json, "setup", &floor->setup);
	document_clock(&json, "clock", &floor->clock);
	message_end(&json);
}

void work_floor(struct command *command)
{
	const struct line *line = &command->line;
	struct calyx_floor floor;
	enum calyx_refill refill;
	enum calyx_setup setup;
	uint64_t iodepth, ms;
	char why[WHY_MAX];
	int error;

	if (line_check(line, "setup refill iodepth runtime_ms", why) || job_parse_setup(line, &setup, &refill, why) ||
	    line_number(line, "iodepth", 1, CALYX_IODEPTH_MAX, &iodepth, why) ||
	    line_number(line, "runtime_ms", FLOOR_MS, FLOOR_MAX_MS, &ms, why)) {
		command_refuse(command, EINVAL, "%s", why);
		return;
	}
	error = calyx_floor_measure(setup, refill, (uint32_t)iodepth, ms * MS_NS, &floor, why);
	if (error)
		command_refuse(command, error, "%s", why);
	else
		send_floor(command, iodepth, &floor);
}

static void send_truth(struct command *command, const struct calyx_truth *truth)
{
	struct json json = message_begin(&command->closing, "truth");

	json_bool(&json, "direct", truth->direct);
	json_u64(&json, "reads", truth->reads);
	json_u64(&json, "cold_read_ns", truth->cold_read_ns);
	json_u64(&json, "cold_min_ns", truth->cold_min_ns);
	json_u64(&json, "cold_max_ns", truth->cold_max_ns);
	json_u64(&json, "hot_read_ns", truth->hot_read_ns);
	json_u64(&json, "hot_min_ns", truth->hot_min_ns);
	json_u64(&json, "hot_max_ns", truth->hot_max_ns);
	json_u64(&json, "writes", truth->writes);
	json_u64(&json, "write_ns", truth->write_ns);
	json_u64(&json, "flush_write_ns", truth->flush_write_ns);
	json_u64(&json, "flush_min_ns", truth->flush_min_ns);
	json_u64(&json, "flush_max_ns", truth->flush_max_ns);
	message_end(&json);
}

void work_truth(struct command *command)
{
	const struct line *line = &command->line;
	struct calyx_truth truth;
	char why[WHY_MAX];
	uint64_t seed;
	int64_t used;
	int error;

	if (line_check(line, "path seed", why) || line_number(line, "seed", 1, UINT64_MAX, &seed, why)) {
		command_refuse(command, EINVAL, "%s", why);
		return;
	}
	if (!line_get(line, "path")) {
		command_refuse(command, EINVAL, "'truth' needs path=");
		return;
	}
	used = device_is_held(&command->agent->record->devices, line_get(line, "path"), why);
	error = used < 0 ? (int)used
			 : calyx_truth_measure_device(line_get(line, "path"), (uint64_t)used, seed, &truth, why);
	if (error)
		command_refuse(command, error, "%s", why);
	else
		send_truth(command, &truth);
}
