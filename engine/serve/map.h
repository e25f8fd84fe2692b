/*
 * The cache's files of a segment, on the control thread, which may block:
 *
 *	HEX.data	its bytes, sparse
 *	HEX.map		a header, a bit for each chunk that is in HEX.data, its chunk table
 *	HEX.list	chunks in the order in which they were asked for first
 *
 * A bit is written after its chunk was synced, and goes before its bytes do. What has no sound
 * header is not there.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/serve/served.h"

enum { MAP_BITS_AT = 4096 };

/* What a map says of itself. */
struct map_facts {
	uint8_t digest[DIGEST_BYTES], chunks[DIGEST_BYTES];
	uint64_t bytes, stored_bytes, asked_bytes;
	bool has_table, is_whole;
};

/* The node of a segment: the same for every engine. */
uint64_t map_node(const uint8_t digest[DIGEST_BYTES]);
/* -ENOENT; -EBADMSG: no map of ours, or damaged. */
int map_facts_read(int cache_fd, const uint8_t digest[DIGEST_BYTES], struct map_facts *ret);
/* What is served, with its files open, made where they are new. -ENOMEM, -ENOSPC, … */
int map_open(int cache_fd, const struct map_facts *facts, struct served **ret);
/* Home from its shard: its table, its list and what was asked are kept. Freed. */
void map_close(int cache_fd, struct served *served);
/* Map first, and synced, then data. */
int map_remove(int cache_fd, const uint8_t digest[DIGEST_BYTES]);
/* Its data, for reading. */
int map_data_open(int cache_fd, const uint8_t digest[DIGEST_BYTES]);
/* From `chunk` on, at most `count`: 1, or 0: one of them is not what the table says. -errno. */
int map_scrub(int cache_fd, const struct map_facts *facts, uint32_t chunk, uint32_t count);
/* A name of the cache: which segment's, by its end (".map"). */
bool map_name_parse(const char *name, const char *end, uint8_t ret[DIGEST_BYTES]);
uint32_t map_chunk_count(uint64_t bytes);
