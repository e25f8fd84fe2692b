/*
 * Attacks through shared memory: counters, places and lengths that lie, memory that changes while
 * the engine reads it, wake-ups that are not needed, and clients that never read.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/hostile/client/claims.h"
#include "tests/hostile/client/raw.h"

enum { LAST_MS = 10000, CUT_MS = 5000 };

static bool is_served(struct raw *raw, uint64_t ticket)
{
	struct dsec_ring_request nop = { .ticket = ticket };

	return raw_code(raw, &nop, NULL, 0) == DSEC_OK;
}

/* ---- counters ---- */

static bool a_submission_tail_that_jumps_is_cut(struct scene *scene)
{
	static const uint32_t jumps[] = { 65,	    66,		1000,	      1u << 30,
					  1u << 31, UINT32_MAX, (uint32_t)-64 };

	for (unsigned i = 0; i < sizeof jumps / sizeof *jumps; i++) {
		struct raw raw;

		CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
		CHECK(is_served(&raw, 1));
		__atomic_store_n(&raw.channel->submission_tail, raw.submitted + jumps[i],
				 __ATOMIC_RELEASE);
		raw_doorbell(&raw);
		CHECK(raw_is_cut(&raw, CUT_MS));
		raw_close(&raw);
	}
	return true;
}

/* A head that says more was read than is there, or less, holds events back and nothing else. */
static bool a_completion_head_that_lies_delays_its_own_events(struct scene *scene)
{
	static const uint32_t lies[] = { 1, 255, 1u << 31, (uint32_t)-256 };
	struct dsec_ring_event event;

	for (unsigned i = 0; i < sizeof lies / sizeof *lies; i++) {
		struct dsec_ring_request nop = { .ticket = 5 };
		struct service service;
		struct raw raw;

		CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
		__atomic_store_n(&raw.channel->completion_head, lies[i], __ATOMIC_RELEASE);
		CHECK(raw_ask(&raw, &nop, NULL, 0) == 0);
		CHECK(neighbour_serve(scene, 100, &service) == 0);
		CHECK(service.median_us < claim_held_up_us());
		CHECK(raw.channel->completion_tail == 0);
		__atomic_store_n(&raw.channel->completion_head, 0, __ATOMIC_RELEASE);
		CHECK(raw_last(&raw, 5, LAST_MS, &event, NULL) == 0);
		raw_close(&raw);
	}
	return true;
}

/* ---- payloads and result buffers ---- */

static bool payloads_at_the_borders_are_checked(struct scene *scene)
{
	const uint64_t arena = 1 << 20;
	const struct {
		uint64_t at;
		uint32_t bytes;
		bool cut;
	} cases[] = {
		{ 0, 1, false },
		{ arena - 1, 1, false },
		{ arena - 4096, 4096, false },
		{ 0, DSEC_PAYLOAD_BYTES_MAX, false },
		{ UINT64_MAX, 0, false }, /* no payload: its place says nothing */
		{ arena, 1, true },
		{ arena - 1, 2, true },
		{ 1, DSEC_PAYLOAD_BYTES_MAX, true },
		{ 0, DSEC_PAYLOAD_BYTES_MAX + 1, true },
		{ 0, UINT32_MAX, true },
		{ UINT64_MAX, 1, true },
		{ UINT64_MAX - 15, 16, true },
		{ UINT64_MAX - 15, 17, true },
		{ 1ull << 63, 4096, true },
		{ 1ull << 32, 4096, true },
	};

	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct dsec_ring_request entry = { .ticket = 3,
						   .op = DSEC_OP_LIST,
						   .payload_at = cases[i].at,
						   .payload_bytes = cases[i].bytes };
		struct dsec_ring_event event;
		struct raw raw;

		CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
		CHECK(raw.welcome.arena_bytes == arena);
		raw_put(&raw, &entry);
		raw_doorbell(&raw);
		if (cases[i].cut)
			CHECK(raw_is_cut(&raw, CUT_MS));
		else
			CHECK(raw_last(&raw, 3, LAST_MS, &event, NULL) == 0);
		raw_close(&raw);
	}
	return true;
}

