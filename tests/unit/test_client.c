/* Requests and their events over both transports, against a peer in a thread. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/client_peer.h"

#define BOTH_TRANSPORTS(name)                                                                      \
	static void name(enum dsec_transport transport);                                           \
	Test(client, name##_by_ring)                                                               \
	{                                                                                          \
		name(DSEC_TRANSPORT_RING);                                                         \
	}                                                                                          \
	Test(client, name##_by_stream)                                                             \
	{                                                                                          \
		name(DSEC_TRANSPORT_STREAM);                                                       \
	}                                                                                          \
	static void name(enum dsec_transport transport)

static const struct dsec_id sandbox = { 3, 5ull << 52 | 9 };

static int64_t exec_start(struct dsec *d, const struct dsec_call *call, uint32_t flags,
			  uint64_t keep_bytes)
{
	struct dsec_bytes argv[] = { { "/bin/true", 9 } };
	struct dsec_exec_opts opts = {
		.size = sizeof(opts),
		.flags = flags,
		.argv = argv,
		.argc = 1,
		.head_bytes = keep_bytes,
		.tail_bytes = keep_bytes,
	};

	return dsec_exec(d, call, sandbox, &opts);
}

/* ---- order ---- */

enum { DATA_COUNT = 3000 };

static void serve_data(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		       const void *payload)
{
	(void)payload;
	for (uint64_t at = 0; at < DATA_COUNT; at++) {
		struct dsec_ring_event event = peer_event(request, DSEC_EV_DATA, 0);

		event.stream = 1;
		event.offset = at * sizeof(at);
		event.bytes = sizeof(at);
		peer_post(peer, channel, &event, &at);
	}
	peer_done(peer, channel, request);
}

BOTH_TRANSPORTS(events_of_a_ticket_come_in_order_and_last_once)
{
	struct peer *peer = peer_start(transport, &(struct peer_options){ .serve = serve_data });
	struct dsec *d = peer_connect(peer, 0);
	int64_t ticket = exec_start(d, NULL, 0, 0);
	struct dsec_event *event;
	uint64_t value;

	cr_assert_geq(ticket, 0);
	for (uint64_t at = 0; at < DATA_COUNT; at++) {
		cr_assert_eq(dsec_wait(d, ticket, 5000, &event), 0);
		cr_assert_eq(event->kind, DSEC_EV_DATA);
		cr_assert_eq(event->flags, 0);
		cr_assert_eq(event->bytes, sizeof(value));
		memcpy(&value, event->data, sizeof(value));
		cr_assert_eq(value, at);
		cr_assert_eq(event->offset, at * sizeof(at));
		dsec_event_free(event);
	}
	cr_assert_eq(dsec_wait(d, ticket, 5000, &event), 0);
	cr_assert_eq(event->flags, DSEC_LAST);
	cr_assert_eq(event->subject.lo, sandbox.lo);
	dsec_event_free(event);
	cr_assert_eq(dsec_wait(d, ticket, 0, &event), -ENOENT);
	dsec_close(d);
	peer_stop(peer);
}

/* ---- many at once ---- */

static void serve_done(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		       const void *payload)
{
	(void)payload;
	peer_done(peer, channel, request);
}

BOTH_TRANSPORTS(every_ticket_of_many_ends_exactly_once)
{
	enum { COUNT = 2000 };
	struct peer *peer = peer_start(transport, &(struct peer_options){ .serve = serve_done });
	struct dsec *d = peer_connect(peer, 0);
	struct dsec_call call = { .size = sizeof(call) };
	struct dsec_event *events[32];
	static uint8_t seen[COUNT];
	int asked = 0, ended = 0, n;

	memset(seen, 0, sizeof(seen));
	cr_assert_eq(dsec_queue_new(d, &call.queue), 0);
	while (ended < COUNT) {
		int64_t ticket = -EAGAIN;

		if (asked < COUNT) {
			call.tag = (uint64_t)asked;
			ticket = exec_start(d, &call, 0, 0);
			cr_assert(ticket >= 0 || ticket == -EAGAIN);
			asked += ticket >= 0;
		}
		n = dsec_queue_poll(call.queue, events, 32, ticket < 0 ? 5000 : 0);
		cr_assert_geq(n, ticket < 0 ? 1 : 0);
		for (int at = 0; at < n; at++) {
			cr_assert_lt(events[at]->tag, COUNT);
			cr_assert_eq(seen[events[at]->tag]++, 0);
			cr_assert_eq(events[at]->flags, DSEC_LAST);
			dsec_event_free(events[at]);
			ended++;
		}
	}
	cr_assert_eq(dsec_queue_poll(call.queue, events, 1, 0), 0);
	dsec_queue_free(call.queue);
	dsec_close(d);
	peer_stop(peer);
}

