/* Events as callers see them, and output that is collected until an exec's result. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dsec/dsec.h>
#include <dsec/ring.h>

struct ticket;

struct captured {
	unsigned char *head, *tail;
	size_t head_bytes, tail_bytes;
	bool cut; /* the engine sent more than was asked for */
};

/* What an exec with DSEC_EXEC_CAPTURE wrote so far: [0] stdout, [1] stderr. */
struct capture {
	uint64_t head_bytes_max, tail_bytes_max;
	struct captured streams[2];
};

union event_body {
	struct dsec_created created;
	struct dsec_result result;
	struct dsec_row row;
	struct dsec_exec_row exec_row;
	struct dsec_usage usage;
	struct dsec_inspected inspected;
	struct dsec_holdings holdings;
	struct dsec_caps caps;
	struct dsec_file_row file_row;
	struct dsec_image_row image_row;
	struct dsec_policy_row policy_row;
	struct dsec_phased phased;
	struct dsec_forked forked;
	struct dsec_progress progress;
	struct dsec_file_result file_result;
	struct dsec_forward forward;
	struct dsec_function_row function_row;
	struct dsec_called called;
	struct dsec_news news;
	struct dsec_missed missed;
};

struct event {
	struct dsec_event seen; /* first: callers hold a pointer to it */
	struct dsec *d;		/* NULL for the last of a ticket: it needs no connection */
	struct event *next;
	uint64_t ordinal; /* of a subscription's: its place among them, from 1 */
	struct capture *capture;
	struct dsec_label *labels;
	struct dsec_bytes *items;
	struct dsec_output outputs[2];
	union event_body body;
	unsigned char payload[];
};

/*
 * Copies the payload first, then checks and translates the copy. -EPROTO: it makes no sense;
 * -ENOMEM. The event takes the ticket's capture over if it is an exec's last.
 */
int dsec__event_new(struct ticket *ticket, const struct dsec_ring_event *wire, const void *payload,
		    struct event **ret);

/* ---- body.c ---- */

struct payload {
	const unsigned char *data;
	size_t bytes; /* of the body, without the status */
};

/* The body by what was asked and what came. 1: there is one; 0: bytes only; -EPROTO, -ENOMEM. */
int dsec__body_take(struct event *event, const struct ticket *ticket, struct payload payload);

/* ---- capture.c ---- */

/* Adds a DATA event's bytes to the capture. -EPROTO, -ENOMEM. */
int dsec__capture_add(struct capture *capture, const struct dsec_ring_event *wire,
		      const void *payload);
/* The same of an exec whose output comes as streams: DATA and GAP. */
int dsec__capture_follow(struct capture *capture, const struct dsec_ring_event *wire,
			 const void *payload);
/* What is there of stdout (0) or stderr (1): into head, tail and truncated. */
void dsec__capture_show(const struct capture *capture, unsigned int which, struct dsec_output *ret);
/* Nothing came so far. */
void dsec__capture_clear(struct capture *capture);
void dsec__capture_free(struct capture *capture);

static inline bool dsec__event_is_stream(const struct dsec_event *event)
{
	return event->kind == DSEC_EV_DATA || event->kind == DSEC_EV_GAP;
}

/* Frees memory only: no connection is told. */
void dsec__event_discard(struct event *event);
