/*
 * What libdsec does when its caller or its engine breaks the rules: callers get -E before anything
 * is sent, and an engine that makes no sense is a lost connection, never a crash.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/client_peer.h"

#define BOTH_TRANSPORTS(name)                                                                      \
	static void name(enum dsec_transport transport);                                           \
	Test(client_trust, name##_by_ring)                                                         \
	{                                                                                          \
		name(DSEC_TRANSPORT_RING);                                                         \
	}                                                                                          \
	Test(client_trust, name##_by_stream)                                                       \
	{                                                                                          \
		name(DSEC_TRANSPORT_STREAM);                                                       \
	}                                                                                          \
	static void name(enum dsec_transport transport)

/* ---- an engine that sends nonsense: one case is one event ---- */

struct lie {
	const char *what;
	uint16_t op; /* of the request that it answers */
	bool ring_only;
	void (*tell)(struct peer *peer, const struct dsec_ring_request *request);
};

static void serve_lie(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		      const void *payload)
{
	const struct lie *lie = peer->options.state;

	(void)channel;
	(void)payload;
	lie->tell(peer, request);
}

static int64_t request_start(struct dsec *d, uint16_t op)
{
	struct dsec_bytes argv[] = { { "true", 4 } };
	struct dsec_exec_opts exec = {
		.size = sizeof(exec),
		.flags = DSEC_EXEC_CAPTURE,
		.argv = argv,
		.argc = 1,
	};
	struct dsec_create_opts create = { .size = sizeof(create), .image = "debian" };

	if (op == DSEC_OP_EXEC)
		return dsec_exec(d, NULL, (struct dsec_id){ 0, 1 }, &exec);
	if (op == DSEC_OP_CREATE)
		return dsec_create(d, NULL, &create);
	if (op == DSEC_OP_CHECK)
		return dsec_check(d, NULL);
	return dsec_list(d, NULL, NULL);
}

static void check_lie(enum dsec_transport transport, struct lie lie)
{
	struct peer *peer =
		peer_start(transport, &(struct peer_options){ .serve = serve_lie, .state = &lie });
	struct dsec *d = peer_connect(peer, 0);
	int64_t ticket = request_start(d, lie.op);
	struct dsec_event *event;
	bool last = false;

	cr_assert_geq(ticket, 0);
	while (!last) {
		cr_assert_eq(dsec_wait(d, ticket, 5000, &event), 0, "%s", lie.what);
		last = event->flags & DSEC_LAST;
		if (last) {
			cr_assert_eq(event->status.code, DSEC_LOST, "%s", lie.what);
			cr_assert_eq(event->status.blame, DSEC_BLAME_PLATFORM);
			cr_assert_eq(event->status.error, EPROTO, "%s", lie.what);
		}
		dsec_event_free(event);
	}
	cr_assert_eq(dsec_list(d, NULL, NULL), -ENOTCONN, "%s", lie.what);
	dsec_close(d);
	peer_stop(peer);
}

static void tell_unknown_ticket(struct peer *peer, const struct dsec_ring_request *request)
{
	struct dsec_ring_event event = peer_event(request, DSEC_EV_DONE, DSEC_EVENT_LAST);

	event.ticket += 1;
	peer_post(peer, 0, &event, NULL);
}

static void tell_ticket_beyond(struct peer *peer, const struct dsec_ring_request *request)
{
	struct dsec_ring_event event = peer_event(request, DSEC_EV_DONE, DSEC_EVENT_LAST);

	event.ticket = UINT64_MAX;
	peer_post(peer, 0, &event, NULL);
}

static void tell_old_generation(struct peer *peer, const struct dsec_ring_request *request)
{
	struct dsec_ring_event event = peer_event(request, DSEC_EV_DONE, DSEC_EVENT_LAST);

	event.ticket += 1 << 20;
	peer_post(peer, 0, &event, NULL);
}

static void tell_buffer_unposted(struct peer *peer, const struct dsec_ring_request *request)
{
	struct dsec_ring_event event = peer_event(request, DSEC_EV_DATA, 0);

	event.stream = 1;
	event.bytes = 16;
	event.buffer = 5000;
	peer_post_raw(peer, 0, &event);
}

