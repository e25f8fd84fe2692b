/*
 * Network `egress-unpoliced`: a way out, and to nothing else. All of it in network namespaces of
 * the test's own: this process lives in one that plays the host, another plays the internet, and
 * no packet leaves the machine.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/egress_client.h"
#include "tests/root/engine/egress_six.h"
#include "tests/root/engine/egress_world.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

#define NFT_TABLES "nft list tables"

enum { SKIPPED = 77 };

/* ---- sandboxes ---- */

static struct dsec_id egress_make(struct dsec *d)
{
	return networked_make(d, DSEC_NETWORK_EGRESS_UNPOLICED);
}

static bool own_address(struct dsec *d, struct dsec_id id, char ret[static 32])
{
	/* The prefix route of a /30, as the kernel prints it: least significant byte first. */
	auto_ran struct ran ran =
		shell_run(d, id,
			  "while read i dest gw rest; do [ $dest = 00000000 ] && echo $gw; done "
			  "</proc/net/route; :");
	unsigned gateway;

	if (!expect(ran_exited(&ran, 0)) ||
	    !expect(sscanf(ran_output(&ran, 1)->head.data, "%8x", &gateway) == 1))
		return false;
	gateway = ntohl(gateway) + 1;
	(void)snprintf(ret, 32, "%u.%u.%u.%u", gateway >> 24, gateway >> 16 & 255,
		       gateway >> 8 & 255, gateway & 255);
	return true;
}

/* ---- claims ---- */

static void the_internet_is_reached_and_sees_the_hosts_address(struct engine *e)
{
	struct dsec_id id = egress_make(e->d);

	expect(reads(e->d, id, INTERNET, 80, "from " HOST "\n"));
	expect(reads(e->d, id, "127.0.0.1", 80, ""));
	sandbox_end(e->d, id);
}

static struct dsec_usage usage_now(struct dsec *d, struct dsec_id id)
{
	struct dsec_select select = { .size = sizeof select, .count = 1, .ids = &id };
	int64_t ticket = dsec_stats(d, NULL, &select);
	struct dsec_usage usage = { 0 };
	struct dsec_event *event;
	bool last = false;

	while (!last && expect(dsec_wait(d, ticket, -1, &event) == 0)) {
		last = event->flags & DSEC_LAST;
		if (event->kind == DSEC_EV_ROW && expect(event->body))
			usage = *(const struct dsec_usage *)event->body;
		dsec_event_free(event);
	}
	return usage;
}

static void what_goes_through_the_way_out_is_counted(struct engine *e)
{
	struct dsec_id id = egress_make(e->d), idle = sandbox_make(e->d);
	struct dsec_usage before = usage_now(e->d, id), after;

	expect(reads(e->d, id, INTERNET, 80, "from " HOST "\n"));
	after = usage_now(e->d, id);
	/* A handshake, a line and a farewell: some hundred bytes each way, and not megabytes. */
	expect(after.network_received_bytes > before.network_received_bytes + 200);
	expect(after.network_sent_bytes > before.network_sent_bytes + 150);
	expect(after.network_received_bytes < 100000 && after.network_sent_bytes < 100000);
	expect(usage_now(e->d, idle).network_sent_bytes == 0);
	sandbox_end(e->d, id);
	sandbox_end(e->d, idle);
}

static void neither_host_nor_metadata_nor_neighbours_are_reached(struct engine *e)
{
	static const char closed[] = HOST
		" 10.200.0.1 10.200.0.2 169.254.169.254 100.100.100.200 168.63.129.16 "
		"0.0.0.0 0251.0376.0251.0376 2852039166 ::ffff:169.254.169.254 224.0.0.1 "
		"255.255.255.255 10.200.255.254";
	struct dsec_id id = egress_make(e->d), neighbour = egress_make(e->d);
	static const char listen[] = "nc -ll -p 80 -e echo hello >/dev/null 2>&1 & sleep 600";
	const struct command c = SH(listen);
	int64_t ticket = command_start(e->d, neighbour, &c, NULL);
	char address[32];

	expect(until(10000, answers(e->d, neighbour, "127.0.0.1", 80, "hello\n")));
	if (own_address(e->d, neighbour, address)) {
		expect(reads(e->d, neighbour, address, 80, "hello\n"));
		expect(reads(e->d, id, address, 80, ""));
	}
	expect(reads_none(e->d, id, closed));
	expect(reads(e->d, id, INTERNET, 80, "from " HOST "\n"));
	sandbox_end(e->d, id);
	sandbox_end(e->d, neighbour);
	(void)ticket_end(e->d, ticket); /* killed */
}