/* ---- captured output ---- */

static void output_post(struct peer *peer, uint32_t channel,
			const struct dsec_ring_request *request, uint16_t stream, const char *text)
{
	bool tail = *text == '>';
	struct dsec_ring_event event =
		peer_event(request, DSEC_EV_DATA, tail ? DSEC_EVENT_TAIL : 0);

	event.stream = stream;
	event.bytes = (uint32_t)strlen(text + tail);
	peer_post(peer, channel, &event, text + tail);
}

static void serve_output(struct peer *peer, uint32_t channel,
			 const struct dsec_ring_request *request, const void *payload)
{
	struct dsec_ring_event event = peer_event(request, DSEC_EV_STARTED, 0);
	struct dsec_wire_result result = {
		.size = sizeof(result),
		.reason = DSEC_EXIT,
		.exit_code = 3,
		.exec = 11,
		.cpu_us = 1,
		.wall_us = 2,
		.memory_peak_bytes = UINT64_MAX,
		.outputs = { { 1, 1, 1000, 6, 3 }, { 2, 0, 4, 4, 0 } },
	};

	(void)payload;
	event.exec = 11;
	peer_post(peer, channel, &event, NULL);
	output_post(peer, channel, request, 1, "abc");
	output_post(peer, channel, request, 2, "er");
	output_post(peer, channel, request, 1, "def");
	output_post(peer, channel, request, 1, ">yz");
	output_post(peer, channel, request, 2, "ro");
	output_post(peer, channel, request, 1, ">!");
	event = peer_event(request, DSEC_EV_DONE, DSEC_EVENT_LAST);
	event.bytes = sizeof(result);
	peer_post(peer, channel, &event, &result);
}

static bool bytes_are(struct dsec_bytes bytes, const char *text)
{
	return bytes.bytes == strlen(text) && memcmp(bytes.data, text, bytes.bytes) == 0;
}

