/* Streams of requests: input, and credit for what was consumed, against a peer in a thread. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/client_peer.h"

#define BOTH_TRANSPORTS(name)                                                                      \
	static void name(enum dsec_transport transport);                                           \
	Test(client_streams, name##_by_ring)                                                       \
	{                                                                                          \
		name(DSEC_TRANSPORT_RING);                                                         \
	}                                                                                          \
	Test(client_streams, name##_by_stream)                                                     \
	{                                                                                          \
		name(DSEC_TRANSPORT_STREAM);                                                       \
	}                                                                                          \
	static void name(enum dsec_transport transport)

static const struct dsec_id sandbox = { 3, 9 };

static int64_t exec_start(struct dsec *d, uint32_t flags)
{
	struct dsec_bytes argv[] = { { "/bin/cat", 8 } };
	struct dsec_exec_opts opts = {
		.size = sizeof(opts), .flags = flags, .argv = argv, .argc = 1
	};

	return dsec_exec(d, NULL, sandbox, &opts);
}

static void wait_last(struct dsec *d, int64_t ticket, uint32_t code)
{
	struct dsec_event *event;

	cr_assert_eq(dsec_wait(d, ticket, 5000, &event), 0);
	cr_assert(event->flags & DSEC_LAST);
	cr_assert_eq(event->status.code, code);
	dsec_event_free(event);
}

/* ---- input ---- */

struct inputs {
	struct dsec_ring_request exec;
	uint32_t exec_channel;
	uint64_t bytes;
	char seen[64];
};

/* As an engine: takes what comes in order, ends the exec at the end of its input. */
static void serve_input(struct peer *peer, uint32_t channel,
			const struct dsec_ring_request *request, const void *payload)
{
	struct inputs *inputs = peer->options.state;
	struct dsec_ring_event event;

	if (request->op == DSEC_OP_EXEC) {
		inputs->exec = *request;
		inputs->exec_channel = channel;
		return;
	}
	cr_assert_eq(request->op, DSEC_OP_INPUT);
	cr_assert_eq(channel, inputs->exec_channel);
	cr_assert_eq(request->number[0], inputs->exec.ticket);
	event = peer_event(request, DSEC_EV_DONE, DSEC_EVENT_LAST);
	if (request->offset != inputs->bytes)
		event.code = DSEC_INVALID;
	peer_post(peer, channel, &event, NULL);
	if (event.code)
		return;
	if (request->payload_bytes)
		memcpy(inputs->seen + inputs->bytes, payload, request->payload_bytes);
	inputs->bytes += request->payload_bytes;
	if (!request->payload_bytes)
		peer_done(peer, inputs->exec_channel, &inputs->exec);
}

BOTH_TRANSPORTS(input_goes_to_the_request_it_names_with_its_offset)
{
	struct inputs inputs = { 0 };
	struct peer *peer = peer_start(transport, &(struct peer_options){ .serve = serve_input,
									  .state = &inputs });
	struct dsec *d = peer_connect(peer, 0);
	int64_t exec = exec_start(d, 0);

	cr_assert_geq(exec, 0);
	wait_last(d, dsec_input(d, NULL, exec, 0, (struct dsec_bytes){ "abc", 3 }), DSEC_OK);
	wait_last(d, dsec_input(d, NULL, exec, 3, (struct dsec_bytes){ "de", 2 }), DSEC_OK);
	wait_last(d, dsec_input(d, NULL, exec, 9, (struct dsec_bytes){ "x", 1 }), DSEC_INVALID);
	wait_last(d, dsec_input(d, NULL, exec, 5, (struct dsec_bytes){ NULL, 0 }), DSEC_OK);
	wait_last(d, exec, DSEC_OK);
	cr_assert_str_eq(inputs.seen, "abcde");
	cr_assert_eq(dsec_input(d, NULL, exec, 5, (struct dsec_bytes){ "f", 1 }), -ENOENT);
	dsec_close(d);
	peer_stop(peer);
}

Test(client_streams, input_that_cannot_be_is_refused_before_it_is_sent)
{
	static char big[(1 << 20) + 1];
	struct inputs inputs = { 0 };
	struct peer *peer =
		peer_start(DSEC_TRANSPORT_RING,
			   &(struct peer_options){ .serve = serve_input, .state = &inputs });
	struct dsec *d = peer_connect(peer, 0);
	int64_t exec = exec_start(d, 0);

	cr_assert_eq(dsec_input(d, NULL, exec, 0, (struct dsec_bytes){ NULL, 1 }), -EINVAL);
	cr_assert_eq(dsec_input(d, NULL, exec, 0, (struct dsec_bytes){ big, sizeof(big) }),
		     -EMSGSIZE);
	cr_assert_eq(dsec_input(d, NULL, exec + 1, 0, (struct dsec_bytes){ "x", 1 }), -ENOENT);
	cr_assert_eq(dsec_input(d, NULL, -1, 0, (struct dsec_bytes){ "x", 1 }), -ENOENT);
	cr_assert_eq(dsec_input(NULL, NULL, exec, 0, (struct dsec_bytes){ "x", 1 }), -EINVAL);
	dsec_close(d);
	peer_stop(peer);
}

