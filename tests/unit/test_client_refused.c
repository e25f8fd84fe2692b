/*
 * What libdsec does with a refusal: asks again, under the same id, as long as the call has time.
 */
#include <assert.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/unit/client_peer.h"

#define BOTH_TRANSPORTS(name)                                                                      \
	static void name(enum dsec_transport transport);                                           \
	Test(client_refused, name##_by_ring)                                                       \
	{                                                                                          \
		name(DSEC_TRANSPORT_RING);                                                         \
	}                                                                                          \
	Test(client_refused, name##_by_stream)                                                     \
	{                                                                                          \
		name(DSEC_TRANSPORT_STREAM);                                                       \
	}                                                                                          \
	static void name(enum dsec_transport transport)

enum { WAIT_MS = 10 * 1000, LONG_MS = 60 * 1000, ASKED_MAX = 64, PAYLOAD_BYTES_MAX = 256 };

static const struct dsec_id sandbox = { 3, 2ull << 52 | 9 };

/* What a peer got, and what it is to do. */
struct desk {
	struct dsec_ring_request asked[ASKED_MAX];
	char payloads[ASKED_MAX][PAYLOAD_BYTES_MAX];
	uint32_t count; /* atomic */
	uint32_t refusals, retry_after_ms;
	uint32_t made; /* of a create that is refused: so many are told as made before */
	bool hangs_up; /* after the first refusal */
};

static void refuse(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		   uint16_t index)
{
	const struct desk *desk = peer->options.state;
	struct dsec_wire_status status = { .retry_after_ms = desk->retry_after_ms,
					   .blame = DSEC_BLAME_CALLER,
					   .step = "sandboxes_max",
					   .detail = "9 of 9" };
	struct dsec_ring_event event = peer_event(request, DSEC_EV_CREATED, DSEC_EVENT_STATUS);

	event.code = DSEC_REFUSED;
	event.blame = DSEC_BLAME_CALLER;
	event.bytes = sizeof(status);
	event.index = index;
	if (request->op == DSEC_OP_CREATE) { /* each says what became of it: the whole is well */
		peer_post(peer, channel, &event, &status);
		peer_done(peer, channel, request);
		return;
	}
	event.kind = DSEC_EV_DONE;
	event.flags |= DSEC_EVENT_LAST;
	peer_post(peer, channel, &event, &status);
}

static void created(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		    uint16_t index)
{
	const struct dsec_wire_created body = { .size = sizeof(body) };
	struct dsec_ring_event event = peer_event(request, DSEC_EV_CREATED, 0);

	event.subject.lo = 7;
	event.index = index;
	event.bytes = sizeof(body);
	peer_post(peer, channel, &event, &body);
}

static void serve(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		  const void *payload)
{
	struct desk *desk = peer->options.state;
	uint32_t at = desk->count;

	assert(at < ASKED_MAX);
	assert(request->payload_bytes <= PAYLOAD_BYTES_MAX);
	desk->asked[at] = *request;
	if (request->payload_bytes)
		memcpy(desk->payloads[at], payload, request->payload_bytes);
	__atomic_store_n(&desk->count, at + 1, __ATOMIC_RELEASE);
	if (at >= desk->refusals) {
		if (request->op == DSEC_OP_CREATE)
			created(peer, channel, request, 0);
		peer_done(peer, channel, request);
		return;
	}
	for (uint32_t made = 0; made < desk->made; made++)
		created(peer, channel, request, (uint16_t)made);
	refuse(peer, channel, request, (uint16_t)desk->made);
	if (desk->hangs_up && at == 0)
		peer_hang_up(peer);
}

static struct peer *peer_open_for(enum dsec_transport transport, struct desk *desk,
				  uint32_t connections)
{
	const struct peer_options options = { .serve = serve,
					      .state = desk,
					      .connections = connections };

	return peer_start(transport, &options);
}

static struct peer *peer_open(enum dsec_transport transport, struct desk *desk)
{
	return peer_open_for(transport, desk, desk->hangs_up ? 2 : 1);
}

static int64_t exec_ask(struct dsec *d, const struct dsec_call *call)
{
	struct dsec_bytes argv[] = { { "/bin/true", 9 } };
	struct dsec_exec_opts opts = { .size = sizeof(opts), .argv = argv, .argc = 1 };

	return dsec_exec(d, call, sandbox, &opts);
}

static int64_t create_ask(struct dsec *d, const struct dsec_call *call, uint32_t count)
{
	const struct dsec_create_opts opts = { .size = sizeof(opts),
					       .image = "debian",
					       .count = count };

	return dsec_create(d, call, &opts);
}

static int64_t now_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* What came before the last event, and that: its code. */
struct told {
	uint32_t created, refused;
	struct dsec_status last;
};

static struct told told_await(struct dsec *d, int64_t ticket)
{
	struct told told = { 0 };
	struct dsec_event *event;
	bool last = false;

	cr_assert_geq(ticket, 0);
	while (!last) {
		cr_assert_eq(dsec_wait(d, ticket, WAIT_MS, &event), 0);
		last = event->flags & DSEC_LAST;
		if (last)
			told.last = event->status;
		else if (event->status.code == DSEC_OK)
			told.created++;
		else
			told.refused++;
		dsec_event_free(event);
	}
	cr_assert_eq(dsec_wait(d, ticket, 0, &event), -ENOENT, "it was the last");
	return told;
}

BOTH_TRANSPORTS(it_is_asked_again_as_it_was_until_there_is_room)
{
	struct desk desk = { .refusals = 5, .retry_after_ms = 4 };
	struct peer *peer = peer_open(transport, &desk);
	struct dsec *d = peer_connect(peer, 1);
	const struct dsec_call call = { .size = sizeof(call), .timeout_ms = LONG_MS };
	int64_t begun = now_ms();
	struct told told = told_await(d, exec_ask(d, &call));

	cr_expect_eq(told.last.code, DSEC_OK);
	cr_assert_eq(desk.count, 6);
	cr_expect_geq(now_ms() - begun, 5 * 4, "never before the engine said");
	for (uint32_t at = 1; at < desk.count; at++) {
		cr_expect_arr_eq(desk.asked[at].request_id, desk.asked[0].request_id, 16);
		cr_expect_arr_eq(desk.payloads[at], desk.payloads[0], PAYLOAD_BYTES_MAX);
		cr_expect_leq(desk.asked[at].timeout_ms, desk.asked[at - 1].timeout_ms);
	}
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(the_refusal_is_the_result_when_there_is_no_time_to_ask_again)
{
	struct desk desk = { .refusals = ASKED_MAX, .retry_after_ms = 40 };
	struct peer *peer = peer_open(transport, &desk);
	struct dsec *d = peer_connect(peer, 1);
	const struct dsec_call call = { .size = sizeof(call), .timeout_ms = 100 };
	struct told told = told_await(d, exec_ask(d, &call));

	cr_expect_eq(told.last.code, DSEC_REFUSED);
	cr_expect_eq(told.last.retry_after_ms, 40);
	cr_expect_str_eq(told.last.step, "sandboxes_max");
	cr_expect_leq(desk.count, 3);
	dsec_close(d);
	peer_stop(peer);
}

/* The engine goes before it can be asked again, and does not come back in time. */
BOTH_TRANSPORTS(one_whose_time_passes_unsent_still_says_which_limit_refused_it)
{
	struct desk desk = { .refusals = ASKED_MAX, .retry_after_ms = 30, .hangs_up = true };
	struct peer *peer = peer_open_for(transport, &desk, 1);
	struct dsec *d = peer_connect_for(peer, 1, LONG_MS);
	const struct dsec_call call = { .size = sizeof(call), .timeout_ms = 400 };
	struct told told = told_await(d, exec_ask(d, &call));

	cr_expect_eq(told.last.code, DSEC_REFUSED);
	cr_expect_eq(told.last.blame, DSEC_BLAME_CALLER);
	cr_expect_str_eq(told.last.step, "sandboxes_max");
	cr_expect_eq(told.last.retry_after_ms, 30);
	cr_expect_str_eq(told.last.detail, "no time to ask again: sandboxes_max: 9 of 9");
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(without_a_time_or_asked_once_it_is_told_at_once)
{
	struct desk desk = { .refusals = 2, .retry_after_ms = 1 };
	struct peer *peer = peer_open(transport, &desk);
	struct dsec *d = peer_connect(peer, 1);
	const struct dsec_call once = { .size = sizeof(once),
					.timeout_ms = LONG_MS,
					.flags = DSEC_CALL_ONCE };
	const struct dsec_call unknown = { .size = sizeof(unknown), .flags = 2 };

	cr_expect_eq(told_await(d, exec_ask(d, NULL)).last.code, DSEC_REFUSED);
	cr_expect_eq(told_await(d, exec_ask(d, &once)).last.code, DSEC_REFUSED);
	cr_expect_eq(desk.count, 2);
	cr_expect_eq(exec_ask(d, &unknown), -EINVAL);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(a_create_tells_of_refusals_only_when_they_stay)
{
	struct desk desk = { .refusals = 3, .retry_after_ms = 1 };
	struct peer *peer = peer_open(transport, &desk);
	struct dsec *d = peer_connect(peer, 1);
	const struct dsec_call call = { .size = sizeof(call), .timeout_ms = LONG_MS };
	struct told told = told_await(d, create_ask(d, &call, 1));

	cr_expect_eq(told.last.code, DSEC_OK);
	cr_expect_eq(told.created, 1);
	cr_expect_eq(told.refused, 0);
	cr_expect_eq(desk.count, 4);
	desk.refusals = ASKED_MAX;
	told = told_await(d, create_ask(d, NULL, 1));
	cr_expect_eq(told.last.code, DSEC_OK);
	cr_expect_eq(told.refused, 1);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(a_create_of_which_some_were_made_is_not_asked_again)
{
	struct desk desk = { .refusals = ASKED_MAX, .retry_after_ms = 1, .made = 2 };
	struct peer *peer = peer_open(transport, &desk);
	struct dsec *d = peer_connect(peer, 1);
	const struct dsec_call call = { .size = sizeof(call), .timeout_ms = LONG_MS };
	struct told told = told_await(d, create_ask(d, &call, 3));

	cr_expect_eq(told.last.code, DSEC_OK);
	cr_expect_eq(told.created, 2);
	cr_expect_eq(told.refused, 1);
	cr_expect_eq(desk.count, 1);
	dsec_close(d);
	peer_stop(peer);
}

static void first_await(const struct desk *desk)
{
	const struct timespec moment = { .tv_nsec = 1000000 };

	for (int wait = 0; wait < WAIT_MS && !__atomic_load_n(&desk->count, __ATOMIC_ACQUIRE);
	     wait++)
		(void)nanosleep(&moment, NULL);
	cr_assert_eq(desk->count, 1);
}

BOTH_TRANSPORTS(a_cancel_while_it_waits_ends_it_at_once_as_cancelled)
{
	struct desk desk = { .refusals = ASKED_MAX, .retry_after_ms = LONG_MS / 4 };
	struct peer *peer = peer_open(transport, &desk);
	struct dsec *d = peer_connect(peer, 1);
	const struct dsec_call call = { .size = sizeof(call), .timeout_ms = LONG_MS };
	int64_t ticket = exec_ask(d, &call);
	struct dsec_event *event;
	struct told told;

	first_await(&desk);
	cr_assert_eq(dsec_wait(d, ticket, 20, &event), -ETIMEDOUT);
	cr_assert_eq(dsec_cancel(d, ticket), 0);
	told = told_await(d, ticket);
	cr_expect_eq(told.last.code, DSEC_CANCELLED);
	cr_expect_eq(told.last.blame, DSEC_BLAME_CALLER);
	cr_expect_eq(desk.count, 1);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(who_waits_on_a_descriptor_is_woken_to_ask_again)
{
	struct desk desk = { .refusals = 4, .retry_after_ms = 5 };
	struct peer *peer = peer_open(transport, &desk);
	struct dsec *d = peer_connect(peer, 1);
	struct dsec_call call = { .size = sizeof(call), .timeout_ms = LONG_MS };
	struct pollfd fd = { .events = POLLIN };
	struct dsec_event *event = NULL;

	cr_assert_eq(dsec_queue_new(d, &call.queue), 0);
	fd.fd = dsec_queue_fd(call.queue);
	cr_assert_geq(exec_ask(d, &call), 0);
	while (!event) {
		cr_assert_eq(poll(&fd, 1, WAIT_MS), 1);
		cr_assert_geq(dsec_queue_poll(call.queue, &event, 1, 0), 0);
	}
	cr_expect_eq(event->status.code, DSEC_OK);
	cr_expect_eq(desk.count, 5);
	dsec_event_free(event);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(the_engine_that_comes_next_is_asked_where_one_went_meanwhile)
{
	struct desk desk = { .refusals = 1, .retry_after_ms = 30, .hangs_up = true };
	struct peer *peer = peer_open(transport, &desk);
	struct dsec_open_opts opts = { .size = sizeof(opts), .address = peer->address };
	const struct dsec_call call = { .size = sizeof(call), .timeout_ms = LONG_MS };
	struct dsec *d;

	cr_assert_eq(dsec_open(&opts, &d), 0);
	cr_expect_eq(told_await(d, exec_ask(d, &call)).last.code, DSEC_OK);
	cr_expect_eq(desk.count, 2);
	dsec_close(d);
	peer_stop(peer);
}
