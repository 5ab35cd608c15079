// SPDX-License-Identifier: Apache-2.0
// Data that no layer below can compress or deduplicate (data.h).
#include "data.h"

#include <string.h>

#include "offsets.h"

void calyx_data_fill(void *buffer, size_t length, uint64_t seed)
{
	uint64_t state = calyx_random_next(&seed), word;
	unsigned char *at = buffer;

	for (; length >= sizeof(word); at += sizeof(word), length -= sizeof(word)) {
		word = calyx_random_next(&state);
		memcpy(at, &word, sizeof(word));
	}
	word = calyx_random_next(&state);
	memcpy(at, &word, length);
}

void calyx_data_fill_compressible(void *buffer, size_t length, uint64_t seed, uint32_t percent)
{
	unsigned char *at = buffer;

	calyx_data_fill(buffer, length, seed);
	for (; length > 0 && percent > 0;) {
		size_t chunk = length < CALYX_DATA_CHUNK ? length : CALYX_DATA_CHUNK;
		size_t zeros = chunk * percent / 100;

		memset(at + chunk - zeros, 0, zeros);
		at += chunk;
		length -= chunk;
	}
}

uint64_t calyx_data_tag(uint64_t data_seed, uint32_t thread)
{
	uint64_t state = data_seed;

	state = calyx_random_next(&state) + thread;
	return calyx_random_next(&state);
}

uint32_t calyx_dedupe_next(struct calyx_dedupe *dedupe)
{
	dedupe->owed += dedupe->percent;
	if (dedupe->owed < 100)
		return UINT32_MAX;
	if (dedupe->seen < dedupe->originals)
		return dedupe->seen++;
	dedupe->owed -= 100;
	dedupe->next = dedupe->next + 1 < dedupe->originals ? dedupe->next + 1 : 0;
	return dedupe->next;
}
