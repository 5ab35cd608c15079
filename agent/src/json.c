/* SPDX-License-Identifier: Apache-2.0
 *
 * The JSON writer: see json.h.
 */
#include "json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "calyx/text.h"

static bool reserve(struct buffer *buffer, size_t more)
{
	size_t capacity = buffer->capacity ? buffer->capacity : 256;
	char *data;

	if (buffer->failed)
		return false;
	if (buffer->length + more <= buffer->capacity)
		return true;
	while (capacity < buffer->length + more)
		capacity *= 2;
	data = realloc(buffer->data, capacity);
	if (!data) {
		buffer->failed = true;
		return false;
	}
	buffer->data = data;
	buffer->capacity = capacity;
	return true;
}

void buffer_append(struct buffer *buffer, const void *data, size_t length)
{
	if (!length || !reserve(buffer, length))
		return;
	memcpy(buffer->data + buffer->length, data, length);
	buffer->length += length;
}

void buffer_text(struct buffer *buffer, const char *text)
{
	buffer_append(buffer, text, strlen(text));
}

void buffer_free(struct buffer *buffer)
{
	free(buffer->data);
	*buffer = (struct buffer){0};
}

bool utf8_is_valid(const char *data, size_t length)
{
	const unsigned char *byte = (const unsigned char *)data, *end = byte + length;

	while (byte < end) {
		unsigned int more, low = 0x80, high = 0xbf;

		if (*byte < 0x80) {
			byte++;
			continue;
		}
		if (*byte >= 0xc2 && *byte <= 0xdf) {
			more = 1;
		} else if (*byte >= 0xe0 && *byte <= 0xef) {
			more = 2;
			low = *byte == 0xe0 ? 0xa0 : 0x80;  /* no overlong form */
			high = *byte == 0xed ? 0x9f : 0xbf; /* no surrogate */
		} else if (*byte >= 0xf0 && *byte <= 0xf4) {
			more = 3;
			low = *byte == 0xf0 ? 0x90 : 0x80;
			high = *byte == 0xf4 ? 0x8f : 0xbf;
		} else {
			return false;
		}
		if ((size_t)(end - byte) <= more)
			return false;
		for (byte++; more; more--, byte++, low = 0x80, high = 0xbf)
			if (*byte < low || *byte > high)
				return false;
	}
	return true;
}

size_t json_escaped_size(unsigned char byte, bool utf8)
{
	if (byte == '"' || byte == '\\' || byte == '\n' || byte == '\t' || byte == '\r')
		return 2;
	if (byte < 0x20 || byte == 0x7f)
		return 6;
	return byte < 0x80 || utf8 ? 1 : 6;
}

void json_escape(struct buffer *out, const char *data, size_t length, bool utf8)
{
	static const char hex[] = "0123456789abcdef";
	size_t plain = 0;

	for (size_t i = 0; i < length; i++) {
		unsigned char byte = (unsigned char)data[i];
		char escape[6] = {'\\', 'u', '0', '0', hex[byte >> 4], hex[byte & 15]};
		size_t size = json_escaped_size(byte, utf8);

		if (size == 1)
			continue;
		if (size == 2)
			escape[1] = byte == '\n' ? 'n' : byte == '\t' ? 't' : byte == '\r' ? 'r' : (char)byte;
		buffer_append(out, data + plain, i - plain);
		buffer_append(out, escape, size);
		plain = i + 1;
	}
	buffer_append(out, data + plain, length - plain);
}

static void begin_value(struct json *json, const char *key)
{
	if (json->comma)
		buffer_append(json->out, ",", 1);
	if (key) {
		buffer_append(json->out, "\"", 1);
		buffer_text(json->out, key);
		buffer_append(json->out, "\":", 2);
	}
	json->comma = true;
}

void json_key(struct json *json, const char *key)
{
	begin_value(json, key);
	json->comma = false;
}

void json_object(struct json *json)
{
	begin_value(json, NULL);
	buffer_append(json->out, "{", 1);
	json->comma = false;
}

void json_object_end(struct json *json)
{
	buffer_append(json->out, "}", 1);
	json->comma = true;
}

void json_array(struct json *json)
{
	begin_value(json, NULL);
	buffer_append(json->out, "[", 1);
	json->comma = false;
}

void json_array_end(struct json *json)
{
	buffer_append(json->out, "]", 1);
	json->comma = true;
}

void json_u64(struct json *json, const char *key, uint64_t value)
{
	char digits[24];
	int length = calyx_format(digits, sizeof(digits), "%" PRIu64, value);

	begin_value(json, key);
	buffer_append(json->out, digits, (size_t)length);
}

void json_i64(struct json *json, const char *key, int64_t value)
{
	char digits[24];
	int length = calyx_format(digits, sizeof(digits), "%" PRId64, value);

	begin_value(json, key);
	buffer_append(json->out, digits, (size_t)length);
}

void json_bool(struct json *json, const char *key, bool value)
{
	begin_value(json, key);
	buffer_text(json->out, value ? "true" : "false");
}

void json_null(struct json *json, const char *key)
{
	begin_value(json, key);
	buffer_text(json->out, "null");
}

void json_bytes(struct json *json, const char *key, const char *data, size_t length)
{
	begin_value(json, key);
	buffer_append(json->out, "\"", 1);
	json_escape(json->out, data, length, utf8_is_valid(data, length));
	buffer_append(json->out, "\"", 1);
}

void json_text(struct json *json, const char *key, const char *text)
{
	if (text)
		json_bytes(json, key, text, strlen(text));
	else
		json_null(json, key);
}
