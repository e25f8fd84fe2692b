/*
 * Fixed objects of one size with generation handles. Filled at start; the completion path does not
 * allocate. A handle of an object that was put back never finds its successor.
 */
#pragma once

#include <stdint.h>

struct pool {
	char *objects;
	uint32_t *generations; /* odd while taken */
	uint32_t *free;	       /* stack of free indices */
	uint32_t object_bytes, count, free_count;
};

/* A handle: generation << 32 | index; 0 is never one. */
typedef uint64_t pool_handle_t;

int pool_init(struct pool *pool, uint32_t object_bytes, uint32_t count);
void pool_done(struct pool *pool);
/* A zeroed object or NULL when all are taken. */
void *pool_take(struct pool *pool);
void pool_put(struct pool *pool, void *object);
pool_handle_t pool_handle_of(const struct pool *pool, const void *object);
void *pool_find(const struct pool *pool, pool_handle_t handle); /* NULL: gone or never was */
uint32_t pool_index_of(const struct pool *pool, const void *object);
/* The taken object at an index, or NULL: for walking all of them. */
void *pool_at(const struct pool *pool, uint32_t index);
static inline uint32_t pool_taken(const struct pool *pool)
{
	return pool->count - pool->free_count;
}