/* A request that fails: its LAST has a payload, which needs a result buffer. */
static const struct dsec_ring_request wrong = { .ticket = 9, .op = DSEC_OP_COUNT };

static bool a_result_buffer_outside_the_arena_is_cut(struct scene *scene)
{
	const uint64_t arena = 1 << 20;
	const struct dsec_ring_buffer cases[] = {
		{ arena, 4096, 0 },
		{ arena - 4095, 4096, 0 },
		{ 0, 0, 0 },
		{ 0, 4095, 0 },
		{ 0, UINT32_MAX, 0 },
		{ 0, (1 << 20) + 1, 0 },
		{ UINT64_MAX, 4096, 0 },
		{ UINT64_MAX - 4095, 4096, 0 },
		{ UINT64_MAX - 4094, 8192, 0 },
		{ 1ull << 63, 1u << 31, 0 },
	};

	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct raw raw;

		CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
		raw.buffers[0] = cases[i];
		raw_put(&raw, &wrong);
		raw_doorbell(&raw);
		CHECK(raw_is_cut(&raw, CUT_MS));
		raw_close(&raw);
	}
	return true;
}

static bool a_buffer_tail_that_jumps_is_cut(struct scene *scene)
{
	static const uint32_t jumps[] = { 65, 1u << 31, UINT32_MAX };

	for (unsigned i = 0; i < sizeof jumps / sizeof *jumps; i++) {
		struct raw raw;

		CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
		__atomic_store_n(&raw.channel->buffer_tail, jumps[i], __ATOMIC_RELEASE);
		raw_put(&raw, &wrong);
		raw_doorbell(&raw);
		CHECK(raw_is_cut(&raw, CUT_MS));
		raw_close(&raw);
	}
	return true;
}

/* Events without a payload overtake nothing, but every LAST comes once there are buffers. */
static bool buffers_posted_late_bring_every_last(struct scene *scene)
{
	struct dsec_ring_event event;
	struct service service;
	struct raw raw;

	CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	raw.posted = 0;
	__atomic_store_n(&raw.channel->buffer_tail, 0, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < 10; i++) {
		struct dsec_ring_request entry = wrong;

		entry.ticket = i;
		CHECK(raw_ask(&raw, &entry, NULL, 0) == 0);
	}
	CHECK(neighbour_serve(scene, 100, &service) == 0);
	CHECK(raw.channel->completion_tail == 0);
	raw_buffers_post(&raw, 10);
	for (uint32_t i = 0; i < 10; i++) {
		CHECK(raw_next(&raw, LAST_MS, &event, NULL) == 0);
		CHECK(event.ticket == i);
		CHECK(event.flags & DSEC_EVENT_LAST);
		CHECK(event.code == DSEC_UNSUPPORTED);
	}
	raw_close(&raw);
	return true;
}

/* ---- tickets ---- */

static bool a_ticket_used_twice_ends_twice(struct scene *scene)
{
	struct dsec_ring_event event;
	struct raw raw;

	CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	for (int i = 0; i < 40; i++) {
		struct dsec_ring_request entry = { .ticket = 1,
						   .op = i % 2 ? DSEC_OP_CHECK : DSEC_OP_CANCEL,
						   .number = { i % 4 < 2 } };

		raw_put(&raw, &entry);
	}
	raw_doorbell(&raw);
	for (int i = 0; i < 40; i++)
		CHECK(raw_last(&raw, 1, LAST_MS, &event, NULL) == 0);
	CHECK(raw_next(&raw, 100, &event, NULL) == -ETIMEDOUT);
	raw_close(&raw);
	return true;
}

/* ---- clients that do not read ---- */

static bool requests_never_read_keep_their_lasts(struct scene *scene)
{
	uint32_t lasts[64] = { 0 };
	struct dsec_ring_event event;
	struct service service;
	struct raw raw;

	CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	for (uint32_t i = 0; i < 64; i++) {
		struct dsec_ring_request entry = { .ticket = i, .op = i % 3 ? DSEC_OP_CHECK : 99 };

		raw_put(&raw, &entry);
	}
	raw_doorbell(&raw);
	CHECK(neighbour_serve(scene, 200, &service) == 0);
	CHECK(service.median_us < claim_held_up_us());
	for (uint32_t i = 0; i < 64; i++) {
		CHECK(raw_next(&raw, LAST_MS, &event, NULL) == 0);
		CHECK(event.flags & DSEC_EVENT_LAST);
		CHECK(event.ticket < 64);
		lasts[event.ticket]++;
	}
	for (uint32_t i = 0; i < 64; i++)
		CHECK(lasts[i] == 1);
	raw_close(&raw);
	return true;
}

