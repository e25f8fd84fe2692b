/*
 * Attacks by subscriptions: floods of them, fields and credits that lie, and subscribers that never
 * read while others make as many events as they can. Nobody else is held up or told less.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/hostile/client/claims.h"
#include "tests/hostile/client/payloads.h"

enum { LAST_MS = 30000, OWN_MAX = 32, FLOODERS = 12, EVENTS = 3000, PER_SANDBOX = 4 };

static const struct dsec_wire_id everybody = { 0 };

static bool subscribe(struct raw *raw, uint64_t ticket, struct pack *pack)
{
	struct dsec_ring_request entry = { .ticket = ticket, .op = DSEC_OP_SUBSCRIBE };
	int r = raw_ask(raw, &entry, pack->data, pack->bytes);

	free(pack);
	CHECK(r == 0);
	return true;
}

static struct pack *pack_subscribe(void)
{
	struct pack *pack = pack_new(sizeof pack->subscribe);

	pack->subscribe.window = UINT32_MAX; /* clamped */
	return pack;
}

static bool fields_that_lie_are_refused_by_name(struct scene *scene)
{
	static const char *const steps[] = { "subscribe.flags",	   "subscribe.ids",
					     "subscribe.labels",   "subscribe.labels",
					     "subscribe.job",	   "subscribe.reserved",
					     "subscribe.reserved", "subscribe.from_seq" };
	struct raw raw;

	CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) {
		struct pack *pack = pack_subscribe();
		struct dsec_wire_subscribe *wish = &pack->subscribe;
		struct answer answer;

		wish->flags = i == 0 ? 1u << 31 : 0;
		wish->select.count = i == 1 ? UINT32_MAX : 0;
		wish->select.labels.count = i == 2 ? 3 : 0;
		for (int n = 0; i == 3 && n < 18; n++) /* one pair too many */
			pack_item(pack, &wish->select.labels, "x", 1);
		wish->select.job.lo = i == 4;
		wish->select.reserved[3] = i == 5;
		wish->reserved[0] = i == 6;
		wish->from_seq = i == 7 ? UINT64_MAX : 0;
		CHECK(pack_ask(&raw, DSEC_OP_SUBSCRIBE, everybody, pack, &answer) == DSEC_INVALID);
		CHECK(!strcmp(answer.status.step, steps[i]));
	}
	raw_close(&raw);
	return true;
}

/* The STARTED of a ticket, past whatever else comes. */
static bool starts(struct raw *raw, uint64_t ticket)
{
	struct dsec_ring_event event;

	do
		CHECK(raw_next(raw, LAST_MS, &event, NULL) == 0);
	while (event.ticket != ticket);
	CHECK(event.kind == DSEC_EV_STARTED && !(event.flags & DSEC_EVENT_LAST));
	return true;
}

static bool credits_that_lie_are_invalid(struct scene *scene)
{
	static const uint64_t lies[][2] = {
		{ 0, 1 },	   { 0, UINT64_MAX }, { 1, 0 },
		{ UINT32_MAX, 0 }, { UINT64_MAX, 0 }, { 1ull << 32, 0 }
	};
	struct raw raw;

	CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	CHECK(subscribe(&raw, 7, pack_subscribe()));
	CHECK(starts(&raw, 7));
	for (unsigned i = 0; i < sizeof lies / sizeof *lies; i++) {
		struct dsec_ring_request credit = { .ticket = 100 + i,
						    .op = DSEC_OP_CREDIT,
						    .number = { 7, lies[i][0], lies[i][1] } };
		struct dsec_ring_event event;

		CHECK(raw_ask(&raw, &credit, NULL, 0) == 0);
		/* The neighbour's events may come in between. */
		CHECK(raw_last(&raw, 100 + i, LAST_MS, &event, NULL) == 0);
		CHECK(event.code == DSEC_INVALID);
	}
	struct dsec_ring_request input = { .ticket = 200, .op = DSEC_OP_INPUT, .number = { 7 } };

	CHECK(raw_code(&raw, &input, "x", 1) == DSEC_INVALID);
	raw_close(&raw);
	return true;
}

