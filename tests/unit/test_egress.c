/*
 * Where policies let sandboxes go: what entries of network.egress come to, by address and by name,
 * and which way out is within another.
 */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "engine/policy/names.h"
#include "engine/policy/narrower.h"
#include "engine/policy/policies.h"
#include "tests/unit/policy_table.h"

static const struct guard_destination *destination_at(const struct policy *policy,
						      const char *address, unsigned prefix_bits)
{
	const struct guard_policy *guard = &policy->guard;
	uint8_t bytes[16] = { [10] = 0xff, [11] = 0xff };

	if (strchr(address, ':'))
		(void)inet_pton(AF_INET6, address, bytes);
	else
		(void)inet_pton(AF_INET, address, bytes + 12);
	for (uint32_t i = 0; i < guard->destination_count; i++)
		if (guard->destinations[i].prefix_bits == prefix_bits &&
		    !memcmp(guard->destinations[i].address, bytes, sizeof bytes))
			return &guard->destinations[i];
	return NULL;
}

/* The rule that lets it pass; 0: none of this destination's. */
static uint32_t passed_by(const struct guard_destination *to, uint8_t protocol, uint16_t port)
{
	for (uint32_t i = 0; i < to->port_count; i++)
		if (to->ports[i].protocol == protocol && port >= to->ports[i].first &&
		    port <= to->ports[i].last)
			return to->ports[i].rule;
	return 0;
}

Test(egress, the_narrowest_destination_has_what_wider_ones_allow_unless_a_deny_stands_between)
{
	struct policy_table *table = table_open();
	struct policy *policy = loaded(table, "name: out\nnetwork:\n  egress:\n    allow:\n"
					      "    - 10.0.0.0/8 tcp/443\n"
					      "    - 10.1.0.0/16 tcp/22\n"
					      "    - 10.1.0.0/16 udp\n"
					      "    - 10.2.3.4\n"
					      "    - \"2001:db8::/32 udp/443\"\n"
					      "    deny: [10.2.0.0/16, 10.3.0.0/16]\n");
	const struct guard_destination *to;

	cr_assert(policy->guard.has_egress);
	cr_expect_eq(policy->guard.rule_count, 7);
	cr_expect_eq(policy->guard.destination_count, 6, "one for each prefix");
	for (uint32_t i = 0; i < policy->guard.rule_count; i++)
		cr_expect(policy->rules[i].is_required, "where nothing enforces it none is made");
	cr_assert(to = destination_at(policy, "10.1.0.0", 112));
	cr_expect_eq(passed_by(to, IPPROTO_TCP, 22), 2);
	cr_expect_eq(passed_by(to, IPPROTO_TCP, 443), 1, "what 10.0.0.0/8 has");
	cr_expect_eq(passed_by(to, IPPROTO_TCP, 80), 0);
	cr_expect_eq(passed_by(to, IPPROTO_UDP, 123), 3);
	cr_expect_eq(passed_by(to, IPPROTO_UDP, 443), 0, "QUIC was not named");
	cr_assert(to = destination_at(policy, "10.2.3.4", 128));
	cr_expect_eq(passed_by(to, IPPROTO_TCP, 80), 4, "the narrower one stands in a denied one");
	cr_expect_eq(passed_by(to, IPPROTO_UDP, 80), 0);
	cr_assert(to = destination_at(policy, "10.2.0.0", 112));
	cr_expect(to->port_count == 0 && to->rule == 6);
	cr_assert(to = destination_at(policy, "2001:db8::", 32));
	cr_expect_eq(passed_by(to, IPPROTO_UDP, 443), 5, "QUIC was named");
	/* Who extends may deny what was allowed, and cannot allow what was denied. */
	policy = loaded(table, "name: narrow\nextends: out\nnetwork:\n  egress:\n"
			       "    allow: [10.3.0.0/16]\n    deny: [10.1.0.0/16]\n");
	cr_assert(to = destination_at(policy, "10.1.0.0", 112));
	cr_expect_eq(to->port_count, 0);
	cr_assert(to = destination_at(policy, "10.3.0.0", 112));
	cr_expect_eq(to->port_count, 0);
	cr_expect_not(loaded(table, "name: in\nnetwork: {mode: private}\n")->guard.has_egress);
	table_close(table);
}

/* Which rule lets a name's addresses be reached at a port of TCP; 0: none. */
static uint32_t name_passed_by(const struct policy *policy, const char *name, uint16_t port)
{
	const struct guard_name *found = names_find(&policy->guard, name);

	return found ? passed_by(&found->to, IPPROTO_TCP, port) : 0;
}

