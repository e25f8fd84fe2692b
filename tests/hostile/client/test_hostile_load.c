/*
 * Attacks by number: storms of cancels and deadlines, connections that come and go, clients that
 * are stopped or killed with work under way, and requests made to keep a shard busy for long.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/hostile/client/claims.h"
#include "tests/hostile/client/payloads.h"
#include "tests/slowness.h"

enum {
	LAST_MS = 60000,
	CONNECTIONS = 500,
	IDS_MAX = 60000,
	POPULATION = 1500,
	LABELS = 64,
	VARIABLES = 512
};

static const struct dsec_wire_id nobody = { 0 };
static const char *const sleeper[] = { "/bin/payload", "sleep", "600", NULL };

/* With an arena for payloads of a megabyte. */
static bool load_open(struct scene *scene, struct raw *ret)
{
	struct dsec_ring_hello hello = raw_hello(DSEC_TRANSPORT_RING);

	hello.arena_bytes = 4 << 20;
	CHECK(raw_open_hello(ret, scene->engine.socket, &hello) == 0);
	return true;
}

static struct pack *pack_disposable(uint32_t count)
{
	struct pack *pack = pack_create(count);

	pack->create.on_disconnect = DSEC_DISCONNECT_DESTROY;
	return pack;
}

static void exec_put(struct raw *raw, uint64_t ticket, struct dsec_wire_id sandbox,
		     const char *const words[], uint32_t timeout_ms)
{
	struct dsec_ring_request entry = {
		.ticket = ticket, .op = DSEC_OP_EXEC, .subject = sandbox, .timeout_ms = timeout_ms
	};
	struct pack *pack = pack_exec(words);

	raw_put_payload(raw, &entry, pack->data, pack->bytes);
	free(pack);
}

/* ---- clients that stop or die ---- */

static void busy_client(struct scene *scene, uint32_t on_disconnect, int told_fd)
{
	static const char *const words[] = { "/bin/payload", "out", "1000000", NULL };
	struct dsec_wire_id sandbox[1];
	struct pack *pack = pack_create(1);
	struct raw raw;

	pack->create.on_disconnect = on_disconnect;
	if (raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) < 0 ||
	    pack_create_ids(&raw, pack, 1, sandbox) != 1)
		_exit(1);
	for (uint32_t i = 0; i < 60; i++)
		exec_put(&raw, i, *sandbox, i % 2 ? sleeper : words, 0);
	raw_doorbell(&raw);
	if (write(told_fd, sandbox, sizeof *sandbox) != sizeof *sandbox)
		_exit(1);
	for (;;)
		(void)pause();
}

/* Stopped for a while, then killed: 60 execs, none of whose events were read. */
static bool busy_client_dies(struct scene *scene, uint32_t on_disconnect,
			     struct dsec_wire_id *ret_sandbox)
{
	struct service service;
	int pair[2], status;
	pid_t pid;

	CHECK(pipe(pair) == 0);
	(void)fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		busy_client(scene, on_disconnect, pair[1]);
	CHECK(read(pair[0], ret_sandbox, sizeof *ret_sandbox) == sizeof *ret_sandbox);
	(void)close(pair[0]);
	(void)close(pair[1]);
	claim_sleep_ms(300);
	CHECK(kill(pid, SIGSTOP) == 0);
	CHECK(neighbour_serve(scene, 200, &service) == 0);
	CHECK(service.median_us < claim_held_up_us());
	CHECK(neighbour_works(scene));
	CHECK(kill(pid, SIGKILL) == 0);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFSIGNALED(status));
	return true;
}

static bool a_killed_client_takes_its_sandboxes_along(struct scene *scene)
{
	struct dsec_wire_id sandbox;

	CHECK(busy_client_dies(scene, DSEC_DISCONNECT_DESTROY, &sandbox));
	CHECK(scene_settles(scene, 10000));
	return true;
}

