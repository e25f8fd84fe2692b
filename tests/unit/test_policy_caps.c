/*
 * Caps of network.egress in documents: mistakes, what they compile to, which of two carries more.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "engine/policy/narrower.h"
#include "tests/unit/policy_table.h"

static const struct bad {
	const char *document, *mistake;
} bads[] = {
	{ "name: x\nnetwork: {egress: {allow: [192.0.2.1], caps: {bytes: 1MB}}}\n",
	  "2:54 network.egress.caps.bytes: expected bytes from 1 to 1024TiB, as 4096 or 64MiB" },
	{ "name: x\nnetwork: {egress: {allow: [192.0.2.1], caps: {bytes: 1025TiB}}}\n",
	  "2:54 network.egress.caps.bytes: expected bytes from 1 to 1024TiB, as 4096 or 64MiB" },
	{ "name: x\nnetwork: {egress: {allow: [192.0.2.1], caps: {bytes_per_s: 0}}}\n",
	  "2:60 network.egress.caps.bytes_per_s: expected bytes from 1 to 1024TiB, as 4096 or "
	  "64MiB" },
	{ "name: x\nnetwork: {egress: {allow: [192.0.2.1], caps: {connection: 5}}}\n",
	  "2:47 network.egress.caps.connection: unknown field; did you mean connections?" },
	{ "name: x\nnetwork: {egress: {allow: [192.0.2.1], caps: {connections: 0}}}\n",
	  "2:60 network.egress.caps.connections: expected a number from 1 to 1000000" },
	{ "name: x\nnetwork: {egress: {caps: {connections_per_s: 5}}}\n",
	  "2:46 network.egress.caps.connections_per_s: there is no way out that it could limit" },
};

Test(policy_caps, a_mistake_is_told_with_its_place_its_field_and_what_was_expected)
{
	struct policy_table *table = table_open();

	for (size_t i = 0; i < sizeof bads / sizeof bads[0]; i++) {
		struct policy_mistake mistake = { 0 };
		struct policy *policy = NULL;
		char told[256];
		int r = load(table, 0, bads[i].document, &policy, &mistake);

		(void)snprintf(told, sizeof told, "%u:%u %s", mistake.line, mistake.column,
			       mistake.text);
		cr_expect_eq(r, -EBADMSG, "%s", bads[i].document);
		cr_expect_str_eq(told, bads[i].mistake);
	}
	table_close(table);
}

Test(policy_caps, they_are_rules_that_who_extends_replaces_one_by_one)
{
	struct policy_table *table = table_open();
	struct policy *base, *policy;
	const struct guard_caps *caps;

	base = loaded(table, "name: capped\nnetwork: {egress: {allow: [192.0.2.0/24], caps: "
			     "{connections: 100, bytes: 2GiB, bytes_per_s: 65536}}}\n");
	caps = &base->guard.caps;
	cr_expect(caps->connections == 100 && caps->bytes == 2ull << 30);
	cr_expect(caps->bytes_per_s == 65536 && !caps->connections_per_s);
	cr_expect_eq(base->guard.rule_count, 4);
	cr_expect_str_eq(base->rules[2].label, "network.egress.caps.bytes 2GiB");
	cr_expect(base->rules[2].is_required && base->rules[2].kind == GUARD_RULE_CAP);
	policy = loaded(table, "name: more\nextends: capped\nnetwork: {egress: {caps: "
			       "{bytes: 3GiB, connections_per_s: 7}}}\n");
	caps = &policy->guard.caps;
	cr_expect(caps->connections == 100 && caps->bytes == 3ull << 30);
	cr_expect(caps->bytes_per_s == 65536 && caps->connections_per_s == 7);
	table_close(table);
}

static bool is_within(const char *egress, const char *wider)
{
	struct policy_table *table = table_open();
	char text[256];
	struct policy *a, *b;
	bool within;

	(void)snprintf(text, sizeof text, "name: a\nnetwork: {egress: {%s}}\n", egress);
	a = loaded(table, text);
	(void)snprintf(text, sizeof text, "name: b\nnetwork: {egress: {%s}}\n", wider);
	b = loaded(table, text);
	within = policy_goes_no_further(a, b) && !policy_lacks(a, b);
	table_close(table);
	return within;
}

Test(policy_caps, a_way_out_is_within_another_where_it_carries_no_more)
{
	const char *wide = "allow: [10.0.0.0/8], caps: {bytes: 1MiB}";

	cr_expect_not(is_within("allow: [10.0.0.0/8]", wide), "as much as it likes");
	cr_expect(is_within("deny: []", wide), "nothing is no more than 1 MiB");
	cr_expect(is_within("allow: [10.0.0.0/8], caps: {bytes: 1024KiB, connections: 3}", wide));
	cr_expect_not(is_within("allow: [10.0.0.0/8], caps: {bytes: 1025KiB}", wide));
	cr_expect_not(is_within(wide, "allow: [10.0.0.0/8], caps: {bytes_per_s: 1MiB}"));
}
