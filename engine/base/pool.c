/*
 * Owns arrays of equal objects and who has which. Called on the owning shard's thread. Always true:
 * an index is in the free stack exactly when its generation is even; memory of a free object is
 * poisoned under AddressSanitizer.
 */
#include "engine/base/pool.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define POOL_POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POOL_POISONS 1
#endif
#endif

#ifdef POOL_POISONS
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes)   ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

enum { OBJECT_ALIGN = 16 };

static char *object_at(const struct pool *pool, uint32_t index)
{
	return pool->objects + (size_t)index * pool->object_bytes;
}

int pool_init(struct pool *pool, uint32_t object_bytes, uint32_t count)
{
	assert(object_bytes > 0);
	assert(object_bytes <= UINT32_MAX - OBJECT_ALIGN);
	object_bytes = (object_bytes + OBJECT_ALIGN - 1) / OBJECT_ALIGN * OBJECT_ALIGN;
	*pool = (struct pool){
		.objects = calloc(count, object_bytes),
		.generations = calloc(count, sizeof(uint32_t)),
		.free = calloc(count, sizeof(uint32_t)),
		.object_bytes = object_bytes,
		.count = count,
		.free_count = count,
	};
	if (!pool->objects || !pool->generations || !pool->free) {
		pool_done(pool);
		return -ENOMEM;
	}
	/* The lowest index is taken first: few objects in use touch few pages. */
	for (uint32_t i = 0; i < count; i++)
		pool->free[i] = count - 1 - i;
	ASAN_POISON_MEMORY_REGION(pool->objects, (size_t)count * object_bytes);
	return 0;
}

void pool_done(struct pool *pool)
{
	if (pool->objects)
		ASAN_UNPOISON_MEMORY_REGION(pool->objects,
					    (size_t)pool->count * pool->object_bytes);
	free(pool->objects);
	free(pool->generations);
	free(pool->free);
	*pool = (struct pool){ 0 };
}

void *pool_take(struct pool *pool)
{
	uint32_t index;
	char *object;

	if (!pool->free_count)
		return NULL;
	index = pool->free[--pool->free_count];
	pool->generations[index]++;
	object = object_at(pool, index);
	ASAN_UNPOISON_MEMORY_REGION(object, pool->object_bytes);
	return memset(object, 0, pool->object_bytes);
}

uint32_t pool_index_of(const struct pool *pool, const void *object)
{
	size_t offset = (size_t)((const char *)object - pool->objects);

	assert(offset < (size_t)pool->count * pool->object_bytes);
	assert(offset % pool->object_bytes == 0);
	return (uint32_t)(offset / pool->object_bytes);
}

void pool_put(struct pool *pool, void *object)
{
	uint32_t index = pool_index_of(pool, object);

	assert(pool->generations[index] & 1);
	pool->generations[index]++;
	pool->free[pool->free_count++] = index;
	ASAN_POISON_MEMORY_REGION(object, pool->object_bytes);
}

pool_handle_t pool_handle_of(const struct pool *pool, const void *object)
{
	uint32_t index = pool_index_of(pool, object);

	assert(pool->generations[index] & 1);
	return (uint64_t)pool->generations[index] << 32 | index;
}

void *pool_find(const struct pool *pool, pool_handle_t handle)
{
	uint32_t index = (uint32_t)handle, generation = (uint32_t)(handle >> 32);

	if (index >= pool->count || !(generation & 1) || pool->generations[index] != generation)
		return NULL;
	return object_at(pool, index);
}

void *pool_at(const struct pool *pool, uint32_t index)
{
	assert(index < pool->count);
	return pool->generations[index] & 1 ? object_at(pool, index) : NULL;
}
