/*
 * Network `shared`: sandboxes in one network namespace, each with a loopback of its own, and nobody
 * else's in reach; a namespace for each tenant, gone some time after its last sandbox.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/root/engine/port_client.h"
#include "tests/root/engine/tenant_client.h"

enum { PORT = 8080, ROUNDS = 8 };

static const struct way blue = { .door = "blue" }, green = { .door = "green" };

static struct dsec_id shared_make(struct dsec *d)
{
	return networked_make(d, DSEC_NETWORK_SHARED);
}

/* For the first of them the engine loads what it keeps. */
static void shared_load(struct engine *e, struct dsec *d)
{
	sandbox_end(d, shared_make(d));
	engine_baseline(e);
}

/* What the probe says of it: one line. */
static bool says(struct dsec *d, struct dsec_id id, const struct command *c, const char *line)
{
	auto_ran struct ran ran = command_run(d, id, c);
	bool holds = ran_says(&ran, line);

	if (!holds) {
		note("%s %s, not %s", c->argv[1], c->argv[2] ? c->argv[2] : "", line);
		ran_note(&ran);
	}
	return holds;
}

/* What it wrote by now, of a program that may have written nothing. */
static bool wrote_number(const struct ran *ran, int *ret)
{
	const struct dsec_output *output = ran->result ? ran_output(ran, 1) : NULL;
	char text[16] = "";

	if (!output || output->head.bytes >= sizeof text)
		return false;
	memcpy(text, output->head.data, output->head.bytes);
	return sscanf(text, "%d", ret) == 1;
}

static bool reaches(struct dsec *d, struct dsec_id id, const char *address, const char *line)
{
	const struct command c = { .argv = { "probe_net", "reach", address, "8080" } };

	return says(d, id, &c, line);
}

/* The addresses of the engine's first sandboxes: its own two, and all others. */
static bool sweeps(struct dsec *d, struct dsec_id id, const char *line)
{
	const struct command c = { .argv = { "probe_net", "sweep", "8080", "255" } };

	return says(d, id, &c, line);
}

static int64_t named_server(struct dsec *d, struct dsec_id id, const char *where, const char *name)
{
	const char *const words[] = { "probe_net", "serve", where, "8080", name, NULL };

	return server_start(d, id, words, NULL);
}

/* By a forward, which waits until the server is there. */
static void answers(struct dsec *d, struct dsec_id id, const char *name)
{
	struct told told = port_wait(d, id, PORT, 20000);
	char answer[64];

	(void)snprintf(answer, sizeof answer, "%sping end", name);
	if (!expect(told.status.code == DSEC_OK) ||
	    !expect(exchange(&told.forward, "ping ", answer)))
		note("%s: %s %s", name, told.status.step, told.status.detail);
}

/* The network namespaces of all PID 1s there are, `count` of them: how many different ones. */
static unsigned namespaces_of(struct engine *e, unsigned count)
{
	char names[8][64] = { "" };
	unsigned different = 0;
	pid_t pids[8];

	if (!expect(engine_inits(e, pids, 8) == count) || !expect(count <= 8))
		return 0;
	for (unsigned i = 0; i < count; i++) {
		char path[64];
		unsigned at = 0;
		ssize_t bytes;

		(void)snprintf(path, sizeof path, "/proc/%d/ns/net", pids[i]);
		bytes = readlink(path, names[i], sizeof names[i] - 1);
		expect(bytes > 0);
		while (at < i && strcmp(names[at], names[i]) != 0)
			at++;
		different += at == i;
	}
	return different;
}