static void tell_buffer_twice(struct peer *peer, const struct dsec_ring_request *request)
{
	struct dsec_ring_event event = peer_event(request, DSEC_EV_DATA, 0);

	event.stream = 1;
	event.bytes = 16;
	event.buffer = 0;
	peer_post_raw(peer, 0, &event);
	peer_post_raw(peer, 0, &event);
}

static void tell_more_than_the_buffer(struct peer *peer, const struct dsec_ring_request *request)
{
	struct dsec_ring_event event = peer_event(request, DSEC_EV_DATA, 0);

	event.stream = 1;
	event.bytes = 1 << 30;
	event.buffer = 0;
	peer_post_raw(peer, 0, &event);
}

static void tell_tail_ahead(struct peer *peer, const struct dsec_ring_request *request)
{
	struct peer_channel *channel = &peer->channels[0];

	channel->completion_tail += 100000;
	__atomic_store_n(&channel->shared->completion_tail, channel->completion_tail,
			 __ATOMIC_RELEASE);
	channel->shared->completion_head = channel->completion_tail; /* room, for the waking */
	peer_done(peer, 0, request);
}

static void post_body(struct peer *peer, const struct dsec_ring_request *request, uint16_t kind,
		      const void *body, uint32_t bytes)
{
	struct dsec_ring_event event =
		peer_event(request, kind, kind == DSEC_EV_DONE ? DSEC_EVENT_LAST : 0);

	event.bytes = bytes;
	peer_post(peer, 0, &event, body);
}

static void tell_data_of_no_stream(struct peer *peer, const struct dsec_ring_request *request)
{
	post_body(peer, request, DSEC_EV_DATA, "x", 1); /* stream 0 */
}

static void tell_short_body(struct peer *peer, const struct dsec_ring_request *request)
{
	post_body(peer, request, DSEC_EV_DONE, "abc", 3);
}

static void tell_size_beyond(struct peer *peer, const struct dsec_ring_request *request)
{
	struct dsec_wire_result result = { .size = sizeof(result) + 1 };

	post_body(peer, request, DSEC_EV_DONE, &result, sizeof(result));
}

static void tell_size_zero(struct peer *peer, const struct dsec_ring_request *request)
{
	struct dsec_wire_check check = { .size = 0 };

	post_body(peer, request, DSEC_EV_DONE, &check, sizeof(check));
}

static void tell_status_missing(struct peer *peer, const struct dsec_ring_request *request)
{
	struct dsec_ring_event event =
		peer_event(request, DSEC_EV_DONE, DSEC_EVENT_LAST | DSEC_EVENT_STATUS);

	event.bytes = 8;
	event.code = DSEC_FAILED;
	peer_post(peer, 0, &event, "12345678");
}

static void tell_image_outside(struct peer *peer, const struct dsec_ring_request *request)
{
	struct dsec_wire_row row = { .size = sizeof(row), .image = { sizeof(row) - 1, 2 } };

	post_body(peer, request, DSEC_EV_ROW, &row, sizeof(row));
}

static void tell_image_wrapping(struct peer *peer, const struct dsec_ring_request *request)
{
	struct dsec_wire_row row = { .size = sizeof(row), .image = { UINT32_MAX, 2 } };

	post_body(peer, request, DSEC_EV_ROW, &row, sizeof(row));
}

static void tell_labels_outside(struct peer *peer, const struct dsec_ring_request *request)
{
	struct dsec_wire_row row = { .size = sizeof(row), .labels = { 8, UINT32_MAX, 2, 0 } };

	post_body(peer, request, DSEC_EV_ROW, &row, sizeof(row));
}

static void tell_too_many_labels(struct peer *peer, const struct dsec_ring_request *request)
{
	struct dsec_wire_row row = { .size = sizeof(row), .labels = { 8, 8, UINT32_MAX - 1, 0 } };

	post_body(peer, request, DSEC_EV_ROW, &row, sizeof(row));
}

static void tell_half_a_label(struct peer *peer, const struct dsec_ring_request *request)
{
	struct dsec_wire_row row = { .size = sizeof(row), .labels = { 8, 8, 1, 0 } };

	post_body(peer, request, DSEC_EV_ROW, &row, sizeof(row));
}

