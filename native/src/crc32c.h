/* SPDX-License-Identifier: Apache-2.0
 *
 * CRC-32C (Castagnoli, polynomial 0x1edc6f41; RFC 3720, appendix B.4): by the processor's instruction where it has one,
 * else eight bytes a step by tables (Kounavis and Berry, "A systematic approach to building high performance
 * software-based CRC generators", 2005).
 */
#ifndef CALYX_CRC32C_H
#define CALYX_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Makes the tables; before the first calyx_crc32c, by any number of threads. */
void calyx_crc32c_init(void);
uint32_t calyx_crc32c(const void *data, size_t length);
/* The tables' way, whatever the processor has. */
uint32_t calyx_crc32c_by_tables(const void *data, size_t length);

#endif
