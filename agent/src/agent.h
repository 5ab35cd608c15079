/* SPDX-License-Identifier: Apache-2.0
 *
 * The agent's state, and the one command that it works on.
 *
 * The main thread owns stdin, stdout and the timers and never waits for anything else. Each command that takes time
 * runs in a thread of its own; `arm` and `stop` reach it through its lock. What it says while it works goes to stdout
 * at once; its closing messages are kept and sent when its thread has ended, so that the next command never finds the
 * agent busy.
 *
 *   WORKING --ready--> READY --arm--> ARMED --(thread ends)--> done
 *   stop asks for the end from any state; kill also forgoes the grace that a program gets between TERM and KILL
 */
#ifndef CALYX_AGENT_AGENT_H
#define CALYX_AGENT_AGENT_H

#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "barrier.h"
#include "calyx/engine.h"
#include "device.h"
#include "files.h"
#include "json.h"
#include "protocol.h"
#include "sha256.h"

#define ARM_WITHIN_MS 120000 /* what is ready waits this long for its start line */
#define CALYX_AGENT_VERSION "0.1.0"

/* Lines on their way up; any thread may add. */
struct outbox {
	pthread_mutex_t lock;
	struct buffer pending;
	size_t sent;
	int wake_fd; /* an eventfd: there is something for the main thread */
};

struct owner;

struct agent {
	char path[PATH_MAX], sha256[SHA256_HEX_SIZE];
	struct record *record;
	struct outbox outbox;
	struct command *command; /* NULL when idle */
};

enum command_state { COMMAND_WORKING, COMMAND_READY, COMMAND_ARMED };

struct command {
	struct agent *agent;
	struct line line;
	void (*work)(struct command *command);
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* Under the lock: */
	enum command_state state;
	bool stop, kill;
	unsigned int changes; /* counts stops and arms, so that no one is slept through */
	uint64_t start_ns;
	struct calyx_crew *crew; /* set while it can be armed and stopped */
	struct gate *gate;
	/* The thread's own until it has ended: */
	struct buffer closing;
	/* Read by the main thread for beats of `prepare`; total 0: no beats. */
	_Atomic uint64_t done_bytes, total_bytes;
	_Atomic bool done;
};

/* outbox.c */
void outbox_init(struct outbox *outbox, int wake_fd);
/* Adds whole lines and empties them. When memory is short lines are lost, which ends the agent. */
void outbox_add(struct outbox *outbox, struct buffer *lines);
/* Writes what can be written without waiting. 0 or -errno. */
int outbox_flush(struct outbox *outbox, int fd);
size_t outbox_waiting(struct outbox *outbox);
bool outbox_has_failed(struct outbox *outbox);

/* verbs.c: called by the main thread */
/* Does what a command line says, or refuses it. True at `bye`. */
bool verbs_take_line(struct agent *agent, const char *text, size_t length);
void verbs_refuse(struct agent *agent, const char *verb, int error, const char *why);

/* command.c: called by the main thread */
int command_begin(struct agent *agent, struct line *line, void (*work)(struct command *command));
void command_stop(struct command *command, bool kill);
/* 0, or -errno with a sentence in why. */
int command_arm(struct command *command, uint64_t start_ns, char *why);
/* Joins a thread that is done, sends its closing messages, frees the command. */
void command_finish(struct command *command);

/* command.c: called by the command's thread */
void command_send(struct command *command, struct buffer *lines);
/* Begins the beat of a running round, before or in its window; the caller adds what was done, and ends and sends it.
 * False when the reader does not keep up: it gets no more of these. */
bool command_begin_beat(struct command *command, struct buffer *lines, struct json *json, uint64_t window_ns);
bool command_stopped(struct command *command);
bool command_killed(struct command *command);
/* Sleeps until that instant, or until a stop or an arm comes that `seen` (at first 0) does not know yet. */
void command_sleep(struct command *command, unsigned int *seen, uint64_t until_ns);
/* From here on the command can be armed (crew or gate, the other is NULL); NULL, NULL takes that back. */
void command_offer(struct command *command, struct calyx_crew *crew, struct gate *gate);
/* Takes the offer back unless it was armed in time: the start line then, else 0. */
uint64_t command_withdraw(struct command *command);
/* The start line; 0 while not armed. */
uint64_t command_start_ns(struct command *command);
/* Refuses: the closing message of a command that could not be done. */
void command_refuse(struct command *command, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* prepare.c: the words that a layout of files and one of a device share. 0, or -EINVAL with a sentence in why. */
struct layout_words {
	uint64_t size, files, seed, max_bytes_per_s;
	bool verify; /* blocks that verify=crc32c can check */
};
int prepare_parse(const struct line *line, struct layout_words *words, struct owner *owner, char *why);

/* The commands, one a file. */
void work_facts(struct command *command);   /* facts.c */
void work_exec(struct command *command);    /* exec.c */
void work_hold(struct command *command);    /* hold.c */
void work_prepare(struct command *command); /* prepare.c */
void work_device(struct command *command);  /* lay_device.c: prepare with device= */
void work_clean(struct command *command);   /* left.c */
void work_settle(struct command *command);  /* quiet.c */
void work_lost(struct command *command);    /* quiet.c */
void work_run(struct command *command);	    /* run.c */
void work_floor(struct command *command);   /* probe.c */
void work_truth(struct command *command);   /* probe.c */

#endif