BOTH_TRANSPORTS(output_is_joined_by_stream_head_and_tail)
{
	struct peer *peer = peer_start(transport, &(struct peer_options){ .serve = serve_output });
	struct dsec *d = peer_connect(peer, 0);
	const char *const argv[] = { "/bin/true", NULL };
	const struct dsec_result *result;
	struct dsec_event *event;

	cr_assert_eq(dsec_run(d, sandbox, argv, 0, &event), 0);
	result = event->body;
	cr_assert_not_null(result);
	cr_assert_eq(result->size, sizeof(*result));
	cr_assert_eq(result->reason, DSEC_EXIT);
	cr_assert_eq(result->exit_code, 3);
	cr_assert_eq(result->exec, 11);
	cr_assert_eq(result->output_count, 2);
	cr_assert(bytes_are(result->outputs[0].head, "abcdef"));
	cr_assert(bytes_are(result->outputs[0].tail, "yz!"));
	cr_assert_eq(result->outputs[0].total_bytes, 1000);
	cr_assert_eq(result->outputs[0].truncated, 1);
	cr_assert(bytes_are(result->outputs[1].head, "erro"));
	cr_assert_eq(result->outputs[1].tail.bytes, 0);
	cr_assert_eq(result->outputs[1].truncated, 0);
	dsec_event_free(event);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(output_beyond_what_was_asked_for_is_cut_and_said_so)
{
	struct peer *peer = peer_start(transport, &(struct peer_options){ .serve = serve_output });
	struct dsec *d = peer_connect(peer, 0);
	int64_t ticket = exec_start(d, NULL, DSEC_EXEC_CAPTURE, 4);
	const struct dsec_result *result;
	struct dsec_event *event;

	cr_assert_eq(dsec_wait(d, ticket, 5000, &event), 0);
	cr_assert_eq(event->kind, DSEC_EV_STARTED);
	cr_assert_eq(event->exec, 11);
	dsec_event_free(event);
	cr_assert_eq(dsec_wait(d, ticket, 5000, &event), 0);
	result = event->body;
	cr_assert(bytes_are(result->outputs[0].head, "abcd"));
	cr_assert(bytes_are(result->outputs[0].tail, "yz!"));
	cr_assert_eq(result->outputs[0].truncated, 1);
	cr_assert(bytes_are(result->outputs[1].head, "erro"));
	dsec_event_free(event);
	dsec_close(d);
	peer_stop(peer);
}

/* ---- cancelling ---- */

static void serve_until_cancelled(struct peer *peer, uint32_t channel,
				  const struct dsec_ring_request *request, const void *payload)
{
	struct dsec_ring_event event = peer_event(request, DSEC_EV_DONE, DSEC_EVENT_LAST);

	(void)payload;
	if (request->op != DSEC_OP_CANCEL)
		return;
	event.ticket = request->number[0];
	event.code = DSEC_CANCELLED;
	event.blame = DSEC_BLAME_CALLER;
	peer_post(peer, channel, &event, NULL);
	peer_done(peer, channel, request);
}

BOTH_TRANSPORTS(a_cancelled_request_still_ends_by_its_last)
{
	struct peer *peer =
		peer_start(transport, &(struct peer_options){ .serve = serve_until_cancelled });
	struct dsec *d = peer_connect(peer, 0);
	int64_t ticket = exec_start(d, NULL, DSEC_EXEC_CAPTURE, 0);
	struct dsec_event *event;

	cr_assert_eq(dsec_wait(d, ticket, 0, &event), -ETIMEDOUT);
	cr_assert_eq(dsec_wait(d, ticket, 20, &event), -ETIMEDOUT, "it goes on");
	cr_assert_eq(dsec_cancel(d, ticket), 0);
	cr_assert_eq(dsec_wait(d, ticket, 5000, &event), 0);
	cr_assert_eq(event->flags, DSEC_LAST);
	cr_assert_eq(event->status.code, DSEC_CANCELLED);
	cr_assert_eq(event->status.blame, DSEC_BLAME_CALLER);
	cr_assert_null(event->body);
	dsec_event_free(event);
	cr_assert_eq(dsec_cancel(d, ticket), -ENOENT);
	dsec_close(d);
	peer_stop(peer);
}

/* ---- losing the connection ---- */

static void serve_three_then_go(struct peer *peer, uint32_t channel,
				const struct dsec_ring_request *request, const void *payload)
{
	int *left = peer->options.state;

	(void)payload;
	if (*left == 3)
		peer_done(peer, channel, request);
	if (--*left == 0)
		peer_hang_up(peer);
}

BOTH_TRANSPORTS(a_lost_connection_ends_every_ticket_with_lost)
{
	int left = 3;
	struct peer *peer = peer_start(
		transport, &(struct peer_options){ .serve = serve_three_then_go, .state = &left });
	struct dsec *d = peer_connect(peer, 0);
	struct dsec_call call = { .size = sizeof(call), .tag = 77 };
	struct dsec_event *event;
	int64_t first, second, third;

	cr_assert_eq(dsec_queue_new(d, &call.queue), 0);
	first = exec_start(d, NULL, 0, 0);
	second = exec_start(d, NULL, DSEC_EXEC_CAPTURE, 0);
	third = exec_start(d, &call, 0, 0);
	cr_assert_eq(dsec_wait(d, first, 5000, &event), 0);
	cr_assert_eq(event->status.code, DSEC_OK, "what came before the end counts");
	dsec_event_free(event);
	cr_assert_eq(dsec_wait(d, second, 5000, &event), 0);
	cr_assert_eq(event->flags, DSEC_LAST);
	cr_assert_eq(event->status.code, DSEC_LOST);
	cr_assert_eq(event->status.blame, DSEC_BLAME_PLATFORM);
	cr_assert_eq(event->status.error, ECONNRESET);
	cr_assert_str_eq(event->status.step, "connection");
	dsec_event_free(event);
	cr_assert_eq(dsec_queue_poll(call.queue, &event, 1, 5000), 1);
	cr_assert_eq(event->ticket, third);
	cr_assert_eq(event->tag, 77);
	cr_assert_eq(event->status.code, DSEC_LOST);
	dsec_event_free(event);
	cr_assert_eq(dsec_queue_poll(call.queue, &event, 1, 5000), -ENOTCONN);
	cr_assert_eq(exec_start(d, NULL, 0, 0), -ENOTCONN);
	cr_assert_eq(dsec_cancel(d, first), -ENOENT);
	dsec_queue_free(call.queue);
	dsec_close(d);
	peer_stop(peer);
}

/* ---- fork ---- */

BOTH_TRANSPORTS(in_a_forked_child_every_call_says_owner_dead)
{
	struct peer *peer = peer_start(transport, &(struct peer_options){ .serve = serve_done });
	struct dsec *d = peer_connect(peer, 0);
	struct dsec_select select = { .size = sizeof(select), .count = 1, .ids = &sandbox };
	const char *const argv[] = { "/bin/true", NULL };
	const struct dsec_caps *caps;
	struct dsec_queue *q, *other;
	struct dsec_event *event;
	struct dsec_id id;
	int status;
	pid_t pid;

	cr_assert_eq(dsec_queue_new(d, &q), 0);
	pid = fork();
	if (pid == 0) {
		bool good = dsec_capabilities(d, &caps) == -EOWNERDEAD &&
			    dsec_queue_new(d, &other) == -EOWNERDEAD &&
			    dsec_queue_fd(q) == -EOWNERDEAD &&
			    dsec_queue_poll(q, &event, 1, 0) == -EOWNERDEAD &&
			    dsec_wait(d, 0, 0, &event) == -EOWNERDEAD &&
			    dsec_cancel(d, 0) == -EOWNERDEAD &&
			    exec_start(d, NULL, 0, 0) == -EOWNERDEAD &&
			    dsec_destroy(d, NULL, &select) == -EOWNERDEAD &&
			    dsec_stats(d, NULL, &select) == -EOWNERDEAD &&
			    dsec_list(d, NULL, NULL) == -EOWNERDEAD &&
			    dsec_check(d, NULL) == -EOWNERDEAD &&
			    dsec_sandbox(d, "debian", &id) == -EOWNERDEAD &&
			    dsec_run(d, sandbox, argv, 0, &event) == -EOWNERDEAD;

		dsec_queue_wake(q);
		dsec_queue_free(q);
		dsec_close(d);
		_exit(good ? 0 : 1);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0);
	/* The parent's connection took no harm. */
	cr_assert_eq(dsec_run(d, sandbox, argv, 0, &event), 0);
	dsec_event_free(event);
	dsec_queue_free(q);
	dsec_close(d);
	peer_stop(peer);
}

/* ---- request ids, channels, indexes ---- */

static void serve_remember(struct peer *peer, uint32_t channel,
			   const struct dsec_ring_request *request, const void *payload)
{
	struct dsec_ring_request *remembered = peer->options.state;

	(void)payload;
	*remembered = *request;
	peer_done(peer, channel, request);
}

static void check_done(struct dsec *d, int64_t ticket)
{
	struct dsec_event *event;

	cr_assert_geq(ticket, 0, "%s", dsec_error(d, ticket));
	cr_assert_eq(dsec_wait(d, ticket, 5000, &event), 0);
	cr_assert_eq(event->flags, DSEC_LAST);
	dsec_event_free(event);
}

BOTH_TRANSPORTS(request_ids_are_the_callers_or_new_ones_with_the_engines_age)
{
	struct dsec_ring_request seen = { 0 };
	struct peer *peer = peer_start(transport, &(struct peer_options){ .serve = serve_remember,
									  .state = &seen });
	struct dsec *d = peer_connect(peer, 0);
	struct dsec_call call = { .size = sizeof(call),
				  .request_id = { 1, 2, 3 },
				  .timeout_ms = 9 };
	uint8_t first[16];
	uint64_t ms = 0;

	check_done(d, exec_start(d, &call, 0, 0));
	cr_assert_eq(memcmp(seen.request_id, call.request_id, 16), 0);
	cr_assert_eq(seen.timeout_ms, 9);
	check_done(d, exec_start(d, NULL, 0, 0));
	memcpy(first, seen.request_id, sizeof(first));
	for (int at = 0; at < 6; at++)
		ms = ms << 8 | first[at];
	cr_assert_geq(ms, 1700000000000ull);
	cr_assert_lt(ms, 1700000000000ull + 60000);
	cr_assert_eq(first[6] >> 4, 7);
	cr_assert_eq(first[8] >> 6, 2);
	check_done(d, exec_start(d, NULL, 0, 0));
	cr_assert_neq(memcmp(seen.request_id + 6, first + 6, 10), 0);
	dsec_close(d);
	peer_stop(peer);
}

static void serve_tell_channel(struct peer *peer, uint32_t channel,
			       const struct dsec_ring_request *request, const void *payload)
{
	struct dsec_ring_event event = peer_event(request, DSEC_EV_DONE, DSEC_EVENT_LAST);

	(void)payload;
	event.exec = channel;
	peer_post(peer, channel, &event, NULL);
}

static uint64_t channel_of(struct dsec *d, int64_t ticket)
{
	struct dsec_event *event;
	uint64_t channel;

	cr_assert_eq(dsec_wait(d, ticket, 5000, &event), 0);
	channel = event->exec;
	dsec_event_free(event);
	return channel;
}

Test(client, creates_go_where_their_id_says_and_sandboxes_to_their_shards)
{
	struct peer *peer =
		peer_start(DSEC_TRANSPORT_RING,
			   &(struct peer_options){ .serve = serve_tell_channel, .shards = 3 });
	struct dsec *d = peer_connect(peer, UINT32_MAX);
	struct dsec_create_opts create = { .size = sizeof(create), .image = "debian" };
	struct dsec_select select = { .size = sizeof(select), .count = 1 };
	struct dsec_call call = { .size = sizeof(call), .request_id = { 1 } };
	int created[3] = { 0, 0, 0 };

	for (int turn = 0; turn < 6; turn++)
		created[channel_of(d, dsec_create(d, NULL, &create))]++;
	for (uint64_t k = 0; k < 3; k++) {
		struct dsec_id id = { 1, k << 52 | 1 };

		select.ids = &id;
		cr_assert_eq(created[k], 2, "new ids take turns");
		cr_assert_eq(channel_of(d, dsec_destroy(d, NULL, &select)), k);
		/* A retry, perhaps by another client, meets the record of the first. */
		call.request_id[15] = (uint8_t)(k + 30);
		cr_assert_eq(channel_of(d, dsec_create(d, &call, &create)), k);
	}
	dsec_close(d);
	peer_stop(peer);
}

static void serve_create_many(struct peer *peer, uint32_t channel,
			      const struct dsec_ring_request *request, const void *payload)
{
	struct dsec_wire_create create;

	memcpy(&create, payload, sizeof(create));
	for (uint32_t at = 0; at < create.count; at++) {
		struct dsec_ring_event event = peer_event(request, DSEC_EV_CREATED, 0);

		/* Neighbours change places: shards are not in step. */
		event.index = (uint16_t)(at ^ 1);
		event.subject.lo = at ^ 1;
		peer_post(peer, channel, &event, NULL);
	}
	peer_done(peer, channel, request);
}

BOTH_TRANSPORTS(an_index_goes_on_beyond_16_bits)
{
	enum { COUNT = 150000 };
	struct peer *peer =
		peer_start(transport, &(struct peer_options){ .serve = serve_create_many });
	struct dsec *d = peer_connect(peer, 0);
	struct dsec_create_opts create = {
		.size = sizeof(create),
		.image = "debian",
		.count = COUNT,
	};
	int64_t ticket = dsec_create(d, NULL, &create);
	struct dsec_event *event;

	for (uint32_t at = 0; at < COUNT; at++) {
		cr_assert_eq(dsec_wait(d, ticket, 5000, &event), 0);
		cr_assert_eq(event->index, at ^ 1);
		dsec_event_free(event);
	}
	check_done(d, ticket);
	dsec_close(d);
	peer_stop(peer);
}
