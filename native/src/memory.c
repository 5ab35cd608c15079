// SPDX-License-Identifier: Apache-2.0
// Huge pages and NUMA nodes by bare system calls (memory.h).
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "memory.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "calyx/engine.h"
#include "calyx/text.h"
#include "sys.h"

#define POLICY_BIND 2		     /* MPOL_BIND of linux/mempolicy.h */
#define LARGEST_PAGE ((size_t)65536) /* of the ordinary ones, over all architectures */
#define BITS_PER_WORD (sizeof(unsigned long) * CHAR_BIT)

void calyx_huge_pages(uint64_t *page_bytes, uint64_t *free_pages)
{
	char *table = calyx_read_all("/proc/meminfo"), *rest = table, *line;
	uint64_t promised = 0; /* to mappings whose pages do not exist yet */

	*page_bytes = *free_pages = 0;
	while ((line = calyx_next_line(&rest))) {
		if (strncmp(line, "HugePages_Free:", 15) == 0)
			*free_pages = calyx_number(line + 15, NULL);
		else if (strncmp(line, "HugePages_Rsvd:", 15) == 0)
			promised = calyx_number(line + 15, NULL);
		else if (strncmp(line, "Hugepagesize:", 13) == 0)
			*page_bytes = calyx_number(line + 13, NULL) << 10;
	}
	*free_pages -= promised < *free_pages ? promised : *free_pages;
	free(table);
}

uint64_t calyx_huge_pages_on(uint32_t node, uint64_t page_bytes)
{
	char path[128], text[32] = "";

	calyx_format(path, sizeof(path),
		     "/sys/devices/system/node/node%" PRIu32 "/hugepages/hugepages-%" PRIu64 "kB/free_hugepages", node,
		     page_bytes >> 10);
	calyx_read_text(path, text, sizeof(text));
	return calyx_number(text, NULL);
}

int calyx_memory_map(void **address, size_t *length, uint64_t page_bytes)
{
	size_t whole = *length;
	int flags = MAP_PRIVATE | MAP_ANONYMOUS, error;

	if (page_bytes) {
		whole = (size_t)((whole + page_bytes - 1) / page_bytes * page_bytes);
		flags |= MAP_HUGETLB;
	}
	error = calyx_sys->map(address, whole, flags, -1, 0);
	if (!error)
		*length = whole;
	return error;
}

uint64_t calyx_transparent_page_bytes(void)
{
	char enabled[64] = "", size[32] = "";

	calyx_read_text("/sys/kernel/mm/transparent_hugepage/enabled", enabled, sizeof(enabled));
	if (!enabled[0] || calyx_find(enabled, "[never]"))
		return 0;
	calyx_read_text("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size", size, sizeof(size));
	return calyx_number(size, NULL);
}

int calyx_memory_map_transparent(void **address, size_t *length, uint64_t page_bytes, bool *advised)
{
	size_t spare = (size_t)page_bytes, whole = (*length + LARGEST_PAGE - 1) / LARGEST_PAGE * LARGEST_PAGE, head;
	void *mapped;
	int error;

	*advised = false;
	if (!page_bytes || *length < page_bytes)
		return calyx_memory_map(address, length, 0);
	/* Kernels before 6.7 do not begin a mapping at a huge page by themselves: more is mapped, and what is beside
	 * given back. */
	error = calyx_sys->map(&mapped, whole + spare, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (error)
		return error;
	head = (size_t)(-(uintptr_t)mapped & (page_bytes - 1));
	if (head)
		calyx_sys->unmap(mapped, head);
	*address = (char *)mapped + head;
	if (spare > head)
		calyx_sys->unmap((char *)*address + whole, spare - head);
	*advised = calyx_sys->advise(*address, *length / page_bytes * page_bytes, MADV_HUGEPAGE) == 0;
	*length = whole;
	return 0;
}

int calyx_memory_bind(void *address, size_t length, uint32_t node)
{
	unsigned long nodes[CALYX_NUMA_NODES_MAX / BITS_PER_WORD] = {0};

	if (node >= CALYX_NUMA_NODES_MAX)
		return -EINVAL;
	nodes[node / BITS_PER_WORD] |= 1ul << (node % BITS_PER_WORD);
	/* The kernel takes one bit less than it is told. */
	return calyx_sys->mbind(address, length, POLICY_BIND, nodes, CALYX_NUMA_NODES_MAX + 1);
}
