// Fuzz: for any latencies, does each fall into a bucket that holds it, and do records and merges add up?
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "calyx/histogram.h"
#include "require.h"

static struct calyx_histogram one, other, both;

static void check_bucket(uint64_t value)
{
	uint32_t index = calyx_histogram_index(value);

	REQUIRE(index < CALYX_HISTOGRAM_BUCKETS);
	REQUIRE(calyx_histogram_lower_ns(index) <= value);
	if (value >> (CALYX_HISTOGRAM_MAX_MSB + 1) == 0)
		REQUIRE(value < calyx_histogram_upper_ns(index));
	else
		REQUIRE(index == CALYX_HISTOGRAM_BUCKETS - 1);
	/* No bucket is wider than one part in 128 of what it holds. */
	REQUIRE((calyx_histogram_upper_ns(index) - calyx_histogram_lower_ns(index)) <=
		1 + calyx_histogram_lower_ns(index) / 128);
	if (value < UINT64_MAX)
		REQUIRE(calyx_histogram_index(value + 1) >= index);
}

static void check_sums(const struct calyx_histogram *h)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < CALYX_HISTOGRAM_BUCKETS; i++)
		count += h->buckets[i];
	REQUIRE(count == h->count && h->overflow <= h->count);
	REQUIRE(!h->count || h->min_ns <= h->max_ns);
	REQUIRE(h->count || h->min_ns == UINT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t value, sum = 0;
	size_t count = size / sizeof(value);

	calyx_histogram_init(&one);
	calyx_histogram_init(&other);
	calyx_histogram_init(&both);
	for (size_t i = 0; i < count; i++) {
		memcpy(&value, data + i * sizeof(value), sizeof(value));
		check_bucket(value);
		calyx_histogram_record(i % 2 ? &one : &other, value);
		sum += value;
	}
	calyx_histogram_merge(&both, &one);
	calyx_histogram_merge(&both, &other);
	check_sums(&one);
	check_sums(&both);
	REQUIRE(both.count == count && both.sum_ns == sum);
	REQUIRE(both.overflow == one.overflow + other.overflow);
	return 0;
}
