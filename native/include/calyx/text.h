/* SPDX-License-Identifier: Apache-2.0
 *
 * Sentences, numbers and the kernel's small files, without stdio. An agent is sent to each guest, and stdio would be a
 * tenth of it; nor does it allocate and lock for what is a line here and there.
 *
 *   directive                 argument
 *   %s  %.Ns  %.*s            text, all of it or at most that many bytes
 *   %c  %%                    a character, the sign itself
 *   %d  %ld  %lld  %zd        signed
 *   %u  %lu  %llu  %zu        unsigned; so also PRId32, PRIu64 and the like
 *
 * The compiler checks them as those of printf. Any other one ends what is written with its own text, since what follows
 * could no longer be told apart.
 */
#ifndef CALYX_TEXT_H
#define CALYX_TEXT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Writes at most size - 1 bytes and a 0; how many bytes the whole has. `text` must not be among the arguments. */
__attribute__((format(printf, 3, 4))) int calyx_format(char *text, size_t size, const char *format, ...);
__attribute__((format(printf, 3, 0))) int calyx_format_list(char *text, size_t size, const char *format,
							    va_list arguments);
/* Writes one sentence of at most CALYX_SAID_MAX bytes to a descriptor. */
#define CALYX_SAID_MAX 4096
__attribute__((format(printf, 2, 3))) void calyx_say(int fd, const char *format, ...);

/* A decimal number behind blanks, the largest one, with ERANGE in errno, when it is larger. *end (may be NULL) is
 * behind it; where there is none that is `text`, and the number 0. */
uint64_t calyx_number(const char *text, const char **end);

/* Where `word` first stands in `text`, or NULL; C libraries' strstr is 1 KB for texts that are longer than these. */
char *calyx_find(const char *text, const char *word);

/* The begin of a file as text, at most size - 1 bytes and a 0. Its length, or -errno. */
ssize_t calyx_read_text(const char *path, char *text, size_t size);
/* The whole of a file as text, which the caller frees; NULL when it cannot be read. Of what is no small file the begin,
 * and of a pipe nothing: neither is waited for. */
char *calyx_read_all(const char *path);
/* The next line of such a text without its newline, and *rest behind it; NULL after the last one. */
char *calyx_next_line(char **rest);

#endif
