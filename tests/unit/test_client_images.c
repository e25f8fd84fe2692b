/* Requests about images: what is refused before it is sent, and rows that an engine may lie in. */
#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

#include "tests/unit/client_peer.h"

/* What the peer answers every image request with. */
struct answer {
	struct dsec_wire_image asked;
	uint16_t kind;
	uint32_t bytes;
	char payload[512];
};

static void serve_image(struct peer *peer, uint32_t channel,
			const struct dsec_ring_request *request, const void *payload)
{
	struct answer *answer = peer->options.state;
	struct dsec_ring_event event = peer_event(request, answer->kind, 0);

	cr_assert_eq(request->op, DSEC_OP_IMAGE);
	memcpy(&answer->asked, payload, sizeof(answer->asked));
	event.bytes = answer->bytes;
	peer_post(peer, channel, &event, answer->payload);
	peer_done(peer, channel, request);
}

static struct dsec_wire_image_row row_lay(struct answer *answer)
{
	struct dsec_wire_image_row row = { .size = sizeof(row), .users = 3, .bytes = 7000 };

	row.files = UINT64_MAX;
	row.name = (struct dsec_wire_ref){ sizeof(row), 5 };
	row.digest = (struct dsec_wire_ref){ sizeof(row) + 5, 6 };
	answer->kind = DSEC_EV_ROW;
	answer->bytes = sizeof(row) + 11;
	memcpy(answer->payload + sizeof(row), "a/b:1sha256", 11);
	return row;
}

static int64_t ask(struct dsec *d, uint32_t verb, const char *source, const char *name)
{
	const struct dsec_image_opts opts = {
		.size = sizeof(opts), .verb = verb, .source = source, .name = name
	};

	return dsec_image(d, NULL, &opts);
}

Test(client_images, what_makes_no_sense_is_refused_before_it_is_sent)
{
	struct answer answer = { 0 };
	struct dsec_bytes layer = { "x", 1 };
	struct dsec_image_opts opts = { .size = sizeof(opts),
					.verb = DSEC_IMAGE_IMPORT,
					.name = "x",
					.layers = &layer,
					.layer_count = 1 };
	struct peer *peer =
		peer_start(DSEC_TRANSPORT_RING,
			   &(struct peer_options){ .serve = serve_image, .state = &answer });
	struct dsec *d = peer_connect(peer, 0);

	cr_assert_eq(dsec_image(d, NULL, NULL), -EINVAL);
	cr_assert_eq(dsec_image(d, NULL, &opts), -EINVAL); /* an import has no layers */
	opts.verb = DSEC_IMAGE_COMPOSE;
	opts.layer_count = 129;
	cr_assert_eq(dsec_image(d, NULL, &opts), -EINVAL);
	opts.layer_count = 1;
	opts.flags = DSEC_IMAGE_DRY_RUN; /* of gc alone */
	cr_assert_eq(dsec_image(d, NULL, &opts), -EINVAL);
	opts.flags = 0;
	opts.sandbox.lo = 1; /* of a pack alone */
	cr_assert_eq(dsec_image(d, NULL, &opts), -EINVAL);
	cr_assert_eq(ask(d, 0, NULL, "x"), -EINVAL);
	cr_assert_eq(ask(d, 12, NULL, "x"), -EINVAL);
	cr_assert_eq(ask(d, DSEC_IMAGE_GC, NULL, "x"), -EINVAL);
	cr_assert_eq(ask(d, DSEC_IMAGE_PACK, NULL, "x"), -EINVAL);
	cr_assert_eq(ask(d, DSEC_IMAGE_PUSH, NULL, "x"), -EINVAL);
	cr_assert_eq(ask(d, DSEC_IMAGE_IMPORT, NULL, NULL), -EINVAL);
	cr_assert_eq(ask(d, DSEC_IMAGE_IMPORT, NULL, ""), -EINVAL);
	cr_assert_eq(ask(d, DSEC_IMAGE_IMPORT, "docker", "x"), -EINVAL);
	cr_assert_eq(ask(d, DSEC_IMAGE_REMOVE, "tree", "x"), -EINVAL);
	cr_assert_eq(ask(d, DSEC_IMAGE_LIST, NULL, "x"), -EINVAL);
	opts = (struct dsec_image_opts){ .size = sizeof(opts), .verb = DSEC_IMAGE_REMOVE };
	opts.name = "x";
	opts.tag = "v1"; /* of an import only */
	cr_assert_eq(dsec_image(d, NULL, &opts), -EINVAL);
	opts.verb = DSEC_IMAGE_IMPORT;
	opts.tag = "";
	cr_assert_eq(dsec_image(d, NULL, &opts), -EINVAL);
	cr_assert_eq(answer.asked.size, 0);
	dsec_close(d);
	peer_stop(peer);
}

