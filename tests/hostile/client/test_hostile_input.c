/*
 * INPUT, CREDIT and ATTACH that lie: tickets of others and of nobody, offsets and counts beyond any
 * stream, floods of what waits, and clients that go in the middle of it all.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/hostile/client/claims.h"
#include "tests/hostile/client/payloads.h"

enum { LAST_MS = 60000, EXEC = 1000 };

static const struct dsec_wire_id nobody = { 0 };
static const char *const sleeper[] = { "/bin/payload", "sleep", "600", NULL };

static bool input_open(struct scene *scene, struct raw *raw, struct dsec_wire_id *sandbox)
{
	struct dsec_ring_hello hello = raw_hello(DSEC_TRANSPORT_RING);

	hello.arena_bytes = 4 << 20;
	CHECK(raw_open_hello(raw, scene->engine.socket, &hello) == 0);
	CHECK(pack_create_ids(raw, pack_create(1), 1, sandbox) == 1);
	return true;
}

static bool input_close(struct scene *scene, struct raw *raw, struct dsec_wire_id sandbox)
{
	CHECK(pack_ask(raw, DSEC_OP_DESTROY, sandbox, NULL, NULL) == DSEC_OK);
	raw_close(raw);
	return neighbour_works(scene);
}

/* One that sleeps, as ticket EXEC; it has started. */
static bool exec_begin(struct raw *raw, struct dsec_wire_id sandbox, uint32_t flags)
{
	struct dsec_ring_request entry = { .ticket = EXEC, .op = DSEC_OP_EXEC, .subject = sandbox };
	struct dsec_ring_event event = { 0 };
	struct pack *pack = pack_exec(sleeper);

	pack->exec.flags = flags;
	CHECK(raw_ask(raw, &entry, pack->data, pack->bytes) == 0);
	free(pack);
	while (event.ticket != EXEC || event.kind != DSEC_EV_STARTED)
		CHECK(raw_next(raw, LAST_MS, &event, NULL) == 0);
	return true;
}

static int input_code(struct raw *raw, uint64_t ticket, uint64_t offset, uint32_t bytes)
{
	static const char zeros[4096];
	struct dsec_ring_request entry = {
		.ticket = 7, .op = DSEC_OP_INPUT, .offset = offset, .number = { ticket }
	};

	return raw_code(raw, &entry, zeros, bytes);
}

static int credit_code(struct raw *raw, uint64_t ticket, uint64_t stream, uint64_t consumed)
{
	struct dsec_ring_request entry = { .ticket = 8,
					   .op = DSEC_OP_CREDIT,
					   .number = { ticket, stream, consumed } };

	return raw_code(raw, &entry, NULL, 0);
}

static bool tickets_of_nobody_and_of_others_are_absent(struct scene *scene)
{
	static const uint64_t tickets[] = { 0, 1, 7, 8, EXEC, EXEC + 1, UINT64_MAX };
	struct dsec_wire_id sandbox, other;
	struct raw raw, second;

	CHECK(input_open(scene, &raw, &sandbox));
	CHECK(input_open(scene, &second, &other));
	/* On the other channel that ticket is under way. */
	CHECK(exec_begin(&second, other, DSEC_EXEC_STREAM | DSEC_EXEC_INPUT_STREAM));
	for (unsigned i = 0; i < sizeof tickets / sizeof *tickets; i++) {
		CHECK(input_code(&raw, tickets[i], 0, 10) == DSEC_ABSENT);
		CHECK(credit_code(&raw, tickets[i], 1, 0) == DSEC_ABSENT);
	}
	CHECK(input_close(scene, &second, other));
	return input_close(scene, &raw, sandbox);
}

static bool offsets_and_counts_that_cannot_be_are_invalid(struct scene *scene)
{
	static const uint64_t absurd[] = { 1, 1ull << 31, 1ull << 63, UINT64_MAX - 9, UINT64_MAX };
	struct dsec_wire_id sandbox;
	struct raw raw;

	CHECK(input_open(scene, &raw, &sandbox));
	CHECK(exec_begin(&raw, sandbox, DSEC_EXEC_STREAM | DSEC_EXEC_INPUT_STREAM));
	for (unsigned i = 0; i < sizeof absurd / sizeof *absurd; i++) {
		CHECK(input_code(&raw, EXEC, absurd[i], 10) == DSEC_INVALID);
		CHECK(input_code(&raw, EXEC, absurd[i], 0) == DSEC_INVALID);
		CHECK(credit_code(&raw, EXEC, 1, absurd[i]) == DSEC_INVALID);
		CHECK(credit_code(&raw, EXEC, absurd[i] | 4, 0) == DSEC_INVALID);
	}
	CHECK(credit_code(&raw, EXEC, 0, 0) == DSEC_INVALID);
	CHECK(credit_code(&raw, EXEC, 1, 0) == DSEC_OK);
	CHECK(input_code(&raw, EXEC, 0, 10) == DSEC_OK);
	CHECK(input_code(&raw, EXEC, 5, 10) == DSEC_INVALID);
	CHECK(input_code(&raw, EXEC, 10, 0) == DSEC_OK);
	CHECK(input_code(&raw, EXEC, 10, 10) == DSEC_INVALID);
	return input_close(scene, &raw, sandbox);
}

