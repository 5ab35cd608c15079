/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the buffers of I/O lie: on reserved huge pages when a job asks for them and the guest has any, else on
 * transparent ones where the kernel makes them; on one NUMA node when a job names one.
 */
#ifndef CALYX_MEMORY_H
#define CALYX_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CALYX_NUMA_NODES_MAX 1024

/* Anonymous memory whose pages do not exist yet. page_bytes 0: ordinary pages. *length is rounded up to whole huge
 * pages. */
int calyx_memory_map(void **address, size_t *length, uint64_t page_bytes);
/* How many huge pages of that size are free on one NUMA node. */
uint64_t calyx_huge_pages_on(uint32_t node, uint64_t page_bytes);
/* How large a transparent huge page is; 0 where the kernel makes none. */
uint64_t calyx_transparent_page_bytes(void);
/* As calyx_memory_map with ordinary pages, but begun at a multiple of page_bytes, and the kernel asked to make all of
 * it that is whole huge pages such: a large I/O then is one piece of memory and not one for each 4 KiB. *advised:
 * whether it has taken the advice (never for less than one huge page). */
int calyx_memory_map_transparent(void **address, size_t *length, uint64_t page_bytes, bool *advised);
/* From now on its pages come from that node alone. */
int calyx_memory_bind(void *address, size_t length, uint32_t node);

#endif