static void two_in_one_namespace_serve_the_same_port_and_reach_only_themselves(struct engine *e)
{
	struct dsec *d = way_open(e, blue);
	struct dsec_id first, second;
	int64_t tickets[2];

	shared_load(e, d);
	first = shared_make(d);
	second = shared_make(d);
	expect(namespaces_of(e, 2) == 1);
	tickets[0] = named_server(d, first, "any", "first ");
	answers(d, first, "first ");
	expect(reaches(d, second, "127.0.0.1", "Connection refused\n"));
	expect(reaches(d, second, "::1", "Connection refused\n"));
	tickets[1] = named_server(d, second, "any", "second ");
	answers(d, second, "second ");
	answers(d, first, "first ");
	for (int i = 0; i < 2; i++) {
		const struct dsec_id id = i ? second : first;

		expect(reaches(d, id, "127.0.0.1", "open\n"));
		expect(reaches(d, id, "::1", "open\n"));
		/* A server of both families is IPv4's alone by its number. */
		expect(sweeps(d, id, "open 1 denied 508 other 1\n"));
		expect(reaches(d, id, "169.254.169.254", "Operation not permitted\n"));
	}
	sandbox_end(d, first);
	answers(d, second, "second ");
	sandbox_end(d, second);
	(void)ticket_end(d, tickets[0]); /* killed */
	(void)ticket_end(d, tickets[1]);
	/* Its time over, nobody has it. */
	if (!expect(until(15000, holdings_now(e->d).networks == 0)))
		note("%llu", (unsigned long long)holdings_now(e->d).networks);
	dsec_close(d);
}

static void who_has_the_slot_next_finds_nothing_of_who_had_it(struct engine *e)
{
	struct dsec *d = way_open(e, blue);
	static const char *const wheres[] = { "6any", "4any", "6", "4" };

	shared_load(e, d);
	for (int round = 0; round < ROUNDS; round++) {
		const struct command datagram = { .argv = { "probe_net", "send", "127.0.0.1",
							    "9" } };
		struct dsec_id id = shared_make(d);
		int64_t ticket;

		expect(reaches(d, id, "127.0.0.1", "Connection refused\n"));
		expect(says(d, id, &datagram, ""));
		ticket = named_server(d, id, wheres[round % 4], "it ");
		answers(d, id, "it ");
		sandbox_end(d, id);
		(void)ticket_end(d, ticket); /* killed */
	}
	dsec_close(d);
}

/* In one slot after the other, and each is what it was asked to be. */
static void a_slot_changes_its_network_both_ways(struct engine *e)
{
	struct dsec *d = way_open(e, blue);
	static const struct {
		uint32_t network;
		const char *line;
	} turns[] = {
		{ DSEC_NETWORK_NONE, "Operation not permitted\n" },
		{ DSEC_NETWORK_SHARED, "Connection refused\n" },
		{ DSEC_NETWORK_NONE, "Operation not permitted\n" },
		{ DSEC_NETWORK_PRIVATE, "Connection refused\n" },
		{ DSEC_NETWORK_SHARED, "Connection refused\n" },
		{ DSEC_NETWORK_PRIVATE, "Connection refused\n" },
	};
	shared_load(e, d);
	for (unsigned i = 0; i < sizeof turns / sizeof *turns; i++) {
		const struct command far = { .argv = { "probe_net", "reach", "10.64.0.250",
						       "80" } };
		struct dsec_id id = networked_make(d, turns[i].network);

		expect(reaches(d, id, "127.0.0.1", turns[i].line));
		if (turns[i].network == DSEC_NETWORK_SHARED)
			expect(says(d, id, &far, "Operation not permitted\n"));
		if (turns[i].network == DSEC_NETWORK_PRIVATE)
			expect(says(d, id, &far, "Network is unreachable\n"));
		sandbox_end(d, id);
	}
	dsec_close(d);
}

