/* SPDX-License-Identifier: Apache-2.0
 *
 * A program that the agent runs: in a process group of its own, killed when the agent dies, output kept in memory. It
 * is over only when all its descendants are over; the agent is their reaper.
 */
#ifndef CALYX_AGENT_CHILD_H
#define CALYX_AGENT_CHILD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "json.h"

#define CHILD_GRACE_NS 5000000000ull /* between TERM and KILL, and between KILL and giving up */

struct child {
	pid_t pid;
	int output_fd[2]; /* stdout and stderr: memory files */
	bool ended;	  /* the program itself; `status` is as waitpid says */
	int status;
	bool stopped, timed_out, too_long, stuck; /* why it was ended; stuck: not even KILL ended it in time */
	char given_up[96];			  /* why, when it was not for its own doing */
	uint64_t ended_at_ns, term_ns, kill_ns;	  /* 0: not yet */
};

/* Runs arguments[0], looked for in PATH, with one signal blocked (0: none). -errno with a sentence in why when it
 * cannot be run; nothing is left then. */
int child_spawn(struct child *child, const char *const *arguments, const char *directory, int blocked, char *why);

struct child_orders {
	bool stop, kill;
	uint64_t deadline_ns;
};

/* One look at the child, to be repeated: TERM at a stop or at the deadline, KILL after the grace. True when it is over.
 */
bool child_step(struct child *child, const struct child_orders *orders);
/* When to look again. */
uint64_t child_next_look_ns(const struct child *child, uint64_t began_ns);
/* KILLs whatever descends from this process, for at most timeout_ns. True when nothing is left. */
bool child_kill_all(uint64_t timeout_ns);
/* Writes both outputs as documents named `stdout` and `stderr`. */
void child_write_outputs(const struct child *child, struct buffer *out);
/* Opens the message `exited`; the caller may add fields and ends it. */
struct json child_exited_begin(const struct child *child, struct buffer *out);
void child_free(struct child *child);

/* Writes a file as a document, read through a mapping. 0 or -errno. */
int child_write_file(struct buffer *out, const char *name, int fd);

#endif
