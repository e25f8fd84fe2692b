/*
 * Attacks over the stream transport: frames that end early or lie about their length, garbage,
 * readers that are slow or never read, and hanging up when the engine is not listening.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/base/cleanup.h"
#include "tests/hostile/client/claims.h"
#include "tests/hostile/client/payloads.h"

enum { CUT_MS = 5000, LAST_MS = 30000, REQUESTS_MAX = 64 };

static const struct dsec_wire_id nobody = { 0 };

static bool stream_open_raw(struct scene *scene, struct raw *ret)
{
	CHECK(raw_open(ret, scene->engine.socket, DSEC_TRANSPORT_STREAM) == 0);
	return true;
}

static bool frames_that_end_early_leave_nothing(struct scene *scene)
{
	struct dsec_ring_request entry = { .ticket = 1, .op = DSEC_OP_LIST, .payload_bytes = 256 };
	char payload[256] = "";
	struct raw raw;

	for (unsigned bytes = 0; bytes < sizeof entry; bytes += 3) {
		CHECK(stream_open_raw(scene, &raw));
		CHECK(raw_send(&raw, &entry, bytes) == 0);
		raw_close(&raw);
	}
	for (unsigned bytes = 0; bytes < sizeof payload; bytes += 5) {
		CHECK(stream_open_raw(scene, &raw));
		CHECK(raw_send(&raw, &entry, sizeof entry) == 0);
		CHECK(raw_send(&raw, payload, bytes) == 0);
		raw_close(&raw);
	}
	return true;
}

static bool a_frame_may_come_byte_by_byte(struct scene *scene)
{
	struct {
		struct dsec_ring_request entry;
		struct dsec_wire_list list;
	} message = { { .ticket = 1, .op = DSEC_OP_LIST }, { 0 } };
	struct dsec_ring_event event;
	struct raw raw;

	message.entry.payload_bytes = message.list.size = sizeof message.list;
	CHECK(stream_open_raw(scene, &raw));
	for (unsigned i = 0; i < sizeof message; i++)
		CHECK(raw_send(&raw, (char *)&message + i, 1) == 0);
	CHECK(raw_last(&raw, 1, LAST_MS, &event, NULL) == 0);
	CHECK(event.code == DSEC_OK);
	raw_close(&raw);
	return true;
}

static bool a_length_that_lies_is_cut(struct scene *scene)
{
	static const struct dsec_ring_request lies[] = {
		{ .payload_bytes = DSEC_PAYLOAD_BYTES_MAX + 1 },
		{ .payload_bytes = 1u << 31 },
		{ .payload_bytes = UINT32_MAX },
		{ .payload_bytes = UINT32_MAX - 127 },
		{ .payload_at = 1 },
		{ .payload_at = UINT64_MAX, .payload_bytes = 1 },
	};

	for (unsigned i = 0; i < sizeof lies / sizeof *lies; i++) {
		struct raw raw;

		CHECK(stream_open_raw(scene, &raw));
		CHECK(raw_send(&raw, &lies[i], sizeof lies[i]) == 0);
		CHECK(raw_is_cut(&raw, CUT_MS));
		raw_close(&raw);
	}
	return true;
}

static bool the_largest_payload_is_taken(struct scene *scene)
{
	struct dsec_ring_request entry = { .ticket = 1, .op = DSEC_OP_LIST };
	auto_free char *payload = calloc(1, DSEC_PAYLOAD_BYTES_MAX);
	struct raw raw;

	CHECK(stream_open_raw(scene, &raw));
	CHECK(raw_code(&raw, &entry, payload, DSEC_PAYLOAD_BYTES_MAX) == DSEC_INVALID);
	raw_close(&raw);
	return true;
}

static bool garbage_is_answered_or_cut(struct scene *scene)
{
	unsigned seed = 1;

	for (int round = 0; round < 200; round++) {
		char garbage[8192];
		struct raw raw;

		for (unsigned i = 0; i < sizeof garbage; i++)
			garbage[i] = rand_r(&seed) % 3 ? 0 : (char)rand_r(&seed);
		CHECK(stream_open_raw(scene, &raw));
		(void)raw_send(&raw, garbage, sizeof garbage); /* it may be cut meanwhile */
		raw_close(&raw);
	}
	return true;
}

/* ---- readers that are slow ---- */

static bool sandbox_new(struct raw *raw, uint32_t on_disconnect, struct dsec_wire_id *ret)
{
	struct pack *pack = pack_create(1);

	pack->create.on_disconnect = on_disconnect;
	CHECK(pack_create_ids(raw, pack, 1, ret) == 1);
	return true;
}