static void abstract_names_reach_nobody(struct engine *e)
{
	struct dsec *d = way_open(e, blue);
	const struct command listen = { .argv = { "probe_ipc", "listen" } };
	const struct command look = { .argv = { "probe_ipc", "connect" } };
	const struct command is_up = SH("test -e /tmp/up && echo 1");
	struct dsec_id first, second;
	int64_t ticket;
	int up = 0;

	shared_load(e, d);
	first = shared_make(d);
	second = shared_make(d);
	ticket = command_start(d, first, &listen, NULL);
	expect(until(10000, ({
			     auto_ran struct ran ran = command_run(d, first, &is_up);

			     wrote_number(&ran, &up);
		     })));
	expect(says(d, first, &look, ""));
	expect(says(d, second, &look, ""));
	sandbox_end(d, first);
	sandbox_end(d, second);
	(void)ticket_end(d, ticket); /* killed */
	dsec_close(d);
}

static void one_that_takes_every_port_takes_none_of_its_neighbours(struct engine *e)
{
	struct dsec *d = way_open(e, blue);
	const struct command hog = SH("probe_net hog >/tmp/taken");
	const struct command look = SH("test -s /tmp/taken && cat /tmp/taken");
	struct dsec_id greedy, neighbour;
	int64_t ticket, server;
	int taken = 0;

	shared_load(e, d);
	greedy = shared_make(d);
	neighbour = shared_make(d);
	ticket = command_start(d, greedy, &hog, NULL);
	expect(until(20000, ({
			     auto_ran struct ran ran = command_run(d, greedy, &look);

			     wrote_number(&ran, &taken);
		     })));
	note("it has %d ports", taken);
	expect(taken > 500 && taken <= 4096);
	server = named_server(d, neighbour, "any", "neighbour ");
	answers(d, neighbour, "neighbour ");
	expect(reaches(d, neighbour, "127.0.0.1", "open\n"));
	sandbox_end(d, greedy);
	sandbox_end(d, neighbour);
	(void)ticket_end(d, ticket); /* killed */
	(void)ticket_end(d, server);
	dsec_close(d);
}

static void settings_and_rows_say_so_and_a_narrower_policy_refuses_it(struct engine *e)
{
	struct dsec *d = way_open(e, blue);
	struct dsec_create_opts opts = create_opts(1);
	struct dsec_event *event;
	struct dsec_id id;
	int64_t ticket;

	shared_load(e, d);
	id = shared_make(d);
	ticket = dsec_inspect(d, NULL, id);
	if (expect(ticket >= 0) && expect(dsec_wait(d, ticket, -1, &event) == 0)) {
		const struct dsec_inspected *inspected = event->body;

		expect(inspected && inspected->settings.network == DSEC_NETWORK_SHARED);
		dsec_event_free(event);
	}
	sandbox_end(d, id);
	opts.network = DSEC_NETWORK_SHARED;
	opts.policy = "no-network";
	auto_made struct made made = create_run(d, &opts);

	if (!expect(made.created == 0 && made.last.code == DSEC_INVALID &&
		    strcmp(made.last.step, "create.network") == 0))
		note("%u created, %u %s %s", made.created, made.last.code, made.last.step,
		     made.last.detail);
	dsec_close(d);
}

static void flows_of_one_are_cut_and_none_of_its_neighbours_in_the_namespace(struct engine *e)
{
	const struct dsec_phase_opts opts = { .size = sizeof opts,
					      .name = "next",
					      .flags = DSEC_PHASE_CUT_FLOWS };
	struct dsec *d = way_open(e, blue);
	struct dsec_event *event;
	struct dsec_id ids[2];
	int64_t talks[2], ticket;

	shared_load(e, d);
	for (int i = 0; i < 2; i++) {
		ids[i] = shared_make(d);
		talks[i] = talk_start(d, ids[i]);
	}
	for (int i = 0; i < 2; i++)
		expect(until(20000, talk_has_begun(d, ids[i])));
	ticket = dsec_phase(d, NULL, ids[0], &opts);
	if (expect(ticket >= 0) && expect(dsec_wait(d, ticket, -1, &event) == 0)) {
		const struct dsec_phased *phased = event->body;

		expect(event->status.code == DSEC_OK && phased && phased->flows_cut >= 2);
		dsec_event_free(event);
	}
	auto_ran struct ran ran = command_wait(d, talks[0]);

	expect(ran_says(&ran, "over\n"));
	expect(engine_running(e, "busybox") == 1); /* the neighbour's */
	expect(reaches(d, ids[0], "127.0.0.1", "Connection refused\n"));
	for (int i = 0; i < 2; i++)
		sandbox_end(d, ids[i]);
	(void)ticket_end(d, talks[1]); /* killed */
	dsec_close(d);
}

