/* SPDX-License-Identifier: Apache-2.0
 *
 * Who uses a target directory: each directory that `prepare` makes holds a note, a small file that its agent keeps
 * locked for as long as it lives. So nobody has to trust a process number or a clock:
 *
 *   locked, of another run      two measurements would halve each other: refused, naming the holder
 *   locked, of the same run     guests on one machine, or on one shared file system: let in
 *   not locked, of this machine its agent is dead: left over (`stale`)
 *   not locked, of another one  not known: not all file systems carry locks to other machines
 *
 * What belongs to another user is not looked at: it could be a trap, and says nothing that can be trusted.
 */
#ifndef CALYX_AGENT_OWNER_H
#define CALYX_AGENT_OWNER_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>

#include "json.h"
#include "protocol.h"

#define OWNER_TEXT 128
#define OWNER_TOLD 256

/* What a note says. `run` empty: of no run that is known, which neither refuses nor is refused. */
struct owner {
	char run[OWNER_TEXT], by[OWNER_TEXT];
	char keep[OWNER_TEXT]; /* whose kept files these are; empty: they are removed at the end */
	bool closed;	       /* they are kept, and nobody needs to remove them (kept.h) */
	const char *kind;      /* files or work; NULL in a note of neither */
	uint32_t files;	       /* at most so many job.N */
	char device[24];       /* MAJOR:MINOR of the raw device that is held, or "" */
	uint64_t since_s, pid;
};

/* Of the directory in which a note lies. NO_RECORD: made by nobody that is known. */
enum holder { HOLDER_LIVES, HOLDER_IS_DEAD, HOLDER_ELSEWHERE, HOLDER_OF_OTHERS, HOLDER_NO_RECORD, HOLDER_UNKNOWN };

/* The value of a key, which a note holds in one line: "" when it is absent. 0, or -EINVAL with a sentence in why. */
int owner_parse(const struct line *line, const char *key, char name[OWNER_TEXT], char *why);
/* Only one agent at a time looks and settles in a directory: a descriptor to be closed, or -1 where the file system has
 * no locks for directories. Waits for at most a second. */
int owner_enter(const char *parent);
/* 0, or -EBUSY with a sentence (WHY_MAX bytes) when a living agent of another run has files in `parent`. */
int owner_check(const char *parent, const struct owner *owner, char *why);
/* Names the living agent whose note in a directory of `parent` holds that device: true, with a sentence in why. */
bool owner_of_device(const char *parent, const char *device, const char *node, char *why);
/* Writes a record, which is whole and on the disk afterwards. A descriptor that locks it, or -errno. */
int owner_write(const char *directory, const char *name, const char *text, size_t length);
/* Writes the note. The descriptor that holds it, or -errno. */
int owner_settle(const char *directory, const struct owner *owner);
/* Whose the directory `name` is, by a note of that kind; *owner is only filled in when a note could be read. */
enum holder owner_look(int parent_fd, const char *name, const char *kind, struct owner *owner);
/* Why a directory is not touched that its holder keeps; `why` is room for the sentence, where it takes any. */
const char *owner_why(enum holder holder, const struct owner *owner, char why[WHY_MAX]);
/* The number in the line `key=` of a record; 0 where there is none. */
uint64_t owner_number(const char *record, const char *key);
/* `run R of BY for N s (agent PID)`: who holds a directory, as far as its note says. */
void owner_tell(const struct owner *owner, char told[OWNER_TOLD]);
/* The next entry that begins with `prefix` and ends with six characters; NULL at the end. */
const char *owner_next(DIR *parent, const char *prefix);
/* Two lists of what lies in `parent` and is in nobody's use, at most 32 of each, empty where it cannot be read: `stale`
 * of the names of what dead agents left, `kept` of the names of kept files with, behind a space, whose they are. */
void owner_write_unused(struct json *json, const char *parent);

#endif