static bool a_killed_client_leaves_what_it_wanted_kept(struct scene *scene)
{
	struct dsec_holdings now;
	struct dsec_wire_id sandbox;

	CHECK(busy_client_dies(scene, DSEC_DISCONNECT_KEEP, &sandbox));
	claim_sleep_ms(500);
	CHECK(scene_holdings(scene, &now) == 0);
	CHECK(now.sandboxes == scene->before.sandboxes + 1);
	CHECK(neighbour_destroy(scene, &(struct dsec_id){ sandbox.hi, sandbox.lo }, 1) == 0);
	CHECK(scene_settles(scene, 10000));
	return true;
}

/* It leaves while most of its sandboxes have not been begun. */
static bool leaving_amid_a_large_create_leaves_no_sandbox(struct scene *scene)
{
	static const uint32_t after_ms[] = { 0, 5, 50, 200 };

	for (unsigned i = 0; i < sizeof after_ms / sizeof *after_ms; i++) {
		struct dsec_ring_request entry = { .ticket = 1, .op = DSEC_OP_CREATE };
		struct pack *pack = pack_disposable(1000);
		struct raw raw;

		CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
		CHECK(raw_ask(&raw, &entry, pack->data, pack->bytes) == 0);
		free(pack);
		claim_sleep_ms(after_ms[i]);
		raw_close(&raw);
		/* Some may be made meanwhile, none may stay. */
		claim_sleep_ms(300);
		CHECK(scene_settles(scene, 20000));
		claim_sleep_ms(700);
		CHECK(scene_settles(scene, 20000));
	}
	return true;
}

/* ---- storms ---- */

