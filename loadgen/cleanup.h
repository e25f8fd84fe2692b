/* Scope-exit cleanup for the load generator. A variable that has one is initialised at once. */
#pragma once

#include <stdio.h>
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

static inline void cleanup_file(FILE **file)
{
	if (*file)
		(void)fclose(*file); /* only files that were read */
}

#define auto_close __attribute__((cleanup(cleanup_close)))
#define auto_free  __attribute__((cleanup(cleanup_free)))
#define auto_file  __attribute__((cleanup(cleanup_file)))