/* ---- signals and sizes ---- */

static void serve_ask(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		      const void *payload)
{
	(void)payload;
	*(struct dsec_ring_request *)peer->options.state = *request;
	peer_done(peer, channel, request);
}

BOTH_TRANSPORTS(signals_and_sizes_name_their_exec)
{
	struct dsec_ring_request seen;
	struct peer *peer =
		peer_start(transport, &(struct peer_options){ .serve = serve_ask, .state = &seen });
	struct dsec *d = peer_connect(peer, 0);

	wait_last(d, dsec_signal(d, NULL, sandbox, 7, 15), DSEC_OK);
	cr_assert_eq(seen.op, DSEC_OP_SIGNAL);
	cr_assert(seen.subject.hi == sandbox.hi && seen.subject.lo == sandbox.lo);
	cr_assert_eq(seen.exec, 7);
	cr_assert(seen.number[0] == 15 && seen.number[1] == 0);
	wait_last(d, dsec_signal(d, NULL, sandbox, 8, 9 | DSEC_SIGNAL_ALL), DSEC_OK);
	cr_assert(seen.number[0] == 9 && seen.number[1] == DSEC_SIGNAL_ALL);
	wait_last(d, dsec_resize(d, NULL, sandbox, 9, 24u << 16 | 80), DSEC_OK);
	cr_assert_eq(seen.op, DSEC_OP_RESIZE);
	cr_assert_eq(seen.exec, 9);
	cr_assert(seen.number[0] == 24 && seen.number[1] == 80);
	dsec_close(d);
	peer_stop(peer);
}

Test(client_streams, what_is_no_signal_or_size_is_not_sent)
{
	struct dsec_ring_request seen;
	struct peer *peer = peer_start(
		DSEC_TRANSPORT_RING, &(struct peer_options){ .serve = serve_ask, .state = &seen });
	struct dsec *d = peer_connect(peer, 0);
	struct dsec_bytes argv[] = { { "/bin/cat", 8 } };
	struct dsec_exec_opts opts = { .size = sizeof(opts), .argv = argv, .argc = 1, .rows = 1 };

	cr_assert_eq(dsec_signal(d, NULL, sandbox, 1, 0), -EINVAL);
	cr_assert_eq(dsec_signal(d, NULL, sandbox, 1, -1), -EINVAL);
	cr_assert_eq(dsec_signal(d, NULL, sandbox, 1, 65), -EINVAL);
	cr_assert_eq(dsec_signal(d, NULL, sandbox, 1, 15 | 1 << 12), -EINVAL);
	cr_assert_eq(dsec_resize(d, NULL, sandbox, 1, 24), -EINVAL);
	cr_assert_eq(dsec_resize(d, NULL, sandbox, 1, 24u << 16), -EINVAL);
	cr_assert_eq(dsec_exec(d, NULL, sandbox, &opts), -EINVAL); /* rows without a terminal */
	opts.rows = 0;
	opts.rlimit_count = 17;
	cr_assert_eq(dsec_exec(d, NULL, sandbox, &opts), -EINVAL);
	opts.rlimit_count = 1; /* and no rlimits */
	cr_assert_eq(dsec_exec(d, NULL, sandbox, &opts), -EINVAL);
	dsec_close(d);
	peer_stop(peer);
}

/* ---- credit ---- */

enum { WINDOW = 1000, PIECE = 100, PIECES = 40 };

/* An engine that sends by credit: what came of it. */
struct credits {
	struct dsec_ring_request exec;
	uint64_t sent, consumed;
	uint32_t count;
	bool begun, too_much;
};

static void credits_send(struct peer *peer, struct credits *credits)
{
	char bytes[PIECE] = "";

	while (credits->sent < credits->consumed + WINDOW && credits->sent < PIECE * PIECES) {
		struct dsec_ring_event event = peer_event(&credits->exec, DSEC_EV_DATA, 0);

		event.stream = 1;
		event.offset = credits->sent;
		event.bytes = PIECE;
		peer_post(peer, 0, &event, bytes);
		credits->sent += PIECE;
	}
	if (credits->sent == PIECE * PIECES && credits->consumed + WINDOW >= credits->sent) {
		credits->sent++; /* once */
		peer_done(peer, 0, &credits->exec);
	}
}

