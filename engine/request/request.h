/*
 * A request from acceptance to its LAST, and its parts. A request belongs to the shard of the
 * channel it came by. Its work is done in parts, one per shard that is concerned; a part's events
 * travel home by mail and are posted there, in order, before the part's end is known.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dsec/ring.h"
#include "engine/base/io.h"
#include "engine/base/timer.h"
#include "engine/base/walk.h"
#include "engine/request/claim.h"
#include "engine/request/status.h"
#include "engine/request/wire.h"

struct channel;
struct shard;
struct request;
struct sandbox;
struct tenant;
struct emission;

struct part {
	struct mail mail;		    /* out, then home */
	struct mail cancel_mail;	    /* out, then home */
	struct walk_turn walk, cancel_walk; /* with `mail`, `cancel_mail`, on its shard */
	struct request *request;
	struct shard *shard;   /* where it runs */
	uint32_t first, count; /* create: indices first .. first + count - 1 */
	uint32_t started, running;
	uint64_t after; /* list: the id of the last row */
	bool cancelled, ended;
	bool replayed; /* from the record: nothing was done again */
	bool unheard;  /* the client is gone: told after part_again_with_room() */
	bool undone;   /* nothing of it was done, and it may be asked again */
	void (*more)(struct mail *mail, void *owner);
	struct dsec_wire_check check; /* gathered */
	struct status status;	      /* the worst of the part: decides the LAST */
	char detail[80];	      /* of that, where it is no static text */
	struct sandbox *sandbox;      /* exec: where */
	void *work;		      /* the op's own */
	struct part *next;	      /* an INPUT's: in its inlet */
	bool has_final;
	struct dsec_ring_event final; /* with its payload: goes into the LAST */
	char *final_payload;
};

struct request {
	struct dsec_ring_request entry; /* our copy */
	struct wire payload;		/* our copy, or the caller's until taken */
	struct channel *channel;
	struct shard *home;
	struct request *next, *previous; /* of the channel, newest first */
	struct part *parts, only;
	uint32_t part_count, parts_ended;
	uint32_t holds;		/* cancels and requests under way that name it */
	struct request *target; /* INPUT, CREDIT: the request they name, held */
	bool cancelled, late, detached;
	bool is_unbegun; /* its claim is asked of another shard */
	struct claim claim;
	struct timer deadline;
	/* decoded payloads that parts read */
	union {
		struct dsec_wire_create create;
		struct dsec_wire_exec exec;
		struct dsec_wire_select select;
		struct dsec_wire_change change;	  /* its select is the one above */
		struct dsec_wire_fetched fetched; /* likewise */
		struct dsec_wire_list list;
		struct dsec_wire_image image;
		struct dsec_wire_policy policy;
		struct dsec_wire_phase phase;
		struct dsec_wire_fork fork;
		struct dsec_wire_file file;
		struct dsec_wire_port port;
		struct dsec_wire_attach attach;
		struct dsec_wire_function function;
		struct dsec_wire_invoke invoke;
		struct dsec_wire_subscribe subscribe; /* its select is the one above */
	} body;
	uint64_t client; /* identity of the connection: for on_disconnect */
	struct tenant *tenant;
	bool is_own; /* its client is root, or has the engine's own uid */
};

/*
 * Take a checked copy of an entry and its payload (malloc'ed, owned from here on). Everything that
 * is wrong with it ends it with a LAST; there is no other way to fail.
 */
void request_begin(struct channel *channel, const struct dsec_ring_request *entry, char *payload);
/* There is room for one more of the channel's tenant on its shard. */
bool request_has_place(const struct channel *channel);
/*
 * How many may be in flight on a channel for one more to be taken. Beyond the limit only what ends
 * other requests or moves them on, or they would wait for each other: CANCEL and CREDIT are done at
 * once, the others may wait long themselves.
 */
static inline uint32_t requests_in_flight_max(uint16_t op, uint32_t requests_max)
{
	switch (op) {
	case DSEC_OP_CANCEL:
	case DSEC_OP_CREDIT:
		return 2 * requests_max;
	case DSEC_OP_INPUT:
	case DSEC_OP_SIGNAL:
	case DSEC_OP_RESIZE:
	case DSEC_OP_DESTROY:
		return requests_max + requests_max / 2;
	default:
		return requests_max;
	}
}
/*
 * The client went: events are dropped from here on, the work goes on; but not the making of
 * sandboxes that would end with the connection.
 */