static void tell_label_beyond_its_list(struct peer *peer, const struct dsec_ring_request *request)
{
	struct {
		struct dsec_wire_row row;
		uint32_t words[4];
	} body = {
		.row = { .size = sizeof(body.row), .labels = { sizeof(body.row), 16, 2, 0 } },
		.words = { 4, 0, 100, 0 },
	};

	post_body(peer, request, DSEC_EV_ROW, &body, sizeof(body));
}

static void tell_message_too_long(struct peer *peer, const struct dsec_ring_request *request)
{
	struct dsec_ring_event event = peer_event(request, DSEC_EV_DATA, 0);

	event.bytes = DSEC_PAYLOAD_BYTES_MAX + 1;
	event.buffer = 0;
	peer_post_raw(peer, 0, &event);
}

BOTH_TRANSPORTS(an_engine_that_makes_no_sense_is_a_lost_connection)
{
	static const struct lie lies[] = {
		{ "an unknown ticket", DSEC_OP_LIST, false, tell_unknown_ticket },
		{ "a ticket beyond the table", DSEC_OP_LIST, false, tell_ticket_beyond },
		{ "a ticket of another generation", DSEC_OP_LIST, false, tell_old_generation },
		{ "a buffer that was not posted", DSEC_OP_EXEC, true, tell_buffer_unposted },
		{ "a buffer used twice", DSEC_OP_EXEC, true, tell_buffer_twice },
		{ "more bytes than the buffer", DSEC_OP_EXEC, true, tell_more_than_the_buffer },
		{ "a tail ahead of the ring", DSEC_OP_LIST, true, tell_tail_ahead },
		{ "data of no stream", DSEC_OP_EXEC, false, tell_data_of_no_stream },
		{ "a body of three bytes", DSEC_OP_EXEC, false, tell_short_body },
		{ "a body larger than its event", DSEC_OP_EXEC, false, tell_size_beyond },
		{ "a body without a size", DSEC_OP_CHECK, false, tell_size_zero },
		{ "a status that is not there", DSEC_OP_CREATE, false, tell_status_missing },
		{ "an image name outside", DSEC_OP_LIST, false, tell_image_outside },
		{ "an image name that wraps", DSEC_OP_LIST, false, tell_image_wrapping },
		{ "labels outside", DSEC_OP_LIST, false, tell_labels_outside },
		{ "more labels than bytes", DSEC_OP_LIST, false, tell_too_many_labels },
		{ "half a label", DSEC_OP_LIST, false, tell_half_a_label },
		{ "a label beyond its list", DSEC_OP_LIST, false, tell_label_beyond_its_list },
		{ "a message too long", DSEC_OP_EXEC, false, tell_message_too_long },
	};

	for (size_t at = 0; at < sizeof(lies) / sizeof(lies[0]); at++) {
		if (transport == DSEC_TRANSPORT_RING || !lies[at].ring_only)
			check_lie(transport, lies[at]);
	}
}

static void serve_last_twice(struct peer *peer, uint32_t channel,
			     const struct dsec_ring_request *request, const void *payload)
{
	(void)payload;
	peer_done(peer, channel, request);
	peer_done(peer, channel, request);
}

BOTH_TRANSPORTS(a_second_last_is_nobodys_and_ends_the_connection)
{
	struct peer *peer =
		peer_start(transport, &(struct peer_options){ .serve = serve_last_twice });
	struct dsec *d = peer_connect(peer, 0);
	int64_t first = dsec_list(d, NULL, NULL), second = dsec_list(d, NULL, NULL);
	struct dsec_event *event;

	cr_assert_eq(dsec_wait(d, first, 5000, &event), 0);
	cr_assert_eq(event->flags, DSEC_LAST);
	cr_assert_eq(event->status.code, DSEC_OK);
	dsec_event_free(event);
	cr_assert_eq(dsec_wait(d, first, 0, &event), -ENOENT);
	cr_assert_eq(dsec_wait(d, second, 5000, &event), 0);
	cr_assert_eq(event->status.code, DSEC_LOST);
	dsec_event_free(event);
	dsec_close(d);
	peer_stop(peer);
}

