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
