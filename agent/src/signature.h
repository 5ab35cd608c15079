/* SPDX-License-Identifier: Apache-2.0
 *
 * What the first and last bytes of a block device say it bears.
 */
#ifndef CALYX_AGENT_SIGNATURE_H
#define CALYX_AGENT_SIGNATURE_H

#include <stdint.h>

/* The name of a partition table, file system or other user of the device; NULL in *name when none is known. 0, or
 * -errno when it cannot be read. */
int signature_find(int fd, uint64_t size_bytes, const char **name);

#endif
