/*
 * Payloads as a client packs them: a struct, then what its references point to. An attack packs a
 * good one and then changes a field of it.
 */
#pragma once

#include <stdint.h>

#include "dsec/ring.h"
#include "tests/hostile/client/raw.h"

enum { PACK_BYTES = 256 << 10 };

struct pack {
	uint32_t bytes;
	union {
		char data[PACK_BYTES];
		struct dsec_wire_create create;
		struct dsec_wire_exec exec;
		struct dsec_wire_select select;
		struct dsec_wire_list list;
		struct dsec_wire_change change;
		struct dsec_wire_fetched fetched;
		struct dsec_wire_file file;
		struct dsec_wire_port port;
		struct dsec_wire_image image;
		struct dsec_wire_policy policy;
		struct dsec_wire_phase phase;
		struct dsec_wire_fork fork;
		struct dsec_wire_subscribe subscribe;
		struct dsec_wire_function function;
		struct dsec_wire_invoke invoke;
		uint32_t size;
	};
};

/* A new payload: a struct of so many bytes, its `size` set. Freed with free(). */
struct pack *pack_new(uint32_t struct_bytes);
/* Text into a reference; a list of `count` items of the same bytes. */
void pack_ref(struct pack *pack, struct dsec_wire_ref *ref, const void *bytes, uint32_t count);
void pack_text(struct pack *pack, struct dsec_wire_ref *ref, const char *text);
void pack_item(struct pack *pack, struct dsec_wire_items *items, const void *bytes, uint32_t count);
void pack_words(struct pack *pack, struct dsec_wire_items *items, const char *const words[]);

/* Good requests: a create of so many of the image, an exec of words (NULL-terminated). */
struct pack *pack_create(uint32_t count);
struct pack *pack_exec(const char *const words[]);
/* Of the request's subject: its ttl, and a label. */
struct pack *pack_change(void);
/* Of the request's subject: a path. */
struct pack *pack_fetched(void);
/* A good one of that op, which has a payload; of its subject. */
struct pack *pack_of(uint16_t op);

/* Asks with it and frees it: the LAST's code or -errno; the event and status where wanted. */
struct answer {
	struct dsec_ring_event last;
	struct dsec_wire_status status;
};
int pack_ask(struct raw *raw, uint16_t op, struct dsec_wire_id subject, struct pack *pack,
	     struct answer *ret);
/* The ids of a create's CREATED events, up to `max`: how many were created or -errno. */
int pack_create_ids(struct raw *raw, struct pack *pack, uint32_t max, struct dsec_wire_id *ret);
/* What no image is called; the last is NULL. */
extern const char *const names_invalid[];
