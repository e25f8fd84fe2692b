/*
 * The pool of network namespaces behind `private`: used again only when proven clean, discarded
 * else, never more torn down than is bounded, and none left.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/port_client.h"

enum { ROUNDS = 12, STORM = 400, AT_ONCE = 16, ENDING_MAX = 32 };

/* What the engine did with the namespace of a sandbox that ran this. */
static void is_used_again(struct engine *e, const char *script, bool again)
{
	struct dsec_id id = private_make(e->d);
	struct dsec_holdings before, after = { 0 };
	auto_ran struct ran ran = shell_run(e->d, id, script);

	if (!expect(ran_exited(&ran, 0)))
		ran_note(&ran);
	before = holdings_now(e->d);
	sandbox_end(e->d, id);
	if (!expect(until(20000, (after = holdings_now(e->d),
				  after.networks_reused + after.networks_discarded >
					  before.networks_reused + before.networks_discarded))) ||
	    !expect((after.networks_reused > before.networks_reused) == again))
		note("%s: reused %llu discarded %llu", script,
		     (unsigned long long)(after.networks_reused - before.networks_reused),
		     (unsigned long long)(after.networks_discarded - before.networks_discarded));
}

static void who_used_its_loopback_costs_a_namespace_and_who_did_not_does_not(struct engine *e)
{
	is_used_again(e, "true", true);
	is_used_again(e, "ls /proc/net >/dev/null; cat /proc/net/dev >/dev/null", true);
	is_used_again(e, "echo x | nc -w 1 127.0.0.1 9 2>/dev/null; true", false);
	is_used_again(e,
		      "nc -l -p 8080 >/dev/null & i=0; until [ $i = 300 ] || echo hi | nc -w 1 "
		      "127.0.0.1 8080 2>/dev/null; do sleep 0.01; i=$((i+1)); done",
		      false);
	is_used_again(e, "probe_net send 127.0.0.1 9", false);
	is_used_again(e, "probe_net send ::1 9", false);
}

/* What a sandbox's root may not do cannot be left behind by it. */
static void nothing_of_a_namespace_can_be_changed_from_inside(struct engine *e)
{
	static const char *const attempts[] = {
		"echo 1 >/proc/sys/net/ipv4/ip_forward",
		"echo 1024 >/proc/sys/net/ipv4/ip_unprivileged_port_start",
		"echo 2 >/proc/sys/net/ipv6/conf/lo/use_tempaddr",
		"echo '2000 3000' >/proc/sys/net/ipv4/ip_local_port_range",
		"ip addr add 10.1.2.3/24 dev lo",
		"ip link set lo down",
		"ip route add 10.9.0.0/16 dev lo",
		"ip -6 route add fd09::/64 dev lo",
		"ip neigh add 127.0.0.9 lladdr 02:00:00:00:00:01 dev lo",
		"ip link add dummy0 type dummy",
		"cat /proc/net/tcp",
		"cat /proc/net/udp6",
		"cat /proc/net/unix",
		"cat /proc/net/snmp",
		"chmod 444 /proc/net/tcp",
	};
	struct dsec_id id = private_make(e->d);

	for (unsigned i = 0; i < sizeof attempts / sizeof *attempts; i++) {
		char script[256];

		(void)snprintf(script, sizeof script,
			       "command -v %.*s >/dev/null || exit 7; (%s) 2>/dev/null && exit 9; "
			       "exit 7",
			       (int)strcspn(attempts[i], " "), attempts[i], attempts[i]);
		auto_ran struct ran ran = shell_run(e->d, id, script);

		if (!expect(ran_exited(&ran, 7)))
			note("%s", attempts[i]);
	}
	sandbox_end(e->d, id);
}

static void abstract_names_are_a_sandboxs_own(struct engine *e)
{
	static const char *const listen_words[] = { "probe_ipc", "listen", NULL };
	const struct command listen = { .argv = { listen_words[0], listen_words[1] } };
	const struct command look = { .argv = { "probe_ipc", "connect" } };
	struct dsec_id first = private_make(e->d), second = private_make(e->d);
	int64_t ticket = command_start(e->d, first, &listen, NULL);

	expect(until(10000, ({
			     auto_ran struct ran ran = command_run(e->d, first, &look);

			     ran_says(&ran, "somebody answers\n");
		     })));
	auto_ran struct ran beside = command_run(e->d, second, &look);

	expect(ran_says(&beside, ""));
	/* And the same name can be taken there. */
	int64_t other = command_start(e->d, second, &listen, NULL);

	expect(until(10000, ({
			     auto_ran struct ran ran = command_run(e->d, second, &look);

			     ran_says(&ran, "somebody answers\n");
		     })));
	sandbox_end(e->d, first);
	sandbox_end(e->d, second);
	(void)ticket_end(e->d, ticket); /* killed */
	(void)ticket_end(e->d, other);
}

/* Each uses its loopback, so that each costs a namespace: what is torn down stays bounded. */
static void a_storm_of_used_ones_leaves_no_backlog(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(AT_ONCE);
	uint64_t ending_most = 0, made = 0;
	double begun = clock_ms(), ended;

	opts.network = DSEC_NETWORK_PRIVATE;
	for (int round = 0; round < STORM / AT_ONCE; round++) {
		auto_made struct made several = create_run(e->d, &opts);
		int64_t tickets[AT_ONCE];
		const struct command c = { .argv = { "probe_net", "send", "127.0.0.1", "9" } };

		if (!expect(several.created == AT_ONCE))
			note("%s: %s", several.trouble.step, several.trouble.detail);
		for (uint32_t i = 0; i < several.created; i++)
			tickets[i] = command_start(e->d, several.ids[i], &c, NULL);
		for (uint32_t i = 0; i < several.created; i++)
			(void)ticket_end(e->d, tickets[i]); /* the counters tell */
		expect(sandboxes_end(e->d, several.ids, several.created).code == DSEC_OK);
		made += several.created;
		if (holdings_now(e->d).networks_ending > ending_most)
			ending_most = holdings_now(e->d).networks_ending;
	}
	ended = clock_ms();
	expect(until(20000, holdings_now(e->d).networks_ending == 0));
	note("%llu in %.0f ms, at most %llu ending, the last gone after %.0f ms",
	     (unsigned long long)made, ended - begun, (unsigned long long)ending_most,
	     clock_ms() - ended);
	expect(ending_most <= 2 * ENDING_MAX);
	/* Four a shard stay ready. */
	expect(until(10000, holdings_now(e->d).networks <= 2 * 64));
}

static const struct claim claims[] = {
	CLAIM(who_used_its_loopback_costs_a_namespace_and_who_did_not_does_not),
	CLAIM(nothing_of_a_namespace_can_be_changed_from_inside),
	CLAIM(abstract_names_are_a_sandboxs_own),
	CLAIM(a_storm_of_used_ones_leaves_no_backlog),
};

static const struct suite suites[] = { SUITE("network", claims) };

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
