/* SPDX-License-Identifier: Apache-2.0
 *
 * The command `clean`: removes what this agent made and, where paths are given, what dead agents left there. It goes by
 * the records that lie in the directories (owner.h), never by a name alone.
 */
#include "agent.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calyx/text.h"
#include "owner.h"
#include "place.h"

#define LISTS_MAX_BYTES (40 << 10) /* of one answer, which is one line */
#define COUNT_MAX (1ull << 53)

enum list { FOUND, REMOVED, FAILED, KEPT, FREED, LISTS };

struct cleaning {
	struct command *command;
	bool list_only, kept, more; /* kept: also files that are kept for a later run */
	uint64_t skip, stay;	    /* directories that stay: of earlier answers, and of all with this one */
	struct buffer texts[LISTS];
	struct json lists[LISTS];
};

static const char *const names[LISTS] = {"found", "removed", "failed", "kept", "freed"};

static size_t total_length(const struct cleaning *cleaning)
{
	size_t length = 0;

	for (int i = 0; i < LISTS; i++)
		length += cleaning->texts[i].length;
	return length;
}

/* What a dead agent's directory takes on the disk, and how many files there are besides its records. */
static uint64_t measure(int parent_fd, const char *name, uint64_t *files)
{
	int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *entry;
	struct stat status;
	uint64_t bytes = 0;

	*files = 0;
	if (!directory) {
		if (fd >= 0)
			close(fd);
		return 0;
	}
	while ((entry = readdir(directory))) {
		if (fstatat(dirfd(directory), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) || S_ISDIR(status.st_mode))
			continue;
		bytes += (uint64_t)status.st_blocks * 512;
		*files += strcmp(entry->d_name, NOTE) && strcmp(entry->d_name, KEPT_RECORD);
	}
	closedir(directory);
	return bytes;
}

/* Of a note, in which anything may stand; null when it is no count that all can read. */
static void write_count(struct json *list, const char *key, uint64_t value)
{
	if (value <= COUNT_MAX)
		json_u64(list, key, value);
	else
		json_null(list, key);
}

static void write_found(struct json *list, const char *path, const struct owner *owner, uint64_t files, uint64_t bytes)
{
	json_object(list);
	json_text(list, "path", path);
	json_text(list, "kind", owner->kind);
	json_text(list, "run", owner->run);
	json_text(list, "by", owner->by);
	json_text(list, "keep", owner->closed ? owner->keep : NULL);
	write_count(list, "since_s", owner->since_s);
	write_count(list, "pid", owner->pid);
	json_u64(list, "files", files);
	json_u64(list, "bytes", bytes);
	json_object_end(list);
}

/* Tells of one directory, and removes it when that is wanted and its record allows it. The bytes that are free then. */
static uint64_t take(struct cleaning *cleaning, DIR *parent, const char *name, const char *path, bool is_work)
{
	struct owner owner = {0};
	enum holder holder = owner_look(dirfd(parent), name, is_work ? "work" : "files", &owner);
	uint64_t files, bytes;
	char why[WHY_MAX];
	int error;

	if (holder != HOLDER_IS_DEAD) {
		/* Work directories of living agents are nothing to tell of: there is one beside each agent. */
		if (!is_work || holder != HOLDER_LIVES)
			files_write_failure(&cleaning->lists[KEPT], path, owner_why(holder, &owner, why));
		cleaning->stay++;
		return 0;
	}
	bytes = measure(dirfd(parent), name, &files);
	write_found(&cleaning->lists[FOUND], path, &owner, files, bytes);
	if (cleaning->list_only || (owner.closed && !cleaning->kept)) {
		cleaning->stay++;
		return 0;
	}
	error = is_work ? files_remove_dead_work(dirfd(parent), name)
			: files_remove_laid(dirfd(parent), name, owner.files);
	if (error) {
		files_write_failure(&cleaning->lists[FAILED], path, files_why(error));
		cleaning->stay++;
		return 0;
	}
	json_text(&cleaning->lists[REMOVED], NULL, path);
	return bytes;
}