/* A sandbox has places for 64 at once. */
static bool too_many_execs_of_a_sandbox_are_refused(struct scene *scene)
{
	struct dsec_ring_event event;
	struct dsec_wire_id sandbox;
	struct raw raws[2];
	uint32_t refused = 0;
	uint64_t until_us = claim_now_us() + 20000000;

	for (int i = 0; i < 2; i++)
		CHECK(raw_open(&raws[i], scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	CHECK(pack_create_ids(&raws[0], pack_disposable(1), 1, &sandbox) == 1);
	for (int i = 0; i < 2; i++) {
		for (uint32_t k = 0; k < 60; k++)
			exec_put(&raws[i], k, sandbox, sleeper, 0);
		raw_doorbell(&raws[i]);
	}
	while (refused < 120 - 64) {
		for (int i = 0; i < 2; i++)
			while (raw_next(&raws[i], 20, &event, NULL) == 0)
				refused += (event.flags & DSEC_EVENT_LAST) &&
					   event.code == DSEC_REFUSED;
		CHECK(claim_now_us() < until_us);
	}
	CHECK(refused == 120 - 64);
	for (int i = 0; i < 2; i++)
		raw_close(&raws[i]);
	return true;
}

static bool cancels_of_what_is_not_there_are_absent(struct scene *scene)
{
	static const uint64_t tickets[] = { 0, 1, 999, UINT64_MAX };
	struct raw raw, other;

	CHECK(load_open(scene, &raw));
	CHECK(load_open(scene, &other));
	for (unsigned i = 0; i < sizeof tickets / sizeof *tickets; i++) {
		struct dsec_ring_request entry = { .ticket = 77, .op = DSEC_OP_CANCEL };

		entry.number[0] = tickets[i];
		CHECK(raw_code(&raw, &entry, NULL, 0) == DSEC_ABSENT);
	}
	/* One that another client has in flight, which goes on. */
	struct dsec_ring_request foreign = { .ticket = 78, .op = DSEC_OP_CANCEL, .number = { 5 } };
	struct dsec_wire_id sandbox;
	struct dsec_ring_event event;

	CHECK(pack_create_ids(&other, pack_disposable(1), 1, &sandbox) == 1);
	exec_put(&other, 5, sandbox, sleeper, 0);
	raw_doorbell(&other);
	CHECK(raw_next(&other, LAST_MS, &event, NULL) == 0);
	CHECK(event.kind == DSEC_EV_STARTED);
	CHECK(raw_code(&raw, &foreign, NULL, 0) == DSEC_ABSENT);
	CHECK(raw_next(&other, 100, &event, NULL) == -ETIMEDOUT);
	raw_close(&other);
	raw_close(&raw);
	return true;
}

static bool a_storm_of_cancels_ends_every_ticket(struct scene *scene)
{
	struct dsec_wire_id sandbox;
	uint32_t lasts[100] = { 0 };
	struct dsec_ring_event event;
	struct raw raw;

	CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	CHECK(pack_create_ids(&raw, pack_disposable(1), 1, &sandbox) == 1);
	for (uint32_t round = 0; round < 200; round++) {
		for (uint32_t i = 0; i < 4; i++) {
			struct dsec_ring_request entry = { .ticket = i, .op = DSEC_OP_CREATE };
			struct pack *pack = pack_disposable(4);

			pack->create.flags = DSEC_CREATE_DESTROY_IF_CANCELLED;
			if (i % 2)
				exec_put(&raw, i, sandbox, sleeper + 3 * (round % 2), 0);
			else
				raw_put_payload(&raw, &entry, pack->data, pack->bytes);
			free(pack);
		}
		for (uint32_t i = 4; i < 44; i++)
			raw_put(&raw, &(struct dsec_ring_request){ .ticket = i,
								   .op = DSEC_OP_CANCEL,
								   .number = { i % 6 } });
		raw_doorbell(&raw);
		for (uint32_t ended = 0; ended < 44;) {
			CHECK(raw_next(&raw, LAST_MS, &event, NULL) == 0);
			CHECK(event.ticket < 44);
			lasts[event.ticket] += event.flags & DSEC_EVENT_LAST;
			ended += event.flags & DSEC_EVENT_LAST;
		}
	}
	for (uint32_t i = 0; i < 44; i++)
		CHECK(lasts[i] == 200);
	raw_close(&raw);
	return true;
}

static bool a_storm_of_deadlines_ends_every_ticket(struct scene *scene)
{
	struct dsec_wire_id sandbox;
	struct dsec_ring_event event;
	uint32_t late = 0, ended = 0;
	struct raw raw;

	CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	CHECK(pack_create_ids(&raw, pack_disposable(1), 1, &sandbox) == 1);
	for (uint32_t round = 0; round < 30; round++) {
		for (uint32_t i = 0; i < 40; i++) {
			struct dsec_ring_request entry = { .ticket = i,
							   .op = DSEC_OP_CREATE,
							   .timeout_ms = 1 + i % 3 };
			struct pack *pack = pack_disposable(8);

			pack->create.flags = DSEC_CREATE_DESTROY_IF_CANCELLED;
			raw_put_payload(&raw, &entry, pack->data, pack->bytes);
			free(pack);
		}
		exec_put(&raw, 40, sandbox, sleeper, 1);
		raw_doorbell(&raw);
		for (uint32_t lasts = 0; lasts < 41;) {
			CHECK(raw_next(&raw, LAST_MS, &event, NULL) == 0);
			lasts += event.flags & DSEC_EVENT_LAST;
			late += (event.flags & DSEC_EVENT_LAST) && event.code == DSEC_DEADLINE;
		}
		ended += 41;
	}
	printf("  %u of %u ended by their deadline\n", late, ended);
	CHECK(late > ended / 2);
	raw_close(&raw);
	return true;
}

static bool connections_over_the_limit_are_refused(struct scene *scene)
{
	auto_free struct raw *raws = calloc(CONNECTIONS, sizeof *raws);
	const struct dsec_ring_hello hello = raw_hello(DSEC_TRANSPORT_RING);
	uint32_t served = 0, refused = 0;
	struct service service;

	for (uint32_t i = 0; i < CONNECTIONS; i++)
		CHECK(raw_connect(&raws[i], scene->engine.socket) == 0);
	for (uint32_t i = 0; i < CONNECTIONS; i++) {
		(void)raw_send(&raws[i], &hello, sizeof hello); /* it may be closed already */
		CHECK(raw_receive_welcome(&raws[i]) == 0);
		served += raws[i].welcome.code == DSEC_OK;
		refused += raws[i].welcome.code == DSEC_REFUSED;
	}
	printf("  %u served, %u refused\n", served, refused);
	CHECK(served == 254); /* with the neighbour's and the bystander's 256 */
	CHECK(refused == CONNECTIONS - served);
	CHECK(neighbour_serve(scene, 200, &service) == 0);
	CHECK(service.median_us < claim_held_up_us());
	for (uint32_t i = 0; i < CONNECTIONS; i++)
		raw_close(&raws[i]);
	CHECK(scene_settles(scene, 5000));
	return true;
}

static bool connections_dropped_at_once_leave_nothing(struct scene *scene)
{
	const struct dsec_ring_hello hello = raw_hello(DSEC_TRANSPORT_RING);
	struct raw raw;

	for (uint32_t i = 0; i < 5000; i++) {
		CHECK(raw_connect(&raw, scene->engine.socket) == 0);
		if (i % 2)
			(void)raw_send(&raw, &hello, sizeof hello); /* it may be closed already */
		raw_close(&raw);
	}
	CHECK(scene_settles(scene, 5000));
	claim_sleep_ms(100);
	return true;
}

/* ---- requests that are much work ---- */

static bool population_new(struct raw *raw, struct pack *pack)
{
	const uint32_t count = fewer(POPULATION, 150);
	auto_free struct dsec_wire_id *ids = calloc(count, sizeof *ids);

	pack->create.count = count;
	CHECK(pack_create_ids(raw, pack, count, ids) == (int)count);
	return true;
}

/* So many requests at once, while the neighbour asks too. */
static bool others_are_served_beside(struct scene *scene, struct raw *raw, uint16_t op,
				     const void *payload, uint32_t bytes)
{
	struct service service;
	struct dsec_ring_event event;
	uint64_t began_us = claim_now_us();

	CHECK(bytes <= raw->welcome.arena_bytes / 2);
	memcpy(raw->arena + raw->welcome.arena_bytes / 2, payload, bytes);
	for (uint32_t i = 0; i < 32; i++) {
		const struct dsec_ring_request entry = {
			.ticket = i,
			.op = op,
			.payload_at = raw->welcome.arena_bytes / 2,
			.payload_bytes = bytes,
		};

		raw_put(raw, &entry);
	}
	raw_doorbell(raw);
	CHECK(neighbour_serve(scene, 50, &service) == 0);
	for (uint32_t lasts = 0; lasts < 32;) {
		CHECK(raw_next(raw, LAST_MS, &event, NULL) == 0);
		lasts += event.flags & DSEC_EVENT_LAST;
	}
	printf("  op %u: %llu ms of work; meanwhile served in %llu us, at worst %llu us\n", op,
	       (unsigned long long)(claim_now_us() - began_us) / 1000,
	       (unsigned long long)service.median_us, (unsigned long long)service.worst_us);
	CHECK(service.median_us < claim_held_up_us());
	CHECK(service.worst_us < claim_held_up_us());
	return true;
}

static bool selections_of_many_ids_keep_no_shard(struct scene *scene)
{
	const uint32_t bytes = sizeof(struct dsec_wire_select) + IDS_MAX * 16;
	auto_free char *payload = calloc(1, bytes);
	struct dsec_wire_select *select = (struct dsec_wire_select *)payload;
	struct raw raw;

	CHECK(load_open(scene, &raw));
	CHECK(population_new(&raw, pack_disposable(POPULATION)));
	*select = (struct dsec_wire_select){ .size = sizeof *select,
					     .count = IDS_MAX,
					     .ids = { sizeof *select, IDS_MAX * 16 } };
	memset(payload + sizeof *select, 0x77, IDS_MAX * 16);
	CHECK(others_are_served_beside(scene, &raw, DSEC_OP_DESTROY, payload, bytes));
	CHECK(others_are_served_beside(scene, &raw, DSEC_OP_STATS, payload, bytes));
	raw_close(&raw);
	return true;
}

/* Labels that are all different, and of which the last is not the first: the most comparisons. */
static void labels_pack(struct pack *pack, struct dsec_wire_items *labels, const char *first,
			uint32_t pairs)
{
	char key[8];

	for (uint32_t i = 0; i < pairs; i++) {
		uint32_t bytes = (uint32_t)snprintf(key, sizeof key, "%s%03u", first, pairs - i);

		pack_item(pack, labels, key, bytes);
		pack_item(pack, labels, "", 0);
	}
}

static bool selections_of_many_labels_keep_no_shard(struct scene *scene)
{
	struct pack *pack = pack_disposable(POPULATION);
	struct pack *list = pack_new(sizeof list->list);
	struct raw raw;

	CHECK(load_open(scene, &raw));
	labels_pack(pack, &pack->create.labels, "", LABELS);
	CHECK(population_new(&raw, pack));
	for (int i = 0; i < LABELS - 1; i++) {
		pack_item(list, &list->list.labels, "001", 3);
		pack_item(list, &list->list.labels, "", 0);
	}
	pack_item(list, &list->list.labels, "none", 4);
	pack_item(list, &list->list.labels, "", 0);
	CHECK(others_are_served_beside(scene, &raw, DSEC_OP_LIST, list->data, list->bytes));
	free(list);
	raw_close(&raw);
	return true;
}

static bool more_labels_than_a_sandbox_has_are_invalid(struct scene *scene)
{
	struct raw raw;

	CHECK(load_open(scene, &raw));
	for (uint32_t pairs = LABELS + 1; pairs < 10000; pairs *= 4) {
		struct pack *pack = pack_create(1);

		labels_pack(pack, &pack->create.labels, "", pairs);
		CHECK(pack_ask(&raw, DSEC_OP_CREATE, nobody, pack, NULL) == DSEC_INVALID);
		pack = pack_new(sizeof pack->list);
		labels_pack(pack, &pack->list.labels, "", pairs);
		CHECK(pack_ask(&raw, DSEC_OP_LIST, nobody, pack, NULL) == DSEC_INVALID);
		pack = pack_new(sizeof pack->select);
		labels_pack(pack, &pack->select.labels, "", pairs);
		CHECK(pack_ask(&raw, DSEC_OP_STATS, nobody, pack, NULL) == DSEC_INVALID);
	}
	raw_close(&raw);
	return true;
}

/* The most variables that a sandbox and an exec may have, none of them the same. */
static bool environments_of_many_variables_keep_no_shard(struct scene *scene)
{
	static const char *const words[] = { "/bin/payload", NULL };
	struct pack *create = pack_disposable(1), *pack = pack_exec(words);
	struct dsec_wire_id sandbox;
	struct dsec_ring_event event;
	struct service service;
	struct raw raw;

	CHECK(load_open(scene, &raw));
	for (int i = 0; i < VARIABLES; i++) {
		pack_item(create, &create->create.env, "A=", 2);
		pack_item(pack, &pack->exec.env, "B=", 2);
	}
	CHECK(pack_create_ids(&raw, create, 1, &sandbox) == 1);
	for (uint32_t i = 0; i < 32; i++) {
		struct dsec_ring_request entry = { .ticket = i,
						   .op = DSEC_OP_EXEC,
						   .subject = sandbox };

		raw_put_payload(&raw, &entry, pack->data, pack->bytes);
	}
	raw_doorbell(&raw);
	CHECK(neighbour_serve(scene, 50, &service) == 0);
	for (uint32_t lasts = 0; lasts < 32;) {
		CHECK(raw_next(&raw, LAST_MS, &event, NULL) == 0);
		CHECK(!(event.flags & DSEC_EVENT_LAST) || event.code == DSEC_OK);
		lasts += event.flags & DSEC_EVENT_LAST;
	}
	printf("  served in %llu us, at worst %llu us\n", (unsigned long long)service.median_us,
	       (unsigned long long)service.worst_us);
	CHECK(service.worst_us < claim_held_up_us());
	pack_item(pack, &pack->exec.env, "B=", 2);
	CHECK(pack_ask(&raw, DSEC_OP_EXEC, sandbox, pack, NULL) == DSEC_INVALID);
	raw_close(&raw);
	return true;
}

/* Each request of half a megabyte, as many as are taken at once. */
static bool large_payloads_keep_no_shard(struct scene *scene)
{
	const uint32_t bytes = sizeof(struct dsec_wire_list) + 500000;
	auto_free char *payload = calloc(1, bytes);
	struct raw raw;

	*(struct dsec_wire_list *)payload = (struct dsec_wire_list){ .size = bytes };
	CHECK(load_open(scene, &raw));
	for (int i = 0; i < 5; i++)
		CHECK(others_are_served_beside(scene, &raw, DSEC_OP_LIST, payload, bytes));
	raw_close(&raw);
	return true;
}

/* More sandboxes than there may be: created and refused are as many as asked. */
static bool creating_too_many_refuses_the_rest(struct scene *scene)
{
	struct dsec_ring_request entry = { .ticket = 1, .op = DSEC_OP_CREATE };
	struct pack *pack = pack_disposable(32768);
	uint32_t created = 0, refused = 0;
	struct dsec_ring_event event;
	struct service service;
	struct raw raw;

	CHECK(load_open(scene, &raw));
	pack->create.ttl_s = 3600;
	CHECK(raw_ask(&raw, &entry, pack->data, pack->bytes) == 0);
	free(pack);
	entry.op = DSEC_OP_CANCEL;
	entry.number[0] = 1;
	entry.ticket = 2;
	claim_sleep_ms(100);
	CHECK(raw_ask(&raw, &entry, NULL, 0) == 0);
	CHECK(neighbour_serve(scene, 100, &service) == 0);
	CHECK(service.median_us < claim_held_up_us());
	do {
		CHECK(raw_next(&raw, LAST_MS, &event, NULL) == 0);
		created += event.kind == DSEC_EV_CREATED && !event.code;
		refused += event.kind == DSEC_EV_CREATED && event.code;
	} while (event.ticket != 1 || !(event.flags & DSEC_EVENT_LAST));
	printf("  %u created, %u refused or cancelled\n", created, refused);
	CHECK(created + refused == 32768);
	raw_close(&raw);
	return true;
}

int main(int argc, char **argv)
{
	static const struct claim claims[] = {
#define CLAIM(name) { #name, name }
		CLAIM(a_killed_client_takes_its_sandboxes_along),
		CLAIM(a_killed_client_leaves_what_it_wanted_kept),
		CLAIM(leaving_amid_a_large_create_leaves_no_sandbox),
		CLAIM(too_many_execs_of_a_sandbox_are_refused),
		CLAIM(cancels_of_what_is_not_there_are_absent),
		CLAIM(a_storm_of_cancels_ends_every_ticket),
		CLAIM(a_storm_of_deadlines_ends_every_ticket),
		CLAIM(connections_over_the_limit_are_refused),
		CLAIM(connections_dropped_at_once_leave_nothing),
		CLAIM(selections_of_many_ids_keep_no_shard),
		CLAIM(selections_of_many_labels_keep_no_shard),
		CLAIM(more_labels_than_a_sandbox_has_are_invalid),
		CLAIM(environments_of_many_variables_keep_no_shard),
		CLAIM(large_payloads_keep_no_shard),
		CLAIM(creating_too_many_refuses_the_rest),
#undef CLAIM
	};
	const struct engine_options options = { 0 };

	(void)argc;
	return claims_run(claims, sizeof claims / sizeof *claims, &options, argv + 1);
}
