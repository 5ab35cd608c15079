// SPDX-License-Identifier: Apache-2.0
// CRC-32C (crc32c.h).
#include "crc32c.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define REFLECTED 0x82f63b78u

static uint32_t tables[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

#if defined(__x86_64__)
static bool has_instruction;
#if defined(__clang__) /* it has the instruction apart from the rest of SSE 4.2 */
#define WITH_INSTRUCTION __attribute__((target("sse4.2,crc32")))
#else
#define WITH_INSTRUCTION __attribute__((target("sse4.2")))
#endif
#endif

static void make_tables(void)
{
	for (uint32_t i = 0; i < 256; i++) {
		uint32_t value = i;

		for (int bit = 0; bit < 8; bit++)
			value = (value >> 1) ^ (value & 1 ? REFLECTED : 0);
		tables[0][i] = value;
	}
	for (uint32_t i = 0; i < 256; i++) {
		for (int t = 1; t < 8; t++)
			tables[t][i] = tables[0][tables[t - 1][i] & 255] ^ (tables[t - 1][i] >> 8);
	}
#if defined(__x86_64__)
	__builtin_cpu_init();
	has_instruction = __builtin_cpu_supports("sse4.2");
#endif
}

void calyx_crc32c_init(void)
{
	pthread_once(&once, make_tables);
}

#if defined(__x86_64__)
WITH_INSTRUCTION static uint32_t by_instruction(const unsigned char *at, size_t length)
{
	uint64_t crc = UINT32_MAX, word;

	for (; length >= sizeof(word); at += sizeof(word), length -= sizeof(word)) {
		memcpy(&word, at, sizeof(word));
		crc = __builtin_ia32_crc32di(crc, word);
	}
	for (; length > 0; at++, length--)
		crc = __builtin_ia32_crc32qi((uint32_t)crc, *at);
	return ~(uint32_t)crc;
}
#endif

uint32_t calyx_crc32c_by_tables(const void *data, size_t length)
{
	const unsigned char *at = data;
	uint32_t crc = UINT32_MAX;

	for (; length >= 8; at += 8, length -= 8) {
		uint32_t low =
			crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);

		crc = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^
		      tables[4][low >> 24] ^ tables[3][at[4]] ^ tables[2][at[5]] ^ tables[1][at[6]] ^ tables[0][at[7]];
	}
	for (; length > 0; at++, length--)
		crc = tables[0][(crc ^ *at) & 255] ^ (crc >> 8);
	return ~crc;
}

uint32_t calyx_crc32c(const void *data, size_t length)
{
#if defined(__x86_64__)
	if (has_instruction)
		return by_instruction(data, length);
#endif
	return calyx_crc32c_by_tables(data, length);
}
