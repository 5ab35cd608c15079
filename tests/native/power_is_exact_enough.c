// Do our logarithm and power agree with the C library's to 12 digits, over all that a distribution asks of them?
#include <math.h>

#include "check.h"
#include "offsets.h"
#include "power.h"

static void close_to(double ours, double theirs, const char *what, double x, double y)
{
	double error = fabs(ours - theirs), scale = fabs(theirs) > 1e-300 ? fabs(theirs) : 1;

	CHECK(error <= 1e-12 * scale, "%s(%g, %g) is %.17g, not %.17g", what, x, y, ours, theirs);
}

int main(void)
{
	uint64_t state = 3;

	for (int i = 0; i < 200000; i++) {
		double unit = (double)(calyx_random_next(&state) >> 11) * 0x1p-53 + 0x1p-54;
		double wide = ldexp(1 + unit, (int)calyx_random_below(&state, 120) - 60);
		double y = ((double)calyx_random_below(&state, 4001) - 2000) / 200; /* -10 .. 10 */

		/* Near 1 the logarithm is near 0, and only its absolute error means something. */
		CHECK(fabs(calyx_log(wide) - log(wide)) <= 1e-14 * (1 + fabs(log(wide))), "log(%g)", wide);
		close_to(calyx_power(unit, y), pow(unit, y), "power", unit, y);
		close_to(calyx_power(wide, y / 4), pow(wide, y / 4), "power", wide, y / 4);
	}
	CHECK(calyx_power(0, 2) == 0 && calyx_power(5, 0) == 1 && calyx_power(0, 0) == 1, "edges");
	CHECK(calyx_power(1, 7) == 1 && calyx_power(2, 10) > 1023.999999 && calyx_power(2, 10) < 1024.000001, "2^10");
	return 0;
}
