/* SPDX-License-Identifier: Apache-2.0
 *
 * Are sentences written as printf would write them, cut where there is no room, are numbers and files read whole, and
 * words found where strstr finds them?
 */
#include "check.h"

#include <sys/stat.h>

#include "calyx/text.h"

/* Against the C library's own, with and without room. */
#define SAME(...)                                                                                                      \
	do {                                                                                                           \
		for (size_t size = 1; size <= sizeof(ours); size++) {                                                  \
			int want = snprintf(theirs, size, __VA_ARGS__), got;                                           \
			memset(ours, '#', sizeof(ours));                                                               \
			got = calyx_format(ours, size, __VA_ARGS__);                                                   \
			CHECK(got == want && !strcmp(ours, theirs), "%zu bytes: '%s' (%d), not '%s' (%d)", size, ours, \
			      got, theirs, want);                                                                      \
			CHECK(size == sizeof(ours) || ours[size] == '#', "%zu bytes: one more is written", size);      \
		}                                                                                                      \
	} while (0)

static void check_directives(void)
{
	char ours[120], theirs[120];
	const char *text = "seven d";

	SAME("%s", "");
	SAME("plain");
	SAME("100 %% of %s and %s", text, "it");
	SAME("%.3s|%.100s|%.0s|%.*s|%.*s", text, text, text, 2, text, -1, text);
	SAME("%c%c", 'o', 'k');
	SAME("%d %d %d", 0, INT32_MIN, INT32_MAX);
	SAME("%u %" PRIu32, 0u, UINT32_MAX);
	SAME("%ld %lld %" PRId64, -1l, -1234567890123ll, INT64_MIN);
	SAME("%lu %llu %" PRIu64 " %zu", 1ul, 10ull, UINT64_MAX, (size_t)99);
	CHECK(calyx_format(NULL, 0, "%s", "abc") == 3, "only its length is asked for");
}

/* No argument is taken after a directive that is not known, since it might be of another size. */
static void check_unknown(void)
{
	const char *format = "%s: %x %s"; /* not a literal: the compiler would know better */
	char text[40];

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
	calyx_format(text, sizeof(text), format, "a");
#pragma GCC diagnostic pop
	CHECK(!strcmp(text, "a: %x %s"), "%s", text);
}

static void check_numbers(void)
{
	const char *end, *none = " x", *text = " \t\n42 7";

	CHECK(calyx_number(text, &end) == 42 && !strcmp(end, " 7"), "%s", end);
	CHECK(calyx_number(none, &end) == 0 && end == none, "no number");
	errno = 0;
	CHECK(calyx_number("18446744073709551615", NULL) == UINT64_MAX && !errno, "the largest");
	CHECK(calyx_number("18446744073709551616", NULL) == UINT64_MAX && errno == ERANGE, "one more");
	errno = 0;
	CHECK(calyx_number("99999999999999999999999", NULL) == UINT64_MAX && errno == ERANGE, "far more");
}

/* A text over several buffers comes whole, line by line. */
static void check_files(void)
{
	enum { LINES = 3000 };
	char begin[8], path[600], *text, *rest, *line;
	FILE *file;
	int count = 0;

	scratch_make();
	snprintf(path, sizeof(path), "%s/lines", scratch_directory);
	file = fopen(path, "w");
	for (int i = 0; i < LINES; i++)
		fprintf(file, i % 2 ? "line %d\n" : "\nline %d\n", i);
	fprintf(file, "no newline");
	fclose(file);
	rest = text = calyx_read_all(path);
	while ((line = calyx_next_line(&rest))) {
		char want[32];

		if (!*line)
			continue;
		snprintf(want, sizeof(want), count == LINES ? "no newline" : "line %d", count);
		CHECK(!strcmp(line, want), "'%s', not '%s'", line, want);
		count++;
	}
	CHECK(count == LINES + 1, "%d", count);
	free(text);
	CHECK(calyx_read_text(path, begin, sizeof(begin)) == 7 && !strcmp(begin, "\nline 0"), "'%s'", begin);
	unlink(path);
	CHECK(calyx_read_text(path, begin, sizeof(begin)) == -ENOENT, "gone");
	CHECK(!calyx_read_all(path), "gone");
	CHECK(calyx_read_text(scratch_directory, begin, sizeof(begin)) == -EISDIR, "a directory");
	CHECK(!calyx_read_all(scratch_directory), "a directory");
	CHECK(!mkfifo(path, 0600), "a pipe that nobody writes to");
	text = calyx_read_all(path);
	CHECK(text && !*text, "nothing is waited for");
	free(text);
	unlink(path);
	text = calyx_read_all("/dev/zero");
	CHECK(text && !*text, "there is an end to what is read");
	free(text);
}

static void check_said(void)
{
	char got[64] = "";
	int ends[2];

	CHECK(!pipe(ends), "%s", strerror(errno));
	calyx_say(ends[1], "calyx-agent: %s %d\n", "ends", 3);
	CHECK(read(ends[0], got, sizeof(got) - 1) == 20 && !strcmp(got, "calyx-agent: ends 3\n"), "'%s'", got);
	close(ends[0]);
	close(ends[1]);
}

static void check_find(void)
{
	static const char *const TEXTS[] = {"", "a", "ab", "aab", "aaab", "kvm", "a - b - c", "a -", " - "};

	for (size_t text = 0; text < sizeof(TEXTS) / sizeof(TEXTS[0]); text++)
		for (size_t word = 0; word < sizeof(TEXTS) / sizeof(TEXTS[0]); word++)
			CHECK(calyx_find(TEXTS[text], TEXTS[word]) == strstr(TEXTS[text], TEXTS[word]), "'%s' in '%s'",
			      TEXTS[word], TEXTS[text]);
}

int main(void)
{
	check_directives();
	check_find();
	check_unknown();
	check_numbers();
	check_files();
	check_said();
	return 0;
}