/* Requests as fast as they are taken, for a second; nothing is read. */
static bool a_client_that_never_reads_is_held_back(struct scene *scene)
{
	uint64_t before = engine_resident_bytes(&scene->engine), until_us;
	struct service service;
	struct raw raw;

	CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	until_us = claim_now_us() + 1000000;
	while (claim_now_us() < until_us) {
		const struct dsec_ring_request nop = { .ticket = raw.submitted };

		if (raw.submitted -
			    __atomic_load_n(&raw.channel->submission_head, __ATOMIC_ACQUIRE) <
		    raw.welcome.submission_entries)
			raw_put(&raw, &nop);
		else
			raw_doorbell(&raw);
	}
	/* All that fits: the ring of events, a ring of requests in flight, one of them waiting. */
	CHECK(raw.submitted <= raw.welcome.completion_entries + 2 * raw.welcome.submission_entries);
	CHECK(engine_resident_bytes(&scene->engine) < before + (32 << 20));
	CHECK(neighbour_serve(scene, 200, &service) == 0);
	CHECK(service.median_us < claim_held_up_us());
	for (uint32_t i = 0; i < raw.submitted; i++) {
		struct dsec_ring_event event;

		CHECK(raw_next(&raw, LAST_MS, &event, NULL) == 0);
		CHECK(event.ticket == i);
	}
	raw_close(&raw);
	return true;
}

/* While its events wait for room, the engine does not spin for it. */
static bool a_client_that_never_reads_costs_no_time(struct scene *scene)
{
	uint64_t before_us, used_us;
	struct raw raw;

	CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	__atomic_store_n(&raw.channel->completion_head, 1u << 31, __ATOMIC_RELEASE);
	for (uint32_t i = 0; i < 64; i++)
		raw_put(&raw, &(struct dsec_ring_request){ .ticket = i });
	raw_doorbell(&raw);
	claim_sleep_ms(100);
	for (uint32_t i = 0; i < 64; i++)
		raw_put(&raw, &(struct dsec_ring_request){ .ticket = i });
	raw_doorbell(&raw);
	claim_sleep_ms(100);
	before_us = engine_cpu_us(&scene->engine);
	claim_sleep_ms(1000);
	used_us = engine_cpu_us(&scene->engine) - before_us;
	printf("  the engine used %llu ms of 1000\n", (unsigned long long)used_us / 1000);
	CHECK(used_us < claim_spun_us());
	raw_close(&raw);
	return true;
}

/* ---- wake-ups ---- */

static bool any_need_wakeup_is_survived(struct scene *scene)
{
	static const uint32_t modes[] = { 0, 1, 2, 3, 4, 1u << 31, UINT32_MAX };
	struct raw raw;

	CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	for (uint32_t i = 0; i < 20000; i++) {
		__atomic_store_n(&raw.channel->need_wakeup,
				 modes[i % (sizeof modes / sizeof *modes)], __ATOMIC_SEQ_CST);
		CHECK(is_served(&raw, i));
	}
	raw_close(&raw);
	return true;
}

/* CPU time of the engine while nothing is asked of it. */
static uint64_t idle_cpu_us(struct scene *scene)
{
	uint64_t before_us;

	claim_sleep_ms(200);
	before_us = engine_cpu_us(&scene->engine);
	claim_sleep_ms(1000);
	return engine_cpu_us(&scene->engine) - before_us;
}

