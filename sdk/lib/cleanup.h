/* Scope-exit cleanup inside libdsec. A variable that has one is initialised where declared. */
#pragma once

#include <stdlib.h>
#include <unistd.h>

static inline void dsec__cleanup_close(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd); /* nothing to do about a failing close */
}

static inline void dsec__cleanup_free(void *slot)
{
	free(*(void **)slot);
}

#define auto_close __attribute__((cleanup(dsec__cleanup_close)))
#define auto_free  __attribute__((cleanup(dsec__cleanup_free)))

static inline int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}
