/* SPDX-License-Identifier: Apache-2.0
 *
 * Who uses a target directory: see owner.h.
 */
#include "owner.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h> /* renameat */
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "calyx/engine.h"
#include "calyx/text.h"
#include "files.h"
#include "moment.h"
#include "place.h"
#include "protocol.h"

#define NOTE_BYTES 1280
#define UNUSED_MAX 32
#define ENTER_NS SECOND_NS

static void tell_machine(char machine[2 * PLACE_TEXT])
{
	char host[PLACE_TEXT] = "", id[PLACE_TEXT] = "";

	gethostname(host, sizeof(host) - 1);
	if (!place_attribute("", "/etc/machine-id", id))
		id[0] = 0;
	calyx_format(machine, 2 * PLACE_TEXT, "%s %s", host, id);
}

int owner_parse(const struct line *line, const char *key, char name[OWNER_TEXT], char *why)
{
	const char *text = line_get(line, key);

	name[0] = 0;
	for (const char *at = text; at && *at; at++) {
		if ((unsigned char)*at < ' ' || at - text >= OWNER_TEXT - 1) {
			calyx_format(why, WHY_MAX, "%s= is a name of at most %d bytes without control characters", key,
				     OWNER_TEXT - 1);
			return -EINVAL;
		}
	}
	if (text)
		calyx_format(name, OWNER_TEXT, "%s", text);
	return 0;
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
		calyx_format(value, size, "%.*s", (int)strcspn(at + length + 1, "\n"), at + length + 1);
}

uint64_t owner_number(const char *record, const char *key)
{
	char text[32];

	take_value(record, key, text, sizeof(text));
	return calyx_number(text, NULL);
}

static void read_note(const char *note, struct owner *owner)
{
	char kind[16], files[16];

	take_value(note, "run", owner->run, sizeof(owner->run));
	take_value(note, "by", owner->by, sizeof(owner->by));
	take_value(note, "keep", owner->keep, sizeof(owner->keep));
	take_value(note, "device", owner->device, sizeof(owner->device));
	take_value(note, "kind", kind, sizeof(kind));
	take_value(note, "files", files, sizeof(files));
	owner->kind = !strcmp(kind, "work") ? "work" : !strcmp(kind, "files") ? "files" : NULL;
	owner->files = files[0] ? (uint32_t)calyx_number(files, NULL) : 0;
	if (owner->files > CALYX_JOBS_MAX)
		owner->files = CALYX_JOBS_MAX;
	owner->since_s = owner_number(note, "since");
	owner->pid = owner_number(note, "pid");
}

static enum holder look_at_note(int fd, const char *kind, struct owner *owner)
{
	char machine[2 * PLACE_TEXT], written_by[2 * PLACE_TEXT], note[NOTE_BYTES];
	struct stat status;
	ssize_t length;

	if (fstat(fd, &status) || !S_ISREG(status.st_mode))
		return HOLDER_NO_RECORD;
	if (status.st_uid != geteuid())
		return HOLDER_OF_OTHERS;
	length = pread(fd, note, NOTE_BYTES - 1, 0);
	if (length <= 0)
		return length ? HOLDER_UNKNOWN : HOLDER_NO_RECORD;
	note[length] = 0;
	read_note(note, owner);
	if (flock(fd, LOCK_SH | LOCK_NB))
		return errno == EWOULDBLOCK ? HOLDER_LIVES : HOLDER_UNKNOWN;
	tell_machine(machine);
	take_value(note, "machine", written_by, sizeof(written_by));
	if (!owner->kind || strcmp(owner->kind, kind) || !written_by[0])
		return HOLDER_NO_RECORD;
	return strcmp(machine, written_by) ? HOLDER_ELSEWHERE : HOLDER_IS_DEAD;
}

enum holder owner_look(int parent_fd, const char *name, const char *kind, struct owner *owner)
{
	int directory_fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), fd;
	enum holder holder = HOLDER_NO_RECORD;
	struct stat status;

	if (directory_fd < 0)
		return errno == EACCES ? HOLDER_OF_OTHERS : HOLDER_NO_RECORD;
	if (fstat(directory_fd, &status) || status.st_uid != geteuid()) {
		holder = HOLDER_OF_OTHERS;
	} else {
		fd = openat(directory_fd, NOTE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd >= 0) {
			holder = look_at_note(fd, kind, owner);
			owner->closed = owner->keep[0] && !faccessat(directory_fd, KEPT_RECORD, F_OK, 0);
			close(fd);
		}
	}
	close(directory_fd);
	return holder;
}

const char *owner_next(DIR *parent, const char *prefix)
{
	size_t length = strlen(prefix);
	struct dirent *entry;

	while ((entry = readdir(parent)))
		if (!strncmp(entry->d_name, prefix, length) && strlen(entry->d_name) == length + MADE_RANDOM)
			return entry->d_name;
	return NULL;
}