/* The flags and the counter of the eventfd are the client's as much as the engine's. */
static bool a_doorbell_of_any_mode_neither_blocks_nor_spins(struct scene *scene)
{
	static const int modes[] = { 0, O_NONBLOCK, O_NONBLOCK | O_ASYNC };
	const uint64_t most = UINT64_MAX - 1;

	for (unsigned i = 0; i < sizeof modes / sizeof *modes; i++) {
		uint64_t taken, used_us;
		struct raw raw;

		CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
		CHECK(fcntl(raw.doorbells[0], F_SETFL, modes[i]) == 0);
		CHECK(is_served(&raw, 1));
		used_us = idle_cpu_us(scene);
		printf("  mode 0x%x: the engine used %llu ms of 1000\n", (unsigned)modes[i],
		       (unsigned long long)used_us / 1000);
		CHECK(used_us < claim_spun_us());
		CHECK(is_served(&raw, 2));
		CHECK(fcntl(raw.doorbells[0], F_SETFL, O_NONBLOCK) == 0);
		(void)!write(raw.doorbells[0], &most, sizeof most);
		(void)!write(raw.doorbells[0], &most, sizeof most);
		CHECK(fcntl(raw.doorbells[0], F_SETFL, modes[i]) == 0);
		CHECK(is_served(&raw, 3));
		/* Taken away under the engine's hand. */
		CHECK(fcntl(raw.doorbells[0], F_SETFL, O_NONBLOCK) == 0);
		for (int k = 0; k < 1000; k++) {
			raw_doorbell(&raw);
			(void)!read(raw.doorbells[0], &taken, sizeof taken);
		}
		CHECK(is_served(&raw, 4));
		raw_close(&raw);
	}
	return true;
}

struct flood {
	struct raw raw;
	pthread_t thread;
	_Atomic bool over;
	unsigned seed;
};

static void *ring_for_nothing(void *argument)
{
	struct flood *flood = argument;

	while (!atomic_load(&flood->over))
		raw_doorbell(&flood->raw);
	return NULL;
}

