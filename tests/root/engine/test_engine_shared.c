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

/* What a create with these is told: its first sandbox, which is gone then, or the refusal. */
static struct dsec_created created_now(struct dsec *d, const struct dsec_create_opts *opts)
{
	struct dsec_created created = { 0 };
	struct dsec_id id = { 0 };
	struct dsec_event *event;
	int64_t ticket = create_start(d, opts, NULL);
	bool last = ticket < 0;

	while (!last && expect(dsec_wait(d, ticket, -1, &event) == 0)) {
		last = event->flags & DSEC_LAST;
		if (event->kind == DSEC_EV_CREATED && event->body) {
			created = *(const struct dsec_created *)event->body;
			id = event->subject;
		}
		dsec_event_free(event);
	}
	if (created.size)
		sandbox_end(d, id);
	return created;
}

static void a_create_that_names_no_network_shares_or_has_what_its_policy_leaves(struct engine *e)
{
	static const struct {
		const char *policy;
		uint32_t asked, network, why, scope;
	} cases[] = {
		{ NULL, DSEC_NETWORK_DEFAULT, DSEC_NETWORK_SHARED, DSEC_NETWORK_WHY_OPERATOR,
		  DSEC_NETWORK_SCOPE_JOB },
		{ NULL, DSEC_NETWORK_NONE, DSEC_NETWORK_NONE, DSEC_NETWORK_WHY_ASKED, 0 },
		{ NULL, DSEC_NETWORK_SHARED, DSEC_NETWORK_SHARED, DSEC_NETWORK_WHY_ASKED,
		  DSEC_NETWORK_SCOPE_JOB },
		{ "no-network", DSEC_NETWORK_DEFAULT, DSEC_NETWORK_NONE, DSEC_NETWORK_WHY_POLICY,
		  0 },
		{ "own", DSEC_NETWORK_DEFAULT, DSEC_NETWORK_PRIVATE, DSEC_NETWORK_WHY_POLICY, 0 },
	};
	struct dsec *d = way_open(e, blue);
	static const char *const names[] = { "own", NULL };
	struct dsec_id id;

	expect(policy_load(d, "name: own\nnetwork: {mode: private}\n") == DSEC_OK);
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct dsec_create_opts opts = create_opts(1);
		struct dsec_created created;

		opts.policy = cases[i].policy;
		opts.network = cases[i].asked;
		created = created_now(d, &opts);
		if (!expect(created.network == cases[i].network &&
			    created.network_why == cases[i].why &&
			    created.network_scope == cases[i].scope))
			note("%u: network %u why %u scope %u", i, created.network,
			     created.network_why, created.network_scope);
	}
	/* Localhost is there without a word. */
	id = sandbox_make(d);
	expect(reaches(d, id, "127.0.0.1", "Connection refused\n"));
	sandbox_end(d, id);
	policies_remove(d, names);
	dsec_close(d);
}

static struct dsec_id job_make(struct dsec *d, const char *job)
{
	const struct dsec_label label = { { "job", 3 }, { job, strlen(job) } };
	struct dsec_create_opts opts = create_opts(1);
	struct dsec_id id = { 0 };

	opts.labels = &label;
	opts.label_count = 1;
	auto_made struct made made = create_run(d, &opts);

	if (expect(made.created == 1))
		id = made.ids[0];
	return id;
}

static void jobs_of_a_tenant_are_apart_and_those_of_one_job_together(struct engine *e)
{
	static const char *const jobs[] = { "first", "second", "first" };
	struct dsec *d = way_open(e, blue);
	struct dsec_id ids[4];

	ids[3] = sandbox_make(d); /* of no job */
	for (unsigned i = 0; i < 3; i++)
		ids[i] = job_make(d, jobs[i]);
	expect(namespaces_of(e, 4) == 3);
	for (unsigned i = 0; i < 4; i++)
		sandbox_end(d, ids[i]);
	dsec_close(d);
}

