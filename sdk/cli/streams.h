/* stdin, stdout and stderr as others hand them to us: closed, non-blocking, or without a reader. */
#pragma once

#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

struct stream {
	int fd, error; /* error: errno of the first failed write, which is the last one */
	FILE *file, *before;
};

struct streams {
	struct stream out, err;
};

/*
 * Opens /dev/null for what is closed of 0, 1 and 2, and makes stdout and stderr streams that wait
 * where a non-blocking descriptor does not. Before anything opens a descriptor. -errno.
 */
int streams_open(struct streams *streams);
/*
 * Writes what is left and says what could not be written. `status`, or EXIT_TROUBLE in its place. A
 * reader that went away is no trouble.
 */
int streams_close(struct streams *streams, int status);

/* As read(), but waits, whatever the descriptor does, and is never interrupted. -errno. */
ssize_t stream_read(int fd, void *data, size_t bytes);
/* All of it, in the same way. 0 or -errno. */
int stream_put(int fd, const void *data, size_t bytes);
