/*
 * Connections by TLS to names: forwarded to whom the policy allows by name, whole, and to nobody
 * else, though they share an address. Called by test_engine_names.c, which has the claim. Real
 * clients and servers of TLS (probe_tls.c), in namespaces of the test's own.
 */
#include "tests/root/engine/forwarder_claims.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "tests/root/engine/egress_world.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_follow.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/engine_session.h"
#include "tests/root/engine/names_client.h"

enum { HOOK_TLS = 29, RULE_EGRESS = 0x8006, MANY_BYTES = 16 << 20, MUTES = 64 };

#define ROUTER "10.200.0.2"
#define RESET  "tls: Connection reset by peer\n"
#define DENIED "connect: Operation not permitted\n"

pid_t tls_start(pid_t world, const char *address)
{
	char path[64];
	pid_t pid = fork();

	if (pid)
		return pid;
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	(void)snprintf(path, sizeof path, "/proc/%d/ns/net", world);
	if (setns(open(path, O_RDONLY | O_CLOEXEC), CLONE_NEWNET) == 0)
		(void)execl(PROBE_TLS_PATH, "probe_tls", "serve", address, "443", NULL);
	_exit(1);
}

static struct dsec_id forwarded_in(struct dsec *d, uint32_t network)
{
	if (!policy_put(d, "name: tls-less\nnetwork:\n  mode: shared\n  egress:\n"
			   "    allow: [mixed.example tcp/80, api.example tls]\n") ||
	    !policy_put(d, "name: tls\nphases: {later: tls-less}\nnetwork:\n  mode: shared\n"
			   "  egress:\n    allow: [api.example tls, front.example tls,\n"
			   "      .mirror.example tls/443-444, mixed.example tcp/80]\n"))
		return (struct dsec_id){ 0 };
	return policed_make(d, "tls", network);
}

static struct dsec_id forwarded_make(struct dsec *d)
{
	return forwarded_in(d, DSEC_NETWORK_PRIVATE);
}

static bool learns(struct dsec *d, struct dsec_id id, const char *name, const char *answer)
{
	char script[128];

	(void)snprintf(script, sizeof script, "probe_dns ask %s", name);
	return says(d, id, script, answer);
}

/* The client ends with an error where it is none. */
static bool greets(struct dsec *d, struct dsec_id id, const char *words, const char *expected)
{
	char script[256];

	(void)snprintf(script, sizeof script, "probe_tls %s || :", words);
	return says(d, id, script, expected);
}

static bool is_told(struct dsec *d, struct dsec_id id, const char *name, uint64_t count)
{
	struct told told;

	return until(10000, (told = told_of(d, id), told.count == count)) &&
	       expect(told.hook == HOOK_TLS) && expect(told.rule == RULE_EGRESS) &&
	       (expect(!strcmp(told.text, name)) || (note("\"%s\"", told.text), false));
}

/* ---- claims ---- */

static void a_name_that_is_shown_is_reached_and_no_other_at_that_address(struct engine *e)
{
	struct dsec_id id = forwarded_make(e->d);

	expect(greets(e->d, id, "hi " INTERNET " 443 api.example", DENIED));
	expect(learns(e->d, id, "api.example", "0 " INTERNET "\n"));
	expect(greets(e->d, id, "hi " INTERNET " 443 api.example", "api.example from " HOST "\n"));
	expect(greets(e->d, id, "hi " INTERNET " 443 API.Example bytes",
		      "API.Example from " HOST "\n"));
	expect(greets(e->d, id, "hi " INTERNET " 443 api.example records",
		      "api.example from " HOST "\n"));
	expect(greets(e->d, id, "peer " INTERNET " 443", INTERNET " 443\n"));
	/* One that nothing allows, and one that is allowed and has another address. */
	expect(greets(e->d, id, "hi " INTERNET " 443 hidden.example", RESET));
	expect(is_told(e->d, id, "hidden.example", 1));
	expect(learns(e->d, id, "front.example", "0 " OTHER "\n"));
	expect(greets(e->d, id, "hi " OTHER " 443 front.example", "front.example from " HOST "\n"));
	expect(greets(e->d, id, "hi " INTERNET " 443 front.example", RESET));
	expect(is_told(e->d, id, "front.example", 2));
	expect(learns(e->d, id, "www.mirror.example", "0 " INTERNET "\n"));
	expect(greets(e->d, id, "hi " INTERNET " 443 www.mirror.example",
		      "www.mirror.example from " HOST "\n"));
	expect(greets(e->d, id, "hi " INTERNET " 443 ftp.mirror.example", RESET));
	/* The way there is no other, and nobody gets to the forwarder by itself. */
	expect(greets(e->d, id, "raw " INTERNET " 80 x", DENIED));
	expect(greets(e->d, id, "raw " ROUTER " 443 x", DENIED));
	/* There was nobody to connect to: the client hears of it afterwards. */
	expect(greets(e->d, id, "hi " INTERNET " 444 www.mirror.example", RESET));
	sandbox_end(e->d, id);
}

