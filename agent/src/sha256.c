/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 (FIPS 180-4): see sha256.h.
 */
#include "sha256.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static const uint32_t round_constants[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t value, int by)
{
	return value >> by | value << (32 - by);
}

static void compress(uint32_t state[8], const uint8_t block[64])
{
	uint32_t w[64], s[8];

	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
		       (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
	for (int i = 16; i < 64; i++) {
		uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3;
		uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10;

		w[i] = w[i - 16] + s0 + w[i - 7] + s1;
	}
	memcpy(s, state, sizeof(s));
	for (int i = 0; i < 64; i++) {
		uint32_t s1 = rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25);
		uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
		uint32_t first = s[7] + s1 + choice + round_constants[i] + w[i];
		uint32_t s0 = rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22);
		uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);

		memmove(&s[1], &s[0], 7 * sizeof(s[0]));
		s[4] += first;
		s[0] = first + s0 + majority;
	}
	for (int i = 0; i < 8; i++)
		state[i] += s[i];
}

void sha256_init(struct sha256 *sha)
{
	static const uint32_t initial[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
					    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

	memcpy(sha->state, initial, sizeof(initial));
	sha->length = 0;
}

void sha256_update(struct sha256 *sha, const void *data, size_t length)
{
	const uint8_t *bytes = data;

	while (length) {
		size_t used = sha->length % 64, take = 64 - used < length ? 64 - used : length;

		memcpy(sha->block + used, bytes, take);
		sha->length += take;
		bytes += take;
		length -= take;
		if (used + take == 64)
			compress(sha->state, sha->block);
	}
}

void sha256_hex(struct sha256 *sha, char hex[SHA256_HEX_SIZE])
{
	static const char digits[] = "0123456789abcdef";
	uint64_t bits = sha->length * 8;
	uint8_t tail[8];

	for (int i = 0; i < 8; i++)
		tail[i] = (uint8_t)(bits >> (56 - 8 * i));
	sha256_update(sha, "\x80", 1);
	while (sha->length % 64 != 56)
		sha256_update(sha, "", 1);
	sha256_update(sha, tail, sizeof(tail));
	for (int i = 0; i < 64; i++)
		hex[i] = digits[sha->state[i / 8] >> (28 - 4 * (i % 8)) & 15];
	hex[64] = 0;
}

int sha256_file(const char *path, char hex[SHA256_HEX_SIZE])
{
	struct sha256 sha;
	char piece[16384];
	ssize_t got;
	int fd, error;

	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	sha256_init(&sha);
	while ((got = read(fd, piece, sizeof(piece))) > 0)
		sha256_update(&sha, piece, (size_t)got);
	error = got < 0 ? -errno : 0;
	close(fd);
	if (!error)
		sha256_hex(&sha, hex);
	return error;
}
