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

uint64_t calyx_data_tag(uint64_t data_seed, uint32_t thread)
{
	uint64_t state = data_seed;

	state = calyx_random_next(&state) + thread;
	return calyx_random_next(&state);
}

void calyx_data_stamp(void *buffer, size_t length, uint64_t tag, uint64_t *counter)
{
	for (size_t at = 0; at + 2 * sizeof(uint64_t) <= length; at += CALYX_DATA_BLOCK) {
		uint64_t stamp[2] = {tag, (*counter)++};

		memcpy((unsigned char *)buffer + at, stamp, sizeof(stamp));
	}
}
