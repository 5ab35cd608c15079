/* SPDX-License-Identifier: Apache-2.0
 *
 * Making and removing directories: see files.h.
 */
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "moment.h"
#include "protocol.h"

#define BUSY_NS SECOND_NS /* files that io_uring had registered stay busy for some ms after its end */
#define DEPTH_MAX 16

static int make_work_in(struct record *record, const char *parent, size_t length)
{
	if (snprintf(record->work, sizeof(record->work), "%.*s/calyx-work-XXXXXX", (int)length, parent) >=
	    (int)sizeof(record->work))
		return -ENAMETOOLONG;
	if (mkdtemp(record->work))
		return 0;
	record->work[0] = 0;
	return -errno;
}

int files_make_work(struct record *record, const char *executable)
{
	const char *slash = strrchr(executable, '/');

	if (slash && slash > executable && !make_work_in(record, executable, (size_t)(slash - executable)))
		return 0;
	if (!make_work_in(record, "/var/tmp", strlen("/var/tmp")))
		return 0;
	return make_work_in(record, "/tmp", strlen("/tmp"));
}

int files_make_directory(struct record *record, const char *parent, unsigned int *place)
{
	unsigned int free_place = 0;
	int error;

	while (free_place < MADE_MAX && record->made[free_place][0])
		free_place++;
	if (free_place == MADE_MAX)
		return -EMFILE;
	/* Noted before it is made, so that whoever ends the agent in between leaves nothing. */
	if (snprintf(record->made[free_place], PATH_MAX, "%s/" MADE_PREFIX "XXXXXX", parent) >= PATH_MAX) {
		record->made[free_place][0] = 0;
		return -ENAMETOOLONG;
	}
	if (!mkdtemp(record->made[free_place])) {
		error = -errno;
		record->made[free_place][0] = 0;
		return error;
	}
	*place = free_place;
	return 0;
}

static int remove_entries(int directory_fd, int depth);

static int remove_entry(int directory_fd, const char *name, int depth)
{
	int fd, error, refused;

	if (!unlinkat(directory_fd, name, 0))
		return 0;
	refused = errno;
	if (refused != EISDIR && refused != EPERM)
		return -refused;
	fd = openat(directory_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOTDIR ? -refused : -errno; /* EPERM of a file is the file's own */
	error = depth < DEPTH_MAX ? remove_entries(fd, depth + 1) : -ELOOP;
	if (!error && unlinkat(directory_fd, name, AT_REMOVEDIR))
		error = -errno;
	return error;
}

/* Closes directory_fd. */
static int remove_entries(int directory_fd, int depth)
{
	DIR *directory = fdopendir(directory_fd);
	struct dirent *entry;
	int error = 0, failed;

	if (!directory) {
		error = -errno;
		close(directory_fd);
		return error;
	}
	while ((entry = readdir(directory))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		failed = remove_entry(dirfd(directory), entry->d_name, depth);
		error = error ? error : failed;
	}
	closedir(directory);
	return error;
}

int files_empty(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : remove_entries(fd, 0);
}

int files_remove_tree(const char *path)
{
	int error = files_empty(path);

	if (!error && rmdir(path))
		error = -errno;
	return error == -ENOENT ? 0 : error;
}

int files_remove_directory(struct record *record, unsigned int place)
{
	uint64_t until_ns = moment_now_ns() + BUSY_NS;
	int error;

	/* Before the file goes: network file systems keep what is removed while it is open, and the directory with it.
	 */
	if (record->held[place])
		close(record->held[place]);
	record->held[place] = 0;
	do {
		error = files_remove_tree(record->made[place]);
		if (error != -EBUSY && error != -ENOTEMPTY)
			break;
		moment_sleep_until(moment_now_ns() + 20 * MS_NS);
	} while (moment_now_ns() < until_ns);
	if (!error)
		record->made[place][0] = 0;
	return error;
}

int files_clean(struct record *record, struct buffer *out)
{
	struct buffer unused = {0};
	struct json removed = {.out = out}, failed = {.out = &unused};
	int failures = 0;

	if (out) {
		removed = message_begin(out, "cleaned");
		json_key(&removed, "removed");
		json_array(&removed);
	}
	json_array(&failed);
	for (unsigned int i = 0; i < MADE_MAX; i++) {
		char path[PATH_MAX];
		int error;

		if (!record->made[i][0])
			continue;
		memcpy(path, record->made[i], sizeof(path));
		error = files_remove_directory(record, i);
		if (error) {
			failures++;
			json_object(&failed);
			json_text(&failed, "path", path);
			json_text(&failed, "why", strerror(-error));
			json_object_end(&failed);
			continue;
		}
		if (out)
			json_text(&removed, NULL, path);
	}
	json_array_end(&failed);
	if (out) {
		json_array_end(&removed);
		json_key(&removed, "failed");
		buffer_append(out, unused.data, unused.length);
		out->failed |= unused.failed;
		message_end(&removed);
	}
	buffer_free(&unused);
	return failures;
}
