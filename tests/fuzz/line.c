// Fuzz: is any command line either parsed or refused with a sentence, does what was parsed survive being written again,
// and is any value written as JSON that holds no control byte?
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "protocol.h"
#include "require.h"

static void append_value(struct buffer *out, const char *value)
{
	char escaped[4];

	for (; *value; value++) {
		snprintf(escaped, sizeof(escaped), "%%%02X", (unsigned char)*value);
		buffer_text(out, escaped);
	}
}

static void check_again(const struct line *line)
{
	struct buffer text = {0};
	char why[WHY_MAX] = "";
	struct line again;

	buffer_text(&text, line->verb);
	for (size_t i = 0; i < line->count; i++) {
		buffer_text(&text, " ");
		buffer_text(&text, line->pairs[i].key);
		buffer_text(&text, "=");
		append_value(&text, line->pairs[i].value);
	}
	if (text.length > LINE_MAX_BYTES) {
		buffer_free(&text);
		return;
	}
	REQUIRE(line_parse(text.data, text.length, &again, why) == 0);
	REQUIRE(strcmp(again.verb, line->verb) == 0 && again.count == line->count);
	for (size_t i = 0; i < line->count; i++) {
		REQUIRE(strcmp(again.pairs[i].key, line->pairs[i].key) == 0);
		REQUIRE(strcmp(again.pairs[i].value, line->pairs[i].value) == 0);
	}
	line_free(&again);
	buffer_free(&text);
}

static void check_json(const char *value)
{
	struct buffer text = {0};
	struct json json = {.out = &text};

	json_text(&json, NULL, value);
	REQUIRE(text.length >= 2 && text.data[0] == '"' && text.data[text.length - 1] == '"');
	for (size_t i = 1; i + 1 < text.length; i++) {
		REQUIRE((unsigned char)text.data[i] >= 0x20);
		if (text.data[i] == '\\')
			i++;
		else
			REQUIRE(text.data[i] != '"');
	}
	REQUIRE(utf8_is_valid(text.data, text.length));
	buffer_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char why[WHY_MAX] = "";
	struct line line;
	uint64_t number;

	if (line_parse((const char *)data, size, &line, why)) {
		REQUIRE(why[0] && memchr(why, 0, sizeof(why)));
		return 0;
	}
	check_again(&line);
	for (size_t i = 0; i < line.count; i++) {
		check_json(line.pairs[i].value);
		REQUIRE(line_get(&line, line.pairs[i].key) != NULL && line_count(&line, line.pairs[i].key) > 0);
		if (line_number(&line, line.pairs[i].key, 0, 1000, &number, why) == 0)
			REQUIRE(number <= 1000);
	}
	line_check(&line, "path* rw bs n", why);
	line_free(&line);
	return 0;
}
