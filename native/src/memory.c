// SPDX-License-Identifier: Apache-2.0
// Huge pages and NUMA nodes by bare system calls (memory.h).
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "memory.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "calyx/engine.h"
#include "sys.h"

#define POLICY_BIND 2 /* MPOL_BIND of linux/mempolicy.h */
#define BITS_PER_WORD (sizeof(unsigned long) * CHAR_BIT)

void calyx_huge_pages(uint64_t *page_bytes, uint64_t *free_pages)
{
	FILE *file = fopen("/proc/meminfo", "re");
	char line[128];

	*page_bytes = *free_pages = 0;
	while (file && fgets(line, sizeof(line), file)) {
		if (strncmp(line, "HugePages_Free:", 15) == 0)
			*free_pages = strtoull(line + 15, NULL, 10);
		else if (strncmp(line, "Hugepagesize:", 13) == 0)
			*page_bytes = strtoull(line + 13, NULL, 10) << 10;
	}
	if (file)
		fclose(file);
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

int calyx_memory_bind(void *address, size_t length, uint32_t node)
{
	unsigned long nodes[CALYX_NUMA_NODES_MAX / BITS_PER_WORD] = {0};

	if (node >= CALYX_NUMA_NODES_MAX)
		return -EINVAL;
	nodes[node / BITS_PER_WORD] |= 1ul << (node % BITS_PER_WORD);
	/* The kernel takes one bit less than it is told. */
	return calyx_sys->mbind(address, length, POLICY_BIND, nodes, CALYX_NUMA_NODES_MAX + 1);
}