static void two_tenants_are_in_two_namespaces(struct engine *e)
{
	struct dsec *ways[2] = { way_open(e, blue), way_open(e, green) };
	struct dsec_id ids[2];
	int64_t ticket;

	for (int i = 0; i < 2; i++)
		ids[i] = shared_make(ways[i]);
	expect(namespaces_of(e, 2) == 2);
	ticket = named_server(ways[0], ids[0], "any", "blue ");
	answers(ways[0], ids[0], "blue ");
	expect(reaches(ways[1], ids[1], "127.0.0.1", "Connection refused\n"));
	for (int i = 0; i < 2; i++)
		sandbox_end(ways[i], ids[i]);
	(void)ticket_end(ways[0], ticket); /* killed */
	dsec_close(ways[0]);
	dsec_close(ways[1]);
	engine_baseline(e);
}

static void the_engine_after_a_killed_one_shares_anew(struct engine *e)
{
	struct dsec *d = way_open(e, blue);
	pid_t before = engine_pid(e);
	struct dsec_id id = shared_make(d);

	expect(reaches(d, id, "127.0.0.1", "Connection refused\n"));
	(void)kill(before, SIGKILL);
	dsec_close(d);
	expect(until(20000, engine_pid(e) && engine_pid(e) != before));
	/* It has the socket before it answers. */
	if (!expect(until(40000, way_try(e, blue, &d) == 0)))
		return;
	id = shared_make(d);
	expect(reaches(d, id, "127.0.0.1", "Connection refused\n"));
	expect(sweeps(d, id, "open 0 denied 508 other 2\n"));
	sandbox_end(d, id);
	dsec_close(d);
}

static const struct claim claims[] = {
	CLAIM(two_in_one_namespace_serve_the_same_port_and_reach_only_themselves),
	CLAIM(who_has_the_slot_next_finds_nothing_of_who_had_it),
	CLAIM(a_slot_changes_its_network_both_ways),
	CLAIM(abstract_names_reach_nobody),
	CLAIM(one_that_takes_every_port_takes_none_of_its_neighbours),
	CLAIM(settings_and_rows_say_so_and_a_narrower_policy_refuses_it),
	CLAIM(flows_of_one_are_cut_and_none_of_its_neighbours_in_the_namespace),
	CLAIM(two_tenants_are_in_two_namespaces),
	CLAIM(the_engine_after_a_killed_one_shares_anew),
};

int main(int argc, char **argv)
{
	char folder[64], doors[2][256];
	const char *const arguments[] = {
		"--shards", "1",	"--sandboxes-max",
		"12",	    "--tenant", "name=default,gateway",
		"--tenant", doors[0],	"--tenant",
		doors[1],   NULL,
	};
	const struct suite suites[] = {
		SUITE("shared", claims, .arguments = arguments, .is_hurt = true, .tenant = "*"),
	};
	const char *const none[] = { NULL };
	int r;

	if (!tenant_folder_make(folder))
		return 1;
	(void)snprintf(doors[0], sizeof doors[0], "name=blue,socket=%s/blue.sock", folder);
	(void)snprintf(doors[1], sizeof doors[1], "name=green,socket=%s/green.sock", folder);
	r = suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
	if (!tenant_folder_remove(none)) {
		perror(folder); /* a socket that was left */
		return 1;
	}
	return r;
}
