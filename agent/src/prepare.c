/* SPDX-License-Identifier: Apache-2.0
 *
 * The command `prepare`, which lays out the files of a target.
 */
#include "agent.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "calyx/text.h"
#include "kept.h"
#include "moment.h"
#include "owner.h"

#define KEYS "path size files seed max_bytes_per_s reserve verify run by keep"
#define FILE_FACTS_BYTES 180  /* of a file in the answer, without its directory */
#define AROUND_BYTES 1024     /* of the answer around them */
#define BESIDE_FILES 2	      /* the directory and the note in it */
#define LOOK_BYTES (16 << 20) /* written between looks at what is free */

struct layout_job {
	struct command *command;
	const char *parent;
	struct owner owner;
	uint64_t size, files, seed, max_bytes_per_s;
	uint64_t reserve, looked_bytes; /* what must stay free; when that was looked at last */
	bool reserve_is_touched;
	bool verify;	     /* blocks that verify=crc32c can check */
	uint64_t done_bytes; /* of the files before the present one */
	uint64_t written_bytes;
	uint64_t began_ns;
	char anew[WHY_MAX]; /* why kept files that were there are of no use, and were removed; empty: none were */
};

static size_t escaped_size(const char *text)
{
	size_t length = strlen(text), size = 0;
	bool utf8 = utf8_is_valid(text, length);

	for (size_t i = 0; i < length; i++)
		size += json_escaped_size((unsigned char)text[i], utf8);
	return size;
}

int prepare_parse(const struct line *line, struct layout_words *words, struct owner *owner, char *why)
{
	const char *verify = line_get(line, "verify");

	if (line_number(line, "size", 0, INT64_MAX, &words->size, why) ||
	    line_number(line, "files", 1, CALYX_JOBS_MAX, &words->files, why) ||
	    line_number(line, "seed", 1, UINT64_MAX, &words->seed, why) ||
	    line_number(line, "max_bytes_per_s", 0, UINT64_MAX, &words->max_bytes_per_s, why) ||
	    owner_parse(line, "run", owner->run, why) || owner_parse(line, "by", owner->by, why) ||
	    owner_parse(line, "keep", owner->keep, why))
		return -EINVAL;
	words->verify = verify && !strcmp(verify, "crc32c");
	if (verify && !words->verify && strcmp(verify, "none") != 0) {
		calyx_format(why, WHY_MAX, "verify=%.60s is unknown: crc32c is what there is", verify);
		return -EINVAL;
	}
	return 0;
}

static int parse(struct layout_job *job, char *why)
{
	const struct line *line = &job->command->line;
	struct layout_words words;

	if (line_check(line, KEYS, why) || prepare_parse(line, &words, &job->owner, why) ||
	    line_number(line, "reserve", 0, INT64_MAX, &job->reserve, why))
		return -EINVAL;
	job->size = words.size;
	job->files = words.files;
	job->seed = words.seed;
	job->max_bytes_per_s = words.max_bytes_per_s;
	job->verify = words.verify;
	job->parent = line_get(line, "path");
	if (!job->parent || job->parent[0] != '/' || !job->size || !job->files) {
		calyx_format(why, WHY_MAX, "'prepare' needs path= (absolute), size= and files=, both above 0");
		return -EINVAL;
	}
	if (job->size > INT64_MAX / job->files) {
		calyx_format(why, WHY_MAX, "%" PRIu64 " files of %" PRIu64 " bytes are more than a file system holds",
			     job->files, job->size);
		return -EINVAL;
	}
	if (job->files * (escaped_size(job->parent) + FILE_FACTS_BYTES) > LINE_MAX_BYTES - AROUND_BYTES) {
		calyx_format(why, WHY_MAX,
			     "the path is too long for %" PRIu64 " files: the answer is one line of 64 KiB",
			     job->files);
		return -ENAMETOOLONG;
	}
	return 0;
}