static void serve_unknown_kinds(struct peer *peer, uint32_t channel,
				const struct dsec_ring_request *request, const void *payload)
{
	struct dsec_ring_event event = peer_event(request, 900, 0);

	(void)payload;
	event.bytes = 4;
	peer_post(peer, channel, &event, "what");
	event = peer_event(request, 901, DSEC_EVENT_LAST);
	peer_post(peer, channel, &event, NULL);
}

BOTH_TRANSPORTS(an_unknown_kind_is_skipped_unless_it_is_the_last)
{
	struct peer *peer =
		peer_start(transport, &(struct peer_options){ .serve = serve_unknown_kinds });
	struct dsec *d = peer_connect(peer, 0);
	int64_t ticket = dsec_list(d, NULL, NULL);
	struct dsec_event *event;

	cr_assert_eq(dsec_wait(d, ticket, 5000, &event), 0);
	cr_assert_eq(event->kind, 901);
	cr_assert_eq(event->flags, DSEC_LAST);
	dsec_event_free(event);
	dsec_close(d);
	peer_stop(peer);
}

/* ---- welcomes ---- */

/* A field of the welcome, and what it is set to or changed by. */
struct alteration {
	size_t at, bytes;
	uint64_t set, added;
};

#define FIELD(name)                                                                                \
	offsetof(struct dsec_ring_welcome, name), sizeof(((struct dsec_ring_welcome *)0)->name)

static const struct alteration alterations[] = {
	{ FIELD(magic), 0, 1 },
	{ FIELD(major), DSEC_RING_MAJOR + 1, 0 },
	{ FIELD(minor), DSEC_RING_MINOR + 1, 0 },
	{ FIELD(memory_bytes), 0, 1 },
	{ FIELD(memory_bytes), UINT64_MAX, 0 },
	{ FIELD(arena_at), UINT64_MAX - 7, 0 },
	{ FIELD(arena_at), 0, 4 },
	{ FIELD(arena_bytes), UINT64_MAX, 0 },
	{ FIELD(shards), 0, 0 },
	{ FIELD(channels), 0, 0 },
	{ FIELD(channels), 3, 0 },
	{ FIELD(request_bytes), 120, 0 },
	{ FIELD(event_bytes), 1 << 20, 0 },
	{ FIELD(event_bytes), 68, 0 },
	{ FIELD(channel_at), UINT32_MAX - 7, 0 },
	{ FIELD(channel_bytes), 64, 0 },
	{ FIELD(submission_entries), 63, 0 },
	{ FIELD(completion_entries), 0, 0 },
	{ FIELD(buffer_entries), 1u << 31, 0 },
	{ FIELD(submission_at), UINT32_MAX - 7, 0 },
	{ FIELD(completion_at), 0, 4 },
	{ FIELD(buffer_at), UINT32_MAX - 7, 0 },
};

static void welcome_alter(struct peer *peer, struct dsec_ring_welcome *welcome)
{
	const struct alteration *a = peer->options.state;
	uint64_t value = a->set;

	if (a->added) {
		value = 0;
		memcpy(&value, (char *)welcome + a->at, a->bytes);
		value += a->added;
	}
	memcpy((char *)welcome + a->at, &value, a->bytes);
}

static void serve_nothing(struct peer *peer, uint32_t channel,
			  const struct dsec_ring_request *request, const void *payload)
{
	(void)peer;
	(void)channel;
	(void)request;
	(void)payload;
}

static int open_result(struct peer *peer)
{
	struct dsec_open_opts opts = {
		.size = sizeof(opts),
		.address = peer->address,
		.connect_ms = 500,
	};
	struct dsec *d = NULL;
	int r = dsec_open(&opts, &d);

	if (r == 0)
		dsec_close(d);
	peer_stop(peer);
	return r;
}

Test(client_trust, a_welcome_that_makes_no_sense_is_refused)
{
	for (size_t which = 0; which < sizeof(alterations) / sizeof(alterations[0]); which++) {
		struct alteration alteration = alterations[which];
		struct peer_options options = {
			.serve = serve_nothing,
			.welcome = welcome_alter,
			.state = &alteration,
		};

		cr_assert_eq(open_result(peer_start(DSEC_TRANSPORT_RING, &options)), -EPROTO,
			     "%zu: %s", which, dsec_error(NULL, -EPROTO));
	}
}

