/* Scope-exit cleanup. A variable that has one is initialised where it is declared. */
#pragma once

#include <stdlib.h>
#include <unistd.h>

static inline void cleanup_close(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd); /* nothing to do about a failing close */
}

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

#define auto_close __attribute__((cleanup(cleanup_close)))
#define auto_free  __attribute__((cleanup(cleanup_free)))

/* Ownership leaves a scope through these two only. */
static inline int take_fd(int *fd)
{
	int taken = *fd;

	*fd = -1;
	return taken;
}

static inline void *take_pointer(void *slot)
{
	void *taken = *(void **)slot;

	*(void **)slot = NULL;
	return taken;
}

#define take_ptr(p) ((__typeof__(p))take_pointer(&(p)))

#define container_of(pointer, type, member)                                                        \
	((type *)((char *)(pointer) - __builtin_offsetof(type, member)))
