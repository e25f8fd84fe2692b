/*
 * A shard's server of segments: what FUSE asks is answered from the cache, from what is being
 * fetched, or when it was fetched and checked. Nothing here blocks.
 *
 *	connection.c	requests in, answers out
 *	server.c	reads: which chunks they need, when they are answered, how they end in time
 *	fill.c		chunks: fetched, checked, held, written, synced
 *	ahead.c		chunks that nobody waits for yet
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/io.h"
#include "engine/base/timer.h"
#include "engine/serve/ask.h"
#include "engine/serve/remote.h"
#include "engine/serve/served.h"

struct digest;
struct shard;

enum {
	SLOTS = 64, /* reads in hand; others wait in the kernel, where who asks can be killed */
	SLOT_CHUNKS = ASK_READ_BYTES_MAX / SEGMENT_CHUNK_BYTES + 1,
	FETCHES = REMOTE_FLIGHTS,
	FETCH_CHUNKS = 4,
	FETCHES_SPARE = 8, /* never taken for what nobody waits for */
	CONNECTIONS = 4,
	BUCKETS = 256,
};

struct connection {
	struct server *server;
	struct io_op op;
	int fd; /* -1: there is none */
	bool is_waiting;
	bool is_old; /* of an engine before: its nodes become known when they are asked for */
};

/* Chunks that are read from the cache's file. */
struct slot_part {
	struct io_op op;
	struct slot *slot;
	uint32_t chunk, count, bytes;
};

/* A read: in hand from the request until it was answered and no part is under way. */
struct slot {
	struct slot *next, *previous; /* in hand, the oldest first; or free */
	struct connection *connection;
	struct served *served; /* NULL: the control thread looks for it */
	uint64_t node, unique, offset, until_ns, interrupted_ns;
	uint32_t bytes;
	uint32_t chunk, missing; /* its first chunk; bit i: chunk + i is not in the buffer */
	uint32_t parts_busy;
	bool is_answered;
	struct slot_part parts[SLOT_CHUNKS];
	char *buffer;
};

struct fetch {
	struct remote_read read;
	struct io_op op;
	struct server *server;
	struct served *served; /* NULL: it is free */
	uint32_t chunk, count, tries, bytes;
	bool is_ahead;
	char *buffer;
};

/* The chunk table of a segment, in pieces. */
struct table_fetch {
	struct remote_read read;
	struct server *server;
	struct served *served; /* NULL: it is free */
	struct digest *digest;
	uint8_t *bytes;
	uint32_t got, tries;
};

struct server {
	struct shard *shard;
	struct remote *remote;
	struct connection connections[CONNECTIONS]; /* each is used once */
	uint32_t connection_count;
	struct served *buckets[BUCKETS];
	uint32_t served_count, list_bucket; /* whose list was last to have a fetch */
	struct slot slots[SLOTS], *free, *first, *last;
	struct fetch fetches[FETCHES];
	struct table_fetch table_fetch;
	struct timer timer;
	char *buffers;
	char *ask; /* ASK_BYTES_MIN */
	struct mail node_mail, full_mail;
	uint64_t node_wanted;
	bool is_node_mail_out, is_full_mail_out;
	struct server_counts {
		uint64_t reads, fetched, corrupt, failed, unwritten;
	} counts, told;
};

/* -ENOMEM, or of remote_open(). */
int server_open(struct shard *shard, struct server **ret);
/* On the shard's thread, before io_close(): what is in flight is never told. */
void server_close(struct server *server);
/* After it. */
void server_free(struct server *server);

/* ---- between the files of the server ---- */

/* The connection has a request to be looked at, or none any more. */
void connection_listen(struct connection *connection);
void connection_end(struct connection *connection);
/* error: 0 or negative. */
void connection_answer(struct connection *connection, uint64_t unique, int error, const void *bytes,
		       size_t count);
/* Slots are free again. */
void connections_resume(struct server *server);

struct served *server_find(const struct server *server, uint64_t node);
/* READ: a slot is free. */
void slot_begin(struct connection *connection, const struct fuse_ask *ask);
void slots_interrupt(struct server *server, uint64_t unique);
/* A chunk is sound: reads that wait for it have it. */
void slots_give(struct server *server, struct served *served, uint32_t chunk, const char *bytes);
/* It cannot be had: those reads fail. All of the segment's: chunk is UINT32_MAX. */
void slots_fail(struct server *server, struct served *served, uint32_t chunk, int error);
bool slots_use(const struct server *server, const struct served *served);

/* Whatever reads wait for begins to come, as far as there is room; then what is ahead. */
void fill_go_on(struct server *server);
/* The chunk table first: it is fetched when no other is. */
void table_want(struct server *server, struct served *served);
/* Chunks that are ABSENT, or STORED, all; at most FETCH_CHUNKS. False: no fetch is free. */
bool fill_begin(struct server *server, struct served *served, uint32_t chunk, uint32_t count);
/* The bytes of a chunk that is HELD. */
const char *fill_held(const struct server *server, const struct served *served, uint32_t chunk);
/* The cache's file did not give it back: it is fetched anew. */
void fill_lost(struct served *served, uint32_t chunk);
/* What was written is synced, then its bits are written. */
void fill_sync(struct served *served);
bool fill_is_dirty(const struct served *served);
uint32_t fill_free(const struct server *server);
/* A segment that leaves goes when nothing of it is under way. */
void served_settle(struct served *served);

void server_tick_soon(struct server *server);
void ahead_note(struct server *server, struct served *served, uint32_t chunk, uint32_t end);
void ahead_go_on(struct server *server);

/* ---- by mail, on the shard ---- */

struct server_join {
	struct mail mail;
	int fd; /* of /dev/fuse, a connection's; the server's from now on */
	bool is_old;
};

void server_connect(struct mail *mail, void *owner);	/* struct server_join; freed */
void server_take(struct mail *mail, void *owner);	/* struct served; home by serve_taken() */
void server_give(struct mail *mail, void *owner);	/* home by serve_given(), unused */
void server_no_node(struct mail *mail, void *owner);	/* server->node_mail: it is not there */
void server_node_there(struct mail *mail, void *owner); /* the same: it was there */
void server_had_room(struct mail *mail, void *owner);	/* server->full_mail: room was made */
