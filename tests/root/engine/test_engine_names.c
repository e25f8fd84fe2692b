/*
 * Egress by host name: what a policy names is reached once it was asked for, and nothing else;
 * what it does not name nobody hears of. And what is made of what went out. All of it in network
 * namespaces of the test's own.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/root/engine/dns_world.h"
#include "tests/root/engine/egress_world.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/engine_image.h"
#include "tests/root/engine/forwarder_claims.h"
#include "tests/root/engine/names_client.h"

enum { HOOK_DNS = 28, FLOOD = 20000, SKIPPED = 77 };

static struct dns_log *dns_log;

static uint32_t asked_now(void)
{
	return __atomic_load_n(&dns_log->asked, __ATOMIC_ACQUIRE);
}

/* ---- sandboxes ---- */

static struct dsec_id named_in(struct dsec *d, uint32_t network)
{
	(void)policy_put(d, "name: less\nnetwork:\n  mode: shared\n  egress:\n"
			    "    allow: [mixed.example tcp/80]\n    deny: [" OTHER "]\n");
	if (!policy_put(d, "name: named\nphases: {later: less}\nnetwork:\n  mode: shared\n"
			   "  egress:\n    allow: [api.example tcp/80, .mirror.example tcp/80,\n"
			   "      rebind.example, mixed.example tcp/80, big.example tcp/80-81,\n"
			   "      slow.example]\n    deny: [" OTHER "]\n"
			   "anomalies: {dns-tunnel: {limit: 6}}\n"))
		return (struct dsec_id){ 0 };
	return policed_make(d, "named", network);
}

static struct dsec_id named_make(struct dsec *d)
{
	return named_in(d, DSEC_NETWORK_PRIVATE);
}

static bool reaches(struct dsec *d, struct dsec_id id, const char *address, int port, bool wanted)
{
	char script[128];

	(void)snprintf(script, sizeof script, "nc -w 2 %s %d </dev/null 2>/dev/null; :", address,
		       port);
	return says(d, id, script, wanted ? "from " HOST "\n" : "");
}

/* ---- claims ---- */

static void a_name_is_reached_once_it_was_asked_for_and_no_address_before(struct engine *e)
{
	struct dsec_id id = named_make(e->d), neighbour = named_make(e->d);

	expect(reaches(e->d, id, INTERNET, 80, false));
	expect(says(e->d, id, "probe_dns ask api.example", "0 " INTERNET "\n"));
	expect(reaches(e->d, id, INTERNET, 80, true));
	expect(reaches(e->d, id, INTERNET, 81, false));
	expect(reaches(e->d, neighbour, INTERNET, 80, false));
	expect(reaches(e->d, id, OTHER, 80, false));
	/* By libc, below a suffix, over an alias; an answer with a wrong id came before. */
	expect(says(e->d, neighbour, "nc -w 5 www.mirror.example 80 </dev/null",
		    "from " HOST "\n"));
	expect(says(e->d, neighbour, "echo x >/etc/resolv.conf 2>/dev/null || echo kept",
		    "kept\n"));
	sandbox_end(e->d, id);
	/* Whoever has its slot next knows nothing of it. */
	for (int i = 0; i < 3; i++) {
		id = named_make(e->d);
		expect(reaches(e->d, id, INTERNET, 80, false));
		sandbox_end(e->d, id);
	}
	sandbox_end(e->d, neighbour);
}

static void a_name_that_nothing_allows_is_refused_and_nobody_hears_of_it(struct engine *e)
{
	struct dsec_id id = named_make(e->d);
	const uint32_t before = asked_now();
	struct told told;

	expect(says(e->d, id, "probe_dns ask secret.api.example", "3\n"));
	expect(says(e->d, id, "probe_dns ask secret.example tcp", "3\n"));
	expect(until(10000, (told = told_of(e->d, id), told.count == 2)));
	expect(told.hook == HOOK_DNS && !strcmp(told.text, "secret.example"));
	expect(says(e->d, id, "probe_dns ask _https._tcp.api.example", "3\n"));
	expect(says(e->d, id, "probe_net reach " NAMES " 53", "Operation not permitted\n"));
	expect(asked_now() == before);
	told = told_of(e->d, id);
	expect(told.anomaly == UINT32_MAX);
	/* Names that carry data are an anomaly, allowed or not. */
	expect(says(e->d, id,
		    "for i in 0 1 2 3 4 5; do probe_dns ask "
		    "4d5a9${i}03b8f1c7e2d84f60a19e37bc52.example; done",
		    "3\n3\n3\n3\n3\n3\n"));
	expect(until(10000, told_of(e->d, id).anomaly == DSEC_ANOMALY_DNS_TUNNEL));
	sandbox_end(e->d, id);
}