static bool connects(const char *address, unsigned short port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	const struct timeval limit = { .tv_sec = 1 };
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)inet_pton(AF_INET, address, &at.sin_addr); /* as it was printed */
	(void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
	return connect(fd, (struct sockaddr *)&at, sizeof at) == 0;
}

/* E57, E63: its address is its own, nobody comes in but through a forward. */
static void its_address_cannot_be_changed_and_nobody_comes_in(struct engine *e)
{
	static const char *const attempts[] = {
		"ip addr add 10.200.0.99/30 dev eth0",
		"ip link set eth0 address 02:00:00:00:00:01",
		"ip link set eth0 promisc on",
		"ip route add 10.0.0.0/8 dev eth0",
		"ip neigh add 10.200.0.1 lladdr 02:00:00:00:00:01 dev eth0",
		"echo 1 >/proc/sys/net/ipv4/ip_forward",
		"echo 0 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6",
		"arping -c 1 -I eth0 10.200.0.1",
	};
	struct dsec_id id = egress_make(e->d);
	char script[256], address[32], command[256];

	for (unsigned i = 0; i < sizeof attempts / sizeof *attempts; i++) {
		(void)snprintf(script, sizeof script, "(%s) >/dev/null 2>&1 && exit 9; exit 7",
			       attempts[i]);
		auto_ran struct ran ran = shell_run(e->d, id, script);

		if (!expect(ran_exited(&ran, 7)))
			note("%s", attempts[i]);
	}
	static const char listen[] = "nc -ll -p 80 -e echo hello >/dev/null 2>&1 & sleep 600";
	const struct command c = SH(listen);
	int64_t ticket = command_start(e->d, id, &c, NULL);

	expect(until(10000, answers(e->d, id, "127.0.0.1", 80, "hello\n")));
	/* The host has no route there; and told one, it does not get in. */
	if (own_address(e->d, id, address)) {
		(void)snprintf(command, sizeof command, "ip route add %s via 10.200.0.2", address);
		expect(run(command) && !connects(address, 80));
		(void)snprintf(command, sizeof command, "ip route del %s", address);
		expect(run(command));
	}
	sandbox_end(e->d, id);
	(void)ticket_end(e->d, ticket); /* killed */
}

static void it_is_marked_wherever_it_shows(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(1);
	struct dsec_id id = { 0 };
	struct dsec_event *event;
	bool last = false;
	int64_t ticket;

	opts.network = DSEC_NETWORK_EGRESS_UNPOLICED;
	ticket = dsec_create(e->d, NULL, &opts);
	while (!last && expect(dsec_wait(e->d, ticket, -1, &event) == 0)) {
		const struct dsec_created *created = event->body;

		last = event->flags & DSEC_LAST;
		if (event->kind == DSEC_EV_CREATED) {
			id = event->subject;
			expect(event->flags & DSEC_UNPOLICED);
			expect(created && created->network == DSEC_NETWORK_EGRESS_UNPOLICED);
		}
		dsec_event_free(event);
	}
	auto_ran struct ran ran = shell_run(e->d, id, ":");

	expect(ran_exited(&ran, 0) && ran.result->flags & DSEC_RESULT_UNPOLICED);
	expect(ran.event->flags & DSEC_UNPOLICED);
	last = false;
	ticket = dsec_list(e->d, NULL, NULL);
	while (!last && expect(dsec_wait(e->d, ticket, -1, &event) == 0)) {
		const struct dsec_row *row = event->body;

		last = event->flags & DSEC_LAST;
		if (event->kind == DSEC_EV_ROW)
			expect(row->network == DSEC_NETWORK_EGRESS_UNPOLICED);
		dsec_event_free(event);
	}
	sandbox_end(e->d, id);
	/* And nothing else is. */
	id = sandbox_make(e->d);
	auto_ran struct ran plain = shell_run(e->d, id, ":");

	expect(ran_exited(&plain, 0) && !plain.result->flags);
	expect(!(plain.event->flags & DSEC_UNPOLICED));
	sandbox_end(e->d, id);
}

