/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that are kept from run to run: see kept.h. The record is text: how often they were used, then lines that tell
 * of the files. The same lines are written of them when they are looked at again, and must be equal.
 */
#include "kept.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calyx/text.h"
#include "place.h"
#include "protocol.h"
#include "sha256.h"

#define BLOCK 4096
#define SAMPLES 256 /* blocks of all files together: a slow disk reads them in a few seconds */
#define SAMPLES_OF_FILE 64
#define COUNT_BITS 53	 /* a count that all can read */
#define FIRST "disk fs=" /* begins what is compared */

/* One look at all files of a directory. */
struct look {
	const char *directory;
	uint32_t files;
	uint64_t seed;			  /* of the blocks that are sampled: others each time */
	const struct kept_wanted *wanted; /* NULL: they are only described */
	struct json *json;
	struct buffer text;
	char *why;
};

static int adopt(struct record *record, const char *parent, const char *name, const struct owner *owner,
		 unsigned int *place)
{
	int error = files_find_place(record, place);

	if (error)
		return error;
	record->made_files[*place] = owner->files;
	record->kept[*place].how = KEPT_AS_IT_IS;
	if (calyx_format(record->made[*place], PATH_MAX, "%s/%s", parent, name) >= PATH_MAX)
		error = -ENAMETOOLONG;
	else
		error = owner_settle(record->made[*place], owner);
	if (error < 0) {
		record->made[*place][0] = 0;
		record->kept[*place].how = KEPT_NOT;
		return error;
	}
	record->held[*place] = error;
	return 1;
}

int kept_take(struct record *record, const char *parent, const struct owner *owner, unsigned int *place, char *why)
{
	DIR *directory = opendir(parent);
	char reason[WHY_MAX];
	const char *name;
	int error = 0;

	while (directory && !error && (name = owner_next(directory, MADE_PREFIX))) {
		struct owner mine = *owner, other = {0};
		enum holder holder = owner_look(dirfd(directory), name, "files", &other);

		if (strcmp(other.keep, owner->keep))
			continue;
		mine.kind = "files";
		mine.files = other.files;
		error = holder == HOLDER_IS_DEAD ? adopt(record, parent, name, &mine, place) : -EBUSY;
		if (error < 0)
			calyx_format(why, WHY_MAX, "%.180s/%s is kept for %.100s: %.200s", parent, name, owner->keep,
				     error == -EBUSY ? owner_why(holder, &other, reason) : strerror(-error));
	}
	if (directory)
		closedir(directory);
	return error;
}

/* The first and the last block, and one of each equal part between them, from the disk. */
static int sample(const struct look *look, int fd, uint64_t size, char hex[SHA256_HEX_SIZE])
{
	_Alignas(BLOCK) unsigned char block[BLOCK];
	uint64_t blocks = size / BLOCK, count = SAMPLES / look->files, state = look->seed;
	struct sha256 sha;
	ssize_t got;

	count = count < 2 ? 2 : count > SAMPLES_OF_FILE ? SAMPLES_OF_FILE : count;
	count = blocks < count ? blocks : count;
	sha256_init(&sha);
	if (fcntl(fd, F_SETFL, O_DIRECT))
		posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	for (uint64_t i = 0; i == 0 || i < count; i++) {
		uint64_t at = 0;

		state = state * 6364136223846793005ull + 1442695040888963407ull;
		if (i)
			at = i == count - 1 ? blocks - 1 : i * (blocks / count) + (state >> 33) % (blocks / count);
		got = pread(fd, block, BLOCK, (off_t)(at * BLOCK));
		if (got < 0 && errno == EINVAL && !fcntl(fd, F_SETFL, 0))
			got = pread(fd, block, BLOCK, (off_t)(at * BLOCK));
		if (got < 0)
			return -errno;
		sha256_update(&sha, block, (size_t)got);
	}
	sha256_hex(&sha, hex);
	return 0;
}

static int describe_file(struct look *look, uint32_t number)
{
	char path[PATH_MAX + 16], hex[SHA256_HEX_SIZE], line[WHY_MAX];
	const char *name = path + strlen(look->directory) + 1;
	struct calyx_layout layout = {0};
	struct stat status = {0};
	uint64_t size, unwritten;
	int fd, error;

	calyx_format(path, sizeof(path), "%s/job.%u", look->directory, number);
	fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	error = fd < 0 || fstat(fd, &status) || fsync(fd) ? -errno : S_ISREG(status.st_mode) ? 0 : -EINVAL;
	size = (uint64_t)status.st_size;
	if (!error)
		error = calyx_target_extents(fd, size, &layout);
	if (!error)
		error = sample(look, fd, size, hex);
	if (fd >= 0)
		close(fd);
	if (error) {
		calyx_format(look->why, WHY_MAX, "%s: %s", name, strerror(-error));
		return error;
	}
	unwritten = layout.unwritten_bytes + layout.hole_bytes;
	if (look->wanted && (unwritten || size < look->wanted->size)) {
		calyx_format(look->why, WHY_MAX, "%s has %llu bytes, %llu of them unwritten; %llu are wanted", name,
			     (unsigned long long)size, (unsigned long long)unwritten,
			     (unsigned long long)look->wanted->size);
		return -EINVAL;
	}
	if (look->wanted && number < look->wanted->files)
		files_write_laid(look->json, path, size, &layout);
	calyx_format(
		line, sizeof(line),
		"%s size=%llu inode=%llu links=%llu pieces=%llu placed=%llu modified=%llu "
		"samples=%.16s\n",
		name, (unsigned long long)size, (unsigned long long)status.st_ino, (unsigned long long)status.st_nlink,
		(unsigned long long)layout.pieces, (unsigned long long)layout.placed,
		(unsigned long long)status.st_mtim.tv_sec * 1000000000 + (unsigned long long)status.st_mtim.tv_nsec,
		hex);
	buffer_text(&look->text, line);
	return 0;
}