/* A label, as who creates it for a task gives one. */
static void a_host_that_is_the_tasks_own_taints_who_asks_for_it(struct engine *e)
{
	const struct dsec_label own = { { "task.repository", 15 },
					{ "git.example/a/b mirror.example", 30 } };
	const struct dsec_change_opts opts = {
		.size = sizeof opts, .set = DSEC_CHANGE_LABELS, .label_count = 1, .labels = &own
	};
	struct dsec_id id = named_make(e->d), neighbour = named_make(e->d);
	const struct dsec_select select = { .size = sizeof select, .count = 1, .ids = &id };

	expect(ticket_end(e->d, dsec_change(e->d, NULL, &select, &opts)).code == DSEC_OK);
	expect(says(e->d, id, "probe_dns ask git.example", "3\n"));
	expect(says(e->d, id, "probe_dns ask api.example", "0 " INTERNET "\n"));
	expect(says(e->d, neighbour, "probe_dns ask www.mirror.example", "0 " INTERNET "\n"));
	expect(told_of(e->d, id).anomaly == UINT32_MAX);
	expect(says(e->d, id, "probe_dns ask www.mirror.example", "0 " INTERNET "\n"));
	expect(until(10000, told_of(e->d, id).anomaly == DSEC_ANOMALY_PROXY_OWN_REPOSITORY));
	expect(told_of(e->d, neighbour).anomaly == UINT32_MAX);
	sandbox_end(e->d, id);
	sandbox_end(e->d, neighbour);
}

static void answers_that_lead_home_or_to_a_cloud_are_dropped(struct engine *e)
{
	struct dsec_id id = named_make(e->d);
	struct told told;

	expect(says(e->d, id, "probe_dns ask rebind.example", "0\n"));
	expect(until(10000, (told = told_of(e->d, id), told.hook == HOOK_DNS)));
	expect(!strcmp(told.text, "rebind.example"));
	expect(reaches(e->d, id, "169.254.169.254", 80, false));
	expect(says(e->d, id, "probe_dns ask mixed.example", "0 " INTERNET "\n"));
	expect(reaches(e->d, id, INTERNET, 80, true));
	sandbox_end(e->d, id);
}

static void an_answer_that_is_cut_is_asked_for_by_tcp(struct engine *e)
{
	struct dsec_id id = named_make(e->d);

	expect(says(e->d, id, "probe_dns ask big.example", "0 cut\n"));
	expect(says(e->d, id, "probe_dns ask big.example tcp | wc -w", "33\n"));
	expect(reaches(e->d, id, INTERNET, 81, true));
	/* What the policy denies no name gives. */
	expect(reaches(e->d, id, OTHER, 80, false));
	sandbox_end(e->d, id);
}

static void a_flood_of_one_leaves_another_served(struct engine *e)
{
	struct dsec_id id = named_make(e->d), neighbour = named_make(e->d);
	char script[96];

	(void)snprintf(script, sizeof script, "probe_dns flood slow.example %d", FLOOD);
	const struct command c = SH(script);
	int64_t ticket = command_start(e->d, id, &c, NULL);

	for (int i = 0; i < 5; i++)
		expect(says(e->d, neighbour, "probe_dns ask api.example", "0 " INTERNET "\n"));
	expect(ticket_end(e->d, ticket).code == DSEC_OK);
	expect(says(e->d, neighbour, "probe_dns ask api.example", "0 " INTERNET "\n"));
	sandbox_end(e->d, id);
	sandbox_end(e->d, neighbour);
}

