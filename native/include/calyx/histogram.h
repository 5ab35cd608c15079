/* SPDX-License-Identifier: Apache-2.0
 *
 * Log-linear latency histogram: 128 buckets per power of two, fixed, no options.
 *
 *   value v in ns       width   index
 *   0 .. 255            1       v
 *   256 .. 511          2       256 + (v - 256) / 2
 *   512 .. 1023         4       384 + (v - 512) / 4
 *   2^m .. 2^(m+1)-1    2^(m-7) (m - 6) * 128 + ((v >> (m - 7)) & 127)
 *   2^40 .. 2^41-1      2^33    last octave; larger values are counted as overflow, in the last bucket
 *
 * fio's json+ grid is the same with 64 per power of two, so two buckets here are one of fio's.
 */
#ifndef CALYX_HISTOGRAM_H
#define CALYX_HISTOGRAM_H

#include <stdint.h>

#define CALYX_HISTOGRAM_SUB_BITS 7
#define CALYX_HISTOGRAM_MAX_MSB 40
#define CALYX_HISTOGRAM_BUCKETS ((CALYX_HISTOGRAM_MAX_MSB - CALYX_HISTOGRAM_SUB_BITS + 2) * 128)

struct calyx_histogram {
	uint64_t count, sum_ns, min_ns, max_ns, overflow;
	uint64_t buckets[CALYX_HISTOGRAM_BUCKETS];
};

_Static_assert(CALYX_HISTOGRAM_BUCKETS == 4480, "docs and Python rely on 4480 buckets");

static inline uint32_t calyx_histogram_index(uint64_t value_ns)
{
	uint32_t msb;

	if (value_ns < (2u << CALYX_HISTOGRAM_SUB_BITS))
		return (uint32_t)value_ns;
	msb = 63 - (uint32_t)__builtin_clzll(value_ns);
	if (msb > CALYX_HISTOGRAM_MAX_MSB)
		return CALYX_HISTOGRAM_BUCKETS - 1;
	return (msb - 6) * 128 + (uint32_t)((value_ns >> (msb - CALYX_HISTOGRAM_SUB_BITS)) & 127);
}

static inline void calyx_histogram_record(struct calyx_histogram *h, uint64_t value_ns)
{
	h->buckets[calyx_histogram_index(value_ns)]++;
	h->count++;
	h->sum_ns += value_ns;
	h->max_ns = value_ns > h->max_ns ? value_ns : h->max_ns;
	h->min_ns = value_ns < h->min_ns ? value_ns : h->min_ns;
	h->overflow += value_ns >> (CALYX_HISTOGRAM_MAX_MSB + 1) ? 1 : 0;
}

/* min_ns is UINT64_MAX while count is 0. */
void calyx_histogram_init(struct calyx_histogram *h);
void calyx_histogram_merge(struct calyx_histogram *into, const struct calyx_histogram *from);
/* Lowest value of a bucket, and the lowest value of the one after it. */
uint64_t calyx_histogram_lower_ns(uint32_t index);
uint64_t calyx_histogram_upper_ns(uint32_t index);

#endif
