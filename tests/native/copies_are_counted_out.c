// Does dedupe_percentage make exactly that share of writes copies of earlier ones, and buffer_compress_percentage that
// share of each 512 bytes zeros?
#include "check.h"
#include "data.h"

static void check_copies(uint32_t percent, uint32_t originals)
{
	struct calyx_dedupe dedupe = {.percent = percent, .originals = originals};
	static bool written[64];
	uint32_t copies = 0;

	memset(written, 0, sizeof(written));
	for (int i = 0; i < 100000; i++) {
		uint32_t original = calyx_dedupe_next(&dedupe);

		if (original == UINT32_MAX)
			continue;
		CHECK(original < originals, "original %" PRIu32, original);
		copies += written[original];
		written[original] = true;
	}
	CHECK(copies + 64 >= percent * 1000 && copies <= percent * 1000, "%" PRIu32 " %%: %" PRIu32 " copies", percent,
	      copies);
	for (uint32_t i = 0; i < originals && percent; i++)
		CHECK(written[i], "original %" PRIu32 " was never used", i);
}

static void check_zeros(uint32_t percent)
{
	static unsigned char data[64 << 10];
	size_t zeros = 0;

	calyx_data_fill_compressible(data, sizeof(data), 3, percent);
	for (size_t i = 0; i < sizeof(data); i++)
		zeros += data[i] == 0;
	/* One random byte in 256 is 0 as well. */
	CHECK(zeros * 100 / sizeof(data) >= percent - (percent > 0) && zeros * 100 / sizeof(data) <= percent + 1,
	      "%" PRIu32 " %%: %zu zeros", percent, zeros);
	for (size_t at = 0; at < sizeof(data) && percent >= 10; at += 512)
		CHECK(data[at + 511] == 0 && data[at + 512 - 512 * percent / 100] == 0, "the end of each piece");
}

int main(void)
{
	static const uint32_t percents[] = {0, 1, 25, 50, 75, 99};

	for (size_t i = 0; i < sizeof(percents) / sizeof(percents[0]); i++) {
		check_copies(percents[i], 64);
		check_copies(percents[i], 2);
		check_zeros(percents[i]);
	}
	check_copies(100, 64);
	return 0;
}