static void serve_credits(struct peer *peer, uint32_t channel,
			  const struct dsec_ring_request *request, const void *payload)
{
	struct credits *credits = peer->options.state;

	(void)payload;
	(void)channel;
	if (request->op == DSEC_OP_EXEC && !credits->begun) {
		credits->exec = *request;
		credits->begun = true;
	} else if (request->op == DSEC_OP_EXEC) {
		return; /* under way for ever */
	} else if (request->op == DSEC_OP_CREDIT) {
		cr_assert_eq(request->number[0], credits->exec.ticket);
		cr_assert_eq(request->number[1], 1);
		cr_assert_gt(request->number[2], credits->consumed);
		credits->too_much |= request->number[2] > credits->sent;
		credits->consumed = request->number[2];
		credits->count++;
		peer_done(peer, channel, request);
	} else {
		peer_done(peer, channel, request);
		return;
	}
	credits_send(peer, credits);
}

static int64_t stream_start(struct dsec *d, uint64_t window_bytes)
{
	struct dsec_bytes argv[] = { { "/bin/yes", 8 } };
	struct dsec_exec_opts opts = { .size = sizeof(opts),
				       .flags = DSEC_EXEC_STREAM,
				       .argv = argv,
				       .argc = 1,
				       .window_bytes = window_bytes };

	return dsec_exec(d, NULL, sandbox, &opts);
}

BOTH_TRANSPORTS(freed_events_are_told_as_credit_and_kept_ones_are_not)
{
	struct credits credits = { 0 };
	struct peer *peer = peer_start(transport, &(struct peer_options){ .serve = serve_credits,
									  .state = &credits });
	struct dsec *d = peer_connect(peer, 0);
	int64_t exec = stream_start(d, WINDOW);
	struct dsec_event *kept[WINDOW / PIECE], *event;
	uint64_t bytes = 0;
	bool last = false;

	/* A window full, and no more while nothing of it is freed. */
	for (size_t at = 0; at < WINDOW / PIECE; at++)
		cr_assert_eq(dsec_wait(d, exec, 5000, &kept[at]), 0);
	cr_assert_eq(dsec_wait(d, exec, 100, &event), -ETIMEDOUT);
	cr_assert_eq(credits.count, 0);
	for (size_t at = 0; at < WINDOW / PIECE; at++) {
		bytes += kept[at]->bytes;
		dsec_event_free(kept[at]);
	}
	while (!last) {
		cr_assert_eq(dsec_wait(d, exec, 5000, &event), 0);
		last = event->flags & DSEC_LAST;
		cr_assert(last || event->offset == bytes);
		bytes += event->bytes;
		dsec_event_free(event);
	}
	cr_assert_eq(bytes, PIECE * PIECES);
	cr_assert_not(credits.too_much);
	/* Each half window, and not each event. */
	cr_assert_geq(credits.count, PIECE * PIECES / WINDOW - 1);
	cr_assert_leq(credits.count, 2 * PIECE * PIECES / WINDOW);
	dsec_close(d);
	peer_stop(peer);
}

/* While streams come no request waits in a ring before the credit that they wait for. */
BOTH_TRANSPORTS(a_full_channel_still_takes_credit)
{
	struct credits credits = { 0 };
	struct peer *peer =
		peer_start(transport, &(struct peer_options){ .serve = serve_credits,
							      .state = &credits,
							      .submission_entries = 4 });
	struct dsec *d = peer_connect(peer, 0);
	struct dsec_call call = { .size = sizeof(call) };
	struct dsec_bytes argv[] = { { "/bin/true", 9 } };
	struct dsec_exec_opts opts = { .size = sizeof(opts), .argv = argv, .argc = 1 };
	int64_t exec = stream_start(d, WINDOW), input;
	int refused = 0;

	cr_assert_eq(dsec_queue_new(d, &call.queue), 0);
	cr_assert_geq(exec, 0);
	for (int at = 0; at < 16; at++)
		refused += dsec_exec(d, &call, sandbox, &opts) == -EAGAIN;
	cr_assert_eq(refused, 13);
	/* As soon as the peer took something out of its ring of four. */
	do
		input = dsec_input(d, &call, exec, 0, (struct dsec_bytes){ "x", 1 });
	while (input == -EAGAIN);
	cr_assert_geq(input, 0);
	dsec_close(d);
	peer_stop(peer);
}
