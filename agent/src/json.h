/* SPDX-License-Identifier: Apache-2.0
 *
 * Writing JSON into a growing buffer. It is only ever written here, never parsed.
 *
 * Text that is valid UTF-8 passes as it is; text that is not is taken as Latin-1 as a whole (every byte above 0x7f
 * becomes \u00XX), so that any bytes come through and the reader can tell both cases apart by the digest of a document.
 */
#ifndef CALYX_AGENT_JSON_H
#define CALYX_AGENT_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* After a failed allocation `failed` is set, further writes do nothing, and the content must not be used. */
struct buffer {
	char *data;
	size_t length, capacity;
	bool failed;
};

void buffer_append(struct buffer *buffer, const void *data, size_t length);
void buffer_text(struct buffer *buffer, const char *text);
void buffer_free(struct buffer *buffer);

/* `comma` says whether the next element of the innermost object or array needs a comma in front. */
struct json {
	struct buffer *out;
	bool comma;
};

void json_object(struct json *json);
void json_object_end(struct json *json);
void json_array(struct json *json);
void json_array_end(struct json *json);
void json_key(struct json *json, const char *key);

/* Values. In an array the key is NULL. A NULL text is written as null. */
void json_u64(struct json *json, const char *key, uint64_t value);
void json_i64(struct json *json, const char *key, int64_t value);
void json_bool(struct json *json, const char *key, bool value);
void json_null(struct json *json, const char *key);
void json_text(struct json *json, const char *key, const char *text);
void json_bytes(struct json *json, const char *key, const char *data, size_t length);

bool utf8_is_valid(const char *data, size_t length);

/* Bytes that the escaped form of data[0] takes when the whole text is (not) valid UTF-8. */
size_t json_escaped_size(unsigned char byte, bool utf8);
void json_escape(struct buffer *out, const char *data, size_t length, bool utf8);

#endif
