/* The head of a cache's map. Must hold: what is read has its sum, and sizes that can be. */
#include "backends/store/cache_map.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "backends/store/segment.h"

#define CACHE_MAP_MAGIC 0x50414d4345534421ull

enum { CACHE_MAP_VERSION = 1 };

int cache_map_read(int fd, struct cache_map *ret)
{
	uint8_t sum[DIGEST_BYTES];
	ssize_t n = pread(fd, ret, sizeof *ret, 0);

	if (n < 0)
		return -errno;
	if ((size_t)n != sizeof *ret)
		return -EBADMSG;
	digest_of(ret, offsetof(struct cache_map, sum), sum);
	if (memcmp(sum, ret->sum, sizeof sum) != 0 || ret->magic != CACHE_MAP_MAGIC ||
	    ret->version != CACHE_MAP_VERSION || ret->chunk_bytes != SEGMENT_CHUNK_BYTES ||
	    !ret->bytes || ret->bytes > (uint64_t)CACHE_CHUNKS_MAX * SEGMENT_CHUNK_BYTES)
		return -EBADMSG;
	return 0;
}

int cache_map_write(int fd, struct cache_map *map)
{
	ssize_t n;

	map->magic = CACHE_MAP_MAGIC;
	map->version = CACHE_MAP_VERSION;
	map->chunk_bytes = SEGMENT_CHUNK_BYTES;
	map->unused = 0;
	digest_of(map, offsetof(struct cache_map, sum), map->sum);
	n = pwrite(fd, map, sizeof *map, 0);
	if (n < 0)
		return -errno;
	return (size_t)n == sizeof *map ? 0 : -ENOSPC;
}
