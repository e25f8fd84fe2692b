/*
 * The other end of a connection for tests of libdsec: a thread that speaks the engine's side of
 * ring.h over both transports, and answers as the test tells it. It serves one client at a time.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "dsec/dsec.h"
#include "dsec/ring.h"

enum { PEER_CHANNELS_MAX = 4 };

struct peer;

/* Before what the engine goes: the hello's arrival, its own welcome, the mapped, its own go. */
enum peer_stage { PEER_STAYS, PEER_HELLO, PEER_WELCOME, PEER_MAPPED, PEER_GO };

struct peer_options {
	/* What to do with a request; in the peer's thread, which may call peer_post() there. */
	void (*serve)(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		      const void *payload);
	/* Before the welcome is sent; NULL: nothing is altered. */
	void (*welcome)(struct peer *peer, struct dsec_ring_welcome *welcome);
	/* A client came; in the peer's thread, which may alter what follows; NULL: nothing. */
	void (*arrive)(struct peer *peer);
	void *state;		     /* the test's */
	uint32_t connections;	     /* one after the other; 0: 1 */
	uint32_t shards;	     /* 0: 1 */
	uint32_t submission_entries; /* 0: 64 */
	uint32_t completion_entries; /* 0: 256 */
	uint64_t arena_bytes;	     /* 0: 1 MiB */
	uint64_t epoch;		     /* 0: 7 */
	enum peer_stage goes_before;
	bool doorbells_missing, seals_missing;
};

struct peer_channel {
	struct dsec_ring_channel *shared;
	unsigned char *requests, *events, *buffers;
	uint32_t submission_head, completion_tail, buffer_head;
	int doorbell_fd;
};

struct peer {
	struct peer_options options;
	enum dsec_transport transport;
	char path[64], address[96];
	int listen_fd, fd, quit_fd, memory_fd;
	pthread_t thread;
	struct dsec_ring_hello hello;
	struct dsec_ring_welcome layout;
	unsigned char *memory, *arena;
	struct peer_channel channels[PEER_CHANNELS_MAX];
	uint32_t channel_count;
	uint32_t connection; /* the number of this one, from 0; atomic for other threads */
	bool serving;	     /* false: hang up */
};

/* Listens on a socket of its own under /tmp; the address is in peer->address. */
struct peer *peer_start(enum dsec_transport transport, const struct peer_options *options);
/* Hangs up if it did not, and waits for the thread. */
void peer_stop(struct peer *peer);
/* From the serving thread: go without a word. */
void peer_hang_up(struct peer *peer);

/* From the serving thread. Waits for room; the payload goes into the next posted buffer. */
void peer_post(struct peer *peer, uint32_t channel, const struct dsec_ring_event *event,
	       const void *payload);
/* As it stands, buffer number and all: for events that no engine would send. */
void peer_post_raw(struct peer *peer, uint32_t channel, const struct dsec_ring_event *event);
/* An event of a request. */
struct dsec_ring_event peer_event(const struct dsec_ring_request *request, uint16_t kind,
				  uint16_t flags);
/* DONE with LAST and nothing else. */
void peer_done(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request);
/* Opens a connection to it, that is not made again when it is lost. */
struct dsec *peer_connect(struct peer *peer, uint32_t channels);
/* One that is, for so long. */
struct dsec *peer_connect_for(struct peer *peer, uint32_t channels, uint32_t reconnect_ms);