static bool doorbells_for_nothing_leave_others_served(struct scene *scene)
{
	struct flood floods[4] = { 0 };
	struct service service;
	int r;

	for (int i = 0; i < 4; i++) {
		CHECK(raw_open(&floods[i].raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
		CHECK(pthread_create(&floods[i].thread, NULL, ring_for_nothing, &floods[i]) == 0);
	}
	claim_sleep_ms(200);
	r = neighbour_serve(scene, 500, &service);
	for (int i = 0; i < 4; i++) {
		atomic_store(&floods[i].over, true);
		(void)pthread_join(floods[i].thread, NULL);
		raw_close(&floods[i].raw);
	}
	CHECK(r == 0);
	printf("  meanwhile served in %llu us, at worst %llu us\n",
	       (unsigned long long)service.median_us, (unsigned long long)service.worst_us);
	CHECK(service.median_us <
	      claim_held_up_us()); /* four threads that never sleep and two CPUs */
	return true;
}

/* ---- memory that changes while it is read ---- */

/* The last entry and its payload, over and over, between what is good and what is not. */
static void *rewrite_entries(void *argument)
{
	struct flood *flood = argument;
	struct raw *raw = &flood->raw;

	while (!atomic_load(&flood->over)) {
		volatile struct dsec_ring_request *entry =
			&raw->requests[rand_r(&flood->seed) % raw->welcome.submission_entries];
		volatile uint32_t *payload = (volatile uint32_t *)(raw->arena + 512 * 1024);
		uint64_t places[] = { 512 * 1024, 0, raw->welcome.arena_bytes - 1, UINT64_MAX };
		uint32_t lengths[] = { 112, 4, 0, UINT32_MAX, DSEC_PAYLOAD_BYTES_MAX };

		entry->payload_at = places[rand_r(&flood->seed) % 8 ? 0 : rand_r(&flood->seed) % 4];
		entry->payload_bytes =
			lengths[rand_r(&flood->seed) % 8 ? 0 : rand_r(&flood->seed) % 5];
		entry->op = (uint16_t)(rand_r(&flood->seed) % 10);
		payload[rand_r(&flood->seed) % 28] = (uint32_t)rand_r(&flood->seed) >>
						     rand_r(&flood->seed) % 32;
		payload[0] = 112;
	}
	return NULL;
}

/* What was checked is what is used: the client is served or cut, and nothing breaks. */
static bool rewriting_while_the_engine_reads_gains_nothing(struct scene *scene)
{
	uint64_t until_us = claim_now_us() + 3000000;
	uint32_t cuts = 0, asked = 0;

	while (claim_now_us() < until_us) {
		struct flood flood = { .seed = cuts };
		struct raw *raw = &flood.raw;

		CHECK(raw_open(raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
		CHECK(pthread_create(&flood.thread, NULL, rewrite_entries, &flood) == 0);
		for (;;) {
			struct dsec_ring_request entry = { .ticket = asked, .op = DSEC_OP_LIST };
			struct dsec_wire_list list = { .size = 112 };
			struct dsec_ring_event event;

			entry.payload_at = 512 * 1024;
			entry.payload_bytes = 112;
			memcpy(raw->arena + entry.payload_at, &list, sizeof list);
			raw_put(raw, &entry);
			raw_doorbell(raw);
			asked++;
			if (raw_next(raw, 20, &event, NULL) < 0 || claim_now_us() > until_us)
				break;
		}
		atomic_store(&flood.over, true);
		(void)pthread_join(flood.thread, NULL);
		cuts++;
		raw_close(raw);
	}
	printf("  %u requests, %u connections\n", asked, cuts);
	CHECK(asked > 100);
	return true;
}

static void *scribble(void *argument)
{
	struct flood *flood = argument;
	struct raw *raw = &flood->raw;
	uint32_t words = raw->welcome.channel_bytes / 4;

	while (!atomic_load(&flood->over)) {
		volatile uint32_t *word =
			(volatile uint32_t *)raw->channel + (uint32_t)rand_r(&flood->seed) % words;

		*word = (uint32_t)rand_r(&flood->seed) >> rand_r(&flood->seed) % 32;
	}
	return NULL;
}

/* Every word of the channel, the engine's own too. */
static bool scribbling_over_the_channel_hurts_only_oneself(struct scene *scene)
{
	uint64_t until_us = claim_now_us() + 3000000;
	struct service service = { 0 };
	uint32_t connections = 0;

	for (; claim_now_us() < until_us; connections++) {
		struct flood flood = { .seed = connections };

		CHECK(raw_open(&flood.raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
		CHECK(pthread_create(&flood.thread, NULL, scribble, &flood) == 0);
		for (uint32_t i = 0; i < 40; i++) {
			raw_put(&flood.raw, &(struct dsec_ring_request){ .ticket = i });
			raw_doorbell(&flood.raw);
		}
		CHECK(neighbour_serve(scene, 20, &service) == 0);
		atomic_store(&flood.over, true);
		(void)pthread_join(flood.thread, NULL);
		raw_close(&flood.raw);
	}
	printf("  %u connections\n", connections);
	CHECK(service.median_us < claim_held_up_us());
	return true;
}

int main(int argc, char **argv)
{
	static const struct claim claims[] = {
#define CLAIM(name) { #name, name }
		CLAIM(a_submission_tail_that_jumps_is_cut),
		CLAIM(a_completion_head_that_lies_delays_its_own_events),
		CLAIM(payloads_at_the_borders_are_checked),
		CLAIM(a_result_buffer_outside_the_arena_is_cut),
		CLAIM(a_buffer_tail_that_jumps_is_cut),
		CLAIM(buffers_posted_late_bring_every_last),
		CLAIM(a_ticket_used_twice_ends_twice),
		CLAIM(requests_never_read_keep_their_lasts),
		CLAIM(a_client_that_never_reads_is_held_back),
		CLAIM(a_client_that_never_reads_costs_no_time),
		CLAIM(any_need_wakeup_is_survived),
		CLAIM(a_doorbell_of_any_mode_neither_blocks_nor_spins),
		CLAIM(doorbells_for_nothing_leave_others_served),
		CLAIM(rewriting_while_the_engine_reads_gains_nothing),
		CLAIM(scribbling_over_the_channel_hurts_only_oneself),
#undef CLAIM
	};
	const struct engine_options options = { .arguments = { "--sandboxes-max", "128" } };

	(void)argc;
	return claims_run(claims, sizeof claims / sizeof *claims, &options, argv + 1);
}
