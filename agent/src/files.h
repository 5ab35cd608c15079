/* SPDX-License-Identifier: Apache-2.0
 *
 * What the agent makes on the guest, and how it goes away again.
 */
#ifndef CALYX_AGENT_FILES_H
#define CALYX_AGENT_FILES_H

#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "calyx/engine.h"
#include "device.h"
#include "json.h"

#define MADE_MAX 64
#define MADE_PREFIX ".calyx-orch-"
#define WORK_PREFIX "calyx-work-"
#define MADE_RANDOM 6 /* characters that mkdtemp chooses */
#define GATE "gate"
#define FIO_LOGS "calyx" /* as the controller begins their names */
#define NOTE "owner"
#define NOTE_UNFINISHED "owner.new"
#define KEPT_RECORD "kept"

/* What becomes of a directory at the end: it is removed, left as it was found, or closed for the next run (kept.h);
 * CLOSED once that is done. */
enum keeping { KEPT_NOT, KEPT_AS_IT_IS, KEPT_OPEN, KEPT_CLOSED };

struct kept {
	enum keeping how;
	bool verify;	       /* its blocks can be checked */
	uint64_t laid_s, uses; /* wall clock of the layout; how many runs have used it since */
};

/* Lives in memory that the guard shares, so that it can remove what a killed agent left. An empty path is a free place.
 */
struct record {
	char work[PATH_MAX];
	int work_held; /* the agent's descriptor of the note in it (owner.h); 0: none */
	char made[MADE_MAX][PATH_MAX];
	uint32_t made_files[MADE_MAX]; /* how many job.N may lie in it */
	int held[MADE_MAX];	       /* as work_held */
	struct kept kept[MADE_MAX];
	struct device_holds devices;
	pid_t guard;			     /* 0: none */
	_Atomic uint64_t heard_ns, lease_ns; /* when a line came down last; 0: no lease */
};

/* Makes the private work directory beside the executable, else in /var/tmp or /tmp. 0 or -errno. */
int files_make_work(struct record *record, const char *executable);
/* The index of a free place in record->made. 0 or -EMFILE. */
int files_find_place(const struct record *record, unsigned int *place);
/* Makes a directory for layouts of `files` files below `parent`; *place is its index in record->made. 0 or -errno. */
int files_make_directory(struct record *record, const char *parent, uint32_t files, unsigned int *place);
/* Removes a directory that was made, with its files; retries for a second while it is busy. Its place is free then. 0
 * or -errno, ENOENT is fine. */
int files_remove_directory(struct record *record, unsigned int place);
/* Removes all that was made, but what is kept, and adds to two lists, where given, what is gone and what is not. The
 * number that could not be removed. */
int files_clean(struct record *record, struct json *removed, struct json *failed);
/* {path, why} in a list. */
void files_write_failure(struct json *list, const char *path, const char *why);
/* {path, size, extents, unwritten, holes} in a list; null where the file system has no FIEMAP. */
void files_write_laid(struct json *list, const char *path, uint64_t size, const struct calyx_layout *layout);
/* Removes job.0 ... job.(files-1), the records and then the directory; at_fd as in openat. What else lies in it stays,
 * and the directory and its note with it: -ENOTEMPTY. 0 or -errno, ENOENT is fine. */
int files_remove_laid(int at_fd, const char *path, uint32_t files);
/* The same with a work directory whose agent is dead: removes the gate, fio's logs and what was laid out in it. */
int files_remove_dead_work(int at_fd, const char *path);
/* Removes the agent's work directory. 0 or -errno. */
int files_remove_work(struct record *record);
/* -errno in words; of -ENOTEMPTY and -EBUSY what they mean here. */
const char *files_why(int error);
/* Removes a directory with all that is in it, never following a symbolic link nor entering what is mounted there. 0 or
 * -errno of the first failure. */
int files_remove_tree(const char *path);
/* Removes what is in the directory but not the directory itself, nor the note in it. */
int files_empty(const char *path);

#endif
