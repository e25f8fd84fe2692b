/*
 * The standard descriptors. Called by main.c, before and after everything else, and by live.c
 * and proxy.c. What a verb writes goes through <stdio.h> and ends in stream_write(); if all of it
 * got out is told once, by streams_close().
 */
#include "sdk/cli/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "sdk/cli/report.h"

/* Somebody else's O_NONBLOCK: it belongs to the open file, so it is not ours to clear. */
static void stream_await(int fd, short events)
{
	struct pollfd wait = { .fd = fd, .events = events };

	(void)poll(&wait, 1, -1); /* in vain is fine: it is tried again */
}

ssize_t stream_read(int fd, void *data, size_t bytes)
{
	for (;;) {
		ssize_t n = read(fd, data, bytes);

		if (n >= 0)
			return n;
		if (errno == EAGAIN)
			stream_await(fd, POLLIN);
		else if (errno != EINTR)
			return -errno;
	}
}

int stream_put(int fd, const void *data, size_t bytes)
{
	const char *at = data;

	while (bytes) {
		ssize_t n = write(fd, at, bytes);

		if (n >= 0) {
			at += n;
			bytes -= (size_t)n;
		} else if (errno == EAGAIN) {
			stream_await(fd, POLLOUT);
		} else if (errno != EINTR) {
			return -errno;
		}
	}
	return 0;
}

static ssize_t stream_write(void *cookie, const char *data, size_t bytes)
{
	struct stream *stream = cookie;

	if (!stream->error)
		stream->error = -stream_put(stream->fd, data, bytes);
	if (!stream->error)
		return (ssize_t)bytes;
	errno = stream->error;
	return 0;
}

static int stream_open(struct stream *stream, int fd, FILE **file, int mode)
{
	static const cookie_io_functions_t functions = { .write = stream_write };

	*stream = (struct stream){ .fd = fd, .before = *file };
	stream->file = fopencookie(stream, "w", functions);
	if (!stream->file)
		return -ENOMEM;
	(void)setvbuf(stream->file, NULL, mode, 0); /* another buffering is as right */
	*file = stream->file;
	return 0;
}

/* errno of what could not be written; 0: all was, or nobody reads any more. */
static int stream_close(struct stream *stream, FILE **file)
{
	if (!stream->file)
		return 0;
	*file = stream->before;
	(void)fclose(stream->file); /* stream->error has it */
	return stream->error == EPIPE ? 0 : stream->error;
}

int streams_open(struct streams *streams)
{
	int r;

	*streams = (struct streams){ 0 };
	for (int fd = 0; fd <= STDERR_FILENO; fd++) {
		/*
		 * The lowest that is free: fd itself, since those below it are open. What is
		 * written to a closed stdout must not count as told.
		 */
		const int mode = fd == STDOUT_FILENO ? O_RDONLY : O_RDWR;

		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", mode) != fd)
			return -errno;
	}
	r = stream_open(&streams->out, STDOUT_FILENO, &stdout,
			isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF);
	return r < 0 ? r : stream_open(&streams->err, STDERR_FILENO, &stderr, _IOLBF);
}

int streams_close(struct streams *streams, int status)
{
	int error = stream_close(&streams->out, &stdout);

	if (error) {
		(void)fprintf(stderr, "dsec: stdout: %s\n", strerror(error));
		status = EXIT_TROUBLE;
	}
	return stream_close(&streams->err, &stderr) ? EXIT_TROUBLE : status;
}