void owner_tell(const struct owner *owner, char told[OWNER_TOLD])
{
	long long now_s = time(NULL), since_s = (long long)owner->since_s;

	calyx_format(told, OWNER_TOLD, "run %.80s of %.80s for %lld s (agent %llu)",
		     owner->run[0] ? owner->run : "unknown", owner->by[0] ? owner->by : "somebody",
		     now_s > since_s ? now_s - since_s : 0, (unsigned long long)owner->pid);
}

const char *owner_why(enum holder holder, const struct owner *owner, char why[WHY_MAX])
{
	char told[OWNER_TOLD];

	switch (holder) {
	case HOLDER_LIVES:
		owner_tell(owner, told);
		calyx_format(why, WHY_MAX, "its agent lives: in use by %s", told);
		return why;
	case HOLDER_ELSEWHERE:
		return "an agent of another machine made it";
	case HOLDER_OF_OTHERS:
		return "it is another user's";
	case HOLDER_NO_RECORD:
		return "no record in it says that an agent made it";
	default:
		return "the file system cannot say whether its agent lives";
	}
}

static void refuse(const char *parent, const struct owner *owner, char *why)
{
	char told[OWNER_TOLD];

	owner_tell(owner, told);
	calyx_format(why, WHY_MAX, "%.180s has been in use by %s: two runs at once would measure each other", parent,
		     told);
}

int owner_check(const char *parent, const struct owner *owner, char *why)
{
	DIR *directory = owner->run[0] ? opendir(parent) : NULL;
	const char *name;
	int error = 0;

	while (directory && !error && (name = owner_next(directory, MADE_PREFIX))) {
		struct owner other = {0};

		if (owner_look(dirfd(directory), name, "files", &other) != HOLDER_LIVES)
			continue;
		if (other.run[0] && strcmp(other.run, owner->run)) {
			refuse(parent, &other, why);
			error = -EBUSY;
		}
	}
	if (directory)
		closedir(directory);
	return error;
}

bool owner_of_device(const char *parent, const char *device, const char *node, char *why)
{
	DIR *directory = opendir(parent);
	const char *name;
	bool found = false;

	while (directory && !found && (name = owner_next(directory, MADE_PREFIX))) {
		struct owner other = {0};

		found = owner_look(dirfd(directory), name, "files", &other) == HOLDER_LIVES &&
			!strcmp(other.device, device);
		if (found)
			refuse(node, &other, why);
	}
	if (directory)
		closedir(directory);
	return found;
}

/* The entry of the directory itself. */
static void sync_parent(int directory_fd)
{
	int fd = openat(directory_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return;
	fsync(fd);
	close(fd);
}

int owner_write(const char *directory, const char *name, const char *text, size_t length)
{
	int directory_fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), fd, error = 0;

	if (directory_fd < 0)
		return -errno;
	/* Under its final name only when it is locked and whole: who looks in between finds none yet. */
	unlinkat(directory_fd, NOTE_UNFINISHED, 0);
	fd = openat(directory_fd, NOTE_UNFINISHED, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		error = -errno;
		goto close_directory;
	}
	flock(fd, LOCK_EX | LOCK_NB); /* where there are no locks nobody is told dead or living */
	errno = EIO;
	if (write(fd, text, length) != (ssize_t)length || fsync(fd) ||
	    renameat(directory_fd, NOTE_UNFINISHED, directory_fd, name)) {
		error = -errno;
		close(fd);
	} else {
		/* Where directories cannot be synced nothing is lost but the record, in case of a reboot. */
		fsync(directory_fd);
		sync_parent(directory_fd);
	}
close_directory:
	close(directory_fd);
	return error ? error : fd;
}

int owner_settle(const char *directory, const struct owner *owner)
{
	char note[NOTE_BYTES], machine[2 * PLACE_TEXT];
	int length;

	tell_machine(machine);
	length = calyx_format(note, sizeof(note),
			      "kind=%s\nfiles=%u\ndevice=%s\nrun=%s\nby=%s\nsince=%lld\npid=%d\nmachine=%s\nkeep=%s\n",
			      owner->kind, owner->files, owner->device, owner->run, owner->by, (long long)time(NULL),
			      (int)getpid(), machine, owner->keep);
	return owner_write(directory, NOTE, note, (size_t)length);
}

void owner_write_unused(struct json *json, const char *parent)
{
	for (int kept = 0; kept < 2; kept++) {
		DIR *directory = opendir(parent);
		unsigned int count = 0;
		const char *name;

		json_key(json, kept ? "kept" : "stale");
		json_array(json);
		while (directory && count < UNUSED_MAX && (name = owner_next(directory, MADE_PREFIX))) {
			char text[OWNER_TEXT + 32];
			struct owner owner = {0};

			if (owner_look(dirfd(directory), name, "files", &owner) != HOLDER_IS_DEAD ||
			    (owner.keep[0] != 0) != kept)
				continue;
			calyx_format(text, sizeof(text), "%s%s%s", name, kept ? " " : "", owner.keep);
			json_text(json, NULL, text);
			count++;
		}
		json_array_end(json);
		if (directory)
			closedir(directory);
	}
}
