/*
 * Attacks while the engine has no descriptors left: whatever needs one is refused with a reason,
 * what does not is served, and afterwards all is as before.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/hostile/client/claims.h"
#include "tests/hostile/client/payloads.h"

static const struct dsec_wire_id nobody = { 0 };
static const char *const trivial[] = { "/bin/payload", NULL };

/* Exactly so many that it may still open, from now on. */
static bool spare_set(struct scene *scene, uint32_t spare)
{
	struct rlimit limit;

	CHECK(prlimit(scene->engine.pid, RLIMIT_NOFILE, NULL, &limit) == 0);
	limit.rlim_cur = engine_descriptor_limit(&scene->engine, spare);
	CHECK(prlimit(scene->engine.pid, RLIMIT_NOFILE, &limit, NULL) == 0);
	return true;
}

static bool spare_restore(struct scene *scene)
{
	struct rlimit limit;

	CHECK(prlimit(scene->engine.pid, RLIMIT_NOFILE, NULL, &limit) == 0);
	limit.rlim_cur = limit.rlim_max;
	CHECK(prlimit(scene->engine.pid, RLIMIT_NOFILE, &limit, NULL) == 0);
	return true;
}

/* The socket is accepted, and what the connection needs beyond it is not there. */
static bool handshake_is_refused(struct scene *scene, uint32_t spare)
{
	const struct dsec_ring_hello hello = raw_hello(DSEC_TRANSPORT_RING);
	struct raw raw;

	CHECK(spare_set(scene, spare));
	CHECK(raw_connect(&raw, scene->engine.socket) == 0);
	CHECK(raw_send(&raw, &hello, sizeof hello) == 0);
	CHECK(raw_receive_welcome(&raw) == 0);
	printf("  %u spare: code %u \"%s\"\n", spare, raw.welcome.code, raw.welcome.text);
	CHECK(raw.welcome.code == DSEC_REFUSED);
	CHECK(raw_is_cut(&raw, 5000));
	raw_close(&raw);
	return true;
}

static bool a_handshake_without_descriptors_is_refused(struct scene *scene)
{
	bool good = true;

	/* The socket, the memory and a doorbell: three are enough. */
	for (uint32_t spare = 1; spare <= 2; spare++) {
		good &= handshake_is_refused(scene, spare);
		CHECK(spare_restore(scene));
		CHECK(scene_settles(scene, 5000));
	}
	return good;
}

static bool connections_wait(struct scene *scene, struct raw raws[20])
{
	const struct dsec_ring_hello hello = raw_hello(DSEC_TRANSPORT_STREAM);
	uint64_t before_us, used_us;
	struct service service;

	CHECK(spare_set(scene, 0));
	for (int i = 0; i < 20; i++) {
		CHECK(raw_connect(&raws[i], scene->engine.socket) == 0);
		CHECK(raw_send(&raws[i], &hello, sizeof hello) == 0);
	}
	claim_sleep_ms(500);
	before_us = engine_cpu_us(&scene->engine);
	claim_sleep_ms(1000);
	used_us = engine_cpu_us(&scene->engine) - before_us;
	printf("  the engine used %llu ms of 1000\n", (unsigned long long)used_us / 1000);
	CHECK(used_us < claim_spun_us());
	CHECK(neighbour_serve(scene, 200, &service) == 0);
	CHECK(service.median_us < claim_held_up_us());
	return true;
}

/* Connections wait in the socket's queue; the engine neither spins nor forgets them. */
static bool connections_without_descriptors_wait(struct scene *scene)
{
	struct raw raws[20];
	bool good = connections_wait(scene, raws);

	CHECK(spare_restore(scene));
	for (int i = 0; good && i < 20; i++) {
		CHECK(raw_receive_welcome(&raws[i]) == 0);
		CHECK(raws[i].welcome.code == DSEC_OK);
		raw_close(&raws[i]);
	}
	return good;
}

static bool requests_say_so(struct scene *scene, struct raw *raw, struct dsec_wire_id sandbox,
			    uint32_t spare)
{
	struct dsec_wire_id other;
	struct answer answer;
	int code;

	CHECK(spare_set(scene, spare));
	code = pack_ask(raw, DSEC_OP_EXEC, sandbox, pack_exec(trivial), &answer);
	printf("  %u spare: exec %d, step \"%s\", errno %d\n", spare, code, answer.status.step,
	       answer.status.error);
	CHECK(code == DSEC_OK || answer.status.error == EMFILE);
	CHECK((code == DSEC_OK) == (spare >= 4)); /* two pipes */
	if (pack_create_ids(raw, pack_create(1), 1, &other) == 1)
		CHECK(pack_ask(raw, DSEC_OP_DESTROY, other, NULL, NULL) == DSEC_OK);
	CHECK(pack_ask(raw, DSEC_OP_STATS, sandbox, NULL, NULL) == DSEC_OK);
	CHECK(pack_ask(raw, DSEC_OP_LIST, nobody, NULL, NULL) == DSEC_OK);
	return true;
}

static bool requests_without_descriptors_say_so(struct scene *scene)
{
	struct dsec_wire_id sandbox;
	bool good = true;
	struct raw raw;

	CHECK(raw_open(&raw, scene->engine.socket, DSEC_TRANSPORT_RING) == 0);
	CHECK(pack_create_ids(&raw, pack_create(1), 1, &sandbox) == 1);
	for (uint32_t spare = 0; spare < 6; spare++) {
		good &= requests_say_so(scene, &raw, sandbox, spare);
		CHECK(spare_restore(scene));
	}
	CHECK(pack_ask(&raw, DSEC_OP_EXEC, sandbox, pack_exec(trivial), NULL) == DSEC_OK);
	CHECK(pack_ask(&raw, DSEC_OP_DESTROY, sandbox, NULL, NULL) == DSEC_OK);
	raw_close(&raw);
	return good;
}

int main(int argc, char **argv)
{
	static const struct claim claims[] = {
#define CLAIM(name) { #name, name }
		CLAIM(a_handshake_without_descriptors_is_refused),
		CLAIM(connections_without_descriptors_wait),
		CLAIM(requests_without_descriptors_say_so),
#undef CLAIM
	};
	const struct engine_options options = { .arguments = { "--sandboxes-max", "128" } };

	(void)argc;
	return claims_run(claims, sizeof claims / sizeof *claims, &options, argv + 1);
}