/* Adds the lines that are compared, and a 0. */
static int describe(struct look *look)
{
	char line[PLACE_TEXT + 16], uuid[PLACE_TEXT];
	int error = 0;

	calyx_format(line, sizeof(line), FIRST "%s\n", place_fs_uuid(look->directory, uuid) ? uuid : "");
	buffer_text(&look->text, line);
	for (uint32_t i = 0; !error && i < look->files; i++)
		error = describe_file(look, i);
	buffer_append(&look->text, "", 1);
	if (!error && look->text.failed) {
		calyx_format(look->why, WHY_MAX, "no memory for the record");
		error = -ENOMEM;
	}
	return error;
}

/* The first word that differs. Both texts are alike up to it, so it begins at the same place. */
static void tell_difference(const char *was, const char *is, char *why)
{
	size_t line = 0, word = 0;

	for (size_t at = 0; is[at] && is[at] == was[at]; at++) {
		if (is[at] == '\n')
			line = at + 1;
		if (is[at] == '\n' || is[at] == ' ')
			word = at + 1;
	}
	calyx_format(why, WHY_MAX, "%.*s: %.*s, was %.*s", (int)strcspn(is + line, " \n"), is + line,
		     (int)strcspn(is + word, " \n"), is + word, (int)strcspn(was + word, " \n"), was + word);
}

/* As kept_open, of a record that was read; NULL: there is none. */
static int compare(struct look *look, struct kept *kept, const char *stored)
{
	const char *was = stored ? calyx_find(stored, FIRST) : NULL;
	int error;

	if (was) {
		kept->laid_s = owner_number(stored, "laid");
		kept->uses = owner_number(stored, "uses");
		kept->verify = owner_number(stored, "verify");
	}
	if (!was || (kept->laid_s | kept->uses) >> COUNT_BITS) {
		calyx_format(look->why, WHY_MAX, "the run that used the kept files last did not close them");
		return -EINVAL;
	}
	if (look->files < look->wanted->files || (look->wanted->verify && !kept->verify)) {
		calyx_format(look->why, WHY_MAX, "%u files were kept, %llu are wanted%s", look->files,
			     (unsigned long long)look->wanted->files,
			     look->wanted->verify ? " whose blocks verify can check" : "");
		return -EINVAL;
	}
	look->seed = kept->uses;
	error = describe(look);
	if (!error && strcmp(was, look->text.data)) {
		tell_difference(was, look->text.data, look->why);
		error = -EINVAL;
	}
	return error;
}

int kept_open(struct record *record, unsigned int place, const struct kept_wanted *wanted, struct json *json, char *why)
{
	struct kept *kept = &record->kept[place];
	struct look look = {
		.directory = record->made[place],
		.files = record->made_files[place],
		.wanted = wanted,
		.json = json,
		.why = why,
	};
	char path[PATH_MAX + 16], *stored;
	int error, fd;

	calyx_format(path, sizeof(path), "%s/" KEPT_RECORD, look.directory);
	stored = calyx_read_all(path);
	error = compare(&look, kept, stored);
	if (!error) {
		kept->verify = wanted->verify; /* else what is written now cannot be checked later */
		kept->how = KEPT_OPEN;
		fd = open(look.directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		error = fd < 0 || unlink(path) ? -errno : 0;
		if (error)
			calyx_format(why, WHY_MAX, "%.300s: %s", path, strerror(-error));
		/* Where directories cannot be synced a power cut may bring the record back. */
		fsync(fd);
		close(fd);
	}
	if (error)
		kept->how = KEPT_NOT;
	free(stored);
	buffer_free(&look.text);
	return error;
}

int kept_close(struct record *record, unsigned int place)
{
	struct kept *kept = &record->kept[place];
	char why[WHY_MAX], head[128];
	struct look look = {
		.directory = record->made[place],
		.files = record->made_files[place],
		.seed = kept->uses + 1,
		.why = why,
	};
	int error = 0;

	if (kept->how == KEPT_OPEN) {
		calyx_format(head, sizeof(head), "laid=%llu\nuses=%llu\nverify=%d\n", (unsigned long long)kept->laid_s,
			     (unsigned long long)look.seed, kept->verify);
		buffer_text(&look.text, head);
		error = describe(&look);
		if (!error) {
			error = owner_write(look.directory, KEPT_RECORD, look.text.data, look.text.length - 1);
			if (error > 0) {
				close(error);
				error = 0;
			}
		}
		buffer_free(&look.text);
	}
	kept->how = error ? KEPT_NOT : KEPT_CLOSED;
	return error;
}
