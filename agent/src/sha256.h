/* SPDX-License-Identifier: Apache-2.0
 *
 * SHA-256 (FIPS 180-4), small and without dependencies.
 */
#ifndef CALYX_AGENT_SHA256_H
#define CALYX_AGENT_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_HEX_SIZE 65 /* 64 digits and a NUL */

struct sha256 {
	uint32_t state[8];
	uint64_t length;
	uint8_t block[64];
};

void sha256_init(struct sha256 *sha);
void sha256_update(struct sha256 *sha, const void *data, size_t length);
void sha256_hex(struct sha256 *sha, char hex[SHA256_HEX_SIZE]);

/* Digest of a whole file. 0 or -errno. */
int sha256_file(const char *path, char hex[SHA256_HEX_SIZE]);

#endif
