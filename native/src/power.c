// SPDX-License-Identifier: Apache-2.0
// Series for logarithm and power (power.h), after halving the range by the binary exponent.
#include "power.h"

#include <stdint.h>
#include <string.h>

#define EXPONENT_BIAS 1023
#define FRACTION_BITS 52
#define LN2_HIGH 6.93147180369123816490e-01 /* its product with an exponent is exact */
#define LN2_LOW 1.90821492927058770002e-10
#define LOG2_E 1.44269504088896340736
#define SQRT_2 1.41421356237309504880
#define LOG_TERMS 12 /* of z^k/(2k+1), z < 0.0295 */
#define EXP_TERMS 14 /* of r^k/k!, |r| < 0.347 */
#define EXP_MAX 700.0

double calyx_log(double x)
{
	double s, z, sum = 0;
	uint64_t bits;
	int exponent;

	memcpy(&bits, &x, sizeof(bits));
	exponent = (int)(bits >> FRACTION_BITS) - EXPONENT_BIAS;
	bits = (bits & ((1ull << FRACTION_BITS) - 1)) | (uint64_t)EXPONENT_BIAS << FRACTION_BITS;
	memcpy(&x, &bits, sizeof(x));
	if (x > SQRT_2) {
		x /= 2;
		exponent++;
	}
	/* ln x = 2 artanh((x - 1) / (x + 1)) */
	s = (x - 1) / (x + 1);
	z = s * s;
	for (int k = LOG_TERMS; k >= 0; k--)
		sum = sum * z + 1.0 / (2 * k + 1);
	return exponent * LN2_HIGH + (2 * s * sum + exponent * LN2_LOW);
}

static double exponential(double y)
{
	double rest, sum = 1, scale;
	uint64_t bits;
	int exponent;

	if (y < -EXP_MAX)
		return 0;
	if (y > EXP_MAX)
		y = EXP_MAX;
	exponent = (int)(y * LOG2_E + (y < 0 ? -0.5 : 0.5));
	rest = (y - exponent * LN2_HIGH) - exponent * LN2_LOW;
	for (int k = EXP_TERMS; k > 0; k--)
		sum = 1 + sum * rest / k;
	bits = (uint64_t)(exponent + EXPONENT_BIAS) << FRACTION_BITS;
	memcpy(&scale, &bits, sizeof(scale));
	return sum * scale;
}

double calyx_power(double x, double y)
{
	if (y == 0)
		return 1;
	if (x <= 0)
		return y > 0 ? 0 : exponential(EXP_MAX);
	return exponential(y * calyx_log(x));
}
