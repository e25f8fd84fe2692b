/*
 * Subscriptions as callers of libdsec see them: bodies, credit for what was freed, and where one
 * goes on after a cut, with the engine that had it or another one.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "tests/unit/client_peer.h"

#define BOTH_TRANSPORTS(name)                                                                      \
	static void name(enum dsec_transport transport);                                           \
	Test(client_subscribe, name##_by_ring)                                                     \
	{                                                                                          \
		name(DSEC_TRANSPORT_RING);                                                         \
	}                                                                                          \
	Test(client_subscribe, name##_by_stream)                                                   \
	{                                                                                          \
		name(DSEC_TRANSPORT_STREAM);                                                       \
	}                                                                                          \
	static void name(enum dsec_transport transport)

enum { WAIT_MS = 10 * 1000, ASKED_MAX = 4, CREDITS_MAX = 16, EPOCH = 7 };

/* What the peer was asked, and what it answers with. */
struct engine {
	struct dsec_wire_subscribe asked[ASKED_MAX];
	uint32_t asked_count;
	uint64_t credits[CREDITS_MAX];
	uint32_t credit_count;
	uint64_t first_seq; /* of the first connection's events */
	uint32_t count;	    /* of events that a connection has */
	bool goes;	    /* after that, the first time */
	bool is_old, lies;
	struct dsec_ring_request request;
};

static void state_post(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		       uint64_t seq)
{
	struct engine *engine = peer->options.state;
	char label[] = { 4, 0, 0, 0, 't', 'a', 's', 'k', 1, 0, 0, 0, '7' };
	struct {
		struct dsec_wire_state state;
		char image[8];
		char labels[sizeof label + 3];
	} body = {
		.state = { .size = sizeof body.state,
			   .topic = DSEC_TOPIC_ENDED,
			   .seq = seq,
			   .time_ms = 1000 + seq,
			   .id = { 3, 9 },
			   .cause = DSEC_CAUSE_TTL,
			   .image = { sizeof body.state, 5 },
			   .labels = { sizeof body.state + 8, sizeof label, 2, 0 } },
		.image = "small",
	};
	struct dsec_ring_event event = peer_event(request, DSEC_EV_STATE, 0);

	memcpy(body.labels, label, sizeof label);
	if (engine->lies)
		body.state.labels.bytes = 1u << 20;
	event.offset = seq;
	event.subject = body.state.id;
	event.bytes = sizeof body;
	peer_post(peer, channel, &event, &body);
}

static void gap_post(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request)
{
	struct dsec_wire_missed missed = {
		.size = sizeof missed, .flags = DSEC_MISSED_RESET, .first_seq = 1, .next_seq = 1
	};
	struct dsec_ring_event event = peer_event(request, DSEC_EV_GAP, 0);

	event.offset = 1;
	event.bytes = sizeof missed;
	peer_post(peer, channel, &event, &missed);
}

static void subscription_serve(struct peer *peer, uint32_t channel,
			       const struct dsec_ring_request *request)
{
	struct engine *engine = peer->options.state;
	bool first = !peer->connection;
	struct dsec_ring_event started = peer_event(request, DSEC_EV_STARTED, 0);
	uint64_t seq = first ? engine->first_seq : engine->asked[engine->asked_count - 1].from_seq;

	if (peer->layout.epoch != EPOCH)
		seq = 1;
	started.offset = seq;
	peer_post(peer, channel, &started, NULL);
	if (peer->layout.epoch != EPOCH)
		gap_post(peer, channel, request);
	/* Every other number is somebody else's. */
	for (uint32_t n = 0; n < engine->count; n++)
		state_post(peer, channel, request, seq + 2ull * n);
	if (first && engine->goes)
		peer_hang_up(peer);
}

static void serve(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		  const void *payload)
{
	struct engine *engine = peer->options.state;
	struct dsec_ring_event last = peer_event(request, DSEC_EV_DONE, DSEC_EVENT_LAST);

	if (request->op == DSEC_OP_CREDIT) {
		if (request->number[1] == 0 && engine->credit_count < CREDITS_MAX)
			engine->credits[engine->credit_count++] = request->number[2];
		peer_done(peer, channel, request);
	} else if (request->op == DSEC_OP_CANCEL) {
		peer_done(peer, channel, &engine->request);
		peer_done(peer, channel, request);
	} else if (request->op == DSEC_OP_SUBSCRIBE && engine->is_old) {
		last.code = DSEC_UNSUPPORTED;
		peer_post(peer, channel, &last, NULL);
	} else if (request->op == DSEC_OP_SUBSCRIBE) {
		engine->request = *request;
		if (engine->asked_count < ASKED_MAX)
			memcpy(&engine->asked[engine->asked_count++], payload,
			       sizeof engine->asked[0]);
		subscription_serve(peer, channel, request);
	} else {
		peer_done(peer, channel, request);
	}
}

