/* SPDX-License-Identifier: Apache-2.0
 *
 * Making and removing directories: see files.h.
 */
#include "files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calyx/text.h"
#include "kept.h"
#include "moment.h"
#include "protocol.h"

#define BUSY_NS SECOND_NS /* files that io_uring had registered stay busy for some ms after its end */
#define DEPTH_MAX 16

static int make_work_in(struct record *record, const char *parent, size_t length)
{
	if (calyx_format(record->work, sizeof(record->work), "%.*s/" WORK_PREFIX "XXXXXX", (int)length, parent) >=
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

int files_find_place(const struct record *record, unsigned int *place)
{
	for (unsigned int i = 0; i < MADE_MAX; i++) {
		if (record->made[i][0])
			continue;
		*place = i;
		return 0;
	}
	return -EMFILE;
}

int files_make_directory(struct record *record, const char *parent, uint32_t files, unsigned int *place)
{
	unsigned int free_place;
	int error = files_find_place(record, &free_place);

	if (error)
		return error;
	record->kept[free_place].how = KEPT_NOT;
	/* Noted before it is made, so that whoever ends the agent in between leaves nothing. */
	record->made_files[free_place] = files;
	if (calyx_format(record->made[free_place], PATH_MAX, "%s/" MADE_PREFIX "XXXXXX", parent) >= PATH_MAX) {
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

static int remove_entries(int directory_fd, const char *keep, int depth);

/* What is mounted there stays: rmdir says so (EBUSY) before it looks for entries. */
static int remove_entry(int directory_fd, const char *name, int depth)
{
	struct stat outer, inner;
	int fd, error, refused;

	if (!unlinkat(directory_fd, name, 0))
		return 0;
	refused = errno;
	if (refused != EISDIR && refused != EPERM)
		return -refused;
	if (!unlinkat(directory_fd, name, AT_REMOVEDIR))
		return 0;
	if (errno != ENOTEMPTY && errno != EEXIST)
		return errno == ENOTDIR ? -refused : -errno; /* EPERM of a file is the file's own */
	fd = openat(directory_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fstat(directory_fd, &outer) || fstat(fd, &inner) || outer.st_dev != inner.st_dev) {
		close(fd);
		return -EXDEV;
	}
	error = depth < DEPTH_MAX ? remove_entries(fd, NULL, depth + 1) : -ELOOP;
	if (!error && unlinkat(directory_fd, name, AT_REMOVEDIR))
		error = -errno;
	return error;
}

/* Closes directory_fd. `keep`, if any, is the one name that stays. */
static int remove_entries(int directory_fd, const char *keep, int depth)
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
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
		    (keep && !strcmp(entry->d_name, keep)))
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

	return fd < 0 ? -errno : remove_entries(fd, NOTE, 0);
}

int files_remove_tree(const char *path)
{
	int error = files_empty(path), fd;

	if (!error) {
		fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		error = fd < 0 ? -errno
			       : remove_entries(fd, NULL, 0); /* the note last: a record of the rest until then */
	}
	if (!error && rmdir(path))
		error = -errno;
	return error == -ENOENT ? 0 : error;
}

/* Is there anything but the note? */
static int check_empty(int directory_fd)
{
	DIR *directory;
	struct dirent *entry;
	int fd = dup(directory_fd), error = 0;

	directory = fd < 0 ? NULL : fdopendir(fd);
	if (!directory) {
		error = -errno;
		if (fd >= 0)
			close(fd);
		return error;
	}
	rewinddir(directory); /* it shares its place with others of the same open directory */
	while (!error && (entry = readdir(directory)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") && strcmp(entry->d_name, NOTE) &&
		    strcmp(entry->d_name, NOTE_UNFINISHED))
			error = -ENOTEMPTY;
	closedir(directory);
	return error;
}

static int unlink_in(int directory_fd, const char *name)
{
	return unlinkat(directory_fd, name, 0) && errno != ENOENT ? -errno : 0;
}

/* The note goes last, so that whatever ends this in the middle leaves a record of the rest. Closes fd. */
static int remove_emptied(int at_fd, const char *path, int fd, int error)
{
	if (!error)
		error = check_empty(fd);
	if (!error)
		error = unlink_in(fd, NOTE_UNFINISHED);
	if (!error)
		error = unlink_in(fd, NOTE);
	close(fd);
	if (!error && unlinkat(at_fd, path, AT_REMOVEDIR) && errno != ENOENT)
		error = -errno;
	return error;
}

/* To remove what lies in it: a descriptor, or -errno. A mount point is none of ours; rmdir says so before it looks for
 * entries. */
static int open_made(int at_fd, const char *path)
{
	if (!unlinkat(at_fd, path, AT_REMOVEDIR))
		return -ENOENT;
	if (errno == EBUSY)
		return -EBUSY;
	at_fd = openat(at_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return at_fd < 0 ? -errno : at_fd;
}

int files_remove_laid(int at_fd, const char *path, uint32_t files)
{
	int fd = open_made(at_fd, path), error = 0, failed;
	char name[24];

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	/* First, so that nobody takes what is left of the files for kept ones. */
	error = unlink_in(fd, KEPT_RECORD);
	for (uint32_t i = 0; i < files; i++) {
		calyx_format(name, sizeof(name), "job.%u", i);
		failed = unlink_in(fd, name);
		error = error ? error : failed;
	}
	return remove_emptied(at_fd, path, fd, error);
}

int files_remove_dead_work(int at_fd, const char *path)
{
	int fd = open_made(at_fd, path), error = 0;
	DIR *directory = fd < 0 ? NULL : fdopendir(dup(fd));
	struct dirent *entry;

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	while (directory && (entry = readdir(directory))) {
		if (!strncmp(entry->d_name, MADE_PREFIX, strlen(MADE_PREFIX)))
			error = files_remove_laid(fd, entry->d_name, CALYX_JOBS_MAX);
		else if (!strcmp(entry->d_name, GATE) || !strncmp(entry->d_name, FIO_LOGS, strlen(FIO_LOGS)))
			unlinkat(fd, entry->d_name, 0);
		if (error == -ENOTDIR)
			error = -ENOTEMPTY;
		if (error)
			break;
	}
	if (directory)
		closedir(directory);
	return remove_emptied(at_fd, path, fd, error);
}

const char *files_why(int error)
{
	if (error == -EBUSY || error == -EXDEV)
		return "something is mounted in it";
	return error == -ENOTEMPTY ? "files lie in it that no agent made" : strerror(-error);
}

static void let_go(int *held)
{
	if (*held)
		close(*held);
	*held = 0;
}

int files_remove_work(struct record *record)
{
	if (!record->work[0])
		return 0;
	let_go(&record->work_held);
	return files_remove_tree(record->work);
}

int files_remove_directory(struct record *record, unsigned int place)
{
	uint64_t until_ns = moment_now_ns() + BUSY_NS;
	int error;

	/* Before the file goes: network file systems keep what is removed while it is open, and the directory with it.
	 */
	let_go(&record->held[place]);
	do {
		error = files_remove_laid(AT_FDCWD, record->made[place], record->made_files[place]);
		if (error != -EBUSY && error != -ENOTEMPTY)
			break;
		moment_sleep_until(moment_now_ns() + 20 * MS_NS);
	} while (moment_now_ns() < until_ns);
	if (!error)
		record->made[place][0] = 0;
	return error;
}

int files_clean(struct record *record, struct json *removed, struct json *failed)
{
	int failures = 0;

	for (unsigned int i = 0; i < MADE_MAX; i++) {
		char path[PATH_MAX];
		int error;

		if (!record->made[i][0])
			continue;
		if (record->kept[i].how && !kept_close(record, i)) {
			let_go(&record->held[i]);
			record->made[i][0] = 0;
			continue;
		}
		memcpy(path, record->made[i], sizeof(path));
		error = files_remove_directory(record, i);
		if (error)
			failures++;
		if (removed && !error)
			json_text(removed, NULL, path);
		if (failed && error)
			files_write_failure(failed, path, files_why(error));
	}
	return failures;
}

void files_write_failure(struct json *list, const char *path, const char *why)
{
	json_object(list);
	json_text(list, "path", path);
	json_text(list, "why", why);
	json_object_end(list);
}

void files_write_laid(struct json *list, const char *path, uint64_t size, const struct calyx_layout *layout)
{
	json_object(list);
	json_text(list, "path", path);
	json_u64(list, "size", size);
	if (layout->fiemap) {
		json_u64(list, "extents", layout->extents);
		json_u64(list, "unwritten", layout->unwritten_bytes);
		json_u64(list, "holes", layout->hole_bytes);
	} else {
		json_null(list, "extents");
		json_null(list, "unwritten");
		json_null(list, "holes");
	}
	json_object_end(list);
}