static int check_parent(const struct layout_job *job, char *why)
{
	struct statvfs space;
	struct stat status;
	int error;

	if (stat(job->parent, &status) || statvfs(job->parent, &space)) {
		error = -errno;
		calyx_format(why, WHY_MAX, "cannot use %.300s: %s", job->parent, strerror(-error));
		return error;
	}
	if (!S_ISDIR(status.st_mode)) {
		calyx_format(why, WHY_MAX, "%.300s is no directory", job->parent);
		return -ENOTDIR;
	}
	if (job->size * job->files > (uint64_t)space.f_bavail * space.f_frsize) {
		calyx_format(why, WHY_MAX,
			     "No space left on device: %.300s has %" PRIu64 " bytes free, %" PRIu64 " are needed",
			     job->parent, (uint64_t)space.f_bavail * space.f_frsize, job->size * job->files);
		return -ENOSPC;
	}
	if (job->size * job->files + job->reserve > (uint64_t)space.f_bavail * space.f_frsize) {
		calyx_format(why, WHY_MAX,
			     "No space left on device: %.300s has %" PRIu64 " bytes free, of which %" PRIu64
			     " stay free (reserve), %" PRIu64 " are needed",
			     job->parent, (uint64_t)space.f_bavail * space.f_frsize, job->reserve,
			     job->size * job->files);
		return -ENOSPC;
	}
	if (space.f_files && job->files + BESIDE_FILES > space.f_favail) {
		calyx_format(why, WHY_MAX, "No inodes left on %.300s: %" PRIu64 " free, %" PRIu64 " are needed",
			     job->parent, (uint64_t)space.f_favail, job->files + BESIDE_FILES);
		return -ENOSPC;
	}
	return 0;
}

static bool on_progress(void *context, uint64_t written_bytes)
{
	struct layout_job *job = context;

	uint64_t done_bytes = job->done_bytes + written_bytes;
	struct statvfs space;

	atomic_store(&job->command->done_bytes, done_bytes);
	/* Others write there, too. */
	if (job->reserve && done_bytes - job->looked_bytes >= LOOK_BYTES) {
		job->looked_bytes = done_bytes;
		job->reserve_is_touched =
			!statvfs(job->parent, &space) && (uint64_t)space.f_bavail * space.f_frsize < job->reserve;
	}
	return job->reserve_is_touched || command_stopped(job->command);
}

static int lay_out(struct layout_job *job, const char *directory, struct json *json, char *why)
{
	for (uint64_t i = 0; i < job->files; i++) {
		struct calyx_layout layout = {0};
		char path[PATH_MAX + 16];
		int error;

		calyx_format(path, sizeof(path), "%s/job.%" PRIu64, directory, i);
		error = (job->verify ? calyx_target_layout_verified
				     : calyx_target_layout)(path, job->size, calyx_layout_seed(job->seed, (uint32_t)i),
							    job->max_bytes_per_s, on_progress, job, &layout, why);
		if (error)
			return error;
		job->done_bytes += job->size;
		job->written_bytes += layout.written_bytes;
		files_write_laid(json, path, job->size, &layout);
	}
	return 0;
}

/* Says which of space and inodes ran out, since both are ENOSPC. */
static void refuse_layout(struct layout_job *job, int error, const char *why)
{
	struct statvfs space = {0};

	if (job->reserve_is_touched)
		command_refuse(job->command, -ENOSPC,
			       "No space left on device: less than the reserve of %" PRIu64
			       " bytes is free on %.200s: somebody else writes there",
			       job->reserve, job->parent);
	else if (error == -ENOSPC && !statvfs(job->parent, &space))
		command_refuse(job->command, error, "%.200s (%.150s: %" PRIu64 " bytes and %" PRIu64 " inodes free)",
			       why, job->parent, (uint64_t)space.f_bavail * space.f_frsize, (uint64_t)space.f_favail);
	else
		command_refuse(job->command, error, "%s", error == -ECANCELED ? "stopped while laying out files" : why);
}

/* Said before the first byte is written: should nobody here live to remove it, the controller knows where it is. */
static void send_making(struct layout_job *job, const char *directory)
{
	struct buffer lines = {0};
	struct json json = message_begin(&lines, "making");

	json_text(&json, "directory", directory);
	message_end(&json);
	command_send(job->command, &lines);
}