static void namespaces_with_a_way_out_are_never_used_again(struct engine *e)
{
	struct dsec_holdings before = holdings_now(e->d), after;

	for (int i = 0; i < 8; i++)
		sandbox_end(e->d, egress_make(e->d));
	expect(until(10000, (after = holdings_now(e->d),
			     after.networks_discarded == before.networks_discarded + 8)));
	expect(after.networks_reused == before.networks_reused);
	expect(until(10000, holdings_now(e->d).networks_ending == 0));
}

static void an_engine_that_died_is_swept_and_the_next_one_leads_out(struct engine *e)
{
	struct dsec_id id = egress_make(e->d);
	pid_t before = engine_pid(e);

	expect(reads(e->d, id, INTERNET, 80, "from " HOST "\n"));
	(void)kill(before, SIGKILL);
	expect(until(30000, engine_pid(e) > 0 && engine_pid(e) != before));
	dsec_close(e->d);
	e->d = NULL;
	expect(until(30000, (e->d = engine_connect(e)) != NULL));
	id = egress_make(e->d);
	expect(reads(e->d, id, INTERNET, 80, "from " HOST "\n"));
	sandbox_end(e->d, id);
}

static void a_private_network_beside_it_has_no_way_out(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(1);

	opts.network = DSEC_NETWORK_PRIVATE;
	auto_made struct made made = create_run(e->d, &opts);

	if (!expect(made.created == 1))
		return;
	expect(reads(e->d, made.ids[0], INTERNET, 80, ""));
	expect(reads(e->d, made.ids[0], HOST, 80, ""));
	sandbox_end(e->d, made.ids[0]);
}

/* ---- by a policy ---- */

static void leads_where_it_allows(struct engine *e, uint32_t network)
{
	static const char closed[] = OTHER " 169.254.169.254 ::ffff:169.254.169.254 "
					   "100.100.100.200 " HOST " 10.200.0.1 10.64.0.1";
	struct dsec_id id = out_make(e->d, network);

	expect(reads(e->d, id, INTERNET, 80, "from " HOST "\n"));
	expect(reads(e->d, id, INTERNET, 81, ""));
	expect(reads_none(e->d, id, closed));
	auto_ran struct ran ran = shell_run(e->d, id, ":");

	expect(ran_exited(&ran, 0) && !(ran.result->flags & DSEC_RESULT_UNPOLICED));
	sandbox_end(e->d, id);
}

static void a_policy_leads_where_it_allows_and_nowhere_else(struct engine *e)
{
	if (!policies_put(e))
		return;
	leads_where_it_allows(e, DSEC_NETWORK_PRIVATE);
	/* For the first of them the engine loads what it keeps. */
	sandbox_end(e->d, out_make(e->d, DSEC_NETWORK_SHARED));
	engine_baseline(e);
	leads_where_it_allows(e, DSEC_NETWORK_SHARED);
}

