/*
 * How a child that was made to run a program says that it could not: its errno, an int32_t, into a
 * pipe that exec closes.
 */
#pragma once

#include <errno.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* 0: the child runs its program; else it is reaped, and this is -errno. */
static inline int exec_report_wait(int report_fd, pid_t pid)
{
	int32_t error = 0;
	ssize_t bytes;

	do
		bytes = read(report_fd, &error, sizeof error);
	while (bytes < 0 && errno == EINTR);
	if (bytes == 0)
		return 0;
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
	return bytes == sizeof error && error > 0 ? -error : -EIO;
}
