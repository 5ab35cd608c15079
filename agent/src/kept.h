/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that are kept from run to run (`prepare keep=NAME`): they lie in a directory with a note as all that is made
 * (owner.h). At its end an agent leaves the record `kept` beside them: what each file is and where it lies, and a
 * digest of some of its blocks, by which a later run of the same NAME knows them again.
 *
 *   no `kept`             laid out in part, or used and not closed (power cut, agent and guard killed): left over
 *   `kept`, not locked    closed: stays until its NAME takes it, or a clean that is told so
 *   locked                in use; `kept` is taken away before the first byte is written
 */
#ifndef CALYX_AGENT_KEPT_H
#define CALYX_AGENT_KEPT_H

#include <stdbool.h>
#include <stdint.h>

#include "files.h"
#include "json.h"
#include "owner.h"

/* What a run needs of kept files; `verify`: blocks that verify=crc32c can check. */
struct kept_wanted {
	uint64_t files, size;
	bool verify;
};

/* Makes the directory in `parent` that belongs to owner->keep this agent's: 1 and its place in the record, 0 when there
 * is none, or -errno with a sentence in why: -EBUSY while another agent has it, or it is not known whether one has.
 * Nothing in it is touched but its note. */
int kept_take(struct record *record, const char *parent, const struct owner *owner, unsigned int *place, char *why);
/* Are the files in a directory that was taken what they were when they were closed, and enough? 0: they are open then,
 * and a list element of each that is wanted is in json. Else -errno with a sentence in why; the directory is one to be
 * removed. */
int kept_open(struct record *record, unsigned int place, const struct kept_wanted *wanted, struct json *json,
	      char *why);
/* Closes what is open, and leaves what was only taken as it is. 0 or -errno: then it is a directory to be removed. */
int kept_close(struct record *record, unsigned int place);

#endif