static void what_shows_no_name_is_reset_and_told(struct engine *e)
{
	struct dsec_id id = forwarded_make(e->d);

	expect(learns(e->d, id, "api.example", "0 " INTERNET "\n"));
	expect(greets(e->d, id, "hi " INTERNET " 443 -", RESET));
	expect(is_told(e->d, id, INTERNET " tcp/443", 1));
	expect(greets(e->d, id, "raw " INTERNET " 443 SSH-2.0-x",
		      "raw: Connection reset by peer\n"));
	expect(is_told(e->d, id, INTERNET " tcp/443", 2));
	/* It looked whether somebody is there: nothing is told of that. */
	expect(says(e->d, id, "nc -w 1 " INTERNET " 443 </dev/null; echo over", "over\n"));
	expect(greets(e->d, id, "hi " INTERNET " 443 api.example", "api.example from " HOST "\n"));
	expect(told_of(e->d, id).count == 2);
	sandbox_end(e->d, id);
}

static uint64_t bytes_to(struct dsec *d, struct dsec_id id, const char *address, uint16_t port)
{
	uint8_t wanted[16] = { [10] = 0xff, [11] = 0xff };
	int64_t ticket = dsec_inspect(d, NULL, id);
	struct dsec_event *event;
	uint64_t bytes = 0;
	bool last = false;

	(void)inet_pton(AF_INET, address, wanted + 12);
	while (!last && expect(ticket >= 0 && dsec_wait(d, ticket, 20000, &event) == 0)) {
		const struct dsec_inspected *seen = event->kind == DSEC_EV_DONE ? event->body :
										  NULL;

		last = event->flags & DSEC_LAST;
		for (uint32_t i = 0; seen && i < seen->egress.flow_count; i++)
			if (!memcmp(seen->egress.flows[i].address, wanted, sizeof wanted) &&
			    seen->egress.flows[i].port == port)
				bytes += seen->egress.flows[i].bytes;
		dsec_event_free(event);
	}
	return bytes;
}

static void what_is_forwarded_is_whole_and_counted_where_it_went(struct engine *e)
{
	struct dsec_id id = forwarded_make(e->d);
	const int bytes = fewer(MANY_BYTES, 1 << 20);
	char script[160], hash[80] = "";
	FILE *said;

	(void)snprintf(script, sizeof script, PROBE_TLS_PATH " hash %d", bytes);
	said = popen(script, "re");
	expect(said && fgets(hash, sizeof hash, said) && strlen(hash) == 65);
	if (said)
		(void)pclose(said); /* what it said is all there is */
	expect(learns(e->d, id, "api.example", "0 " INTERNET "\n"));
	(void)snprintf(script, sizeof script, "get " INTERNET " 443 api.example %d", bytes);
	expect(greets(e->d, id, script, hash));
	expect(bytes_to(e->d, id, INTERNET, 443) < (uint64_t)bytes);
	(void)snprintf(script, sizeof script, "put " INTERNET " 443 api.example %d", bytes);
	expect(greets(e->d, id, script, hash));
	expect(bytes_to(e->d, id, INTERNET, 443) > (uint64_t)bytes);
	expect(bytes_to(e->d, id, ROUTER, 443) == 0);
	sandbox_end(e->d, id);
}

