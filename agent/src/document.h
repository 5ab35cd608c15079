/* SPDX-License-Identifier: Apache-2.0
 *
 * The result document of docs/protocol.md, written from a calyx_result. Both doors write it here.
 */
#ifndef CALYX_AGENT_DOCUMENT_H
#define CALYX_AGENT_DOCUMENT_H

#include "calyx/engine.h"
#include "json.h"

void document_write(struct buffer *out, const struct calyx_job *job, const struct calyx_result *result);
/* The object of `setup`, as a value under `key`. */
void document_setup(struct json *json, const char *key, const struct calyx_setup_taken *setup);

void document_clock(struct json *json, const char *key, const struct calyx_clock *clock);
/* A direction by its name: read, write, sync. */
const char *document_direction(enum calyx_direction direction);

#endif
