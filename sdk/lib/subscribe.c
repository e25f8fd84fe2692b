/*
 * Subscriptions. dsec_subscribe() is called by applications; the rest while dispatching, under the
 * connection's lock. A subscription that is sent again goes on behind the last event that came, and
 * says of which engine that was: another one tells where it begins.
 */
#include <errno.h>
#include <stddef.h>
#include <string.h>

#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"
#include "sdk/lib/pack.h"
#include "sdk/lib/structs.h"

static int subscribe_pack(const struct dsec_subscribe_opts *opts, const struct dsec_select *select,
			  struct submission *submission)
{
	struct dsec_wire_subscribe wire = {
		.select = { .size = sizeof(wire),
			    .count = select->count,
			    .job = { select->job.hi, select->job.lo } },
		.topics = opts->topics,
		.flags = opts->flags,
		.from_seq = opts->from_seq,
		.epoch = opts->epoch,
		.window = submission->window_bytes,
	};
	struct pack pack;

	dsec__pack_begin(&pack, sizeof(wire));
	wire.select.ids =
		dsec__pack_bytes(&pack, select->ids, select->count * sizeof(*select->ids));
	wire.select.labels = dsec__pack_labels(&pack, select->labels, select->label_count);
	return dsec__pack_end(&pack, &wire, sizeof(wire), submission);
}

static uint32_t window_of(uint32_t wish)
{
	if (!wish)
		return DSEC_EVENTS_WINDOW_DEFAULT;
	return wish < DSEC_EVENTS_WINDOW_MAX ? wish : DSEC_EVENTS_WINDOW_MAX;
}

int64_t dsec_subscribe(struct dsec *d, const struct dsec_call *call,
		       const struct dsec_subscribe_opts *opts)
{
	struct submission submission = { .op = DSEC_OP_SUBSCRIBE };
	struct dsec_select select = { 0 };
	struct dsec_subscribe_opts known;
	struct dsec_call known_call;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r == 0)
		r = dsec__struct_take(&known, sizeof(known), opts, "subscribe");
	if (r == 0 && known.select)
		r = dsec__struct_take(&select, sizeof(select), known.select, "select");
	if (r < 0)
		return r;
	if (known.flags & ~(uint32_t)DSEC_SUBSCRIBE_SO_FAR)
		return dsec__fail(-EINVAL, "subscribe: unknown flags");
	if (known.reserved || select.reserved)
		return dsec__fail(-EINVAL, "subscribe: reserved is not 0");
	if (known.epoch && !known.from_seq)
		return dsec__fail(-EINVAL, "subscribe: epoch without from_seq");
	if (select.count && !select.ids)
		return dsec__fail(-EINVAL, "select: ids is NULL");
	submission.window_bytes = window_of(known.window);
	r = subscribe_pack(&known, &select, &submission);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}

void dsec__subscribed_event(struct ticket *ticket, const struct dsec_event *event)
{
	const struct dsec_news *news = event->body;
	const struct dsec_missed *missed = event->body;

	if (ticket->op != DSEC_OP_SUBSCRIBE)
		return;
	if (event->kind == DSEC_EV_STARTED)
		ticket->next_seq = event->offset;
	else if (event->kind == DSEC_EV_STATE && news)
		ticket->next_seq = news->seq + 1;
	else if (event->kind == DSEC_EV_GAP && missed)
		ticket->next_seq = missed->next_seq;
}

void dsec__subscription_resume(struct ticket *ticket)
{
	uint64_t where[2] = { ticket->next_seq, ticket->seq_epoch };

	_Static_assert(offsetof(struct dsec_wire_subscribe, epoch) ==
			       offsetof(struct dsec_wire_subscribe, from_seq) + sizeof(where[0]),
		       "one after the other");
	if (ticket->op == DSEC_OP_SUBSCRIBE && ticket->payload && ticket->next_seq)
		memcpy((char *)ticket->payload + offsetof(struct dsec_wire_subscribe, from_seq),
		       where, sizeof(where));
}
