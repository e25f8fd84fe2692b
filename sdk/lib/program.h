/* Programs that the library starts for a connection: an engine of one's own, ssh. */
#pragma once

#include <stddef.h>
#include <sys/types.h>

enum { PROGRAM_FDS_MAX = 10 }; /* what is handed over lies above, in the way of nothing */

struct program_start {
	const char *const *argv;  /* argv[0] without a slash is looked for in PATH */
	int fds[PROGRAM_FDS_MAX]; /* the program's descriptors 0, 1, ...; -1: /dev/null */
	int fd_count;		  /* it has these and no others */
};

/*
 * Starts it in a session of its own, so that a terminal's Ctrl-C reaches us and not it. The fds
 * must be PROGRAM_FDS_MAX or more. 0, or -errno and nothing was started.
 */
int dsec__program_start(const struct program_start *start, pid_t *ret_pid, int *ret_pidfd);

/* For its stdout and stderr: the first 64 KiB, then its writes fail. A descriptor, or -errno. */
int dsec__program_log_new(void);
/* What it said of why it ended: the first error of an engine, which others follow from, or its last
 * line. "": nothing. */
void dsec__program_log_reason(int fd, char *line, size_t line_bytes);