Test(client_trust, memory_without_seals_or_doorbells_is_refused)
{
	struct peer_options unsealed = { .serve = serve_nothing, .seals_missing = true };
	struct peer_options silent = { .serve = serve_nothing, .doorbells_missing = true };

	cr_assert_eq(open_result(peer_start(DSEC_TRANSPORT_RING, &unsealed)), -EPROTO);
	cr_assert_eq(open_result(peer_start(DSEC_TRANSPORT_RING, &silent)), -EPROTO);
}

static void welcome_refuse(struct peer *peer, struct dsec_ring_welcome *welcome)
{
	welcome->code = *(const uint32_t *)peer->options.state;
	memset(welcome->text, 'x', sizeof(welcome->text)); /* not terminated */
	memcpy(welcome->text, "no room", 7);
}

BOTH_TRANSPORTS(a_refusal_says_why)
{
	static const struct {
		uint32_t code;
		int error;
	} cases[] = {
		{ DSEC_REFUSED, -EBUSY },  { DSEC_DENIED, -EACCES }, { DSEC_UNSUPPORTED, -EPROTO },
		{ DSEC_INVALID, -EINVAL }, { DSEC_FAILED, -EIO },
	};

	for (size_t at = 0; at < sizeof(cases) / sizeof(cases[0]); at++) {
		uint32_t code = cases[at].code;
		struct peer_options options = {
			.serve = serve_nothing,
			.welcome = welcome_refuse,
			.state = &code,
		};

		cr_assert_eq(open_result(peer_start(transport, &options)), cases[at].error);
		cr_assert_not_null(strstr(dsec_error(NULL, cases[at].error), "refused: no room"));
	}
}

BOTH_TRANSPORTS(an_engine_that_hangs_up_or_does_not_answer_is_an_error_in_time)
{
	struct peer_options options = { .serve = serve_nothing, .goes_before = PEER_WELCOME };
	int r;

	cr_assert_eq(open_result(peer_start(transport, &options)), -ETIMEDOUT, "not accepted");
	options.connections = UINT32_MAX;
	r = open_result(peer_start(transport, &options));
	/* The time may end between two tries, or within one. */
	cr_assert(r == -ECONNRESET || r == -EPIPE || r == -ETIMEDOUT, "%d", r);
}

/* As an engine that ends when clients are in its queue, and the one after it. */
static void arrive_third_stays(struct peer *peer)
{
	if (peer->connection == 2)
		peer->options.goes_before = PEER_STAYS;
}

BOTH_TRANSPORTS(an_engine_that_hangs_up_in_the_handshake_is_asked_again)
{
	for (enum peer_stage stage = PEER_HELLO; stage <= PEER_GO; stage++) {
		struct peer_options options = {
			.serve = serve_nothing,
			.goes_before = stage,
			.arrive = arrive_third_stays,
			.connections = 3,
		};

		if (transport == DSEC_TRANSPORT_STREAM && stage > PEER_WELCOME)
			break; /* its handshake ends there */
		cr_assert_eq(open_result(peer_start(transport, &options)), 0, "stage %d", stage);
	}
}

/* ---- addresses ---- */

static int open_address(const char *address)
{
	struct dsec_open_opts opts = { .size = sizeof(opts), .address = address };
	struct dsec *d;

	return dsec_open(&opts, &d);
}