static void caps_hold_and_are_shown(struct engine *e, uint32_t network)
{
	struct dsec_create_opts opts = out_opts();
	struct dsec_inspected seen;
	struct dsec_usage usage;

	opts.policy = "capped";
	opts.network = network;
	if (!policy_put(e->d, "name: capped\nnetwork:\n  mode: shared\n  egress:\n"
			      "    allow: [service: internet]\n"
			      "    caps: {connections: 2, bytes: 1MiB}\n"))
		return;
	auto_made struct made made = create_run(e->d, &opts);

	if (!expect(made.created == 1))
		return;
	expect(reads(e->d, made.ids[0], INTERNET, 80, "from " HOST "\n"));
	expect(reads(e->d, made.ids[0], INTERNET6, 81, "from " HOST6 "\n"));
	expect(reads(e->d, made.ids[0], INTERNET6, 80, ""));
	expect(reads(e->d, made.ids[0], INTERNET, 82, ""));
	seen = inspected_now(e->d, made.ids[0]);
	expect(seen.egress.connections == 2 && seen.egress.capped == 1);
	expect(seen.egress.refused == 1 && seen.egress.flow_count == 2);
	for (uint32_t i = 0; i < seen.egress.flow_count && i < 2; i++) {
		const struct dsec_flow *flow = &seen.egress.flows[i];

		expect(flow->port == 80 ? flow->address[12] == 203 : flow->address[0] == 0x20);
		expect(flow->port >= 80 && flow->port <= 81);
		expect(flow->protocol == IPPROTO_TCP && flow->rule == 1 && flow->bytes > 100);
	}
	usage = usage_now(e->d, made.ids[0]);
	expect(usage.egress_connections == 2 && usage.egress_capped == 1);
	sandbox_end(e->d, made.ids[0]);
}

static void caps_hold_and_what_went_out_is_shown_by_place(struct engine *e)
{
	caps_hold_and_are_shown(e, DSEC_NETWORK_PRIVATE);
	caps_hold_and_are_shown(e, DSEC_NETWORK_SHARED);
}

/* Beside it in the namespace is one with the same policy, whose bytes are its own. */
static void bytes_in_a_namespace_of_many_are_capped_for_each_alone(struct engine *e)
{
	struct dsec_create_opts opts = out_opts();
	struct dsec_inspected seen[2];

	opts.policy = "thin";
	opts.network = DSEC_NETWORK_SHARED;
	opts.count = 2;
	if (!policy_put(e->d, "name: thin\nnetwork:\n  mode: shared\n  egress:\n"
			      "    allow: [service: internet]\n    caps: {bytes: 2KiB}\n"))
		return;
	auto_made struct made made = create_run(e->d, &opts);

	if (!expect(made.created == 2))
		return;
	/* A connection is some 300 bytes: the tenth has none left. */
	for (int i = 0; i < 10; i++)
		(void)answers(e->d, made.ids[0], INTERNET, 80, "");
	expect(reads(e->d, made.ids[0], INTERNET, 80, ""));
	expect(reads(e->d, made.ids[1], INTERNET, 80, "from " HOST "\n"));
	for (int i = 0; i < 2; i++)
		seen[i] = inspected_now(e->d, made.ids[i]);
	expect(seen[0].egress.sent_bytes > 1024 && seen[0].egress.sent_bytes <= 2048);
	expect(seen[0].egress.capped > 0 && seen[0].egress.connections > 2);
	expect(seen[1].egress.sent_bytes > 100 && seen[1].egress.sent_bytes < 1024);
	expect(seen[1].egress.capped == 0 && seen[1].egress.connections == 1);
	for (int i = 0; i < 2; i++)
		sandbox_end(e->d, made.ids[i]);
}

/* Whatever slot it was in: what comes after it has what it asked for, and no more. */
static void nothing_of_a_way_out_is_passed_on(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(1);

	if (!policies_put(e))
		return;
	for (int i = 0; i < 6; i++) {
		struct dsec_id id =
			out_make(e->d, i % 2 ? DSEC_NETWORK_SHARED : DSEC_NETWORK_PRIVATE);

		expect(reads(e->d, id, i % 3 ? INTERNET : INTERNET6, 81, ""));
		sandbox_end(e->d, id);
		id = egress_make(e->d);
		expect(reads(e->d, id, INTERNET, 81, "from " HOST "\n"));
		expect(reads(e->d, id, INTERNET6, 81, "from " HOST6 "\n"));
		sandbox_end(e->d, id);
	}
	opts.network = DSEC_NETWORK_EGRESS_UNPOLICED;
	opts.policy = "out";
	auto_made struct made made = create_run(e->d, &opts);

	expect(made.created == 0 && !strcmp(made.last.step, "create.network"));
	expect(strstr(made.last.detail, "egress"));
}

