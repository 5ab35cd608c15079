/* SPDX-License-Identifier: Apache-2.0
 *
 * Who uses a target directory: see owner.h.
 */
#include "owner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "files.h"
#include "moment.h"
#include "place.h"
#include "protocol.h"

#define NOTE "owner"
#define NOTE_UNFINISHED "owner.new"
#define NOTE_BYTES 1024
#define STALE_MAX 32
#define ENTER_NS SECOND_NS
#define SETTLING_S 2 /* a directory without a note is that young when its agent is about to write it */

enum holder { HOLDER_UNKNOWN, HOLDER_LIVES, HOLDER_IS_DEAD };

static void tell_machine(char machine[2 * PLACE_TEXT])
{
	char host[PLACE_TEXT] = "", id[PLACE_TEXT] = "";

	gethostname(host, sizeof(host) - 1);
	if (!place_attribute("", "/etc/machine-id", id))
		id[0] = 0;
	snprintf(machine, 2 * PLACE_TEXT, "%s %s", host, id);
}

int owner_enter(const char *parent)
{
	uint64_t until_ns = moment_now_ns() + ENTER_NS;
	int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB)) {
		if ((errno != EWOULDBLOCK && errno != EINTR) || moment_now_ns() >= until_ns) {
			close(fd);
			return -1;
		}
		moment_sleep_until(moment_now_ns() + MS_NS);
	}
	return fd;
}

/* The value of one line of a note, "" when it is not there. */
static void take_value(const char *note, const char *key, char *value, size_t size)
{
	const char *at = note;
	size_t length = strlen(key);

	value[0] = 0;
	while (at && (strncmp(at, key, length) || at[length] != '=')) {
		at = strchr(at, '\n');
		at = at ? at + 1 : NULL;
	}
	if (at)
		snprintf(value, size, "%.*s", (int)strcspn(at + length + 1, "\n"), at + length + 1);
}

static enum holder look_at_note(int fd, char note[NOTE_BYTES])
{
	char machine[2 * PLACE_TEXT], written_by[2 * PLACE_TEXT];
	struct stat status;
	ssize_t length;

	if (fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_uid != geteuid())
		return HOLDER_UNKNOWN;
	length = pread(fd, note, NOTE_BYTES - 1, 0);
	if (length < 0)
		return HOLDER_UNKNOWN;
	note[length] = 0;
	if (flock(fd, LOCK_SH | LOCK_NB))
		return errno == EWOULDBLOCK ? HOLDER_LIVES : HOLDER_UNKNOWN;
	tell_machine(machine);
	take_value(note, "machine", written_by, sizeof(written_by));
	return strcmp(machine, written_by) ? HOLDER_UNKNOWN : HOLDER_IS_DEAD;
}

static enum holder look(int parent_fd, const char *name, char note[NOTE_BYTES])
{
	int directory_fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), fd;
	enum holder holder = HOLDER_UNKNOWN;
	struct stat status;

	if (directory_fd < 0)
		return HOLDER_UNKNOWN;
	if (!fstat(directory_fd, &status) && status.st_uid == geteuid()) {
		fd = openat(directory_fd, NOTE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd >= 0) {
			holder = look_at_note(fd, note);
			close(fd);
		} else if (errno == ENOENT && status.st_mtime + SETTLING_S <= time(NULL)) {
			holder = HOLDER_IS_DEAD; /* its note went first when it was removed in part */
		}
	}
	close(directory_fd);
	return holder;
}

/* The next directory that some agent's `prepare` made, by its name. */
static const char *next_made(DIR *parent)
{
	struct dirent *entry;

	while ((entry = readdir(parent)))
		if (!strncmp(entry->d_name, MADE_PREFIX, strlen(MADE_PREFIX)) &&
		    strlen(entry->d_name) == strlen(MADE_PREFIX) + MADE_RANDOM)
			return entry->d_name;
	return NULL;
}

static void refuse(const char *parent, const char *note, const char *run, char *why)
{
	char by[OWNER_TEXT], since[32], pid[32];
	long long now_s = time(NULL), since_s;

	take_value(note, "by", by, sizeof(by));
	take_value(note, "since", since, sizeof(since));
	take_value(note, "pid", pid, sizeof(pid));
	since_s = strtoll(since, NULL, 10);
	snprintf(
		why, WHY_MAX,
		"%.180s has been in use by run %.80s of %.80s for %lld s (agent %.12s): two runs at once would measure "
		"each other",
		parent, run, by[0] ? by : "somebody", now_s > since_s ? now_s - since_s : 0, pid);
}

int owner_check(const char *parent, const struct owner *owner, char *why)
{
	DIR *directory = owner->run[0] ? opendir(parent) : NULL;
	char note[NOTE_BYTES], run[OWNER_TEXT];
	const char *name;
	int error = 0;

	while (directory && !error && (name = next_made(directory))) {
		if (look(dirfd(directory), name, note) != HOLDER_LIVES)
			continue;
		take_value(note, "run", run, sizeof(run));
		if (run[0] && strcmp(run, owner->run)) {
			refuse(parent, note, run, why);
			error = -EBUSY;
		}
	}
	if (directory)
		closedir(directory);
	return error;
}

int owner_settle(const char *directory, const struct owner *owner)
{
	char note[NOTE_BYTES], machine[2 * PLACE_TEXT];
	int directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), fd, length, error = 0;

	if (directory_fd < 0)
		return -errno;
	/* Under its final name only when it is locked and whole: who looks in between finds no note yet. */
	fd = openat(directory_fd, NOTE_UNFINISHED, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		error = -errno;
		goto close_directory;
	}
	tell_machine(machine);
	length = snprintf(note, sizeof(note), "run=%s\nby=%s\nsince=%lld\npid=%d\nmachine=%s\n", owner->run, owner->by,
			  (long long)time(NULL), (int)getpid(), machine);
	flock(fd, LOCK_EX | LOCK_NB); /* where there are no locks nobody is told dead or living */
	errno = EIO;
	if (write(fd, note, (size_t)length) != length || renameat(directory_fd, NOTE_UNFINISHED, directory_fd, NOTE)) {
		error = -errno;
		close(fd);
	}
close_directory:
	close(directory_fd);
	return error ? error : fd;
}

void owner_write_stale(struct json *json, const char *parent)
{
	DIR *directory = opendir(parent);
	char note[NOTE_BYTES];
	unsigned int count = 0;
	const char *name;

	json_key(json, "stale");
	json_array(json);
	while (directory && count < STALE_MAX && (name = next_made(directory))) {
		if (look(dirfd(directory), name, note) != HOLDER_IS_DEAD)
			continue;
		json_text(json, NULL, name);
		count++;
	}
	json_array_end(json);
	if (directory)
		closedir(directory);
}
