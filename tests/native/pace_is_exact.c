// Is the n-th I/O due exactly n/rate after the start, without drift and without overflow?
#include "check.h"
#include "pace.h"

int main(void)
{
	struct calyx_pace pace;

	calyx_pace_init(&pace, 0, 1000);
	pace.issued = 1000000;
	CHECK(calyx_pace_is_due(&pace, 1000), "without a rate everything is due");

	calyx_pace_init(&pace, 3, 1000);
	CHECK(calyx_pace_is_due(&pace, 1000) && !calyx_pace_is_due(&pace, 999), "the first is due at the start");
	pace.issued = 1;
	CHECK(calyx_pace_due_ns(&pace) == 1000 + 333333333, "1/3 s");
	pace.issued = 3;
	CHECK(calyx_pace_due_ns(&pace) == 1000 + SECOND, "no rounding adds up");
	pace.issued = 3ull * 86400 * 365;
	CHECK(calyx_pace_due_ns(&pace) == 1000 + 86400 * 365 * SECOND, "a year later");

	calyx_pace_init(&pace, 100000000, 0);
	pace.issued = 1ull << 50;
	CHECK(calyx_pace_due_ns(&pace) == (1ull << 50) * 10, "no overflow");
	return 0;
}