Test(client_trust, an_address_that_leads_nowhere_says_so)
{
	char longest[200] = "unix:/";

	memset(longest + 6, 'a', sizeof(longest) - 7);
	cr_assert_eq(open_address("unix:/nonexistent/socket"), -ENOENT);
	cr_assert_eq(open_address("/nonexistent/socket"), -ENOENT);
	cr_assert_eq(open_address("stream+unix:/nonexistent/socket"), -ENOENT);
	cr_assert_eq(open_address("tcp:engine.example:1"), -EINVAL);
	cr_assert_eq(open_address("unix:relative"), -EINVAL);
	cr_assert_eq(open_address(longest), -ENAMETOOLONG);
	cr_assert_eq(setenv("DSEC_ADDRESS", "/nonexistent/from-environment", 1), 0);
	cr_assert_eq(open_address(NULL), -ENOENT);
	cr_assert_not_null(strstr(dsec_error(NULL, -ENOENT), "/nonexistent/from-environment"));
	cr_assert_eq(setenv("DSEC_DSECD", "/nonexistent/dsecd", 1), 0);
	cr_assert_eq(open_address("private:"), -ENOENT);
}

/* ---- callers ---- */

BOTH_TRANSPORTS(an_unknown_tail_is_e2big_and_a_known_size_is_needed)
{
	struct peer *peer = peer_start(transport, &(struct peer_options){ .serve = serve_nothing });
	struct dsec *d = peer_connect(peer, 0);
	struct {
		struct dsec_create_opts known;
		uint64_t newer;
	} opts = { .known = { .size = sizeof(opts), .image = "debian" } };
	struct dsec_create_opts unsized = { .image = "debian" };

	cr_assert_geq(dsec_create(d, NULL, &opts.known), 0, "a zero tail is fine");
	opts.newer = 1ull << 63;
	cr_assert_eq(dsec_create(d, NULL, &opts.known), -E2BIG);
	opts.known.size = 1 << 20;
	cr_assert_eq(dsec_create(d, NULL, &opts.known), -E2BIG);
	cr_assert_eq(dsec_create(d, NULL, &unsized), -EINVAL);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(impossible_requests_are_refused_before_they_are_sent)
{
	struct peer *peer = peer_start(transport, &(struct peer_options){ .serve = serve_nothing });
	struct dsec *d = peer_connect(peer, 0);
	struct dsec_id id = { 0, 1 };
	struct dsec_bytes argv[] = { { "true", 4 } }, hole[] = { { NULL, 4 } };
	struct dsec_create_opts create = { .size = sizeof(create), .image = "debian" };
	struct dsec_exec_opts exec = { .size = sizeof(exec), .argv = argv, .argc = 1 };
	struct dsec_select select = { .size = sizeof(select) };
	struct dsec_call call = { .size = sizeof(call), .flags = 2 };
	struct dsec_list_opts list = { .size = sizeof(list), .label_count = 1 };

	cr_assert_eq(dsec_create(NULL, NULL, &create), -EINVAL);
	cr_assert_eq(dsec_create(d, NULL, NULL), -EINVAL);
	cr_assert_eq(dsec_create(d, &call, &create), -EINVAL, "unknown call flags");
	create.flags = 1u << 31;
	cr_assert_eq(dsec_create(d, NULL, &create), -EINVAL, "unknown flags");
	create.flags = 0;
	create.image = "";
	cr_assert_eq(dsec_create(d, NULL, &create), -EINVAL, "no image");
	exec.flags = 1u << 31;
	cr_assert_eq(dsec_exec(d, NULL, id, &exec), -EINVAL);
	exec.flags = 0;
	exec.argv = hole;
	cr_assert_eq(dsec_exec(d, NULL, id, &exec), -EINVAL, "NULL with a length");
	exec.argc = 0;
	cr_assert_eq(dsec_exec(d, NULL, id, &exec), -EINVAL, "no program");
	cr_assert_eq(dsec_destroy(d, NULL, &select), -EINVAL, "nothing is not everything");
	select.count = 2;
	cr_assert_eq(dsec_destroy(d, NULL, &select), -EINVAL);
	cr_assert_eq(dsec_list(d, NULL, &list), -EINVAL);
	exec.argv = argv;
	exec.argc = 1;
	exec.input = (struct dsec_bytes){ argv, DSEC_PAYLOAD_BYTES_MAX };
	cr_assert_eq(dsec_exec(d, NULL, id, &exec), -EMSGSIZE);
	cr_assert_eq(dsec_wait(d, -1, 0, NULL), -EINVAL);
	dsec_close(d);
	dsec_close(NULL);
	dsec_queue_free(NULL);
	dsec_event_free(NULL);
	peer_stop(peer);
}
