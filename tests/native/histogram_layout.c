// Does every value fall into the bucket that the table in calyx/histogram.h promises, and does fio's grid nest in it?
#include "check.h"

/* The table, written down again in another way: by search over powers of two. */
static uint32_t index_by_table(uint64_t value)
{
	uint32_t m = 0;

	if (value < 256)
		return (uint32_t)value;
	while (m < 63 && value >> (m + 1))
		m++;
	if (m > 40)
		return CALYX_HISTOGRAM_BUCKETS - 1;
	return (m - 6) * 128 + (uint32_t)((value - (1ull << m)) / (1ull << (m - 7)));
}

/* fio's plat_val_to_idx with 64 buckets per power of two (stat.c of fio 3.x). */
static uint32_t index_by_fio(uint64_t value)
{
	uint32_t msb = 63 - (uint32_t)__builtin_clzll(value | 1), shift;

	if (msb <= 6)
		return (uint32_t)value;
	shift = msb - 6;
	return ((shift + 1) << 6) + (uint32_t)((value >> shift) & 63);
}

static void check_value(uint64_t value)
{
	uint32_t index = calyx_histogram_index(value);

	CHECK(index == index_by_table(value), "value %" PRIu64, value);
	if (value >> 41)
		return;
	CHECK(calyx_histogram_lower_ns(index) <= value, "value %" PRIu64, value);
	CHECK(calyx_histogram_upper_ns(index) > value, "value %" PRIu64, value);
}

int main(void)
{
	struct calyx_histogram a, b;

	for (uint64_t value = 0; value < 70000; value++)
		check_value(value);
	for (int bit = 8; bit < 64; bit++) {
		for (int64_t near = -300; near < 300; near++)
			check_value((1ull << bit) + (uint64_t)near);
	}
	for (uint32_t index = 0; index < CALYX_HISTOGRAM_BUCKETS - 1; index++) {
		uint64_t lower = calyx_histogram_lower_ns(index), last = calyx_histogram_upper_ns(index) - 1;

		CHECK(calyx_histogram_index(lower) == index && calyx_histogram_index(last) == index, "index %u", index);
		CHECK(index < 256 || (last - lower + 1) * 128 <= lower, "bucket %u is wider than 1/128", index);
		/* A bucket that straddled two of fio's could not be compared with it. */
		CHECK(index_by_fio(lower) == index_by_fio(last), "bucket %u straddles two of fio's", index);
	}

	calyx_histogram_init(&a);
	calyx_histogram_init(&b);
	CHECK(a.min_ns == UINT64_MAX && a.count == 0, "empty");
	calyx_histogram_record(&a, 100);
	calyx_histogram_record(&a, 1ull << 41);
	calyx_histogram_record(&b, 7);
	calyx_histogram_merge(&a, &b);
	CHECK(a.count == 3 && a.min_ns == 7 && a.max_ns == 1ull << 41 && a.overflow == 1, "merged");
	CHECK(a.sum_ns == 107 + (1ull << 41), "sum");
	CHECK(a.buckets[7] == 1 && a.buckets[100] == 1 && a.buckets[CALYX_HISTOGRAM_BUCKETS - 1] == 1, "buckets");
	return 0;
}
