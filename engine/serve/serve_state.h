/*
 * Between the files of the control thread's part of serving: serve.c (who has which segment),
 * cache.c (its directory: opening, eviction, scrubbing), fuse.c (connections).
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/serve/map.h"
#include "engine/serve/serve.h"

enum { SERVE_OLD_MAX = 2 /* connections of engines before, of a shard */ };

enum entry_state {
	ENTRY_RESTING, /* its files are the control thread's */
	ENTRY_JOINING, /* on its way to its shard */
	ENTRY_SERVED,
	ENTRY_LEAVING, /* on its way home */
};

/* A segment that the cache knows. */
struct serve_entry {
	struct serve *serve;
	struct map_facts facts; /* as they were when it rested last */
	enum entry_state state;
	uint32_t users;		   /* mounts, and those that are being made */
	uint64_t used;		   /* the order of use */
	bool is_held;		   /* an old connection asked for it */
	struct served *served;	   /* NULL: it rests */
	struct serve_use *waiters; /* until it is SERVED */
};

/* A shard's, of this engine; or one of an engine before. */
struct serve_connection {
	int fuse_fd, mount_fd; /* -1 */
	char name[65];	       /* parked under this */
};

struct serve {
	struct control *control;
	struct node *node;
	int cache_fd, lock_fd, keeper_fd;
	atomic_ullong bytes; /* in the cache's files */
	struct serve_entry **entries;
	uint32_t count, size, served_count;
	uint64_t clock;
	struct serve_connection *connections; /* per shard */
	struct serve_connection *old;	      /* SERVE_OLD_MAX per shard */
	uint32_t old_count;
	uint32_t scrub_entry, scrub_chunk;
};

struct serve_entry *serve_entry_new(struct serve *serve, const struct map_facts *facts);
/* It rests, and nobody uses it: its files go. */
void serve_entry_drop(struct serve_entry *entry);
/* What nobody uses comes home. */
void serve_rest(struct serve *serve);
/* Resting segments go, the longest unused first, until the cache is below its mark. */
void serve_evict(struct serve *serve);

/* The shard has a connection. */
int serve_connect(struct serve *serve, uint32_t shard);
/* A file of it: what the shard serves must have been taken. */
int serve_connection_open(struct serve *serve, uint32_t shard, const uint8_t *digest);
/* Whose mounts are gone are forgotten. */
void serve_old_look(struct serve *serve);
void serve_connections_close(struct serve *serve);