static bool requests_without_such_streams_refuse_them(struct scene *scene)
{
	struct dsec_wire_id sandbox;
	struct raw raw;

	CHECK(input_open(scene, &raw, &sandbox));
	CHECK(exec_begin(&raw, sandbox, 0));
	CHECK(input_code(&raw, EXEC, 0, 10) == DSEC_INVALID);
	CHECK(credit_code(&raw, EXEC, 1, 0) == DSEC_INVALID);
	return input_close(scene, &raw, sandbox);
}

/*
 * Megabytes that a sleeping program does not read: one is taken, the others wait where they came
 * from; the client goes with all of them.
 */
static bool input_that_waits_goes_with_its_client(struct scene *scene)
{
	enum { COUNT = 60, BYTES = 60000 };
	auto_free char *zeros = calloc(1, BYTES);
	struct dsec_holdings now;
	struct dsec_wire_id sandbox;
	struct raw raw, later;

	CHECK(input_open(scene, &raw, &sandbox));
	CHECK(exec_begin(&raw, sandbox, DSEC_EXEC_STREAM | DSEC_EXEC_INPUT_STREAM));
	for (uint64_t i = 0; i < COUNT; i++) {
		struct dsec_ring_request entry = { .ticket = EXEC + 1 + i,
						   .op = DSEC_OP_INPUT,
						   .offset = i * BYTES,
						   .number = { EXEC } };

		CHECK(raw_ask(&raw, &entry, zeros, BYTES) == 0);
	}
	CHECK(neighbour_works(scene));
	raw_close(&raw);
	CHECK(neighbour_works(scene));
	/* The program is there still: its sandbox stays with its connection gone. */
	CHECK(scene_holdings(scene, &now) == 0);
	CHECK(now.execs == 1);
	CHECK(raw_open(&later, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	return input_close(scene, &later, sandbox);
}

static bool attaches_that_lie_are_refused_by_what_they_lie_about(struct scene *scene)
{
	static const uint64_t numbers[] = { 0, 2, 1ull << 32, UINT64_MAX };
	struct dsec_wire_attach attach = { .size = sizeof attach };
	struct dsec_ring_request entry = { .ticket = 9, .op = DSEC_OP_ATTACH };
	struct dsec_wire_id sandbox;
	struct raw raw;

	CHECK(input_open(scene, &raw, &sandbox));
	CHECK(exec_begin(&raw, sandbox, DSEC_EXEC_STREAM));
	entry.subject = sandbox;
	for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		entry.exec = numbers[i];
		CHECK(raw_code(&raw, &entry, &attach, sizeof attach) == DSEC_ABSENT);
	}
	entry.exec = 1;
	attach.flags = 2;
	CHECK(raw_code(&raw, &entry, &attach, sizeof attach) == DSEC_INVALID);
	attach.flags = 0;
	attach.reserved[3] = 1;
	CHECK(raw_code(&raw, &entry, &attach, sizeof attach) == DSEC_INVALID);
	attach.reserved[3] = 0;
	attach.at[1] = 1;
	CHECK(raw_code(&raw, &entry, &attach, sizeof attach) == DSEC_INVALID);
	CHECK(raw_code(&raw, &entry, &attach, 2) == DSEC_INVALID);
	CHECK(raw_code(&raw, &entry, NULL, 0) == DSEC_INVALID);
	attach.at[1] = UINT64_MAX;
	attach.window_bytes = UINT64_MAX;
	attach.flags = DSEC_ATTACH_SO_FAR;
	CHECK(raw_code(&raw, &entry, &attach, sizeof attach) == DSEC_OK);
	entry.subject = nobody;
	CHECK(raw_code(&raw, &entry, &attach, sizeof attach) == DSEC_ABSENT);
	return input_close(scene, &raw, sandbox);
}

int main(int argc, char **argv)
{
	static const struct claim claims[] = {
#define CLAIM(name) { #name, name }
		CLAIM(tickets_of_nobody_and_of_others_are_absent),
		CLAIM(offsets_and_counts_that_cannot_be_are_invalid),
		CLAIM(requests_without_such_streams_refuse_them),
		CLAIM(input_that_waits_goes_with_its_client),
		CLAIM(attaches_that_lie_are_refused_by_what_they_lie_about),
#undef CLAIM
	};
	const struct engine_options options = { .arguments = { "--sandboxes-max", "128" } };

	(void)argc;
	return claims_run(claims, sizeof claims / sizeof *claims, &options, argv + 1);
}
