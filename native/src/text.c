// SPDX-License-Identifier: Apache-2.0
// Sentences and numbers (calyx/text.h).
#include "calyx/text.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

struct sink {
	char *text;
	size_t size, length; /* length: of the whole, also of what finds no room */
};

static void put(struct sink *sink, const char *from, size_t length)
{
	size_t room = sink->length < sink->size ? sink->size - sink->length : 0;

	if (room)
		memcpy(sink->text + sink->length, from, length < room ? length : room);
	sink->length += length;
}

static void put_number(struct sink *sink, uint64_t value, bool negative)
{
	char digits[24], *from = digits + sizeof(digits);

	do
		*--from = (char)('0' + value % 10);
	while (value /= 10);
	if (negative)
		*--from = '-';
	put(sink, from, (size_t)(digits + sizeof(digits) - from));
}

/* ".N" or ".*" at *at, which is moved behind it. No number: all of the text. */
static size_t take_precision(const char **at, int given)
{
	size_t number = 0;

	if (**at == '*') {
		++*at;
		return given < 0 ? SIZE_MAX : (size_t)given;
	}
	for (; **at >= '0' && **at <= '9'; ++*at)
		number = number * 10 + (size_t)(**at - '0');
	return number;
}

int calyx_format_list(char *text, size_t size, const char *format, va_list arguments)
{
	struct sink sink = {.text = text, .size = size};

	for (const char *at = format, *directive; *at;) {
		size_t plain = strcspn(at, "%"), precision = SIZE_MAX;
		bool is_long = false;

		put(&sink, at, plain);
		directive = at += plain;
		if (!*at++)
			break;
		if (*at == '.') {
			at++;
			precision = take_precision(&at, *at == '*' ? va_arg(arguments, int) : 0);
		}
		for (; *at == 'l' || *at == 'z'; at++)
			is_long = true;
		switch (*at++) {
			const char *from;
			char sign;
			int64_t number;

		case 's':
			from = va_arg(arguments, const char *);
			from = from ? from : "(null)";
			put(&sink, from, strnlen(from, precision));
			break;
		case 'c':
			sign = (char)va_arg(arguments, int);
			put(&sink, &sign, 1);
			break;
		case 'd':
			number = is_long ? va_arg(arguments, long long) : va_arg(arguments, int);
			put_number(&sink, number < 0 ? -(uint64_t)number : (uint64_t)number, number < 0);
			break;
		case 'u':
			put_number(&sink,
				   is_long ? va_arg(arguments, unsigned long long) : va_arg(arguments, unsigned int),
				   false);
			break;
		case '%':
			put(&sink, "%", 1);
			break;
		default:
			put(&sink, directive, strlen(directive));
			at = "";
		}
	}
	if (size)
		text[sink.length < size ? sink.length : size - 1] = 0;
	return (int)sink.length;
}

/* One width for long, long long and size_t above. */
_Static_assert(sizeof(long) == sizeof(long long) && sizeof(size_t) == sizeof(long long), "a kernel of 64 bits");

int calyx_format(char *text, size_t size, const char *format, ...)
{
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = calyx_format_list(text, size, format, arguments);
	va_end(arguments);
	return length;
}

void calyx_say(int fd, const char *format, ...)
{
	char text[CALYX_SAID_MAX];
	size_t done = 0, length;
	va_list arguments;
	ssize_t count;

	va_start(arguments, format);
	calyx_format_list(text, sizeof(text), format, arguments);
	va_end(arguments);
	/* Whoever reads it may be gone: then there is nobody to tell. */
	for (length = strlen(text); done < length; done += (size_t)count) {
		count = write(fd, text + done, length - done);
		if (count <= 0)
			break;
	}
}

char *calyx_find(const char *text, const char *word)
{
	size_t length = strlen(word);

	for (; strncmp(text, word, length); text++)
		if (!*text)
			return NULL;
	return (char *)text;
}

uint64_t calyx_number(const char *text, const char **end)
{
	const char *at = text + strspn(text, " \t\n"), *digits = at;
	uint64_t number = 0;

	for (; *at >= '0' && *at <= '9'; at++) {
		uint64_t digit = (uint64_t)(*at - '0');

		if (number > (UINT64_MAX - digit) / 10) {
			errno = ERANGE;
			number = UINT64_MAX;
		} else {
			number = number * 10 + digit;
		}
	}
	if (end)
		*end = at > digits ? at : text;
	return number;
}