/* Makes the directory, unless a living agent of another run has one beside it. */
static int settle(struct layout_job *job, unsigned int *place, char *why)
{
	struct record *record = job->command->agent->record;
	int error = owner_check(job->parent, &job->owner, why);

	if (error)
		return error;
	job->owner.kind = "files";
	job->owner.files = (uint32_t)job->files;
	error = files_make_directory(record, job->parent, job->owner.files, place);
	if (!error) {
		error = owner_settle(record->made[*place], &job->owner);
		if (error < 0) {
			files_remove_directory(record, *place);
		} else {
			record->held[*place] = error;
			error = 0;
		}
	}
	if (error)
		calyx_format(why, WHY_MAX, "cannot make a directory in %.300s: %s", job->parent, strerror(-error));
	return error;
}

static struct json begin_answer(const char *directory, struct buffer *message)
{
	struct json json = message_begin(message, "prepared");

	json_text(&json, "directory", directory);
	json_key(&json, "files");
	json_array(&json);
	return json;
}

static void end_answer(struct layout_job *job, unsigned int place, struct json *json, const char *layout)
{
	const struct kept *kept = &job->command->agent->record->kept[place];
	struct statvfs space = {0};

	json_array_end(json);
	json_text(json, "layout", layout);
	json_text(json, "anew", job->anew[0] ? job->anew : NULL);
	json_u64(json, "laid_s", kept->laid_s);
	json_u64(json, "uses", kept->uses);
	json_u64(json, "written_bytes", job->written_bytes);
	json_u64(json, "took_ns", moment_now_ns() - job->began_ns);
	statvfs(job->parent, &space);
	json_u64(json, "free_bytes", (uint64_t)space.f_bavail * space.f_frsize);
	if (space.f_files)
		json_u64(json, "free_inodes", space.f_favail);
	else
		json_null(json, "free_inodes");
	message_end(json);
	job->command->closing = *json->out;
}

static void make_files(struct layout_job *job, unsigned int place)
{
	struct record *record = job->command->agent->record;
	struct kept *kept = &record->kept[place];
	struct buffer message = {0};
	char why[WHY_MAX] = "";
	struct json json = begin_answer(record->made[place], &message);
	int error = lay_out(job, record->made[place], &json, why);

	if (error) {
		buffer_free(&message);
		files_remove_directory(record, place);
		refuse_layout(job, error, why);
		return;
	}
	*kept = (struct kept){.verify = job->verify, .laid_s = (uint64_t)time(NULL)};
	if (job->owner.keep[0])
		kept->how = KEPT_OPEN; /* whole from here on */
	end_answer(job, place, &json, "new");
}

/* Takes kept files that are what they were, and removes those that are not. 1: they are told of; 0: there are none; or
 * -errno with a sentence in why. */
static int reuse(struct layout_job *job, char *why)
{
	const struct kept_wanted wanted = {.files = job->files, .size = job->size, .verify = job->verify};
	struct record *record = job->command->agent->record;
	struct buffer message = {0};
	unsigned int place;
	struct json json;
	int error;

	for (;;) {
		int entered = owner_enter(job->parent);

		error = owner_check(job->parent, &job->owner, why);
		if (!error)
			error = kept_take(record, job->parent, &job->owner, &place, why);
		if (entered >= 0)
			close(entered);
		if (error <= 0)
			return error;
		json = begin_answer(record->made[place], &message);
		if (!kept_open(record, place, &wanted, &json, job->anew))
			break;
		buffer_free(&message);
		error = files_remove_directory(record, place);
		if (error) {
			calyx_format(why, WHY_MAX, "%.200s cannot be removed, to lay out anew (%.150s): %s",
				     record->made[place], job->anew, files_why(error));
			return error;
		}
	}
	end_answer(job, place, &json, "reused");
	return 1;
}

void work_prepare(struct command *command)
{
	struct layout_job job = {.command = command, .began_ns = moment_now_ns()};
	char why[WHY_MAX] = "";
	unsigned int place;
	int error;

	error = parse(&job, why);
	if (!error && job.owner.keep[0])
		error = reuse(&job, why);
	if (error > 0)
		return;
	if (!error)
		error = check_parent(&job, why);
	if (!error) {
		int entered = owner_enter(job.parent);

		error = settle(&job, &place, why);
		if (entered >= 0)
			close(entered);
	}
	if (error) {
		command_refuse(command, error, "%s", why);
		return;
	}
	send_making(&job, command->agent->record->made[place]);
	atomic_store(&command->total_bytes, job.size * job.files);
	make_files(&job, place);
}
