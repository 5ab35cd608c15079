// SPDX-License-Identifier: Apache-2.0
// fio's words that are more than a number: bssplit, random_distribution, cpus_allowed.
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "calyx/engine.h"
#include "reason.h"

#define DECIMALS_MAX 9

static bool take_number(const char **at, uint64_t max, uint64_t *value)
{
	uint64_t number = 0;
	const char *text = *at;

	for (; *text >= '0' && *text <= '9'; text++) {
		uint64_t digit = (uint64_t)(*text - '0');

		if (digit > max || number > (max - digit) / 10)
			return false;
		number = number * 10 + digit;
	}
	if (text == *at)
		return false;
	*value = number;
	*at = text;
	return true;
}

static bool take_sign(const char **at, char sign)
{
	if (**at != sign)
		return false;
	++*at;
	return true;
}

/* A decimal fraction to the end of the text. strtod would read it by the program's locale. */
static bool take_decimal(const char *at, double *value)
{
	uint64_t whole, digit;
	double result, unit = 1;

	if (!take_number(&at, UINT32_MAX, &whole))
		return false;
	result = (double)whole;
	if (take_sign(&at, '.')) {
		const char *from = at;

		for (; *at >= '0' && *at <= '9' && at - from < DECIMALS_MAX; at++) {
			digit = (uint64_t)(*at - '0');
			unit /= 10;
			result += (double)digit * unit;
		}
		if (at == from)
			return false;
	}
	*value = result;
	return *at == 0;
}

int calyx_parse_bssplit(const char *text, struct calyx_bssplit *split, char *reason)
{
	struct calyx_bssplit parsed = {0};
	const char *at = text;

	do {
		uint64_t bs, percent;

		if (parsed.count == CALYX_SPLIT_MAX)
			return calyx_refuse(reason, -EINVAL, "bssplit has more than %d sizes", CALYX_SPLIT_MAX);
		if (!take_number(&at, INT64_MAX, &bs) || !take_sign(&at, '/') || !take_number(&at, 100, &percent))
			return calyx_refuse(reason, -EINVAL, "bssplit=%.100s is not bytes/percent:bytes/percent...",
					    text);
		parsed.bs[parsed.count] = bs;
		parsed.percent[parsed.count++] = (uint32_t)percent;
	} while (take_sign(&at, ':'));
	if (*at)
		return calyx_refuse(reason, -EINVAL, "bssplit=%.100s is not bytes/percent:bytes/percent...", text);
	*split = parsed;
	return 0;
}

static int parse_zones(const char *text, const char *at, struct calyx_distribution *distribution, char *reason)
{
	struct calyx_distribution parsed = {.kind = CALYX_RANDOM_ZONED};

	do {
		uint64_t access, share;

		if (parsed.zones_count == CALYX_ZONES_MAX)
			return calyx_refuse(reason, -EINVAL, "random_distribution has more than %d zones",
					    CALYX_ZONES_MAX);
		if (!take_number(&at, 100, &access) || !take_sign(&at, '/') || !take_number(&at, 100, &share))
			return calyx_refuse(reason, -EINVAL,
					    "random_distribution=%.100s is not zoned:ACCESS/SIZE:ACCESS/SIZE... in "
					    "percent",
					    text);
		parsed.access[parsed.zones_count] = (uint32_t)access;
		parsed.share[parsed.zones_count++] = (uint32_t)share;
	} while (take_sign(&at, ':'));
	if (*at)
		return calyx_refuse(reason, -EINVAL,
				    "random_distribution=%.100s is not zoned:ACCESS/SIZE:ACCESS/SIZE... in percent",
				    text);
	*distribution = parsed;
	return 0;
}

int calyx_parse_distribution(const char *text, struct calyx_distribution *distribution, char *reason)
{
	static const struct {
		const char *name;
		enum calyx_random kind;
	} kinds[] = {{"zipf:", CALYX_RANDOM_ZIPF}, {"pareto:", CALYX_RANDOM_PARETO}, {"normal:", CALYX_RANDOM_NORMAL}};
	struct calyx_distribution parsed = {0};

	if (!strcmp(text, "random")) {
		*distribution = parsed;
		return 0;
	}
	if (!strncmp(text, "zoned:", 6))
		return parse_zones(text, text + 6, distribution, reason);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		size_t length = strlen(kinds[i].name);

		if (strncmp(text, kinds[i].name, length) != 0)
			continue;
		if (!take_decimal(text + length, &parsed.parameter))
			return calyx_refuse(reason, -EINVAL, "random_distribution=%.100s needs a decimal number", text);
		parsed.kind = kinds[i].kind;
		*distribution = parsed;
		return 0;
	}
	return calyx_refuse(reason, -EINVAL,
			    "random_distribution=%.100s is not one of random zipf:THETA pareto:H normal:PERCENT "
			    "zoned:ACCESS/SIZE:...",
			    text);
}

int calyx_parse_cpus(const char *text, uint64_t cpus[CALYX_CPU_WORDS], char *reason)
{
	const uint64_t last = CALYX_CPU_WORDS * 64 - 1;
	uint64_t parsed[CALYX_CPU_WORDS] = {0}, from, to;
	const char *at = text;

	do {
		if (!take_number(&at, last, &from))
			return calyx_refuse(reason, -EINVAL, "cpus_allowed=%.100s is not a list such as 0,2-3", text);
		to = from;
		if (take_sign(&at, '-') && (!take_number(&at, last, &to) || to < from))
			return calyx_refuse(reason, -EINVAL, "cpus_allowed=%.100s is not a list such as 0,2-3", text);
		for (; from <= to; from++)
			parsed[from / 64] |= 1ull << (from % 64);
	} while (take_sign(&at, ','));
	if (*at)
		return calyx_refuse(reason, -EINVAL, "cpus_allowed=%.100s is not a list such as 0,2-3", text);
	memcpy(cpus, parsed, sizeof(parsed));
	return 0;
}
