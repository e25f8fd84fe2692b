/* Scope-exit cleanup for the CLI. A variable that has one is initialised where it is declared. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <jansson.h>

static inline void cleanup_close(int *fd)
{
	if (*fd >= 0)
		(void)close(*fd); /* nothing to do about a failing close */
}

static inline void cleanup_free(void *slot)
{
	free(*(void **)slot);
}

static inline void cleanup_file(FILE **file)
{
	if (*file)
		(void)fclose(*file); /* only files that were read */
}

static inline void cleanup_json(json_t **json)
{
	json_decref(*json);
}

#define auto_close __attribute__((cleanup(cleanup_close)))
#define auto_free  __attribute__((cleanup(cleanup_free)))
#define auto_file  __attribute__((cleanup(cleanup_file)))
#define auto_json  __attribute__((cleanup(cleanup_json)))
