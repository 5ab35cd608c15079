/* SPDX-License-Identifier: Apache-2.0
 *
 * The wire (docs/protocol.md): a command line is parsed here, and messages and long documents are put together here.
 */
#ifndef CALYX_AGENT_PROTOCOL_H
#define CALYX_AGENT_PROTOCOL_H

#include <stddef.h>
#include <stdint.h>

#include "json.h"

#define PROTOCOL_VERSION 1
#define PROTOCOL_MARKER "calyx-agent/1 "
#define LINE_MAX_BYTES 65536
#define DOCUMENT_MAX_BYTES (64u << 20)
#define WHY_MAX 512

/* One command: `pairs` in their order, values decoded and NUL-terminated (a value never holds a NUL). */
struct pair {
	const char *key, *value;
};

struct line {
	const char *verb;
	size_t count;
	struct pair *pairs;
	char *storage;
};

/* 0, or -EINVAL or -ENOMEM with a sentence in why (WHY_MAX bytes); a line that was parsed is freed with line_free. */
int line_parse(const char *text, size_t length, struct line *line, char *why);
void line_free(struct line *line);

/* Is every key in `keys` (names parted by a space, a trailing `*` marks one that may repeat)? 0, or -EINVAL and why. */
int line_check(const struct line *line, const char *keys, char *why);
const char *line_get(const struct line *line, const char *key);
size_t line_count(const struct line *line, const char *key);
/* The values of a repeated key, NULL-terminated, to be freed by the caller; NULL when memory is short. */
const char **line_list(const struct line *line, const char *key);
/* A decimal number; `fallback` when the key is absent. 0, or -EINVAL and why; -ERANGE above max. */
int line_number(const struct line *line, const char *key, uint64_t fallback, uint64_t max, uint64_t *value, char *why);

/* A message is opened with its type, filled, and closed with the end of its line. */
struct json message_begin(struct buffer *out, const char *type);
void message_end(struct json *json);
void message_refused(struct buffer *out, const char *verb, int error, const char *why);
/* A long document as numbered chunks. */
void message_document(struct buffer *out, const char *name, const char *data, size_t length);

#endif
