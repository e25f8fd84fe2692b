/*
 * A segment that is served: not whole on this node, so that the kernel asks a shard for its
 * contents. Made by the control thread (serve.c), lent to one shard (server.c), and given back.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "backends/store/segment.h"
#include "engine/base/io.h"

struct server;

enum chunk_state {
	CHUNK_ABSENT,
	CHUNK_STORED, /* in the cache's file, as an earlier time left it: not looked at yet */
	CHUNK_COMING, /* a fetch reads it */
	CHUNK_HELD,   /* sound, in memory, and written to the cache's file just now */
	CHUNK_GOOD,   /* sound, in the cache's file */
};

enum { STREAMS = 4 };

/* Somebody reads in order: up to `next`, a run of chunks. */
struct stream {
	uint32_t next, run;
};

/* What a map says beyond its header, in its bytes of bits: chunk by chunk, whether it is there. */
struct served {
	struct mail mail; /* to the shard and home */
	uint8_t digest[DIGEST_BYTES], chunks[DIGEST_BYTES];
	uint64_t bytes, node;
	uint32_t chunk_count;
	int data_fd, map_fd;
	uint8_t (*table)[DIGEST_BYTES]; /* of chunk_count; NULL: it is fetched first */
	uint8_t *states;		/* enum chunk_state, of chunk_count */
	uint8_t *bits;			/* as in the map's file */
	uint32_t *touched;		/* chunks in the order they were first asked for */
	uint32_t touched_count;
	uint32_t *list; /* that order of an earlier time, to be fetched before it is asked for */
	uint32_t list_count, list_at;
	atomic_bool is_whole; /* all is in the file, synced: the next mount reads that */
	atomic_ullong asked;  /* bytes that were asked for */
	void *owner;	      /* the control thread's */

	/* The shard's, while it has it. */
	struct server *server;
	struct served *next; /* of its bucket */
	struct stream streams[STREAMS];
	uint32_t stream_at;
	uint8_t *is_touched; /* bits */
	uint8_t *unsynced;   /* bits: written since the last sync began */
	uint8_t *syncing;    /* bits: what the sync that runs is about */
	uint32_t unsynced_count, good_count;
	uint32_t forget_at; /* of what is synced: pages before it need not stay in memory */
	uint32_t flights;   /* fetches, writes and syncs under way */
	bool is_syncing, is_leaving;
	bool is_stale; /* bits went, and the map's file does not know */
	struct io_op sync_op;
};

static inline bool bit_is_set(const uint8_t *bits, uint32_t at)
{
	return bits[at / 8] & 1u << at % 8;
}

static inline void bit_set(uint8_t *bits, uint32_t at)
{
	bits[at / 8] |= (uint8_t)(1u << at % 8);
}

static inline void bit_clear(uint8_t *bits, uint32_t at)
{
	bits[at / 8] &= (uint8_t) ~(1u << at % 8);
}

static inline uint32_t bits_bytes(uint32_t count)
{
	return (count + 7) / 8;
}

static inline uint32_t chunk_bytes(const struct served *served, uint32_t chunk)
{
	const uint64_t rest = served->bytes - (uint64_t)chunk * SEGMENT_CHUNK_BYTES;

	return rest < SEGMENT_CHUNK_BYTES ? (uint32_t)rest : SEGMENT_CHUNK_BYTES;
}
