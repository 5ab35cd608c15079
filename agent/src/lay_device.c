/* SPDX-License-Identifier: Apache-2.0
 *
 * The command `prepare device=`: writes the part of a raw device that is used, once all its guards agree (device.h).
 */
#include "agent.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "calyx/text.h"
#include "moment.h"
#include "owner.h"

#define KEYS "device serial destructive size files seed max_bytes_per_s verify run by"
#define FILE_FACTS_BYTES 180 /* of one job in the answer, without its path; also of the answer around them */

struct device_job {
	struct command *command;
	struct device device;
	struct owner owner;
	uint64_t size, files, seed, max_bytes_per_s;
	bool verify;
};

static int parse(struct device_job *job, char *why)
{
	const struct line *line = &job->command->line;
	struct layout_words words;
	uint64_t destructive;

	if (line_check(line, KEYS, why) || prepare_parse(line, &words, &job->owner, why) ||
	    line_number(line, "destructive", 0, 1, &destructive, why))
		return -EINVAL;
	if (!destructive) {
		calyx_format(why, WHY_MAX, "a raw device is overwritten: that is done only with destructive=1");
		return -EPERM;
	}
	job->size = words.size;
	job->files = words.files;
	job->seed = words.seed;
	job->max_bytes_per_s = words.max_bytes_per_s;
	job->verify = words.verify;
	if (!job->size || !job->files) {
		calyx_format(why, WHY_MAX, "'prepare' of a device needs size= and files=, both above 0");
		return -EINVAL;
	}
	return 0;
}

static int find(struct device_job *job, char *why)
{
	const char *serial = line_get(&job->command->line, "serial");
	int error = device_find(line_get(&job->command->line, "device"), &job->device, why);

	if (error)
		return error;
	if (serial && strcmp(serial, job->device.serial) != 0) {
		calyx_format(why, WHY_MAX, "%.200s has the serial number '%.100s', not '%.100s': it is another disk",
			     job->device.node, job->device.serial, serial);
		return -ENXIO;
	}
	if (job->size > job->device.size_bytes) {
		calyx_format(why, WHY_MAX,
			     "No space left on device: %.200s has %" PRIu64 " bytes, %" PRIu64 " are needed",
			     job->device.node, job->device.size_bytes, job->size);
		return -ENOSPC;
	}
	if (job->files * (strlen(job->device.node) + FILE_FACTS_BYTES) > LINE_MAX_BYTES - FILE_FACTS_BYTES) {
		calyx_format(why, WHY_MAX,
			     "the path is too long for %" PRIu64 " jobs: the answer is one line of 64 KiB", job->files);
		return -ENAMETOOLONG;
	}
	calyx_format(job->owner.device, sizeof(job->owner.device), "%u:%u", major(job->device.number),
		     minor(job->device.number));
	return 0;
}

/* Beside the work directory, where other agents of this user find whose the device is. 0 or -errno. */
static int leave_note(struct device_job *job)
{
	struct record *record = job->command->agent->record;
	const char *slash = strrchr(record->work, '/');
	char parent[PATH_MAX];
	unsigned int place;
	int error;

	calyx_format(parent, sizeof(parent), "%.*s", (int)(slash - record->work), record->work);
	job->owner.kind = "files";
	error = files_make_directory(record, parent, 0, &place);
	if (error)
		return error;
	error = owner_settle(record->made[place], &job->owner);
	if (error < 0) {
		files_remove_directory(record, place);
		return error;
	}
	record->held[place] = error;
	return 0;
}

/* The descriptor of the device, or -errno with a sentence in why. */
static int hold(struct device_job *job, char *why)
{
	struct record *record = job->command->agent->record;
	const char *slash = strrchr(record->work, '/');
	char parent[PATH_MAX], holder[WHY_MAX];
	int fd = device_hold(&job->command->agent->record->devices, &job->device, job->size, why);

	calyx_format(parent, sizeof(parent), "%.*s", (int)(slash - record->work), record->work);
	if (fd == -EBUSY && owner_of_device(parent, job->owner.device, job->device.node, holder))
		memcpy(why, holder, WHY_MAX);
	return fd;
}

static bool on_progress(void *context, uint64_t written_bytes)
{
	struct device_job *job = context;

	atomic_store(&job->command->done_bytes, written_bytes);
	return command_stopped(job->command);
}

/* All jobs share the device, as those of fio do that name one file. */
static void tell(struct device_job *job, uint64_t took_ns, uint64_t written_bytes)
{
	struct json json = message_begin(&job->command->closing, "prepared");

	json_text(&json, "device", job->device.node);
	json_text(&json, "serial", job->device.serial);
	json_key(&json, "files");
	json_array(&json);
	for (uint64_t i = 0; i < job->files; i++) {
		json_object(&json);
		json_text(&json, "path", job->device.node);
		json_u64(&json, "size", job->size);
		json_null(&json, "extents");
		json_null(&json, "unwritten");
		json_null(&json, "holes");
		json_object_end(&json);
	}
	json_array_end(&json);
	json_u64(&json, "written_bytes", written_bytes);
	json_u64(&json, "took_ns", took_ns);
	json_null(&json, "free_bytes");
	json_null(&json, "free_inodes");
	message_end(&json);
}

void work_device(struct command *command)
{
	struct device_job job = {.command = command};
	uint64_t began_ns = moment_now_ns(), written_bytes = 0;
	char why[WHY_MAX] = "";
	int error, fd;

	error = parse(&job, why);
	if (!error)
		error = find(&job, why);
	if (error) {
		command_refuse(command, error, "%s", why);
		return;
	}
	fd = hold(&job, why);
	if (fd < 0) {
		command_refuse(command, fd, "%s", why);
		return;
	}
	error = leave_note(&job);
	if (error) {
		command_refuse(command, error, "cannot leave a note of who holds %.200s: %s", job.device.node,
			       strerror(-error));
		return;
	}
	atomic_store(&command->total_bytes, job.size);
	error = calyx_target_fill(fd, job.device.node, job.size, calyx_layout_seed(job.seed, 0), job.max_bytes_per_s,
				  job.verify, on_progress, &job, &written_bytes, why);
	if (error)
		command_refuse(command, error, "%s", error == -ECANCELED ? "stopped while writing the device" : why);
	else
		tell(&job, moment_now_ns() - began_ns, written_bytes);
}
