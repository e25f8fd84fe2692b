/*
 * The head of a cache's HEX.map: what a segment is, and how much of it was asked for. The rest is
 * its server's, engine/serve/map.c.
 */
#pragma once

#include <stdint.h>

#include "backends/store/digest.h"

/* The first bytes of the file. */
struct cache_map {
	uint64_t magic;
	uint32_t version, chunk_bytes;
	uint64_t bytes,
		asked_bytes; /* asked: by readers, since it is in the cache; repeated ones too */
	uint8_t digest[DIGEST_BYTES], chunks[DIGEST_BYTES];
	uint32_t has_table, unused;
	uint8_t sum[DIGEST_BYTES]; /* of what is before */
};

_Static_assert(sizeof(struct cache_map) == 136, "no padding");

enum { CACHE_CHUNKS_MAX = 16 << 20 /* a segment of a TiB */ };

/* -EBADMSG: no map of ours, or damaged. */
int cache_map_read(int fd, struct cache_map *ret);
/* Magic, version, chunk size and sum are set. At offset 0. -ENOSPC, … */
int cache_map_write(int fd, struct cache_map *map);