Test(client_images, sources_are_kinds_on_the_wire_and_rows_are_told)
{
	static const struct {
		const char *source;
		uint32_t kind;
	} sources[] = { { NULL, DSEC_IMAGE_AUTO },
			{ "tree", DSEC_IMAGE_TREE },
			{ "archive", DSEC_IMAGE_ARCHIVE } };
	struct answer answer = { 0 };
	struct dsec_wire_image_row wire = row_lay(&answer);
	struct peer *peer =
		peer_start(DSEC_TRANSPORT_RING,
			   &(struct peer_options){ .serve = serve_image, .state = &answer });
	struct dsec *d = peer_connect(peer, 0);

	memcpy(answer.payload, &wire, sizeof(wire));
	for (size_t at = 0; at < sizeof(sources) / sizeof(sources[0]); at++) {
		int64_t ticket = ask(d, DSEC_IMAGE_IMPORT, sources[at].source, "a/b:1");
		const struct dsec_image_row *row;
		struct dsec_event *event;

		cr_assert_eq(dsec_wait(d, ticket, 5000, &event), 0);
		cr_assert_eq(event->kind, DSEC_EV_ROW);
		row = event->body;
		cr_assert_not_null(row);
		cr_assert_eq(row->users, 3);
		cr_assert_eq(row->bytes, 7000);
		cr_assert_eq(row->files, UINT64_MAX);
		cr_assert_eq(row->name.bytes, 5);
		cr_assert_eq(memcmp(row->name.data, "a/b:1", 5), 0);
		cr_assert_eq(memcmp(row->digest.data, "sha256", 6), 0);
		cr_assert_eq(row->created.bytes, 0);
		dsec_event_free(event);
		cr_assert_eq(dsec_wait(d, ticket, 5000, &event), 0);
		dsec_event_free(event);
		cr_assert_eq(answer.asked.kind, sources[at].kind);
		cr_assert_eq(answer.asked.name.bytes, 5);
	}
	dsec_close(d);
	peer_stop(peer);
}

/* An engine that lies is left: nothing of what it says is believed. */
static void lie_is_seen(const struct answer *answer)
{
	struct answer copy = *answer;
	struct peer *peer =
		peer_start(DSEC_TRANSPORT_STREAM,
			   &(struct peer_options){ .serve = serve_image, .state = &copy });
	struct dsec *d = peer_connect(peer, 0);
	int64_t ticket = ask(d, DSEC_IMAGE_LIST, NULL, NULL);
	struct dsec_event *event;

	cr_assert_eq(dsec_wait(d, ticket, 5000, &event), 0);
	cr_assert(event->flags & DSEC_LAST);
	cr_assert_eq(event->status.code, DSEC_LOST);
	dsec_event_free(event);
	dsec_close(d);
	peer_stop(peer);
}

Test(client_images, rows_that_lie_end_the_connection)
{
	struct answer answer = { 0 };
	struct dsec_wire_image_row good = row_lay(&answer), row = good;

	row.name.at = UINT32_MAX - 2;
	memcpy(answer.payload, &row, sizeof(row));
	lie_is_seen(&answer);
	row = good;
	row.digest.bytes = 7; /* one more than there is */
	memcpy(answer.payload, &row, sizeof(row));
	lie_is_seen(&answer);
	row = good;
	row.size = 1 << 20;
	memcpy(answer.payload, &row, sizeof(row));
	lie_is_seen(&answer);
}