static void a_phase_whose_policy_has_no_way_out_leads_nowhere(struct engine *e)
{
	const struct dsec_phase_opts opts = { .size = sizeof opts, .name = "verify" };
	struct dsec_id id;

	if (!policies_put(e))
		return;
	id = out_make(e->d, DSEC_NETWORK_SHARED);
	expect(reads(e->d, id, INTERNET, 80, "from " HOST "\n"));
	expect(ticket_end(e->d, dsec_phase(e->d, NULL, id, &opts)).code == DSEC_OK);
	expect(reads_none(e->d, id, INTERNET " " INTERNET6));
	expect(reads(e->d, id, INTERNET, 81, ""));
	sandbox_end(e->d, id);
}

static void without_the_option_rules_of_egress_are_refused_with_the_remedy(struct engine *e)
{
	struct dsec_create_opts opts = out_opts();

	if (!policies_put(e))
		return;
	auto_made struct made made = create_run(e->d, &opts);

	expect(made.created == 0 && made.last.code == DSEC_UNSUPPORTED);
	expect(strstr(made.last.detail, "--egress"));
	opts.flags |= DSEC_CREATE_ALLOW_DEGRADED;
	auto_made struct made degraded = create_run(e->d, &opts);

	if (expect(degraded.created == 1)) {
		expect(reads(e->d, degraded.ids[0], INTERNET, 80, ""));
		sandbox_end(e->d, degraded.ids[0]);
	}
}

/* A suite of its own: without --egress. */
static void without_the_option_it_is_refused_with_the_remedy(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(1);

	opts.network = DSEC_NETWORK_EGRESS_UNPOLICED;
	auto_made struct made made = create_run(e->d, &opts);

	expect(made.created == 0 && made.last.code == DSEC_UNSUPPORTED);
	expect(!strcmp(made.last.step, "create.network"));
	expect(strstr(made.last.detail, "--egress"));
}

/* A dsecd of its own, which ends at once and says why. */
static bool refuses(const char *options, const char *cause)
{
	char command[512];

	(void)snprintf(
		command, sizeof command,
		"l=/tmp/dsec-egress-%d.log; timeout 20 '%s' --instance egress-refused-%d "
		"--images /tmp --sandboxes-max 16 %s >$l 2>&1; r=$?; [ $r = 1 -o $r = 2 ] && "
		"grep -q '%s' $l; r=$?; [ $r = 0 ] || cat $l; rm -f $l; exit $r",
		getpid(), DSECD_PATH, getpid(), options, cause);
	return run(command);
}

static void a_range_that_cannot_be_is_refused_with_the_cause(struct engine *e)
{
	static const struct {
		const char *options, *cause;
	} cases[] = {
		{ "--egress 198.51.0.0/16", "a route of this host lies in it" },
		{ "--egress 10.200.0.1/16", "a range is wanted" },
		{ "--egress 10.200.0.0", "a range is wanted" },
		{ "--egress 10.200.0.0/30", "a range is wanted" },
		{ "--egress fd00::/16", "a range is wanted" },
		{ "--egress 10.0.0.0/8", "addresses of network shared" },
		{ "--egress " RANGE " --egress6 2001:db8::/64", "a private range is wanted" },
		{ "--egress " RANGE " --egress6 fd00:d5ec::1/64", "a private range is wanted" },
		{ "--egress " RANGE " --egress6 fd00:d5ec::/120", "a private range is wanted" },
		{ "--egress " RANGE " --egress6 10.201.0.0/16", "a private range is wanted" },
		{ "--egress " RANGE " --egress6 fd5e:ec::/48", "addresses of network shared" },
		{ "--egress " RANGE " --egress6 fd00:9::/48", "a route of this host lies in it" },
		{ "--egress6 " RANGE6, "it is beside --egress RANGE" },
	};

	expect(run("ip route add fd00:9:0:7::/64 dev lo"));
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
		expect(refuses(cases[i].options, cases[i].cause));
	expect(run("ip route del fd00:9:0:7::/64 dev lo; "
		   "sysctl -qw net.ipv6.conf.all.forwarding=0"));
	expect(refuses("--egress " RANGE " --egress6 " RANGE6,
		       "sysctl -w net.ipv6.conf.all.forwarding=1"));
	expect(run("sysctl -qw net.ipv6.conf.all.forwarding=1"));
	(void)e; /* it goes on beside */
}

