/* SPDX-License-Identifier: Apache-2.0
 *
 * The wire: see protocol.h and docs/protocol.md.
 */
#include "protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "calyx/text.h"
#include "sha256.h"

#define CHUNK_BYTES 60000 /* of escaped text; leaves room for the message around it */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* Decodes percent escapes in place. False when one is cut, is no number, or stands for NUL. */
static bool decode(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		int high, low;

		if (*from != '%') {
			*to++ = *from;
			continue;
		}
		high = hex_digit(from[1]);
		low = high < 0 ? -1 : hex_digit(from[2]);
		if (low < 0 || (high == 0 && low == 0))
			return false;
		*to++ = (char)(high << 4 | low);
		from += 2;
	}
	*to = 0;
	return true;
}

static bool is_name(const char *text)
{
	return *text && !text[strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_")];
}

static int parse_pair(char *word, struct pair *pair, char *why)
{
	char *equals = strchr(word, '=');

	if (equals)
		*equals = 0;
	if (!equals || !is_name(word)) {
		calyx_format(why, WHY_MAX, "'%.60s' is not of the form key=value", word);
		return -EINVAL;
	}
	if (!decode(equals + 1)) {
		calyx_format(why, WHY_MAX, "the value of '%.60s' has a bad percent escape", word);
		return -EINVAL;
	}
	*pair = (struct pair){.key = word, .value = equals + 1};
	return 0;
}

int line_parse(const char *text, size_t length, struct line *line, char *why)
{
	struct line parsed = {0};
	size_t spaces = 1;
	char *word, *rest;
	int error = -EINVAL;

	for (size_t i = 0; i < length; i++) {
		spaces += text[i] == ' ';
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
			calyx_format(why, WHY_MAX, "a command line holds the control character %d", text[i]);
			return -EINVAL;
		}
	}
	parsed.storage = malloc(length + 1);
	parsed.pairs = calloc(spaces, sizeof(*parsed.pairs));
	if (!parsed.storage || !parsed.pairs) {
		calyx_format(why, WHY_MAX, "no memory for a command of %zu bytes", length);
		error = -ENOMEM;
		goto fail;
	}
	memcpy(parsed.storage, text, length);
	parsed.storage[length] = 0;
	parsed.verb = strtok_r(parsed.storage, " ", &rest);
	if (!parsed.verb || !is_name(parsed.verb)) {
		calyx_format(why, WHY_MAX, "a command begins with a verb in small letters");
		goto fail;
	}
	while ((word = strtok_r(NULL, " ", &rest))) {
		error = parse_pair(word, &parsed.pairs[parsed.count++], why);
		if (error)
			goto fail;
	}
	*line = parsed;
	return 0;
fail:
	line_free(&parsed);
	return error;
}

void line_free(struct line *line)
{
	free(line->pairs);
	free(line->storage);
	*line = (struct line){0};
}

static const char *find_word(const char *words, const char *word)
{
	size_t length = strlen(word);

	for (const char *at = words; (at = calyx_find(at, word)); at += length) {
		char after = at[length];

		if ((at == words || at[-1] == ' ') && (!after || after == ' ' || after == '*'))
			return at;
	}
	return NULL;
}

int line_check(const struct line *line, const char *keys, char *why)
{
	for (size_t i = 0; i < line->count; i++) {
		const char *key = line->pairs[i].key, *known = find_word(keys, key);

		if (!known) {
			calyx_format(why, WHY_MAX, "unknown key '%.60s' of '%.60s'", key, line->verb);
			return -EINVAL;
		}
		if (known[strlen(key)] != '*' && line_count(line, key) > 1) {
			calyx_format(why, WHY_MAX, "key '%.60s' of '%.60s' is given twice", key, line->verb);
			return -EINVAL;
		}
	}
	return 0;
}

const char *line_get(const struct line *line, const char *key)
{
	for (size_t i = 0; i < line->count; i++)
		if (!strcmp(line->pairs[i].key, key))
			return line->pairs[i].value;
	return NULL;
}

size_t line_count(const struct line *line, const char *key)
{
	size_t count = 0;

	for (size_t i = 0; i < line->count; i++)
		count += !strcmp(line->pairs[i].key, key);
	return count;
}

const char **line_list(const struct line *line, const char *key)
{
	const char **list = calloc(line_count(line, key) + 1, sizeof(*list));
	size_t count = 0;

	if (!list)
		return NULL;
	for (size_t i = 0; i < line->count; i++)
		if (!strcmp(line->pairs[i].key, key))
			list[count++] = line->pairs[i].value;
	return list;
}

int line_number(const struct line *line, const char *key, uint64_t fallback, uint64_t max, uint64_t *value, char *why)
{
	const char *text = line_get(line, key);
	unsigned long long number;

	if (!text) {
		*value = fallback;
		return 0;
	}
	if (!*text || text[strspn(text, "0123456789")]) {
		calyx_format(why, WHY_MAX, "%s='%.60s' is no whole number", key, text);
		return -EINVAL;
	}
	errno = 0;
	number = calyx_number(text, NULL);
	if (errno || number > max) {
		calyx_format(why, WHY_MAX, "%s=%.60s is above %llu", key, text, (unsigned long long)max);
		return -ERANGE;
	}
	*value = number;
	return 0;
}

struct json message_begin(struct buffer *out, const char *type)
{
	struct json json = {.out = out};

	json_object(&json);
	json_text(&json, "type", type);
	return json;
}

void message_end(struct json *json)
{
	json_object_end(json);
	buffer_append(json->out, "\n", 1);
}

void message_refused(struct buffer *out, const char *verb, int error, const char *why)
{
	struct json json = message_begin(out, "refused");

	json_text(&json, "verb", verb);
	json_text(&json, "why", why);
	json_i64(&json, "errno", error < 0 ? -error : error);
	message_end(&json);
}

/* Where the chunk that begins at `from` ends: never inside a UTF-8 sequence. */
static size_t chunk_end(const char *data, size_t length, size_t from, bool utf8)
{
	size_t escaped = 0, end = from;

	while (end < length && escaped < CHUNK_BYTES - 8)
		escaped += json_escaped_size((unsigned char)data[end++], utf8);
	while (utf8 && end < length && ((unsigned char)data[end] & 0xc0) == 0x80)
		end++;
	return end;
}

void message_document(struct buffer *out, const char *name, const char *data, size_t length)
{
	bool utf8 = utf8_is_valid(data, length);
	char hex[SHA256_HEX_SIZE];
	struct sha256 sha;
	uint64_t chunks = 0, n = 0;
	size_t from = 0;

	sha256_init(&sha);
	sha256_update(&sha, data, length);
	sha256_hex(&sha, hex);
	for (size_t at = 0; at < length; chunks++)
		at = chunk_end(data, length, at, utf8);
	chunks += !chunks;
	do {
		size_t end = chunk_end(data, length, from, utf8);
		struct json json = message_begin(out, "output");

		json_text(&json, "name", name);
		json_u64(&json, "n", n++);
		json_u64(&json, "of", chunks);
		json_text(&json, "sha256", hex);
		json_key(&json, "text");
		buffer_append(out, "\"", 1);
		json_escape(out, data + from, end - from, utf8);
		buffer_append(out, "\"", 1);
		message_end(&json);
		from = end;
	} while (from < length);
}
