/*
 * Attacks by what is asked about images: requests that lie, imports that nobody feeds, input that
 * lies. Each is refused with its own code, and nothing of an import is left.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/hostile/client/claims.h"
#include "tests/hostile/client/payloads.h"

enum { IDLERS = 6, IMPORTS_AT_ONCE = 2, WAIT_MS = 20000 };

static const struct dsec_wire_id nobody = { 0 };

static struct pack *pack_image(uint32_t verb, const char *name)
{
	struct pack *pack = pack_new(sizeof pack->image);

	pack->image.verb = verb;
	if (name)
		pack_ref(pack, &pack->image.name, name, (uint32_t)strlen(name));
	return pack;
}

static int image_code(struct raw *raw, struct pack *pack)
{
	return pack_ask(raw, DSEC_OP_IMAGE, nobody, pack, NULL);
}

static const char *name_for(uint32_t verb)
{
	return verb == DSEC_IMAGE_LIST || verb == DSEC_IMAGE_GC ? NULL : "x";
}

static bool fields_that_lie(struct raw *raw, uint32_t verb)
{
	struct pack *pack;

	for (const char *const *name = names_invalid; *name; name++)
		CHECK(image_code(raw, pack_image(verb, *name)) == DSEC_INVALID);
	pack = pack_image(verb, name_for(verb));
	pack->image.flags = 1 << 31;
	CHECK(image_code(raw, pack) == DSEC_INVALID);
	pack = pack_image(verb, name_for(verb));
	pack->image.reserved[0] = 1;
	CHECK(image_code(raw, pack) == DSEC_INVALID);
	pack = pack_image(verb, name_for(verb));
	pack->image.tag = (struct dsec_wire_ref){ UINT32_MAX - 3, 8 };
	CHECK(image_code(raw, pack) == DSEC_INVALID);
	if (verb != DSEC_IMAGE_IMPORT) {
		pack = pack_image(verb, name_for(verb));
		pack_ref(pack, &pack->image.tag, "v1", 2);
		CHECK(image_code(raw, pack) == DSEC_INVALID);
	}
	pack = pack_image(verb, name_for(verb));
	pack->image.kind = verb == DSEC_IMAGE_IMPORT ? 3 : 1;
	CHECK(image_code(raw, pack) == DSEC_INVALID);
	pack = pack_image(verb, NULL);
	pack->image.name = (struct dsec_wire_ref){ UINT32_MAX - 3, 8 };
	CHECK(image_code(raw, pack) == DSEC_INVALID);
	return true;
}

static bool image_requests_that_lie_are_invalid(struct scene *scene)
{
	static const uint32_t verbs[] = { 0, 5, 1u << 31, UINT32_MAX };
	struct raw raw;

	CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	for (unsigned i = 0; i < sizeof verbs / sizeof *verbs; i++)
		CHECK(image_code(&raw, pack_image(verbs[i], "x")) == DSEC_INVALID);
	for (uint32_t verb = DSEC_IMAGE_IMPORT; verb <= DSEC_IMAGE_REMOVE; verb++)
		CHECK(fields_that_lie(&raw, verb));
	CHECK(image_code(&raw, pack_image(DSEC_IMAGE_INSPECT, "none")) == DSEC_ABSENT);
	CHECK(image_code(&raw, pack_image(DSEC_IMAGE_REMOVE, "none")) == DSEC_ABSENT);
	CHECK(image_code(&raw, pack_image(DSEC_IMAGE_LIST, NULL)) == DSEC_OK);
	raw_close(&raw);
	return true;
}

/* An import under the ticket. */
static bool import_begin(struct raw *raw, uint64_t ticket)
{
	struct dsec_ring_request entry = { .ticket = ticket, .op = DSEC_OP_IMAGE };
	struct pack *pack = pack_image(DSEC_IMAGE_IMPORT, "hostile");
	int r = raw_ask(raw, &entry, pack->data, pack->bytes);

	free(pack);
	return r >= 0;
}

static struct dsec_ring_request input_of(uint64_t ticket, uint64_t offset)
{
	return (struct dsec_ring_request){ .ticket = ticket + 100 + offset,
					   .op = DSEC_OP_INPUT,
					   .offset = offset,
					   .number = { ticket } };
}

static int input_code(struct raw *raw, uint64_t ticket, uint64_t offset, const char *text)
{
	struct dsec_ring_request entry = input_of(ticket, offset);

	return raw_code(raw, &entry, text, (uint32_t)strlen(text));
}