static uint64_t take_all(struct cleaning *cleaning, const char *directory, const char *prefix, bool is_work)
{
	DIR *parent = opendir(directory);
	char path[PATH_MAX + 32];
	uint64_t bytes = 0;
	const char *name;

	if (!parent) {
		if (!is_work)
			files_write_failure(&cleaning->lists[FAILED], directory, strerror(errno));
		return 0;
	}
	while ((name = owner_next(parent, prefix))) {
		bool is_own;

		calyx_format(path, sizeof(path), "%s/%s", strcmp(directory, "/") ? directory : "", name);
		is_own = !strcmp(path, cleaning->command->agent->record->work);
		if (is_own)
			continue;
		if (cleaning->stay < cleaning->skip) {
			cleaning->stay++;
			continue;
		}
		if (total_length(cleaning) + 2 * PATH_MAX > LISTS_MAX_BYTES) {
			cleaning->more = true;
			break;
		}
		bytes += take(cleaning, parent, name, path, is_work);
	}
	closedir(parent);
	return bytes;
}

static void write_freed(struct cleaning *cleaning, const char *path, uint64_t bytes)
{
	struct json *list = &cleaning->lists[FREED];
	struct mount *mount = malloc(sizeof(*mount));
	bool found = mount && place_mount(path, mount);

	json_object(list);
	json_text(list, "path", path);
	json_text(list, "mount", found ? mount->point : NULL);
	json_u64(list, "bytes", bytes);
	json_text(list, "discard", found ? place_discard(path, mount) : NULL);
	json_object_end(list);
	free(mount);
}

static void take_left_over(struct cleaning *cleaning)
{
	const struct line *line = &cleaning->command->line;
	const char *executable = cleaning->command->agent->path, *slash = strrchr(executable, '/');
	char beside[PATH_MAX];

	for (size_t i = 0; i < line->count; i++) {
		struct stat status;

		if (strcmp(line->pairs[i].key, "path"))
			continue;
		/* On a raw device nothing is left: what held it was the agent's descriptor. */
		if (!stat(line->pairs[i].value, &status) && S_ISBLK(status.st_mode))
			continue;
		write_freed(cleaning, line->pairs[i].value,
			    take_all(cleaning, line->pairs[i].value, MADE_PREFIX, false));
	}
	calyx_format(beside, sizeof(beside), "%.*s", slash ? (int)(slash - executable) : 0, executable);
	take_all(cleaning, beside, WORK_PREFIX, true);
	take_all(cleaning, beside, MADE_PREFIX, false); /* notes of raw devices */
	if (strcmp(beside, "/var/tmp"))
		take_all(cleaning, "/var/tmp", WORK_PREFIX, true);
	if (strcmp(beside, "/tmp"))
		take_all(cleaning, "/tmp", WORK_PREFIX, true);
}

static void tell(struct cleaning *cleaning)
{
	struct buffer *closing = &cleaning->command->closing;
	struct json json = message_begin(closing, "cleaned");

	json_bool(&json, "list", cleaning->list_only);
	for (int i = 0; i < LISTS; i++) {
		json_array_end(&cleaning->lists[i]);
		json_key(&json, names[i]);
		buffer_append(closing, cleaning->texts[i].data, cleaning->texts[i].length);
		closing->failed |= cleaning->texts[i].failed;
		json.comma = true;
		buffer_free(&cleaning->texts[i]);
	}
	json_bool(&json, "more", cleaning->more);
	json_u64(&json, "stay", cleaning->stay);
	message_end(&json);
}

void work_clean(struct command *command)
{
	struct cleaning cleaning = {.command = command};
	char why[WHY_MAX];
	uint64_t list, kept;

	if (line_check(&command->line, "path* list kept skip", why) ||
	    line_number(&command->line, "list", 0, 1, &list, why) ||
	    line_number(&command->line, "kept", 0, 1, &kept, why) ||
	    line_number(&command->line, "skip", 0, INT64_MAX, &cleaning.skip, why)) {
		command_refuse(command, EINVAL, "%s", why);
		return;
	}
	cleaning.list_only = list;
	cleaning.kept = kept;
	for (int i = 0; i < LISTS; i++) {
		cleaning.lists[i].out = &cleaning.texts[i];
		json_array(&cleaning.lists[i]);
	}
	if (!cleaning.list_only) {
		files_clean(command->agent->record, &cleaning.lists[REMOVED], &cleaning.lists[FAILED]);
		device_let_go(&command->agent->record->devices);
	}
	if (line_get(&command->line, "path"))
		take_left_over(&cleaning);
	tell(&cleaning);
}