void request_detach(struct request *request);
/* The channel has room for events again, or is closed. */
void requests_have_room(struct channel *channel);

/* For claims, at home: its parts are sent to their shards; it ends without them. */
void request_go(struct request *request);
void request_cancel_again(struct request *request);
void request_stand_alone(struct request *request);
void request_refuse(struct request *request, const struct status *status);
/* An event of an earlier request of this id; the other from its part. */
void request_repeat(struct request *request, const struct dsec_ring_event *event,
		    const char *payload);
void part_repeat(struct part *part, const struct dsec_ring_event *event, const char *payload);

/* Delivered at the request's home, behind all that the part emitted. */
void request_part_home(struct mail *mail, void *owner);

/*
 * From home: it begins on its shard, when it is its client's turn. `started`: what the parts before
 * it did, where they take turns.
 */
void part_send(struct part *part, uint32_t started);

/* ---- for the ops, on the part's shard ---- */

struct emission {
	uint16_t kind;
	uint16_t flags;
	struct dsec_wire_id subject;
	uint64_t exec, offset;
	uint16_t stream, index;
	const void *body; /* copied */
	uint32_t bytes;
	struct status status; /* not OK: its text is added to the payload */
};

/* As an event of the request; its status' text behind the body, for which there must be room. */
void emission_write(const struct request *request, const struct emission *e,
		    struct dsec_ring_event *ret, char *ret_payload);
/* Send one event of a part home. Never LAST: that follows from part_end(). */
void part_emit(struct part *part, const struct emission *e);
/* Go on in the next turn, so that no callback lasts: `more` gets part->mail. */
void part_again(struct part *part, void (*more)(struct mail *mail, void *owner));
/*
 * The same, and not before the client has room for what was emitted: for parts whose events are
 * many, so that they do not fill our memory.
 */
void part_again_with_room(struct part *part, void (*more)(struct mail *mail, void *owner));
/* The part is over; `final` (may be NULL) goes into the LAST if this is the only part. */
void part_end(struct part *part, const struct status *status, const struct emission *final);

/* The ops of request.c: about other requests of the channel. */
void nop_part(struct part *part);
void cancel_part(struct part *part);
void input_part(struct part *part);
void credit_part(struct part *part);

/* The ops, each in its own file. They end the part now or later. */
void create_part(struct part *part);
void create_part_cancel(struct part *part);
/* It was not built in time: told so, and quarantined. */
void create_overdue(struct sandbox *sandbox);
void destroy_part(struct part *part);
void exec_part(struct part *part);
void file_part(struct part *part);
void file_part_cancel(struct part *part);
void file_input(struct part *part, struct part *input);
int file_credit(struct part *part, uint32_t stream, uint64_t consumed);
void signal_part(struct part *part);
void resize_part(struct part *part);
void attach_part(struct part *part);
void list_part(struct part *part);
void port_part(struct part *part);
void port_part_cancel(struct part *part);
void image_part(struct part *part);
void image_part_cancel(struct part *part);
void image_input(struct part *part, struct part *input);
void subscribe_part(struct part *part);
void subscribe_cancel(struct part *part);
int subscribe_credit(struct part *part, uint32_t stream, uint64_t consumed);
void policy_part(struct part *part);
void phase_part(struct part *part);
void fork_part(struct part *part);
void fork_part_cancel(struct part *part);
void stats_part(struct part *part);
void change_part(struct part *part);
void fetched_part(struct part *part);
void inspect_part(struct part *part);
void function_part(struct part *part);
void invoke_part(struct part *part);
void invoke_part_cancel(struct part *part);
void check_part(struct part *part);
/* The gathered answer of all shards becomes the body of the LAST. */
void check_add(struct dsec_wire_check *sum, const struct dsec_wire_check *part);
/* What a tenant is not told of. */
void check_narrow(const struct request *request, struct dsec_wire_check *check);
void capabilities_part(struct part *part);