static void a_phase_and_an_end_cut_what_is_forwarded(struct engine *e)
{
	const struct dsec_phase_opts opts = { .size = sizeof opts, .name = "later" };
	struct dsec_id id = forwarded_make(e->d), gone = forwarded_make(e->d);

	expect(learns(e->d, id, "api.example", "0 " INTERNET "\n"));
	expect(learns(e->d, gone, "api.example", "0 " INTERNET "\n"));
	auto_session struct session held =
		session_start(e, id, "probe_tls hold " INTERNET " 443 api.example");
	auto_session struct session other =
		session_start(e, gone, "probe_tls hold " INTERNET " 443 api.example");

	expect(session_sees(&held, "held"));
	expect(session_sees(&other, "held"));
	expect(ticket_end(e->d, dsec_phase(e->d, NULL, id, &opts)).code == DSEC_OK);
	expect(session_sees(&held, "hold: Connection reset by peer"));
	/* What was learned is void, and learned again. */
	expect(greets(e->d, id, "hi " INTERNET " 443 api.example", DENIED));
	expect(learns(e->d, id, "api.example", "0 " INTERNET "\n"));
	expect(greets(e->d, id, "hi " INTERNET " 443 api.example", "api.example from " HOST "\n"));
	sandbox_end(e->d, gone);
	sandbox_end(e->d, id);
}

static void those_in_one_namespace_are_forwarded_each_for_itself(struct engine *e)
{
	struct dsec_id ids[4];

	for (int i = 0; i < 4; i++)
		ids[i] = forwarded_in(e->d, DSEC_NETWORK_SHARED);
	for (int i = 0; i < 4; i++)
		expect(learns(e->d, ids[i], i % 2 ? "front.example" : "api.example",
			      i % 2 ? "0 " OTHER "\n" : "0 " INTERNET "\n"));
	for (int i = 0; i < 4; i++) {
		expect(greets(e->d, ids[i], "hi " INTERNET " 443 api.example",
			      i % 2 ? DENIED : "api.example from " HOST "\n"));
		expect(greets(e->d, ids[i], "hi " OTHER " 443 front.example",
			      i % 2 ? "front.example from " HOST "\n" : DENIED));
	}
	expect(greets(e->d, ids[0], "hi " INTERNET " 443 hidden.example", RESET));
	expect(is_told(e->d, ids[0], "hidden.example", 1));
	expect(greets(e->d, ids[0], "peer " INTERNET " 443", INTERNET " 443\n"));
	for (int i = 0; i < 4; i++)
		sandbox_end(e->d, ids[i]);
}

/* Connections that say nothing have their time, and all the others are tried meanwhile. */
static void (*const meanwhile[])(struct engine *e) = {
	a_name_that_is_shown_is_reached_and_no_other_at_that_address,
	what_shows_no_name_is_reset_and_told,
	what_is_forwarded_is_whole_and_counted_where_it_went,
	a_phase_and_an_end_cut_what_is_forwarded,
	those_in_one_namespace_are_forwarded_each_for_itself,
};

void forwarder_try(struct engine *e)
{
	struct dsec_id id;
	char script[96];

	/* For the first in network shared the engine loads what it keeps. */
	sandbox_end(e->d, forwarded_in(e->d, DSEC_NETWORK_SHARED));
	engine_baseline(e);
	id = forwarded_make(e->d);
	expect(learns(e->d, id, "api.example", "0 " INTERNET "\n"));
	(void)snprintf(script, sizeof script, "probe_tls mute " INTERNET " 443 %d", MUTES);
	auto_session struct session mute = session_start(e, id, script);

	expect(session_sees(&mute, "mute"));
	/* It has all that one may have. */
	expect(greets(e->d, id, "hi " INTERNET " 443 api.example", RESET));
	for (unsigned i = 0; i < sizeof meanwhile / sizeof *meanwhile; i++)
		meanwhile[i](e);
	expect(session_sees(&mute, "open 0"));
	expect(greets(e->d, id, "hi " INTERNET " 443 api.example", "api.example from " HOST "\n"));
	expect(told_of(e->d, id).count == 0);
	sandbox_end(e->d, id);
}