/* Nobody waits for what it says: the import's own end may come before. */
static bool input_send(struct raw *raw, uint64_t ticket, uint64_t offset, const char *text)
{
	struct dsec_ring_request entry = input_of(ticket, offset);

	return raw_ask(raw, &entry, text, (uint32_t)strlen(text)) >= 0;
}

static bool imports_become(struct scene *scene, uint64_t count)
{
	uint64_t end_us = claim_now_us() + claim_held_up_us();
	struct dsec_holdings now = { 0 };

	do {
		CHECK(scene_holdings(scene, &now) == 0);
		if (now.imports == count)
			return true;
		claim_sleep_ms(5);
	} while (claim_now_us() < end_us);
	printf("  %llu imports, not %llu\n", (unsigned long long)now.imports,
	       (unsigned long long)count);
	return false;
}

/* They keep both places, and lose them with their connections. */
static bool imports_that_nobody_feeds_end_with_their_clients(struct scene *scene)
{
	struct raw idlers[IDLERS], late;
	struct dsec_wire_status status;
	struct dsec_ring_event last;
	int refused = 0;

	for (int i = 0; i < IDLERS; i++) {
		CHECK(raw_open(&idlers[i], scene->engine.socket,
			       i % 2 ? DSEC_TRANSPORT_RING : DSEC_TRANSPORT_STREAM) == 0);
		CHECK(import_begin(&idlers[i], 1));
		/* One after the other: whoever comes third finds no place. */
		if (i < IMPORTS_AT_ONCE) {
			CHECK(imports_become(scene, (uint64_t)i + 1));
			continue;
		}
		CHECK(raw_last(&idlers[i], 1, WAIT_MS, &last, &status) == 0);
		CHECK(last.code == DSEC_REFUSED);
		CHECK(strstr(status.step, "imports_max"));
		refused++;
	}
	CHECK(refused == IDLERS - IMPORTS_AT_ONCE);
	for (int i = 0; i < IDLERS; i++)
		raw_close(&idlers[i]);
	/* The places are free again; this one says so by failing for its own reason. */
	CHECK(raw_open(&late, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	for (uint64_t ticket = 1;; ticket += 1000) {
		CHECK(import_begin(&late, ticket));
		CHECK(input_send(&late, ticket, 0, "no archive"));
		CHECK(input_send(&late, ticket, 10, ""));
		CHECK(raw_last(&late, ticket, WAIT_MS, &last, &status) == 0);
		if (last.code != DSEC_REFUSED)
			break;
		CHECK(ticket < 500000);
		claim_sleep_ms(20);
	}
	CHECK(last.code == DSEC_INVALID);
	raw_close(&late);
	return true;
}

static bool input_that_lies_is_refused(struct scene *scene)
{
	struct dsec_wire_status status;
	struct dsec_ring_event last;
	struct raw raw;

	CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	CHECK(input_code(&raw, 77, 0, "x") == DSEC_ABSENT);
	CHECK(import_begin(&raw, 1));
	CHECK(input_code(&raw, 1, 5, "a gap") == DSEC_INVALID);
	CHECK(input_code(&raw, 1, UINT64_MAX - 2, "beyond") == DSEC_INVALID);
	CHECK(input_code(&raw, 1, 0, "begin") == DSEC_OK);
	CHECK(input_code(&raw, 1, 0, "begin") == DSEC_OK);
	CHECK(input_code(&raw, 1, 2, "overlaps") == DSEC_INVALID);
	CHECK(input_code(&raw, 1, 5, "") == DSEC_OK);
	CHECK(raw_last(&raw, 1, WAIT_MS, &last, &status) == 0);
	CHECK(last.code == DSEC_INVALID && last.blame == DSEC_BLAME_CALLER);
	CHECK(input_code(&raw, 1, 6, "late") == DSEC_ABSENT);
	raw_close(&raw);
	return true;
}

int main(int argc, char **argv)
{
	static const struct claim claims[] = {
#define CLAIM(name) { #name, name }
		CLAIM(image_requests_that_lie_are_invalid),
		CLAIM(imports_that_nobody_feeds_end_with_their_clients),
		CLAIM(input_that_lies_is_refused),
#undef CLAIM
	};
	const struct engine_options options = { .arguments = { "--sandboxes-max", "128" } };

	(void)argc;
	return claims_run(claims, sizeof claims / sizeof *claims, &options, argv + 1);
}
