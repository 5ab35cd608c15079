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

#include "json.h"

#define MADE_MAX 64
#define MADE_PREFIX ".calyx-orch-"
#define MADE_RANDOM 6 /* characters that mkdtemp chooses */

/* Lives in memory that the guard shares, so that it can remove what a killed agent left. An empty path is a free place.
 */
struct record {
	char work[PATH_MAX];
	char made[MADE_MAX][PATH_MAX];
	int held[MADE_MAX];		     /* the agent's descriptors of the notes in them (owner.h); 0: none */
	_Atomic uint64_t heard_ns, lease_ns; /* when a line came down last; 0: no lease */
};

/* Makes the private work directory beside the executable, else in /var/tmp or /tmp. 0 or -errno. */
int files_make_work(struct record *record, const char *executable);
/* Makes a directory for layouts below `parent`; *place is its index in record->made. 0 or -errno. */
int files_make_directory(struct record *record, const char *parent, unsigned int *place);
/* Removes a directory that was made, with its files; retries for a second while it is busy. Its place is free then. 0
 * or -errno, ENOENT is fine. */
int files_remove_directory(struct record *record, unsigned int place);
/* Removes all that was made; when `out` is given it gets the `cleaned` message. The number that could not be removed.
 */
int files_clean(struct record *record, struct buffer *out);
/* Removes a directory with all that is in it, never following a symbolic link. 0 or -errno of the first failure. */
int files_remove_tree(const char *path);
/* Removes what is in the directory but not the directory itself. */
int files_empty(const char *path);

#endif
