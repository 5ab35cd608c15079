/* SPDX-License-Identifier: Apache-2.0
 *
 * Sentences for people: a reason is a buffer of CALYX_REASON_MAX bytes, and an errno is written with its name, since
 * the name is what one searches for.
 */
#ifndef CALYX_REASON_H
#define CALYX_REASON_H

#define CALYX_ERROR_TEXT_MAX 96

/* Writes a sentence into reason (may be NULL), cut at CALYX_REASON_MAX; returns error, so that a refusal is one line.
 */
__attribute__((format(printf, 3, 4))) int calyx_refuse(char *reason, int error, const char *format, ...);
/* Adds a sentence after "; ", or as the first one. */
__attribute__((format(printf, 2, 3))) void calyx_reason_add(char *reason, const char *format, ...);

struct calyx_error_text {
	char text[CALYX_ERROR_TEXT_MAX];
};
/* "ENOSPC (No space left on device)"; takes positive and negative errno. */
struct calyx_error_text calyx_error_text(int error);

#endif