static const struct claim claims[] = {
	CLAIM(the_internet_is_reached_and_sees_the_hosts_address),
	CLAIM(what_goes_through_the_way_out_is_counted),
	CLAIM(neither_host_nor_metadata_nor_neighbours_are_reached),
	CLAIM(its_address_cannot_be_changed_and_nobody_comes_in),
	CLAIM(it_is_marked_wherever_it_shows),
	CLAIM(namespaces_with_a_way_out_are_never_used_again),
	CLAIM(a_private_network_beside_it_has_no_way_out),
	CLAIM(a_policy_leads_where_it_allows_and_nowhere_else),
	CLAIM(caps_hold_and_what_went_out_is_shown_by_place),
	CLAIM(bytes_in_a_namespace_of_many_are_capped_for_each_alone),
	CLAIM(nothing_of_a_way_out_is_passed_on),
	CLAIM(a_phase_whose_policy_has_no_way_out_leads_nowhere),
	CLAIM(IPv6_leads_out_and_the_internet_sees_the_hosts_address),
	CLAIM(a_source_of_IPv6_that_is_not_its_own_never_leaves),
	CLAIM(neither_host_nor_metadata_nor_neighbours_are_reached_by_IPv6),
	CLAIM(nothing_of_IPv6_can_be_changed_inside_and_no_router_speaks_up),
	CLAIM(a_policy_leads_by_IPv6_where_it_allows_and_nowhere_else),
};

static const struct claim claims_hurt[] = {
	CLAIM(where_there_is_no_range_of_IPv6_it_leads_nowhere),
	CLAIM(an_engine_that_died_is_swept_and_the_next_one_leads_out),
};

static const struct claim claims_off[] = {
	CLAIM(without_the_option_it_is_refused_with_the_remedy),
	CLAIM(without_the_option_rules_of_egress_are_refused_with_the_remedy),
	CLAIM(a_range_that_cannot_be_is_refused_with_the_cause),
};

static const char *const arguments[] = { "--egress",   RANGE,	      "--egress6", RANGE6,
					 "--services", SERVICES_PATH, NULL };
static const char *const arguments4[] = { "--egress", RANGE, NULL };
static const struct suite suites[] = {
	SUITE("egress", claims, .arguments = arguments),
	SUITE("egress of a dead engine", claims_hurt, .arguments = arguments4, .is_hurt = true),
	SUITE("no egress", claims_off),
};

/* Nothing of an engine is on the host. */
static bool host_is_clean(void)
{
	return run("[ -z \"$(" NFT_TABLES ")\" ]") && run("! ip -o link | grep -q dsec-") &&
	       run("[ \"$(ip -o link | wc -l)\" -le \"$(ls /sys/class/net | wc -l)\" ] || :");
}

int main(int argc, char **argv)
{
	static const char *const cloud[] = { INTERNET,
					     OTHER,
					     "169.254.169.254",
					     "100.100.100.200",
					     "168.63.129.16",
					     INTERNET6,
					     OTHER6,
					     "fd00:ec2::254",
					     "64:ff9b::a9fe:a9fe",
					     "64:ff9b:1::a9fe:a9fe",
					     "64:ff9b:1::6464:64c8",
					     "2002:a9fe:a9fe::1",
					     "64:ff9b::cb00:710a" };
	pid_t internet;
	int status;

	if (system(NFT_TABLES " >/dev/null 2>&1")) {
		printf("skipped: nft lists no tables here (apt-get install nftables; kernel with "
		       "nf_tables)\n");
		return SKIPPED;
	}
	if (!world_make(&internet))
		return 1;
	for (unsigned i = 0; i < sizeof cloud / sizeof *cloud; i++)
		(void)server_start(internet, cloud[i], 80);
	(void)server_start(internet, INTERNET, 81);
	(void)server_start(internet, INTERNET6, 81);
	(void)server_start(0, "0.0.0.0", 80);
	(void)server_start(0, "::", 80);
	six_begin(internet);
	status = suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
	if (!host_is_clean())
		status = 1;
	return status;
}