static void a_phase_forgets_what_was_learned_before(struct engine *e)
{
	const struct dsec_phase_opts opts = { .size = sizeof opts, .name = "later" };
	struct dsec_id id = named_make(e->d);

	expect(says(e->d, id, "probe_dns ask api.example", "0 " INTERNET "\n"));
	expect(reaches(e->d, id, INTERNET, 80, true));
	expect(ticket_end(e->d, dsec_phase(e->d, NULL, id, &opts)).code == DSEC_OK);
	expect(reaches(e->d, id, INTERNET, 80, false));
	expect(says(e->d, id, "probe_dns ask api.example", "3\n"));
	expect(says(e->d, id, "probe_dns ask mixed.example", "0 " INTERNET "\n"));
	expect(reaches(e->d, id, INTERNET, 80, true));
	sandbox_end(e->d, id);
}

/* In a guest the next engine takes longer than a client waits for its answer. */
static bool is_answered(struct engine *e)
{
	const struct dsec_open_opts opts = { .size = sizeof opts, .address = e->socket };
	struct dsec *d;

	if (dsec_open(&opts, &d) < 0)
		return false;
	dsec_close(d);
	return true;
}

static void an_engine_that_died_is_followed_by_one_that_answers(struct engine *e)
{
	struct dsec_id id = named_make(e->d);
	pid_t before = engine_pid(e);

	expect(says(e->d, id, "probe_dns ask api.example", "0 " INTERNET "\n"));
	(void)kill(before, SIGKILL);
	expect(until(30000, engine_pid(e) > 0 && engine_pid(e) != before));
	dsec_close(e->d);
	e->d = NULL;
	expect(until(60000, is_answered(e)));
	e->d = engine_connect(e);
	if (!e->d)
		return;
	id = named_make(e->d);
	expect(reaches(e->d, id, INTERNET, 80, false));
	expect(says(e->d, id, "probe_dns ask api.example", "0 " INTERNET "\n"));
	expect(reaches(e->d, id, INTERNET, 80, true));
	sandbox_end(e->d, id);
}

/* On both shards: each of them hears its own. */
static void those_in_one_namespace_ask_each_for_itself(struct engine *e)
{
	struct dsec_id ids[4];

	/* For the first of them the engine loads what it keeps. */
	sandbox_end(e->d, named_in(e->d, DSEC_NETWORK_SHARED));
	engine_baseline(e);
	for (int i = 0; i < 4; i++)
		ids[i] = named_in(e->d, DSEC_NETWORK_SHARED);
	for (int i = 0; i < 4; i++) {
		expect(reaches(e->d, ids[i], INTERNET, 80, false));
		expect(reaches(e->d, ids[i], "api.example", 80, true));
		expect(reaches(e->d, ids[i], INTERNET, 80, true));
	}
	for (int i = 0; i < 4; i++)
		sandbox_end(e->d, ids[i]);
}

/* ---- what went out, and what was not let out ---- */

static void becomes(struct dsec *d, struct dsec_id id, const char *script, uint32_t taint)
{
	auto_ran struct ran ran = shell_run(d, id, script);

	if (!expect(ran.result && ran.result->tainted == taint)) {
		note("\"%s\": not %x", script, taint);
		ran_note(&ran);
	}
}

static void told_is(struct dsec *d, struct dsec_id id, uint32_t anomaly, const char *where)
{
	struct told told;

	if (!expect(until(10000, (told = told_of(d, id), told.anomaly == anomaly))) ||
	    !expect(!strcmp(told.where, where)))
		note("anomaly %u \"%s\", not %u \"%s\"", told.anomaly, told.where, anomaly, where);
}