static struct peer *peer_for(enum dsec_transport transport, struct engine *engine,
			     void (*welcome)(struct peer *peer, struct dsec_ring_welcome *w))
{
	struct peer_options options = {
		.serve = serve,
		.welcome = welcome,
		.state = engine,
		.connections = 2,
		.epoch = EPOCH,
	};

	return peer_start(transport, &options);
}

static int64_t subscribe(struct dsec *d, uint32_t window)
{
	struct dsec_label label = { { "task", 4 }, { "7", 1 } };
	struct dsec_select select = { .size = sizeof select, .labels = &label, .label_count = 1 };
	struct dsec_subscribe_opts opts = { .size = sizeof opts,
					    .select = &select,
					    .topics = 1ull << DSEC_TOPIC_ENDED,
					    .window = window };
	int64_t ticket = dsec_subscribe(d, NULL, &opts);

	cr_assert_geq(ticket, 0);
	return ticket;
}

static struct dsec_event *next(struct dsec *d, int64_t ticket, uint16_t kind)
{
	struct dsec_event *event;

	cr_assert_eq(dsec_wait(d, ticket, WAIT_MS, &event), 0);
	cr_assert_eq(event->kind, kind);
	return event;
}

static uint64_t seq_next(struct dsec *d, int64_t ticket)
{
	struct dsec_event *event = next(d, ticket, DSEC_EV_STATE);
	uint64_t seq = ((const struct dsec_news *)event->body)->seq;

	dsec_event_free(event);
	return seq;
}

