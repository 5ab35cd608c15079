/* SPDX-License-Identifier: Apache-2.0
 *
 * Logarithm and power, to some 14 digits: enough to draw random blocks, and a tenth of the agent smaller than the C
 * library's with their tables.
 */
#ifndef CALYX_POWER_H
#define CALYX_POWER_H

/* The natural logarithm of x > 0 (not denormal). */
double calyx_log(double x);
/* x to the power y, x >= 0. Beyond e^700 it stays at that, below e^-700 it is 0. */
double calyx_power(double x, double y);

#endif
