/*
 * Makes an event for the caller out of one from the engine. Called while dispatching, under the
 * connection's lock; dsec__event_discard() from anywhere.
 *
 * The payload may lie in memory that the engine still writes: it is copied once, and only the copy
 * is looked at. Every size and offset in it is checked against the copy's own size.
 */
#include "sdk/lib/event.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/lib/connection.h"

_Static_assert(sizeof(struct dsec_status) == sizeof(struct dsec_wire_status), "");

/* The exact index out of its low 16 bits: the one nearest to how many there were. */
static uint32_t index_extend(struct ticket *ticket, uint16_t low)
{
	uint32_t near = ticket->indexes;
	uint32_t index = (near & ~0xffffu) | low;

	if (index + 0x8000 < near)
		index += 0x10000;
	else if (index >= near + 0x8000 && index >= 0x10000)
		index -= 0x10000;
	ticket->indexes++;
	return index;
}

static int status_take(struct event *event, const struct dsec_ring_event *wire,
		       struct payload *payload)
{
	struct dsec_status *status = &event->seen.status;

	if (wire->flags & DSEC_EVENT_STATUS) {
		if (payload->bytes < sizeof(*status))
			return -EPROTO;
		payload->bytes -= sizeof(*status);
		memcpy(status, payload->data + payload->bytes, sizeof(*status));
		status->step[sizeof(status->step) - 1] = '\0';
		status->detail[sizeof(status->detail) - 1] = '\0';
	}
	status->code = wire->code;
	status->blame = wire->blame;
	status->error = wire->error;
	return 0;
}

/* How many bytes are missing, instead of bytes. */
static int gap_take(struct dsec_event *seen, struct payload payload)
{
	if (payload.bytes < sizeof(seen->bytes))
		return -EPROTO;
	memcpy(&seen->bytes, payload.data, sizeof(seen->bytes));
	return 0;
}

static int event_fill(struct event *event, struct ticket *ticket,
		      const struct dsec_ring_event *wire)
{
	struct payload payload = { event->payload, wire->bytes };
	struct dsec_event *seen = &event->seen;
	int r;

	*seen = (struct dsec_event){
		.size = sizeof(*seen),
		.kind = wire->kind,
		.flags = wire->flags & (DSEC_LAST | DSEC_REPLAYED | DSEC_UNPOLICED),
		.ticket = ticket->name,
		.tag = ticket->tag,
		.subject = { wire->subject.hi, wire->subject.lo },
		.exec = wire->exec,
		.stream = wire->stream,
		.offset = wire->offset,
	};
	if (wire->kind == DSEC_EV_CREATED || wire->kind == DSEC_EV_ROW)
		seen->index = index_extend(ticket, wire->index);
	else if (ticket->op == DSEC_OP_INVOKE)
		seen->index = wire->index; /* so many inputs there are not */
	r = status_take(event, wire, &payload);
	if (r < 0 || !payload.bytes)
		return r;
	if (seen->kind == DSEC_EV_GAP && ticket->op != DSEC_OP_SUBSCRIBE)
		return gap_take(seen, payload);
	r = dsec__body_take(event, ticket, payload);
	if (r > 0) {
		seen->body = &event->body;
		return 0;
	}
	seen->data = payload.data;
	seen->bytes = payload.bytes;
	return r;
}

int dsec__event_new(struct ticket *ticket, const struct dsec_ring_event *wire, const void *payload,
		    struct event **ret)
{
	struct event *event;
	int r;

	event = malloc(sizeof(*event) + wire->bytes);
	if (!event)
		return -ENOMEM;
	memset(event, 0, sizeof(*event));
	if (wire->bytes)
		memcpy(event->payload, payload, wire->bytes);
	if (wire->flags & DSEC_EVENT_LAST) {
		event->capture = ticket->capture;
		ticket->capture = NULL;
	}
	r = event_fill(event, ticket, wire);
	if (r < 0) {
		dsec__event_discard(event);
		return r;
	}
	*ret = event;
	return 0;
}

void dsec__event_discard(struct event *event)
{
	if (!event)
		return;
	dsec__capture_free(event->capture);
	free(event->labels);
	free(event->items);
	free(event);
}