static void what_went_out_and_what_was_refused_are_judged_by_place(struct engine *e)
{
	const uint32_t bytes = 1u << DSEC_ANOMALY_BYTES_PER_DESTINATION,
		       vcs = 1u << DSEC_ANOMALY_VCS_DIRECT, scan = 1u << DSEC_ANOMALY_PORT_SCAN;
	struct dsec_id id, other;

	if (!policy_put(e->d, "name: watched\nnetwork:\n  mode: private\n  egress:\n"
			      "    allow: [" INTERNET " tcp/22, " OTHER " tcp/82]\nanomalies:\n"
			      "  bytes-per-destination: {limit: 1, severity: taint}\n"
			      "  vcs-direct: {severity: taint}\n"
			      "  port-scan: {limit: 4, window: 3600}\n"))
		return;
	id = policed_make(e->d, "watched", DSEC_NETWORK_PRIVATE);
	other = policed_make(e->d, "watched", DSEC_NETWORK_PRIVATE);
	becomes(e->d, id, "head -c 700000 /dev/zero | nc -w 9 " OTHER " 82", 0);
	becomes(e->d, id, "head -c 700000 /dev/zero | nc -w 9 " OTHER " 82", bytes);
	told_is(e->d, id, DSEC_ANOMALY_BYTES_PER_DESTINATION, OTHER " tcp/82");
	becomes(e->d, id, "nc -w 9 " INTERNET " 22 </dev/null", bytes | vcs);
	told_is(e->d, id, DSEC_ANOMALY_VCS_DIRECT, INTERNET " tcp/22");
	/* One place is one, however often it is tried. */
	becomes(e->d, other,
		"for p in 1 2 3 3 3 3; do probe_net reach " INTERNET " $p; done >/dev/null", 0);
	becomes(e->d, other, "probe_net reach " OTHER " 3 >/dev/null", scan);
	told_is(e->d, other, DSEC_ANOMALY_PORT_SCAN, OTHER " tcp/3");
	becomes(e->d, other, "probe_net reach " OTHER " 9418 >/dev/null", scan | vcs);
	told_is(e->d, other, DSEC_ANOMALY_VCS_DIRECT, OTHER " tcp/9418");
	sandbox_end(e->d, id);
	sandbox_end(e->d, other);
}

static void a_name_that_tls_shows_is_reached_and_no_other_at_its_address(struct engine *e)
{
	forwarder_try(e);
}

static const struct claim claims[] = {
	CLAIM(what_went_out_and_what_was_refused_are_judged_by_place),
	CLAIM(a_name_is_reached_once_it_was_asked_for_and_no_address_before),
	CLAIM(a_name_that_nothing_allows_is_refused_and_nobody_hears_of_it),
	CLAIM(a_host_that_is_the_tasks_own_taints_who_asks_for_it),
	CLAIM(answers_that_lead_home_or_to_a_cloud_are_dropped),
	CLAIM(an_answer_that_is_cut_is_asked_for_by_tcp),
	CLAIM(a_flood_of_one_leaves_another_served),
	CLAIM(a_phase_forgets_what_was_learned_before),
	CLAIM(those_in_one_namespace_ask_each_for_itself),
	CLAIM(a_name_that_tls_shows_is_reached_and_no_other_at_its_address),
};

static const struct claim claims_hurt[] = {
	CLAIM(an_engine_that_died_is_followed_by_one_that_answers),
};

static const char *const arguments[] = { "--egress", RANGE, "--dns-upstream", NAMES, NULL };
static const struct suite suites[] = {
	SUITE("names", claims, .arguments = arguments),
	SUITE("names after an engine's death", claims_hurt, .arguments = arguments,
	      .is_hurt = true),
};

int main(int argc, char **argv)
{
	pid_t internet;

	if (system("nft list tables >/dev/null 2>&1")) {
		printf("skipped: nft lists no tables here (apt-get install nftables; kernel with "
		       "nf_tables)\n");
		return SKIPPED;
	}
	if (!world_make(&internet) || dns_start(internet, NAMES, &dns_log) < 0)
		return 1;
	(void)server_start(internet, INTERNET, 80);
	(void)server_start(internet, INTERNET, 81);
	(void)server_start(internet, OTHER, 80);
	(void)server_start(internet, INTERNET, 22);
	(void)sink_start(internet, OTHER, 82);
	(void)server_start(internet, "169.254.169.254", 80);
	(void)tls_start(internet, INTERNET);
	(void)tls_start(internet, OTHER);
	image_add(PROBE_TLS_PATH, "probe_tls");
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
