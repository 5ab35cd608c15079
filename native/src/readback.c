// SPDX-License-Identifier: Apache-2.0
// After the window, with verify: what this job wrote is read back, so that lost writes are found also where the job
// itself reads nothing. One block after the other by plain reads; nothing of it is measured.
#include "crew.h"

#include <errno.h>

#include "sys.h"

#define CHUNK_BYTES (1u << 20)

/* Is it certain what must be there? Not after a failed write, one that did not end, or two at once. */
static bool is_certain(const struct calyx_verify *verify, uint64_t block)
{
	return verify->acknowledged[block] && !verify->writing[block];
}

/* Blocks from `from` on that lie together, are certain, and fit into one read. */
static uint64_t count_together(const struct calyx_verify *verify, uint64_t from, uint64_t room)
{
	uint64_t count = 0;

	while (count < room && from + count < verify->blocks && is_certain(verify, from + count))
		count++;
	return count;
}

static void read_blocks(struct calyx_worker *w, uint64_t from, uint64_t count)
{
	uint64_t offset = (w->verify.first_block + from) * CALYX_DATA_BLOCK;
	int64_t answer = calyx_sys->pread(w->fd, w->pool, count * CALYX_DATA_BLOCK, offset);
	uint64_t whole = answer > 0 ? (uint64_t)answer / CALYX_DATA_BLOCK : 0;

	calyx_verify_end_read(&w->verify, w->pool, whole * CALYX_DATA_BLOCK, offset, w->verify.generation, true);
	if (whole < count)
		calyx_worker_count_error(w, CALYX_DIR_READ, answer < 0 ? (int)-answer : ENODATA,
					 offset + whole * CALYX_DATA_BLOCK);
}

void calyx_worker_read_back(struct calyx_worker *w)
{
	uint64_t room = (w->pool_bytes < CHUNK_BYTES ? w->pool_bytes : CHUNK_BYTES) / CALYX_DATA_BLOCK, count;

	if (!w->verify.acknowledged || w->in_flight > 0)
		return;
	for (uint64_t block = 0; block < w->verify.blocks; block += count) {
		count = count_together(&w->verify, block, room);
		if (count == 0) {
			count = 1;
			continue;
		}
		if (calyx_now_ns() < w->deadline_ns &&
		    atomic_load_explicit(&w->crew->stop, memory_order_relaxed) == CALYX_STOP_NONE)
			read_blocks(w, block, count);
		else
			w->verify.found.left += count;
	}
}