static void with_the_scope_of_a_node_jobs_and_tenants_are_in_one_and_reach_nobody(struct engine *e)
{
	struct dsec *ways[2] = { way_open(e, blue), way_open(e, green) };
	struct dsec_create_opts opts = create_opts(1);
	struct dsec_id ids[3];
	int64_t ticket;

	const struct dsec_created created = created_now(ways[0], &opts);

	/* For the first of them the engine loads what it keeps. */
	engine_baseline(e);
	expect(created.network == DSEC_NETWORK_SHARED &&
	       created.network_why == DSEC_NETWORK_WHY_DEFAULT);
	expect(created.network_scope == DSEC_NETWORK_SCOPE_NODE);
	ids[0] = sandbox_make(ways[0]);
	ids[1] = job_make(ways[0], "first");
	ids[2] = job_make(ways[1], "second");
	expect(namespaces_of(e, 3) == 1);
	ticket = named_server(ways[0], ids[0], "any", "blue ");
	answers(ways[0], ids[0], "blue ");
	expect(sweeps(ways[0], ids[1], "open 0 denied 508 other 2\n"));
	expect(sweeps(ways[1], ids[2], "open 0 denied 508 other 2\n"));
	for (int i = 0; i < 3; i++)
		sandbox_end(ways[i == 2], ids[i]);
	(void)ticket_end(ways[0], ticket); /* killed */
	dsec_close(ways[0]);
	dsec_close(ways[1]);
}

static void where_no_program_loads_a_create_that_names_none_has_none_and_says_why(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(1);
	struct dsec_created created;

	for (int i = 0; i < 2; i++) {
		created = created_now(e->d, &opts);
		expect(created.size && created.network == DSEC_NETWORK_NONE &&
		       created.network_why == DSEC_NETWORK_WHY_NO_PROGRAMS);
	}
	expect(engine_log_has(e, "bpf-shared"));
	opts.network = DSEC_NETWORK_SHARED;
	auto_made struct made made = create_run(e->d, &opts);

	expect(made.created == 0 && made.last.code == DSEC_UNSUPPORTED &&
	       !strcmp(made.last.step, "create.network"));
}

static void settings_and_rows_say_so_and_a_narrower_policy_refuses_it(struct engine *e)
{
	struct dsec *d = way_open(e, blue);
	struct dsec_create_opts opts = create_opts(1);
	struct dsec_event *event;
	struct dsec_id id;
	int64_t ticket;

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
	CLAIM(a_create_that_names_no_network_shares_or_has_what_its_policy_leaves),
	CLAIM(jobs_of_a_tenant_are_apart_and_those_of_one_job_together),
	CLAIM(flows_of_one_are_cut_and_none_of_its_neighbours_in_the_namespace),
	CLAIM(two_tenants_are_in_two_namespaces),
	CLAIM(the_engine_after_a_killed_one_shares_anew),
};

static const struct claim claims_wide[] = {
	CLAIM(with_the_scope_of_a_node_jobs_and_tenants_are_in_one_and_reach_nobody),
};

static const struct claim claims_without[] = {
	CLAIM(where_no_program_loads_a_create_that_names_none_has_none_and_says_why),
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
	const char *wide[16] = { "--shared-scope", "node" }, *named[16] = { "--network", "shared" };
	static const char *const small[] = { "--shards", "1", "--sandboxes-max", "12", NULL };
	const struct suite suites[] = {
		SUITE("shared", claims, .arguments = named, .is_hurt = true, .tenant = "*",
		      .has_default_network = true),
		SUITE("shared by all", claims_wide, .arguments = wide, .tenant = "*",
		      .has_default_network = true),
		SUITE("shared without BPF", claims_without, .arguments = small, .has_no_bpf = true,
		      .has_default_network = true),
	};
	const char *const none[] = { NULL };
	int r;

	if (!tenant_folder_make(folder))
		return 1;
	(void)snprintf(doors[0], sizeof doors[0], "name=blue,socket=%s/blue.sock", folder);
	memcpy(wide + 2, arguments, sizeof arguments);
	memcpy(named + 2, arguments, sizeof arguments);
	(void)snprintf(doors[1], sizeof doors[1], "name=green,socket=%s/green.sock", folder);
	r = suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
	if (!tenant_folder_remove(none)) {
		perror(folder); /* a socket that was left */
		return 1;
	}
	return r;
}