/* As many as a connection may have, from many connections, again and again. */
static bool a_flood_of_subscriptions_costs_nobody_anything(struct scene *scene)
{
	struct service service;
	struct raw raws[FLOODERS];

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < FLOODERS; i++) {
			struct dsec_ring_event last;

			CHECK(raw_open(&raws[i], scene->engine.socket,
				       i % 2 ? DSEC_TRANSPORT_RING : DSEC_TRANSPORT_STREAM) == 0);
			for (uint64_t n = 0; n <= OWN_MAX; n++)
				CHECK(subscribe(&raws[i], n, pack_subscribe()));
			CHECK(raw_last(&raws[i], OWN_MAX, LAST_MS, &last, NULL) == 0);
			CHECK(last.code == DSEC_REFUSED);
		}
		CHECK(neighbour_serve(scene, 200, &service) == 0);
		CHECK(service.median_us < claim_held_up_us());
		CHECK(neighbour_works(scene));
		for (int i = 0; i < FLOODERS; i++)
			raw_close(&raws[i]); /* with all of them under way */
	}
	return true;
}

/* Sandboxes come and go, so many that each has told of itself. */
static bool events_make(struct scene *scene)
{
	struct dsec_id ids[100];

	for (int told = 0; told < EVENTS; told += 100 * PER_SANDBOX) {
		struct pack *pack = pack_create(100);
		struct dsec_wire_id wire[100];
		struct raw raw;
		int made;

		CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
		made = pack_create_ids(&raw, pack, 100, wire);
		if (made != 100)
			printf("  made %d of 100\n", made);
		CHECK(made == 100);
		raw_close(&raw);
		for (int i = 0; i < 100; i++)
			ids[i] = (struct dsec_id){ wire[i].hi, wire[i].lo };
		CHECK(neighbour_destroy(scene, ids, 100) == 0);
	}
	return true;
}

/* One that reads while others do not: it is told of every one of them. */
struct witness {
	uint32_t states, gaps;
};

static bool witness_reads(struct dsec *d, int64_t ticket, struct witness *ret)
{
	struct dsec_event *event;

	while (ret->states < EVENTS / PER_SANDBOX / 100 * 100 * PER_SANDBOX) {
		CHECK(dsec_wait(d, ticket, LAST_MS, &event) == 0);
		ret->states += event->kind == DSEC_EV_STATE;
		ret->gaps += event->kind == DSEC_EV_GAP;
		dsec_event_free(event);
	}
	return true;
}

/*
 * Twelve connections of 32 subscriptions each do not read, or post no buffer, while thousands of
 * events happen: the engine's memory does not grow by them, and a witness misses none.
 */
static bool who_never_reads_holds_up_nobody_and_costs_little(struct scene *scene)
{
	struct dsec_subscribe_opts opts = { .size = sizeof opts, .window = 64 };
	uint64_t before = engine_resident_bytes(&scene->engine), grown;
	struct witness witness = { 0 };
	struct raw raws[FLOODERS];
	struct service service;
	int64_t ticket;

	for (int i = 0; i < FLOODERS; i++) {
		CHECK(raw_open(&raws[i], scene->engine.socket,
			       i % 2 ? DSEC_TRANSPORT_RING : DSEC_TRANSPORT_STREAM) == 0);
		for (uint64_t n = 0; n < OWN_MAX; n++)
			CHECK(subscribe(&raws[i], n, pack_subscribe()));
	}
	ticket = dsec_subscribe(scene->neighbour, NULL, &opts);
	CHECK(ticket >= 0);
	CHECK(events_make(scene));
	CHECK(witness_reads(scene->neighbour, ticket, &witness));
	CHECK(!witness.gaps);
	CHECK(dsec_cancel(scene->neighbour, ticket) == 0);
	CHECK(neighbour_serve(scene, 200, &service) == 0);
	CHECK(service.median_us < claim_held_up_us());
	grown = engine_resident_bytes(&scene->engine) - before;
	printf("  %d subscriptions that are not read: %llu MiB\n", FLOODERS * OWN_MAX,
	       (unsigned long long)grown >> 20);
	CHECK(grown < 64 << 20);
	for (int i = 0; i < FLOODERS; i++)
		raw_close(&raws[i]);
	return true;
}

int main(int argc, char **argv)
{
	static const struct claim claims[] = {
#define CLAIM(name) { #name, name }
		CLAIM(fields_that_lie_are_refused_by_name),
		CLAIM(credits_that_lie_are_invalid),
		CLAIM(a_flood_of_subscriptions_costs_nobody_anything),
		CLAIM(who_never_reads_holds_up_nobody_and_costs_little),
#undef CLAIM
	};
	const struct engine_options options = { 0 };

	(void)argc;
	return claims_run(claims, sizeof claims / sizeof *claims, &options, argv + 1);
}
