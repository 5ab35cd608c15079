/* SPDX-License-Identifier: Apache-2.0
 *
 * The second door: a job in this process, for the Python module. The same `run` line as the executable's goes in, and
 * the same result document comes out.
 */
#ifndef CALYX_AGENT_DOOR_H
#define CALYX_AGENT_DOOR_H

#include "calyx/engine.h"

#define CALYX_DOOR_WHY_MAX 512

struct calyx_door;

/* NULL with a sentence in why (CALYX_DOOR_WHY_MAX bytes) when the line is wrong or the job is refused. */
struct calyx_door *calyx_door_open(const char *line, size_t length, char *why);
int calyx_door_start(struct calyx_door *door, uint64_t start_ns);
/* 0 done, -ETIME still running. */
int calyx_door_wait(struct calyx_door *door, uint64_t timeout_ns);
void calyx_door_progress(struct calyx_door *door, struct calyx_progress *progress);
void calyx_door_stop(struct calyx_door *door);
/* The result document, after calyx_door_wait returned 0; it lives until close. NULL when memory is short. */
const char *calyx_door_document(struct calyx_door *door, size_t *length);
/* Why the job failed; empty when it did not. */
const char *calyx_door_failure(struct calyx_door *door);
void calyx_door_close(struct calyx_door *door);

#endif
