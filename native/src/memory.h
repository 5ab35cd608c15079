/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the buffers of I/O lie: on huge pages when a job asks for them and the guest has any, on one NUMA node when it
 * names one.
 */
#ifndef CALYX_MEMORY_H
#define CALYX_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#define CALYX_NUMA_NODES_MAX 1024

/* Anonymous memory whose pages do not exist yet. page_bytes 0: ordinary pages. *length is rounded up to whole huge
 * pages. */
int calyx_memory_map(void **address, size_t *length, uint64_t page_bytes);
/* From now on its pages come from that node alone. */
int calyx_memory_bind(void *address, size_t length, uint32_t node);

#endif
