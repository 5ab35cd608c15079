/* SPDX-License-Identifier: Apache-2.0
 *
 * What is made small in a file that is otherwise made quick: all that runs before, after or instead of I/O.
 */
#ifndef CALYX_COLD_H
#define CALYX_COLD_H

#define CALYX_COLD __attribute__((cold))

#endif