BOTH_TRANSPORTS(an_event_has_its_number_its_engine_and_its_labels)
{
	struct engine engine = { .first_seq = 40, .count = 1 };
	struct peer *peer = peer_for(transport, &engine, NULL);
	struct dsec *d = peer_connect(peer, 0);
	int64_t ticket = subscribe(d, 0);
	struct dsec_event *event = next(d, ticket, DSEC_EV_STARTED);
	const struct dsec_news *news;

	cr_expect_eq(event->offset, 40);
	dsec_event_free(event);
	event = next(d, ticket, DSEC_EV_STATE);
	news = event->body;
	cr_assert(news);
	cr_expect_eq(event->subject.lo, 9);
	cr_expect(news->seq == 40 && news->epoch == EPOCH && news->time_ms == 1040);
	cr_expect(news->topic == DSEC_TOPIC_ENDED && news->cause == DSEC_CAUSE_TTL);
	cr_expect(news->image.bytes == 5 && !memcmp(news->image.data, "small", 5));
	cr_assert_eq(news->label_count, 1);
	cr_expect(news->labels[0].key.bytes == 4 && news->labels[0].value.bytes == 1);
	dsec_event_free(event);
	cr_expect_eq(engine.asked[0].topics, 1ull << DSEC_TOPIC_ENDED);
	cr_expect_eq(engine.asked[0].window, DSEC_EVENTS_WINDOW_DEFAULT);
	cr_expect_eq(engine.asked[0].select.labels.count, 2);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(what_was_freed_is_told_by_half_windows)
{
	struct engine engine = { .first_seq = 1, .count = 8 };
	struct peer *peer = peer_for(transport, &engine, NULL);
	struct dsec *d = peer_connect(peer, 0);
	int64_t ticket = subscribe(d, 8);
	struct dsec_event *held;

	dsec_event_free(next(d, ticket, DSEC_EV_STARTED));
	for (uint64_t n = 0; n < 7; n++)
		cr_expect_eq(seq_next(d, ticket), 1 + 2 * n);
	held = next(d, ticket, DSEC_EV_STATE);
	/* Whatever is answered now was asked after the credit. */
	dsec_event_free(next(d, dsec_check(d, NULL), DSEC_EV_DONE));
	cr_assert_eq(engine.credit_count, 1);
	cr_expect_eq(engine.credits[0], 4);
	dsec_event_free(held);
	dsec_event_free(next(d, dsec_check(d, NULL), DSEC_EV_DONE));
	cr_assert_eq(engine.credit_count, 2);
	cr_expect_eq(engine.credits[1], 8);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(after_a_cut_it_goes_on_behind_the_last_and_counts_anew)
{
	struct engine engine = { .first_seq = 11, .count = 4, .goes = true };
	struct peer *peer = peer_for(transport, &engine, NULL);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	int64_t ticket = subscribe(d, 4);

	dsec_event_free(next(d, ticket, DSEC_EV_STARTED));
	/* No second STARTED, and no number twice: 11, 13, 15, 17, then from 18 on. */
	for (uint64_t n = 0; n < 4; n++)
		cr_expect_eq(seq_next(d, ticket), 11 + 2 * n);
	for (uint64_t n = 0; n < 4; n++)
		cr_expect_eq(seq_next(d, ticket), 18 + 2 * n);
	dsec_event_free(next(d, dsec_check(d, NULL), DSEC_EV_DONE));
	cr_assert_eq(engine.asked_count, 2);
	cr_expect(engine.asked[1].from_seq == 18 && engine.asked[1].epoch == EPOCH);
	/* Of the second connection's four events, by two. */
	cr_assert_geq(engine.credit_count, 2);
	cr_expect_eq(engine.credits[engine.credit_count - 2], 2);
	cr_expect_eq(engine.credits[engine.credit_count - 1], 4);
	dsec_close(d);
	peer_stop(peer);
}

static void another_engine(struct peer *peer, struct dsec_ring_welcome *welcome)
{
	if (peer->connection)
		welcome->epoch = EPOCH + 1;
	peer->layout.epoch = welcome->epoch;
}

BOTH_TRANSPORTS(another_engine_is_told_whose_number_it_is)
{
	struct engine engine = { .first_seq = 50, .count = 1, .goes = true };
	struct peer *peer = peer_for(transport, &engine, another_engine);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	int64_t ticket = subscribe(d, 0);
	const struct dsec_missed *missed;
	struct dsec_event *event;

	dsec_event_free(next(d, ticket, DSEC_EV_STARTED));
	cr_expect_eq(seq_next(d, ticket), 50);
	event = next(d, ticket, DSEC_EV_GAP);
	missed = event->body;
	cr_assert(missed);
	cr_expect(missed->flags & DSEC_MISSED_RESET);
	cr_expect_eq(missed->epoch, EPOCH + 1);
	dsec_event_free(event);
	cr_expect_eq(seq_next(d, ticket), 1);
	cr_expect(engine.asked[1].from_seq == 51 && engine.asked[1].epoch == EPOCH);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(an_older_engine_says_that_it_cannot)
{
	struct engine engine = { .is_old = true };
	struct peer *peer = peer_for(transport, &engine, NULL);
	struct dsec *d = peer_connect(peer, 0);
	struct dsec_event *event = next(d, subscribe(d, 0), DSEC_EV_DONE);

	cr_expect(event->flags & DSEC_LAST);
	cr_expect_eq(event->status.code, DSEC_UNSUPPORTED);
	dsec_event_free(event);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(a_body_that_lies_ends_the_connection)
{
	struct engine engine = { .first_seq = 1, .count = 1, .lies = true };
	struct peer *peer = peer_for(transport, &engine, NULL);
	struct dsec *d = peer_connect(peer, 0);
	int64_t ticket = subscribe(d, 0);
	struct dsec_event *event;

	dsec_event_free(next(d, ticket, DSEC_EV_STARTED));
	event = next(d, ticket, DSEC_EV_DONE);
	cr_expect_eq(event->status.code, DSEC_LOST);
	cr_expect_eq(event->status.error, EPROTO);
	dsec_event_free(event);
	dsec_close(d);
	peer_stop(peer);
}

Test(client_subscribe, what_makes_no_sense_is_refused_before_it_is_sent)
{
	struct engine engine = { 0 };
	struct peer *peer = peer_for(DSEC_TRANSPORT_RING, &engine, NULL);
	struct dsec *d = peer_connect(peer, 0);
	struct dsec_subscribe_opts flags = { .size = sizeof flags, .flags = 2 };
	struct dsec_subscribe_opts reserved = { .size = sizeof reserved, .reserved = 1 };
	struct dsec_subscribe_opts epoch = { .size = sizeof epoch, .epoch = 1 };
	struct dsec_select none = { .size = sizeof none, .count = 1 };
	struct dsec_subscribe_opts ids = { .size = sizeof ids, .select = &none };

	cr_expect_eq(dsec_subscribe(d, NULL, NULL), -EINVAL);
	cr_expect_eq(dsec_subscribe(d, NULL, &flags), -EINVAL);
	cr_expect_eq(dsec_subscribe(d, NULL, &reserved), -EINVAL);
	cr_expect_eq(dsec_subscribe(d, NULL, &epoch), -EINVAL);
	cr_expect_eq(dsec_subscribe(d, NULL, &ids), -EINVAL);
	cr_expect_eq(engine.asked_count, 0);
	dsec_close(d);
	peer_stop(peer);
}
