/*
 * A channel: one pair of rings in a client's memory, served by one shard; or, with the stream
 * transport, the client's socket. Takes requests in, puts events out, and keeps what does not fit
 * yet. Memory that the client can write is read once, into a copy.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dsec/ring.h"
#include "engine/base/io.h"
#include "engine/base/timer.h"
#include "engine/tenant/bucket.h"

struct client;
struct request;
struct shard;
struct tenant;
struct pending_event;

/*
 * Entries and bytes of payload per turn: a busy client buys no more. The last entry may exceed the
 * bytes: one large payload a turn, as a megabyte takes a quarter of a millisecond.
 */
enum { CHANNEL_DRAIN_MAX = 64, CHANNEL_DRAIN_BYTES_MAX = 128 << 10 };

struct channel {
	struct shard *shard;
	struct tenant *tenant;
	bool is_own;	       /* as of the request */
	struct client *client; /* of its home shard: only its constants are read here */
	uint32_t number;
	bool closing, broken, settled, is_awake, is_announced, is_backlogged;
	struct channel *next_awake, *next_announce;
	struct request *requests; /* in flight */
	uint32_t in_flight;
	uint64_t client_id;
	struct mail open_mail, close_mail;

	/* events that found no room, oldest first */
	struct pending_event *backlog, **backlog_last;
	uint64_t backlog_bytes;
	struct mail *held, **held_last; /* parts that wait for room: see part_again_with_room() */

	/* ring transport: our own copies of sizes and of the counters we produce */
	struct dsec_ring_channel *shared;
	char *submissions, *completions, *buffers, *arena;
	uint64_t arena_bytes;
	uint32_t submission_mask, completion_mask, buffer_mask;
	uint32_t submission_head, completion_tail, buffer_head;
	int doorbell_fd;
	struct io_op doorbell;
	uint64_t doorbell_count;
	bool doorbell_armed;
	uint32_t rung_head; /* submission_head when it rang last */
	struct bucket idle_rings;
	struct timer doorbell_rest;

	/* stream transport */
	bool is_stream;
	struct io_op receive, send, hangup;
	bool receiving, sending, watching, hung_up;
	bool is_held; /* `in` holds a whole request that may not begin yet */
	char *in;     /* a request being received: entry, then payload */
	uint32_t in_bytes, in_wanted;
	char *out; /* events being sent */
	uint32_t out_bytes, out_sent, out_max;
};

/* What a channel is made of; filled by the client's home shard. */
struct channel_options {
	struct client *client;
	uint64_t client_id;
	struct tenant *tenant;
	bool is_own;
	uint32_t number;
	bool is_stream;
	char *memory; /* of the whole mapping */
	const struct dsec_ring_welcome *layout;
	int doorbell_fd; /* taken */
};

int channel_new(const struct channel_options *options, struct channel **ret);
/* On its shard: begin to serve; end (requests are detached, channel_closed() follows). */
void channel_open(struct channel *channel, struct shard *shard);
void channel_close(struct channel *channel);
void channel_free(struct channel *channel);

/* Look for requests on every awake channel. True: there may be more. */
bool channels_drain(struct shard *shard);
/* Before the shard sleeps: no request is missed after this returned false. */
bool channels_rest(struct shard *shard);
/* Wake the clients that have new events. */
void channels_announce(struct shard *shard);

/*
 * Put an event out. It is kept when there is no room; only a client that has gone loses it. DATA
 * larger than the client's next buffer is cut into several.
 */
void channel_post(struct channel *channel, const struct dsec_ring_event *event,
		  const void *payload);
/* Events wait for room: hold back what can wait. */
static inline bool channel_is_full(const struct channel *channel)
{
	return channel->backlog != NULL;
}
/* Closed, with nothing in flight and in no list: it can be freed. */
bool channel_is_settled(const struct channel *channel);
/* The stream's socket took what was sent: more of the backlog may go. */
void channel_flush_stream(struct channel *channel);
/* A request of the channel is over. */
void channel_request_over(struct channel *channel, struct request *request);
