/*
 * A client that is not libdsec: it speaks the wire by hand, and so can break every rule of it.
 * What is honest here are the defaults; an attack changes one thing after raw_open() or between
 * the steps of the handshake.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dsec/ring.h"

enum { RAW_DOORBELLS_MAX = 256, RAW_BUFFER_BYTES = 16 << 10, RAW_PAYLOADS = 64 };

struct raw {
	int fd, memory_fd;
	int doorbells[RAW_DOORBELLS_MAX];
	uint32_t doorbell_count;
	struct dsec_ring_hello hello;
	struct dsec_ring_welcome welcome;
	char *memory;
	/* of channel 0 */
	struct dsec_ring_channel *channel;
	struct dsec_ring_request *requests;
	struct dsec_ring_event *events;
	struct dsec_ring_buffer *buffers;
	char *arena;
	uint32_t submitted, completed, posted;
	char *payload; /* of the last event, stream transport */
};

/* A hello that the engine accepts. */
struct dsec_ring_hello raw_hello(enum dsec_transport transport);

/* The handshake's steps. 0 or -errno; -EPIPE: the engine hung up. */
int raw_connect(struct raw *raw, const char *socket);
int raw_send(struct raw *raw, const void *bytes, size_t count);
int raw_receive(struct raw *raw, void *ret_bytes, size_t count);
int raw_receive_welcome(struct raw *raw);
int raw_map(struct raw *raw);
int raw_step_mapped(struct raw *raw);
int raw_step_go(struct raw *raw);
/* All of them, and result buffers for half of the arena. The struct may be uninitialised. */
int raw_open(struct raw *raw, const char *socket, enum dsec_transport transport);
int raw_open_hello(struct raw *raw, const char *socket, const struct dsec_ring_hello *hello);
void raw_close(struct raw *raw);
/* The engine closed the connection within so long. */
bool raw_is_cut(struct raw *raw, int timeout_ms);

/* An entry for channel 0; with a payload, whose place in the arena follows from its number. */
void raw_put(struct raw *raw, const struct dsec_ring_request *entry);
void raw_put_payload(struct raw *raw, struct dsec_ring_request *entry, const void *payload,
		     uint32_t bytes);
/* Where the payload of the next entry goes, from arena_at. */
uint64_t raw_payload_at(const struct raw *raw);
void raw_buffers_post(struct raw *raw, uint32_t count);
void raw_doorbell(struct raw *raw);
/* The same over either transport, doorbell included. */
int raw_ask(struct raw *raw, struct dsec_ring_request *entry, const void *payload, uint32_t bytes);

/*
 * The next event, its payload in *ret_payload (until the next call; may be NULL). -ETIMEDOUT,
 * -EPIPE. A result buffer that was used is posted again.
 */
int raw_next(struct raw *raw, int timeout_ms, struct dsec_ring_event *ret,
	     const char **ret_payload);
/* Skips events until the LAST of a ticket. */
int raw_last(struct raw *raw, uint64_t ticket, int timeout_ms, struct dsec_ring_event *ret,
	     struct dsec_wire_status *ret_status);
/* Asks and waits for the LAST: its code, or -errno. */
int raw_code(struct raw *raw, struct dsec_ring_request *entry, const void *payload, uint32_t bytes);
