/* SPDX-License-Identifier: Apache-2.0
 *
 * Lines on their way up. A reader that stopped reading must not hold up anything: nothing here waits.
 */
#include "agent.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A pipe that poll calls writable takes at least this much without blocking (PIPE_BUF, which is one page). */
#define PIECE_BYTES 4096

void outbox_init(struct outbox *outbox, int wake_fd)
{
	pthread_mutex_init(&outbox->lock, NULL);
	outbox->wake_fd = wake_fd;
}

/* Keeps the memory in proportion to what is unsent. */
static void drop_sent(struct outbox *outbox)
{
	struct buffer *pending = &outbox->pending;
	bool failed = pending->failed;

	if (outbox->sent && outbox->sent == pending->length) {
		buffer_free(pending);
		pending->failed = failed;
		outbox->sent = 0;
	} else if (outbox->sent > pending->length / 2) {
		pending->length -= outbox->sent;
		memmove(pending->data, pending->data + outbox->sent, pending->length);
		outbox->sent = 0;
	}
}

void outbox_add(struct outbox *outbox, struct buffer *lines)
{
	uint64_t one = 1;

	pthread_mutex_lock(&outbox->lock);
	drop_sent(outbox);
	buffer_append(&outbox->pending, lines->data, lines->length);
	outbox->pending.failed |= lines->failed;
	pthread_mutex_unlock(&outbox->lock);
	buffer_free(lines);
	if (write(outbox->wake_fd, &one, sizeof(one)) < 0)
		return; /* the counter is full: the main thread is awake anyway */
}

size_t outbox_waiting(struct outbox *outbox)
{
	size_t waiting;

	pthread_mutex_lock(&outbox->lock);
	waiting = outbox->pending.length - outbox->sent;
	pthread_mutex_unlock(&outbox->lock);
	return waiting;
}

bool outbox_has_failed(struct outbox *outbox)
{
	bool failed;

	pthread_mutex_lock(&outbox->lock);
	failed = outbox->pending.failed;
	pthread_mutex_unlock(&outbox->lock);
	return failed;
}

static ssize_t write_piece(int fd, const char *data, size_t length)
{
	struct pollfd ready = {.fd = fd, .events = POLLOUT};
	ssize_t written;

	written = send(fd, data, length, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (written >= 0 || errno != ENOTSOCK)
		return written;
	if (poll(&ready, 1, 0) <= 0) {
		errno = EAGAIN;
		return -1;
	}
	return write(fd, data, length < PIECE_BYTES ? length : PIECE_BYTES);
}

int outbox_flush(struct outbox *outbox, int fd)
{
	int error = 0;

	pthread_mutex_lock(&outbox->lock);
	while (outbox->sent < outbox->pending.length) {
		ssize_t written =
			write_piece(fd, outbox->pending.data + outbox->sent, outbox->pending.length - outbox->sent);

		if (written < 0 && errno == EINTR)
			continue;
		if (written < 0) {
			error = errno == EAGAIN ? 0 : -errno;
			break;
		}
		outbox->sent += (size_t)written;
	}
	pthread_mutex_unlock(&outbox->lock);
	return error;
}
