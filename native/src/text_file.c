// SPDX-License-Identifier: Apache-2.0
// Small files as text (calyx/text.h). Those of /proc and /sys tell no size, so they are read to their end.
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calyx/text.h"

#define FIRST_BYTES 4096
#define MOST_BYTES (16u << 20) /* of what somebody may have put in the place of a small file */

/* Reads until the end or until `size` bytes are there. How many, or -errno. */
static ssize_t read_on(int fd, char *text, size_t size)
{
	size_t length = 0;
	ssize_t got;

	while (length < size) {
		got = read(fd, text + length, size - length);
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (!got)
			break;
		length += (size_t)got;
	}
	return (ssize_t)length;
}

ssize_t calyx_read_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t length;

	if (fd < 0)
		return -errno;
	length = read_on(fd, text, size - 1);
	if (length >= 0)
		text[length] = 0;
	close(fd);
	return length;
}

char *calyx_read_all(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe has nobody who writes */
	size_t size = FIRST_BYTES, length = 0;
	char *text = NULL, *larger;
	ssize_t got;

	for (; fd >= 0 && size <= MOST_BYTES; size *= 2) {
		larger = realloc(text, size);
		got = larger ? read_on(fd, larger + length, size - 1 - length) : -ENOMEM;
		if (larger)
			text = larger;
		if (got < 0) {
			free(text);
			text = NULL;
			break;
		}
		length += (size_t)got;
		text[length] = 0;
		if (length < size - 1)
			break;
	}
	if (fd >= 0)
		close(fd);
	return text;
}

char *calyx_next_line(char **rest)
{
	char *line = *rest, *end;

	if (!line || !*line)
		return NULL;
	end = strchr(line, '\n');
	*rest = end ? end + 1 : NULL;
	if (end)
		*end = 0;
	return line;
}