Test(egress, the_closest_name_has_what_wider_ones_allow)
{
	struct policy_table *table = table_open();
	struct policy *policy = loaded(table, "name: out\nnetwork:\n  egress:\n    allow:\n"
					      "    - .mirror.example tcp/443\n"
					      "    - a.b.mirror.example tcp/22\n"
					      "    - a.b.mirror.example udp\n"
					      "    - .b.mirror.example tcp/80\n"
					      "    - api.example\n"
					      "    - 192.0.2.1\n");
	const struct guard_name *name;

	cr_assert(policy->guard.has_egress);
	cr_expect_eq(policy->guard.rule_count, 6);
	cr_expect_eq(policy->guard.name_count, 4, "one for each name");
	cr_expect_eq(policy->guard.destination_count, 1);
	cr_expect_eq(policy->rules[0].kind, GUARD_RULE_NAME);
	cr_expect(policy->rules[0].is_required);
	cr_expect_str_eq(policy->rules[0].label, "network.egress.allow .mirror.example tcp/443");
	cr_expect_eq(name_passed_by(policy, "mirror.example", 443), 1, "a suffix is itself, too");
	cr_expect_eq(name_passed_by(policy, "x.y.mirror.example", 443), 1);
	cr_expect_eq(name_passed_by(policy, "notmirror.example", 443), 0, "whole parts only");
	cr_expect_eq(name_passed_by(policy, "example", 443), 0);
	cr_expect_eq(name_passed_by(policy, "a.b.mirror.example", 443), 1, "what wider ones have");
	cr_expect_eq(name_passed_by(policy, "a.b.mirror.example", 80), 4);
	cr_expect_eq(name_passed_by(policy, "a.b.mirror.example", 22), 2);
	cr_expect_eq(name_passed_by(policy, "c.b.mirror.example", 22), 0);
	cr_assert(name = names_find(&policy->guard, "a.b.mirror.example"));
	cr_expect_eq(passed_by(&name->to, IPPROTO_UDP, 123), 3);
	cr_expect_eq(passed_by(&name->to, IPPROTO_UDP, 443), 0, "QUIC was not named");
	cr_expect_eq(name_passed_by(policy, "api.example", 8080), 5, "every port of TCP");
	cr_expect_eq(name_passed_by(policy, "x.api.example", 8080), 0, "the name alone");
	table_close(table);
}

Test(egress, tls_is_a_port_of_names_and_what_is_allowed_directly_holds_it)
{
	struct policy_table *table = table_open();
	struct policy *policy = loaded(table, "name: out\nnetwork:\n  egress:\n    allow:\n"
					      "    - api.example tls\n"
					      "    - .mirror.example tls/443,8443 tcp/80\n"
					      "    - www.mirror.example tcp/443\n");
	const struct guard_name *name = names_find(&policy->guard, "api.example");

	cr_assert(name);
	cr_assert_eq(name->to.port_count, 1);
	cr_expect(name->to.ports[0].first == 443 && name->to.ports[0].last == 443);
	cr_expect(name->to.ports[0].protocol == IPPROTO_TCP && name->to.ports[0].is_tls);
	cr_assert(name = names_find(&policy->guard, "ftp.mirror.example"));
	cr_assert_eq(name->to.port_count, 3);
	cr_expect(name->to.ports[1].is_tls && !name->to.ports[2].is_tls);
	cr_assert(name = names_find(&policy->guard, "www.mirror.example"));
	cr_assert_eq(name->to.port_count, 3, "443 by TLS is in 443");
	cr_expect_not(name->to.ports[0].is_tls);
	table_close(table);
}

static bool is_within(const char *allow, const char *deny, const char *wider)
{
	struct policy_table *table = table_open();
	char text[512];
	struct policy *a, *b;
	bool within;

	(void)snprintf(text, sizeof text, "name: a\nnetwork: {egress: {allow: [%s], deny: [%s]}}\n",
		       allow, deny);
	a = loaded(table, text);
	(void)snprintf(text, sizeof text, "name: b\nnetwork: {egress: %s}\n", wider);
	b = loaded(table, text);
	within = policy_goes_no_further(a, b) && !policy_lacks(a, b);
	table_close(table);
	return within;
}

Test(egress, a_way_out_is_within_another_where_it_leads_nowhere_else)
{
	const char *wide = "{allow: [10.0.0.0/8 tcp/1-1024 udp/123], deny: [10.9.0.0/16]}";

	cr_expect(is_within("", "", wide), "none is within all");
	cr_expect(is_within("10.0.0.0/8 tcp/1-1024 udp/123", "10.9.0.0/16", wide));
	cr_expect(is_within("10.1.0.0/16 tcp/443, 10.1.2.3 udp/123", "", wide));
	cr_expect(is_within("10.0.0.0/8 tcp/443", "10.8.0.0/15", wide));
	cr_expect_not(is_within("10.0.0.0/8 tcp/443", "", wide), "it leads to what is denied");
	cr_expect_not(is_within("10.0.0.0/8 tcp/443", "10.9.0.0/17", wide), "to half of that");
	cr_expect_not(is_within("10.1.0.0/16 tcp/443-2000", "", wide));
	cr_expect_not(is_within("10.1.0.0/16 udp/443", "", wide));
	cr_expect_not(is_within("10.0.0.0/7 tcp/443", "10.9.0.0/16", wide), "wider");
	cr_expect_not(is_within("\"::/0\"", "", wide), "another family");
	wide = "{allow: [.m.example tcp/1-1024, a.m.example udp/123], deny: [10.9.0.0/16]}";
	cr_expect(is_within(".m.example tcp/443", "10.9.0.0/16", wide));
	cr_expect(is_within("x.m.example tcp/22", "10.0.0.0/8", wide));
	cr_expect(is_within("a.m.example udp/123", "10.9.0.0/16", wide));
	cr_expect_not(is_within(".a.m.example udp/123", "10.9.0.0/16", wide), "and what is below");
	cr_expect_not(is_within(".example tcp/443", "10.9.0.0/16", wide), "wider");
	cr_expect_not(is_within("m.example tcp/2000", "10.9.0.0/16", wide), "more ports");
	cr_expect_not(is_within(".m.example tcp/443", "", wide), "it leads to what is denied");
	cr_expect_not(is_within("192.0.2.1 tcp/443", "10.9.0.0/16", wide), "an address is no name");
	cr_expect(is_within(".m.example tls", "10.9.0.0/16", wide), "less than directly");
	wide = "{allow: [.m.example tls/443-445]}";
	cr_expect(is_within("a.m.example tls/444", "", wide));
	cr_expect_not(is_within("a.m.example tcp/444", "", wide), "directly");
	cr_expect_not(is_within("a.m.example tls/446", "", wide));
}