static bool execs_ask(struct raw *raw, struct dsec_wire_id sandbox, const char *const words[],
		      uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct dsec_ring_request entry = { .ticket = i,
						   .op = DSEC_OP_EXEC,
						   .subject = sandbox };
		struct pack *pack = pack_exec(words);

		pack->exec.head_bytes = pack->exec.tail_bytes = 1 << 20;
		CHECK(raw_ask(raw, &entry, pack->data, pack->bytes) == 0);
		free(pack);
	}
	return true;
}

/* Output that waits for its reader is all there, in order, and hurts nobody meanwhile. */
static bool large_outputs_wait_for_a_slow_reader(struct scene *scene)
{
	static const char *const words[] = { "/bin/payload", "out", "1500000", NULL };
	enum { EXECS = 16 };
	uint64_t got[EXECS] = { 0 };
	struct dsec_wire_id sandbox;
	struct dsec_ring_event event;
	struct service service;
	struct raw raw;

	CHECK(stream_open_raw(scene, &raw));
	CHECK(sandbox_new(&raw, DSEC_DISCONNECT_DESTROY, &sandbox));
	CHECK(execs_ask(&raw, sandbox, words, EXECS));
	claim_sleep_ms(1000);
	CHECK(neighbour_serve(scene, 200, &service) == 0);
	CHECK(service.median_us < claim_held_up_us());
	for (int lasts = 0; lasts < EXECS;) {
		CHECK(raw_next(&raw, LAST_MS, &event, NULL) == 0);
		CHECK(event.ticket < EXECS);
		lasts += !!(event.flags & DSEC_EVENT_LAST);
		if (event.kind != DSEC_EV_DATA)
			continue;
		CHECK(event.offset == got[event.ticket]);
		got[event.ticket] += event.bytes;
	}
	for (int i = 0; i < EXECS; i++)
		CHECK(got[i] == 1500000);
	raw_close(&raw);
	return true;
}

/* Many rows, each with two kilobytes of labels, asked for many times and not read. */
static bool lists_wait_for_a_slow_reader(struct scene *scene, enum dsec_transport transport)
{
	enum { SANDBOXES = 1000 };
	auto_free struct dsec_wire_id *ids = calloc(SANDBOXES, sizeof *ids);
	/* Signed: the engine gives memory back meanwhile. */
	int64_t before = (int64_t)engine_resident_bytes(&scene->engine), grown;
	struct pack *pack = pack_create(SANDBOXES);
	uint32_t rows = 0, lasts = 0;
	struct dsec_ring_event event;
	struct service service;
	char label[2000];
	struct raw raw;

	memset(label, 'l', sizeof label);
	CHECK(raw_open(&raw, scene->engine.socket, transport) == 0);
	pack->create.on_disconnect = DSEC_DISCONNECT_DESTROY;
	pack_item(pack, &pack->create.labels, label, sizeof label);
	pack_item(pack, &pack->create.labels, "", 0);
	CHECK(pack_create_ids(&raw, pack, SANDBOXES, ids) == SANDBOXES);
	grown = (int64_t)engine_resident_bytes(&scene->engine) - before;
	for (uint32_t i = 0; i < REQUESTS_MAX; i++) {
		struct dsec_ring_request entry = { .ticket = i, .op = DSEC_OP_LIST };

		CHECK(raw_ask(&raw, &entry, NULL, 0) == 0);
	}
	claim_sleep_ms(1000);
	grown = (int64_t)engine_resident_bytes(&scene->engine) - before - grown;
	printf("  %u lists of %u rows wait in %lld MiB\n", REQUESTS_MAX, SANDBOXES,
	       (long long)grown / (1 << 20));
	CHECK(neighbour_serve(scene, 200, &service) == 0);
	CHECK(service.median_us < claim_held_up_us());
	while (lasts < REQUESTS_MAX) {
		CHECK(raw_next(&raw, LAST_MS, &event, NULL) == 0);
		rows += event.kind == DSEC_EV_ROW;
		lasts += !!(event.flags & DSEC_EVENT_LAST);
	}
	CHECK(rows == REQUESTS_MAX * SANDBOXES);
	CHECK(grown < (48 << 20)); /* of 140 MiB in all */
	raw_close(&raw);
	return true;
}

