/*
 * What callers see when their engine goes and comes back: requests that go again, and what is told
 * of them. How long it may take, and what else can happen meanwhile: test_client_away.c.
 */
#include <assert.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/client_peer.h"

#define BOTH_TRANSPORTS(name)                                                                      \
	static void name(enum dsec_transport transport);                                           \
	Test(client_reconnect, name##_by_ring)                                                     \
	{                                                                                          \
		name(DSEC_TRANSPORT_RING);                                                         \
	}                                                                                          \
	Test(client_reconnect, name##_by_stream)                                                   \
	{                                                                                          \
		name(DSEC_TRANSPORT_STREAM);                                                       \
	}                                                                                          \
	static void name(enum dsec_transport transport)

enum { WAIT_MS = 10 * 1000, REQUESTS_MAX = 64 };

static const struct dsec_id sandbox = { 3, 2ull << 52 | 9 };

/* What a peer got, in order, and what it is to do. */
struct log {
	struct dsec_ring_request requests[REQUESTS_MAX];
	uint32_t connections[REQUESTS_MAX], channels[REQUESTS_MAX];
	uint32_t count;
	uint32_t go_at; /* go without an answer when so many came over a connection */
	uint32_t go_times;
	uint32_t conflicts; /* so many are "still under way" before the result */
};

static struct log *log_add(struct peer *peer, uint32_t channel,
			   const struct dsec_ring_request *request)
{
	struct log *log = peer->options.state;

	assert(log->count < REQUESTS_MAX);
	log->connections[log->count] = peer->connection;
	log->channels[log->count] = channel;
	log->requests[log->count++] = *request;
	return log;
}

static uint32_t came_over_this(const struct peer *peer)
{
	const struct log *log = peer->options.state;
	uint32_t count = 0;

	for (uint32_t at = 0; at < log->count; at++)
		count += log->connections[at] == peer->connection;
	return count;
}

static void serve_or_go(struct peer *peer, uint32_t channel,
			const struct dsec_ring_request *request, const void *payload)
{
	struct log *log = log_add(peer, channel, request);

	(void)payload;
	if (peer->connection >= log->go_times)
		peer_done(peer, channel, request);
	else if (came_over_this(peer) == log->go_at)
		peer_hang_up(peer);
}

static struct peer *peer_for(enum dsec_transport transport, struct log *log, uint32_t connections)
{
	struct peer_options options = {
		.serve = serve_or_go,
		.state = log,
		.connections = connections,
	};

	return peer_start(transport, &options);
}

static int64_t exec_start(struct dsec *d, const struct dsec_call *call, uint32_t flags)
{
	struct dsec_bytes argv[] = { { "/bin/true", 9 } };
	struct dsec_exec_opts opts = {
		.size = sizeof(opts),
		.flags = flags,
		.argv = argv,
		.argc = 1,
	};

	return dsec_exec(d, call, sandbox, &opts);
}

/* Takes a ticket's events up to its last, which it returns. */
static struct dsec_event *last_await(struct dsec *d, int64_t ticket)
{
	struct dsec_event *event;

	for (;;) {
		cr_assert_eq(dsec_wait(d, ticket, WAIT_MS, &event), 0);
		if (event->flags & DSEC_LAST)
			break;
		dsec_event_free(event);
	}
	return event;
}

static uint32_t code_await(struct dsec *d, int64_t ticket)
{
	struct dsec_event *event = last_await(d, ticket), *none;
	uint32_t code = event->status.code;

	dsec_event_free(event);
	cr_assert_eq(dsec_wait(d, ticket, 0, &none), -ENOENT, "it was the last");
	return code;
}

/* ---- requests ---- */

BOTH_TRANSPORTS(a_request_goes_again_under_its_id_with_what_is_left_of_its_time)
{
	struct log log = { .go_at = 1, .go_times = 2 };
	struct peer *peer = peer_for(transport, &log, 3);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	struct dsec_call call = { .size = sizeof(call), .timeout_ms = 60 * 1000 };
	int64_t ticket = exec_start(d, &call, 0);

	cr_assert_eq(code_await(d, ticket), DSEC_OK);
	cr_assert_eq(log.count, 3);
	for (uint32_t at = 1; at < 3; at++) {
		cr_assert_eq(log.connections[at], at);
		cr_assert_eq(memcmp(log.requests[at].request_id, log.requests[0].request_id, 16),
			     0);
		cr_assert_eq(log.requests[at].ticket, log.requests[0].ticket);
		cr_assert_eq(log.requests[at].payload_bytes, log.requests[0].payload_bytes);
		cr_assert_eq(log.requests[at].subject.lo, sandbox.lo);
		cr_assert_leq(log.requests[at].timeout_ms, log.requests[at - 1].timeout_ms);
		cr_assert_gt(log.requests[at].timeout_ms, 1000);
	}
	cr_assert_eq(log.requests[0].timeout_ms, 60 * 1000);
	cr_assert_lt(log.requests[2].timeout_ms, 60 * 1000);
	dsec_close(d);
	peer_stop(peer);
}

static void serve_payload(struct peer *peer, uint32_t channel,
			  const struct dsec_ring_request *request, const void *payload)
{
	const struct dsec_wire_exec *exec = payload;
	const char *input = (const char *)payload + exec->input.at;
	bool whole = exec->input.bytes == 50000;

	for (uint32_t at = 0; at < exec->input.bytes; at++)
		whole &= input[at] == (char)(at % 251);
	assert(whole);
	if (peer->connection == 0)
		peer_hang_up(peer);
	else
		peer_done(peer, channel, request);
}

BOTH_TRANSPORTS(its_payload_goes_again_as_it_was)
{
	struct peer_options options = { .serve = serve_payload, .connections = 2 };
	struct peer *peer = peer_start(transport, &options);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	struct dsec_bytes argv[] = { { "cat", 3 } };
	char *input = malloc(50000);
	struct dsec_exec_opts opts = {
		.size = sizeof(opts),
		.argv = argv,
		.argc = 1,
		.input = { input, 50000 },
	};
	int64_t ticket;

	for (int at = 0; at < 50000; at++)
		input[at] = (char)(at % 251);
	ticket = dsec_exec(d, NULL, sandbox, &opts);
	memset(input, 0, 50000);
	free(input);
	cr_assert_eq(code_await(d, ticket), DSEC_OK);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(the_oldest_go_first_and_what_ended_does_not_go_again)
{
	enum { COUNT = 20 };
	struct log log = { .go_at = COUNT + 1, .go_times = 1 };
	struct peer *peer = peer_for(transport, &log, 2);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	int64_t tickets[COUNT], before = exec_start(d, NULL, 0);

	tickets[0] = exec_start(d, NULL, 0);
	cr_assert_eq(dsec_cancel(d, before), 0);
	for (int at = 1; at < COUNT - 1; at++)
		tickets[at] = exec_start(d, NULL, 0);
	cr_assert_eq(code_await(d, before), DSEC_LOST, "cancelled, and then the engine went");
	for (int at = 0; at < COUNT - 1; at++)
		cr_assert_eq(code_await(d, tickets[at]), DSEC_OK);
	cr_assert_eq(log.count, COUNT + 1 + COUNT - 1, "no cancel goes again");
	for (uint32_t at = 0; at < COUNT - 1; at++)
		cr_assert_eq(log.requests[COUNT + 1 + at].ticket, (uint64_t)tickets[at]);
	dsec_close(d);
	peer_stop(peer);
}

static void arrive_with_other_shards(struct peer *peer)
{
	static const uint32_t shards[] = { 3, 1, 4, 2 };

	peer->options.shards = shards[peer->connection];
	peer->options.epoch = 100 + peer->connection;
	peer->options.submission_entries = 8u << peer->connection;
}

Test(client_reconnect, shards_and_channels_may_be_others_afterwards)
{
	static const uint32_t shards[] = { 3, 1, 4, 2 };
	struct log log = { .go_at = 6, .go_times = 3 };
	struct peer_options options = {
		.serve = serve_or_go,
		.arrive = arrive_with_other_shards,
		.state = &log,
		.connections = 4,
	};
	struct peer *peer = peer_start(DSEC_TRANSPORT_RING, &options);
	struct dsec *d = peer_connect_for(peer, UINT32_MAX, 0);
	struct dsec_create_opts create = { .size = sizeof(create), .image = "debian" };
	int64_t tickets[6];

	for (int at = 0; at < 6; at++)
		tickets[at] = at % 2 ? exec_start(d, NULL, 0) : dsec_create(d, NULL, &create);
	for (int at = 0; at < 6; at++)
		cr_assert_eq(code_await(d, tickets[at]), DSEC_OK);
	cr_assert_eq(log.count, 24);
	for (uint32_t at = 0; at < log.count; at++) {
		const struct dsec_ring_request *request = &log.requests[at];
		uint32_t count = shards[log.connections[at]];
		uint32_t wanted = request->op == DSEC_OP_CREATE ? request->request_id[15] % count :
				  count > 2			? 2 :
								  0;

		cr_assert_eq(log.channels[at], wanted, "%u", at);
	}
	dsec_close(d);
	peer_stop(peer);
}

/* ---- what is told ---- */

BOTH_TRANSPORTS(each_queue_hears_of_it_once_and_before_all_else)
{
	enum { QUEUES = 3, EACH = 4 };
	struct log log = { .go_at = QUEUES * EACH, .go_times = 1 };
	struct peer *peer = peer_for(transport, &log, 2);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	struct dsec_call calls[QUEUES];
	struct dsec_event *events[EACH + 1];

	for (int q = 0; q < QUEUES; q++) {
		calls[q] = (struct dsec_call){ .size = sizeof(calls[q]), .tag = 7 };
		cr_assert_eq(dsec_queue_new(d, &calls[q].queue), 0);
		for (int at = 0; at < EACH; at++)
			cr_assert_geq(exec_start(d, &calls[q], 0), 0);
	}
	for (int q = 0; q < QUEUES; q++) {
		int n = 0;

		while (n < EACH + 1) {
			int taken =
				dsec_queue_poll(calls[q].queue, events + n, EACH + 1 - n, WAIT_MS);
			cr_assert_gt(taken, 0);
			n += taken;
		}
		cr_assert_eq(events[0]->kind, DSEC_EV_RECONNECTED);
		cr_assert_eq(events[0]->ticket, -1);
		cr_assert_eq(events[0]->flags, 0);
		cr_assert_null(events[0]->body);
		for (int at = 1; at < EACH + 1; at++) {
			cr_assert_eq(events[at]->kind, DSEC_EV_DONE);
			cr_assert_eq(events[at]->flags, DSEC_LAST);
			cr_assert_eq(events[at]->tag, 7);
		}
		for (int at = 0; at < EACH + 1; at++)
			dsec_event_free(events[at]);
		cr_assert_eq(dsec_queue_poll(calls[q].queue, events, 1, 0), 0);
	}
	dsec_close(d);
	peer_stop(peer);
}

static void serve_half(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		       const void *payload)
{
	struct dsec_ring_event event = peer_event(request, DSEC_EV_STARTED, 0);
	struct dsec_wire_result result = { .size = sizeof(result), .outputs = { { .stream = 1 } } };

	(void)payload;
	peer_post(peer, channel, &event, NULL);
	for (int at = 0; at < 3; at++) {
		event = peer_event(request, DSEC_EV_DATA, at == 2 ? DSEC_EVENT_TAIL : 0);
		event.stream = 1;
		event.bytes = 3;
		peer_post(peer, channel, &event, peer->connection < 3 ? "old" : "new");
		if (peer->connection == (uint32_t)at) {
			peer_hang_up(peer);
			return;
		}
	}
	event = peer_event(request, DSEC_EV_DONE, DSEC_EVENT_LAST);
	event.bytes = sizeof(result);
	peer_post(peer, channel, &event, &result);
}

BOTH_TRANSPORTS(output_that_half_came_is_begun_anew_and_a_start_is_told_once)
{
	struct peer_options options = { .serve = serve_half, .connections = 4 };
	struct peer *peer = peer_start(transport, &options);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	int64_t ticket = exec_start(d, NULL, DSEC_EXEC_CAPTURE);
	const struct dsec_result *result;
	struct dsec_event *event;

	cr_assert_eq(dsec_wait(d, ticket, WAIT_MS, &event), 0);
	cr_assert_eq(event->kind, DSEC_EV_STARTED);
	dsec_event_free(event);
	cr_assert_eq(dsec_wait(d, ticket, WAIT_MS, &event), 0);
	cr_assert_eq(event->flags, DSEC_LAST);
	result = event->body;
	cr_assert_eq(result->outputs[0].head.bytes, 6);
	cr_assert_eq(memcmp(result->outputs[0].head.data, "newnew", 6), 0);
	cr_assert_eq(result->outputs[0].tail.bytes, 3);
	dsec_event_free(event);
	dsec_close(d);
	peer_stop(peer);
}

static void row_post(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		     uint64_t number)
{
	struct dsec_wire_row row = { .size = sizeof(row), .id = { 1, number } };
	struct dsec_wire_stats stats = { .size = sizeof(stats), .id = { 1, number } };
	bool lists = request->op == DSEC_OP_LIST, creates = request->op == DSEC_OP_CREATE;
	struct dsec_ring_event event =
		peer_event(request, creates ? DSEC_EV_CREATED : DSEC_EV_ROW, 0);

	event.index = (uint16_t)number;
	event.subject.lo = number;
	if (!creates)
		event.bytes = lists ? sizeof(row) : sizeof(stats);
	peer_post(peer, channel, &event, lists ? (void *)&row : &stats);
}

/* Goes after some, and next time has others: 7 of 0 to 9 in any order, then all. */
static void serve_rows(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		       const void *payload)
{
	(void)payload;
	for (uint64_t at = 0; at < (peer->connection ? 10 : 7); at++)
		row_post(peer, channel, request, at * 3 % 10);
	if (!peer->connection)
		peer_hang_up(peer);
	else
		peer_done(peer, channel, request);
}

static int64_t rows_start(struct dsec *d, uint16_t op, uint32_t limit)
{
	struct dsec_create_opts create = { .size = sizeof(create), .image = "x", .count = 10 };
	struct dsec_list_opts list = { .size = sizeof(list), .limit = limit };
	struct dsec_select select = { .size = sizeof(select), .count = 1, .ids = &sandbox };

	if (op == DSEC_OP_CREATE)
		return dsec_create(d, NULL, &create);
	return op == DSEC_OP_LIST ? dsec_list(d, NULL, &list) : dsec_stats(d, NULL, &select);
}

static void check_rows(enum dsec_transport transport, uint16_t op, uint32_t limit, int wanted)
{
	struct peer_options options = { .serve = serve_rows, .connections = 2 };
	struct peer *peer = peer_start(transport, &options);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	int64_t ticket = rows_start(d, op, limit);
	int seen[10] = { 0 }, count = 0;
	struct dsec_event *event;
	bool last = false;

	while (!last) {
		cr_assert_eq(dsec_wait(d, ticket, WAIT_MS, &event), 0);
		last = event->flags & DSEC_LAST;
		if (!last) {
			cr_assert_eq(seen[event->subject.lo]++, 0, "op %u twice", op);
			count++;
		}
		dsec_event_free(event);
	}
	cr_assert_eq(count, wanted, "op %u", op);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(no_sandbox_and_no_row_is_told_twice)
{
	check_rows(transport, DSEC_OP_CREATE, 0, 10);
	check_rows(transport, DSEC_OP_LIST, 0, 10);
	check_rows(transport, DSEC_OP_STATS, 0, 10);
	check_rows(transport, DSEC_OP_LIST, 8, 8);
}

/* ---- what the engine says to a request that it has already ---- */

static void serve_conflict(struct peer *peer, uint32_t channel,
			   const struct dsec_ring_request *request, const void *payload)
{
	struct log *log = log_add(peer, channel, request);
	struct dsec_wire_status status = { .retry_after_ms = 5, .step = "request_id" };
	struct dsec_ring_event event =
		peer_event(request, DSEC_EV_DONE, DSEC_EVENT_LAST | DSEC_EVENT_STATUS);

	(void)payload;
	if (peer->connection < log->go_times) {
		peer_hang_up(peer);
		return;
	}
	event.bytes = sizeof(status);
	/* One that does not even look comes with it. */
	event.code = log->count % 2 ? DSEC_CONFLICT : DSEC_REFUSED;
	if (log->count > log->go_times + log->conflicts) {
		event = peer_event(request, DSEC_EV_DONE, DSEC_EVENT_LAST | DSEC_EVENT_REPLAYED);
		event.exec = 12;
	}
	peer_post(peer, channel, &event, &status);
}

static struct peer *conflict_peer(enum dsec_transport transport, struct log *log)
{
	struct peer_options options = {
		.serve = serve_conflict,
		.state = log,
		.connections = log->go_times + 1,
	};

	return peer_start(transport, &options);
}

BOTH_TRANSPORTS(what_is_still_under_way_is_asked_for_until_it_is_over)
{
	struct log log = { .go_times = 1, .conflicts = 7 };
	struct peer *peer = conflict_peer(transport, &log);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	struct dsec_event *event = last_await(d, exec_start(d, NULL, DSEC_EXEC_CAPTURE));

	cr_assert_eq(event->flags, DSEC_LAST | DSEC_REPLAYED);
	cr_assert_eq(event->status.code, DSEC_OK);
	cr_assert_eq(event->exec, 12);
	cr_assert_eq(log.count, 1 + 7 + 1);
	dsec_event_free(event);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(asking_for_it_has_an_end_which_is_lost)
{
	struct log log = { .go_times = 1, .conflicts = UINT32_MAX / 2 };
	struct peer *peer = conflict_peer(transport, &log);
	struct dsec *d = peer_connect_for(peer, 0, 60);
	struct dsec_call call = { .size = sizeof(call), .timeout_ms = 80 };
	struct dsec_event *event = last_await(d, exec_start(d, NULL, 0));

	cr_assert_eq(event->status.code, DSEC_LOST);
	cr_assert_eq(event->status.error, ETIMEDOUT);
	cr_assert_str_eq(event->status.detail, "still under way, as an earlier connection's");
	dsec_event_free(event);
	cr_assert_gt(log.count, 3);
	/* It was that ticket alone. And only who was lost before is spared such answers. */
	event = last_await(d, exec_start(d, &call, 0));
	cr_assert(event->status.code == DSEC_CONFLICT || event->status.code == DSEC_REFUSED);
	cr_assert_eq(event->status.retry_after_ms, 5);
	dsec_event_free(event);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(a_cancel_while_an_earlier_connections_request_runs_ends_it_at_once)
{
	struct log log = { .go_times = 1, .conflicts = UINT32_MAX / 2 };
	struct peer *peer = conflict_peer(transport, &log);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	struct dsec_call call = { .size = sizeof(call) };
	struct dsec_event *event;

	cr_assert_eq(dsec_queue_new(d, &call.queue), 0);
	cr_assert_geq(exec_start(d, &call, 0), 0);
	cr_assert_eq(dsec_queue_poll(call.queue, &event, 1, WAIT_MS), 1);
	cr_assert_eq(event->kind, DSEC_EV_RECONNECTED);
	dsec_event_free(event);
	dsec_queue_free(call.queue); /* cancels it, and would wait for 10 s */
	cr_assert_lt(log.count, REQUESTS_MAX);
	dsec_close(d);
	peer_stop(peer);
}

static void serve_poison(struct peer *peer, uint32_t channel,
			 const struct dsec_ring_request *request, const void *payload)
{
	struct dsec_ring_event event = peer_event(request, DSEC_EV_PROGRESS, 0);

	(void)payload;
	peer_post(peer, channel, &event, NULL); /* it lives */
	peer_hang_up(peer);
}

BOTH_TRANSPORTS(a_request_that_ends_every_engine_is_given_up)
{
	struct peer_options options = { .serve = serve_poison, .connections = 1000 };
	struct peer *peer = peer_start(transport, &options);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	struct dsec_event *event = last_await(d, exec_start(d, NULL, 0));

	cr_assert_eq(event->status.code, DSEC_LOST);
	cr_assert_not_null(strstr(event->status.detail, "too often"));
	dsec_event_free(event);
	dsec_close(d);
	peer_stop(peer);
}
