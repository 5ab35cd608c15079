/* SPDX-License-Identifier: Apache-2.0
 *
 * The job of a `run` line, in the terms of the engine. Both doors (the executable and the Python module) read it here.
 */
#ifndef CALYX_AGENT_JOB_H
#define CALYX_AGENT_JOB_H

#include "calyx/engine.h"
#include "protocol.h"

/* The job points into the line and into `paths`: keep the line, free with job_free. 0 or -errno with a sentence in why.
 */
struct job {
	struct calyx_job job;
	const char **paths;
	uint64_t arm_within_ms; /* 0: not said */
};

int job_parse(const struct line *line, struct job *job, char *why);
void job_free(struct job *job);
/* `setup` and `refill` of a line, or their defaults: auto, each. */
int job_parse_setup(const struct line *line, enum calyx_setup *setup, enum calyx_refill *refill, char *why);

const char *job_setup_name(enum calyx_setup setup);
const char *job_refill_name(enum calyx_refill refill);

#endif