static bool lists_wait_for_a_slow_reader_of_a_stream(struct scene *scene)
{
	return lists_wait_for_a_slow_reader(scene, DSEC_TRANSPORT_STREAM);
}

static bool lists_wait_for_a_slow_reader_of_a_ring(struct scene *scene)
{
	return lists_wait_for_a_slow_reader(scene, DSEC_TRANSPORT_RING);
}

static bool a_stream_that_is_never_read_is_held_back(struct scene *scene)
{
	uint64_t before = engine_resident_bytes(&scene->engine), until_us;
	uint64_t sent_bytes = 0;
	struct service service;
	struct raw raw;

	CHECK(stream_open_raw(scene, &raw));
	until_us = claim_now_us() + 1000000;
	while (claim_now_us() < until_us) {
		struct dsec_ring_request wrong[32];
		ssize_t sent;

		for (unsigned i = 0; i < 32; i++)
			wrong[i] = (struct dsec_ring_request){ .op = 99 };
		sent = send(raw.fd, wrong, sizeof wrong, MSG_DONTWAIT | MSG_NOSIGNAL);
		sent_bytes += sent > 0 ? (uint64_t)sent : 0;
	}
	printf("  %llu KiB taken\n", (unsigned long long)sent_bytes >> 10);
	CHECK(sent_bytes < 16 << 20);
	CHECK(engine_resident_bytes(&scene->engine) < before + (32 << 20));
	CHECK(neighbour_serve(scene, 200, &service) == 0);
	CHECK(service.median_us < claim_held_up_us());
	raw_close(&raw);
	return true;
}

/* ---- hanging up ---- */

/* The engine takes no more requests then, and still sees that the client is gone. */
static bool hanging_up_with_all_requests_in_flight_is_seen(struct scene *scene)
{
	static const char *const words[] = { "/bin/payload", "sleep", "600", NULL };
	struct dsec_wire_id sandboxes[2];
	struct raw raw;

	for (int more = 0; more < 3; more++) {
		CHECK(stream_open_raw(scene, &raw));
		CHECK(sandbox_new(&raw, DSEC_DISCONNECT_DESTROY, &sandboxes[0]));
		CHECK(sandbox_new(&raw, DSEC_DISCONNECT_DESTROY, &sandboxes[1]));
		CHECK(execs_ask(&raw, sandboxes[0], words, REQUESTS_MAX / 2));
		CHECK(execs_ask(&raw, sandboxes[1], words, REQUESTS_MAX / 2 + more));
		claim_sleep_ms(500);
		raw_close(&raw);
		CHECK(scene_settles(scene, 5000));
	}
	return true;
}

/* Half a hang-up: the client will send nothing more. */
static bool shutting_down_one_direction_ends_the_connection(struct scene *scene)
{
	struct raw raw;

	CHECK(stream_open_raw(scene, &raw));
	CHECK(pack_ask(&raw, DSEC_OP_NOP, nobody, NULL, NULL) == DSEC_OK);
	CHECK(shutdown(raw.fd, SHUT_WR) == 0);
	CHECK(raw_is_cut(&raw, CUT_MS));
	raw_close(&raw);
	CHECK(stream_open_raw(scene, &raw));
	CHECK(shutdown(raw.fd, SHUT_RD) == 0);
	CHECK(raw_send(&raw, &(struct dsec_ring_request){ .op = 99 },
		       sizeof(struct dsec_ring_request)) == 0);
	CHECK(scene_settles(scene, CUT_MS));
	raw_close(&raw);
	return true;
}

int main(int argc, char **argv)
{
	static const struct claim claims[] = {
#define CLAIM(name) { #name, name }
		CLAIM(frames_that_end_early_leave_nothing),
		CLAIM(a_frame_may_come_byte_by_byte),
		CLAIM(a_length_that_lies_is_cut),
		CLAIM(the_largest_payload_is_taken),
		CLAIM(garbage_is_answered_or_cut),
		CLAIM(large_outputs_wait_for_a_slow_reader),
		CLAIM(lists_wait_for_a_slow_reader_of_a_stream),
		CLAIM(lists_wait_for_a_slow_reader_of_a_ring),
		CLAIM(a_stream_that_is_never_read_is_held_back),
		CLAIM(hanging_up_with_all_requests_in_flight_is_seen),
		CLAIM(shutting_down_one_direction_ends_the_connection),
#undef CLAIM
	};
	const struct engine_options options = { 0 };

	(void)argc;
	return claims_run(claims, sizeof claims / sizeof *claims, &options, argv + 1);
}
