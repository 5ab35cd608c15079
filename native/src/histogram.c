// SPDX-License-Identifier: Apache-2.0
// Log-linear latency histogram: the parts that are not on the hot path. The layout is the table in calyx/histogram.h.
#include "calyx/histogram.h"

#include <string.h>

void calyx_histogram_init(struct calyx_histogram *h)
{
	memset(h, 0, sizeof(*h));
	h->min_ns = UINT64_MAX;
}

void calyx_histogram_merge(struct calyx_histogram *into, const struct calyx_histogram *from)
{
	into->count += from->count;
	into->sum_ns += from->sum_ns;
	into->overflow += from->overflow;
	into->min_ns = from->min_ns < into->min_ns ? from->min_ns : into->min_ns;
	into->max_ns = from->max_ns > into->max_ns ? from->max_ns : into->max_ns;
	for (uint32_t i = 0; i < CALYX_HISTOGRAM_BUCKETS; i++)
		into->buckets[i] += from->buckets[i];
}

uint64_t calyx_histogram_lower_ns(uint32_t index)
{
	uint32_t octave = index / 128;

	/* The first two octaves (0 .. 255) are exact; from there an octave m starts at index (m - 6) * 128. */
	if (octave < 2)
		return index;
	return (128 + (uint64_t)(index & 127)) << (octave - 1);
}

uint64_t calyx_histogram_upper_ns(uint32_t index)
{
	return calyx_histogram_lower_ns(index + 1);
}
