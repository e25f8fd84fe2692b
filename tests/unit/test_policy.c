/*
 * Policies: every mistake with its place and its words, what documents compile to, and the table of
 * versions. The published schema says what the parser's own table says.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/policy/narrower.h"
#include "engine/policy/policies.h"
#include "tests/unit/policy_table.h"

/* ---- mistakes ---- */

static const struct bad {
	const char *document, *mistake;
} bads[] = {
	{ "", "1:1 an empty document" },
	{ "- a\n", "1:1 document: expected a map" },
	{ "name: x\nfiles: {protct: [/a]}\n",
	  "2:9 files.protct: unknown field; did you mean protect?" },
	{ "name: x\nfiels: {}\n", "2:1 fiels: unknown field; did you mean files?" },
	{ "name: x\nfiles: {zzz: [/a]}\n",
	  "2:9 files.zzz: unknown field; one of protect, readonly, hide, noexec, verify" },
	{ "name: x\nfiles: /a\n", "2:8 files: expected a map" },
	{ "name: x\nfiles:\n  hide: /a\n", "3:9 files.hide: expected a list" },
	{ "name: x\nfiles:\n  hide: [a]\n",
	  "3:10 files.hide: expected /path without . .. // and / at its end" },
	{ "name: x\nfiles: {hide: [/a/../b]}\n",
	  "2:16 files.hide: expected /path without . .. // and / at its end" },
	{ "name: x\nfiles: {hide: [/a//b]}\n",
	  "2:16 files.hide: expected /path without . .. // and / at its end" },
	{ "name: x\nfiles: {hide: [/a/]}\n",
	  "2:16 files.hide: expected /path without . .. // and / at its end" },
	{ "name: x\nfiles: {hide: [/]}\n",
	  "2:16 files.hide: expected /path without . .. // and / at its end" },
	{ "name: x\nfiles: {hide: [[/a]]}\n", "2:16 files.hide: expected an absolute path" },
	{ "name: x\nioctls: {deny: [xfs-dangrous]}\n",
	  "2:17 ioctls.deny: unknown value; did you mean xfs-dangerous?" },
	{ "name: x\nioctls: {deny: [0x12345]}\n",
	  "2:17 ioctls.deny: a number is 0x and 1 to 4 digits: type << 8 | nr" },
	{ "name: x\nioctls: {deny: [0x0]}\n", "2:17 ioctls.deny: 0x0 is no ioctl" },
	{ "name: x\nsockets: {families: [inet4]}\n",
	  "2:22 sockets.families: unknown value; did you mean inet?" },
	{ "name: x\nsockets: {unix: {deny: [run]}}\n",
	  "2:25 sockets.unix.deny: expected /path or @name without . .. // and / at its end" },
	{ "name: x\nprocesses: {ptrace: allow}\n",
	  "2:21 processes.ptrace: unknown value; one of inside, deny" },
	{ "name: x\nprocesses: {bpf: [deny]}\n", "2:18 processes.bpf: expected a word" },
	{ "name: x\nnetwork: {mode: public}\n",
	  "2:17 network.mode: unknown value; one of none, private, shared" },
	{ "name: x\nnetwork: {egress: {alow: [192.0.2.1]}}\n",
	  "2:20 network.egress.alow: unknown field; did you mean allow?" },
	{ "name: x\nnetwork: {egress: {allow: 192.0.2.1}}\n",
	  "2:27 network.egress.allow: expected a list" },
	{ "name: x\nnetwork: {egress: {allow: [192.0.2.300]}}\n",
	  "2:28 network.egress.allow: expected an address or ADDRESS/PREFIX first, as "
	  "192.0.2.0/24" },
	{ "name: x\nnetwork: {egress: {allow: [\"*.mirror.example tcp\"]}}\n",
	  "2:28 network.egress.allow: no * in names: .mirror.example is it and all names below "
	  "it" },
	{ "name: x\nnetwork: {egress: {allow: [Mirror.example]}}\n",
	  "2:28 network.egress.allow: a name is written with a-z 0-9 - _ and dots, others as "
	  "xn--" },
	{ "name: x\nnetwork: {egress: {allow: [mirror.example.]}}\n",
	  "2:28 network.egress.allow: an empty part in a name: no dot at its end, no two in a "
	  "row" },
	{ "name: x\nnetwork: {egress: {allow: [a-.example]}}\n",
	  "2:28 network.egress.allow: no - at the ends of a name's parts" },
	{ "name: x\nnetwork: {egress: {allow: [a.12]}}\n",
	  "2:28 network.egress.allow: the last part of a name is no number" },
	{ "name: x\nnetwork: {egress: {deny: [mirror.example]}}\n",
	  "2:27 network.egress.deny: a name cannot be denied: one that nothing allows is "
	  "refused" },
	{ "name: x\nnetwork: {egress: {allow: [\"a.example tcp/1,2,3,4,5\",\n"
	  "  \".example tcp/11,12,13,14,15\"]}}\n",
	  "2:28 network.egress.allow: more than 8 ranges of ports hold for a.example "
	  "tcp/1,2,3,4,5; join them" },
	{ "name: x\nnetwork: {egress: {allow: [192.0.2.7/24]}}\n",
	  "2:28 network.egress.allow: bits beyond the prefix: write its first address" },
	{ "name: x\nnetwork: {egress: {allow: [192.0.2.0/33]}}\n",
	  "2:28 network.egress.allow: a prefix is /0 to /32" },
	{ "name: x\nnetwork: {egress: {allow: [\"::ffff:192.0.2.1\"]}}\n",
	  "2:28 network.egress.allow: write an IPv4 address as 192.0.2.1" },
	{ "name: x\nnetwork: {egress: {allow: [192.0.2.1 icmp]}}\n",
	  "2:28 network.egress.allow: expected tcp, udp, tcp/PORTS or udp/PORTS behind the "
	  "address or name, or tls, tls/PORTS behind a name" },
	{ "name: x\nnetwork: {egress: {allow: [192.0.2.1 tls]}}\n",
	  "2:28 network.egress.allow: tls is of names: an address shows none" },
	{ "name: x\nnetwork: {egress: {allow: [api.example tls/53]}}\n",
	  "2:28 network.egress.allow: port 53 is the resolver's alone: names cannot be asked "
	  "elsewhere" },
	{ "name: x\nnetwork: {egress: {allow: [192.0.2.1 tcp/0]}}\n",
	  "2:28 network.egress.allow: a port is 1 to 65535" },
	{ "name: x\nnetwork: {egress: {allow: [192.0.2.1 tcp/90-80]}}\n",
	  "2:28 network.egress.allow: a range of ports begins with its lowest" },
	{ "name: x\nnetwork: {egress: {allow: [\"192.0.2.1 tcp/80,\"]}}\n",
	  "2:28 network.egress.allow: a port is 1 to 65535" },
	{ "name: x\nnetwork: {egress: {allow: [192.0.2.1 udp/53]}}\n",
	  "2:28 network.egress.allow: port 53 is the resolver's alone: names cannot be asked "
	  "elsewhere" },
	{ "name: x\nnetwork: {egress: {allow: [\"192.0.2.1  tcp\"]}}\n",
	  "2:28 network.egress.allow: expected ADDRESS[/PREFIX] or NAME, then [tcp[/PORTS]] "
	  "[udp[/PORTS]], or [tls[/PORTS]] of a name, one space between" },
	{ "name: x\nnetwork: {egress: {allow: [\"192.0.2.1 tcp/1,2,3,4,5,6,7,8,9\"]}}\n",
	  "2:28 network.egress.allow: more than 8 ranges of ports" },
	{ "name: x\nnetwork: {egress: {deny: [192.0.2.1 tcp]}}\n",
	  "2:27 network.egress.deny: a denied address is denied whole: no protocol, no ports" },
	{ "name: x\nnetwork: {egress: {allow: [\"192.0.2.1 tcp/1,2,3,4,5\",\n"
	  "  \"192.0.2.1 tcp/11,12,13,14\"]}}\n",
	  "3:3 network.egress.allow: more than 8 ranges of ports hold for 192.0.2.1 "
	  "tcp/11,12,13,14; join them" },
	{ "name: x\nanomalies: {port-scn: {limit: 1}}\n",
	  "2:13 anomalies.port-scn: unknown field; did you mean port-scan?" },
	{ "name: x\nanomalies: {hunting: {limit: 0}}\n",
	  "2:30 anomalies.hunting.limit: expected a number from 1 to 1000000" },
	{ "name: x\nanomalies: {hunting: {window: 1m}}\n",
	  "2:31 anomalies.hunting.window: expected seconds from 0 to 86400" },
	{ "name: x\nanomalies: {hunting: {severity: taints}}\n",
	  "2:33 anomalies.hunting.severity: unknown value; did you mean taint?" },
	{ "name: x\nphases: [verify]\n",
	  "2:9 phases: expected a map of phases and their policies" },
	{ "name: x\nphases: {verify: nosuch}\n", "2:18 phases.verify: there is no policy nosuch" },
	{ "name: x\nphases: {Verify: default}\n",
	  "2:10 phases: a phase is 1 to 63 of a-z 0-9 and - inside" },
	{ "name: x\nenforce: {files: requird}\n",
	  "2:18 enforce.files: unknown value; did you mean required?" },
	{ "files: {hide: [/a]}\n", "1:1 name: expected, the policy has none" },
	{ "name: -x\n", "1:7 name: expected 1 to 63 of a-z 0-9 and - inside" },
	{ "name: Swe\n", "1:7 name: expected 1 to 63 of a-z 0-9 and - inside" },
	{ "name: x\nextends: nosuch\n", "2:10 extends: there is no policy nosuch" },
	{ "name: x\nname: y\n", "2:1 name: twice in one map" },
	{ "name: &a x\n", "1:7 anchors are not taken" },
	{ "name: x\nextends: *a\n", "2:10 aliases are not taken" },
	{ "name: !!str x\n", "1:7 tags are not taken" },
	{ "name: x\n---\nname: y\n", "2:1 a second document" },
	{ "name: \"a\\0b\"\n", "1:7 a control character in a value" },
	{ "? [a]\n: b\n", "1:3 a key is a word" },
	{ "name: x\nfiles: {hide: [[[[[[[[/a]]]]]]]]}\n", "2:21 nested more than 8 deep" },
	{ "name: x\nfiles: {hide: [/a\n", "3:1 did not find expected ',' or ']'" },
	{ "name: \xff\n", "1:7 not UTF-8, or a character YAML does not take" },
	{ "name: a\nfiles: {hide: [/\u00fc\xfe]}\n",
	  "2:18 not UTF-8, or a character YAML does not take" },
	{ "name: a\nextends: \x01\n", "2:10 not UTF-8, or a character YAML does not take" },
	{ "name: a\nsockets: {families: []}\n",
	  "2:21 sockets.families: expected what may be: all others are refused" },
};

Test(policy, a_mistake_is_told_with_its_place_its_field_and_what_was_expected)
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

Test(policy, what_is_over_a_limit_is_refused)
{
	struct policy_table *table = table_open();
	struct policy_mistake mistake = { 0 };
	struct policy *policy = NULL;
	size_t used, room = POLICY_DOCUMENT_BYTES_MAX + 2;
	char *text = malloc(room), name[64];

	memset(text, '#', room);
	text[room - 1] = 0;
	cr_expect_eq(load(table, 0, text, &policy, &mistake), -EBADMSG);
	cr_expect_str_eq(mistake.text, "document: more than 65,536 bytes");
	used = (size_t)sprintf(text, "name: many\nfiles:\n  hide:\n");
	for (int i = 0; i <= GUARD_POLICY_RULES_MAX; i++)
		used += (size_t)sprintf(text + used, "  - /%d\n", i);
	cr_expect_eq(load(table, 0, text, &policy, &mistake), -EBADMSG);
	cr_expect_str_eq(mistake.text, "files.hide: more than 1,024 rules in all");
	used = (size_t)sprintf(text, "name: many\nfiles:\n  hide: [");
	for (int i = 0; i <= YAML_NODES_MAX; i++)
		used += (size_t)sprintf(text + used, "/a,");
	(void)sprintf(text + used, "]\n");
	cr_expect_eq(load(table, 0, text, &policy, &mistake), -EBADMSG);
	cr_expect_str_eq(mistake.text, "more than 4096 values");
	for (int i = 0; i < POLICY_EXTENDS_MAX + 1; i++) {
		(void)sprintf(text, "name: x%d\n%s%.*d\n", i + 1, i ? "extends: x" : "#", i > 0, i);
		cr_expect_eq(load(table, 0, text, &policy, &mistake), 0);
	}
	cr_expect_eq(load(table, 0, "name: y\nextends: x5\n", &policy, &mistake), -EBADMSG);
	cr_expect_str_eq(mistake.text, "extends: more than 4, one behind the other");
	for (int i = 5; i < POLICIES_OWN_MAX; i++) {
		(void)sprintf(name, "name: z%d\n", i);
		cr_expect_eq(load(table, 0, name, &policy, &mistake), 0);
	}
	cr_expect_eq(load(table, 0, "name: last\n", &policy, &mistake), -ENOSPC);
	cr_expect_eq(load(table, 1, "name: last\n", &policy, &mistake), 0, "another tenant's");
	free(text);
	table_close(table);
}

/* ---- what a document compiles to ---- */

static const struct guard_rule *rule_of(const struct policy *policy, const char *label)
{
	for (uint32_t i = 0; i < policy->guard.rule_count; i++)
		if (!strcmp(policy->guard.rules[i].label, label))
			return &policy->guard.rules[i];
	return NULL;
}

Test(policy, rules_are_those_of_the_document_in_its_order)
{
	struct policy_table *table = table_open();
	const struct guard_rule *rules;
	struct policy *policy =
		loaded(table, "name: mine\n"
			      "processes: {ptrace: inside, bpf: deny, perf: allow}\n"
			      "files: {protect: [/bin], hide: [/var/log/x], noexec: [/tmp]}\n"
			      "sockets: {unix: {deny: [\"@dbus\", /run/x]}}\n"
			      "ioctls: {deny: [fs-freeze, 0x5878, 0xBEEF]}\n"
			      "network: {mode: none}\n"
			      "enforce: {files: required, processes: audit}\n");

	rules = policy->guard.rules;
	cr_assert_eq(policy->guard.rule_count, 10);
	cr_expect_str_eq(policy->guard.name, "mine");
	cr_expect_eq(policy->network, POLICY_NETWORK_NONE);
	cr_expect_eq(rules[0].value, GUARD_PROCESS_PTRACE_OUTSIDE);
	cr_expect(rules[0].is_audit && !rules[0].is_required);
	cr_expect_eq(rules[1].value, GUARD_PROCESS_BPF);
	cr_expect_str_eq(rules[1].label, "processes.bpf deny");
	cr_expect_str_eq(rules[2].text, "/bin");
	cr_expect_str_eq(rules[2].label, "files.protect /bin");
	cr_expect_eq(rules[2].bits, GUARD_FILE_WRITE | GUARD_FILE_REPLACE | GUARD_FILE_METADATA |
					    GUARD_FILE_SUBTREE);
	cr_expect(rules[2].is_required && !rules[2].is_audit);
	cr_expect_eq(rules[3].bits, GUARD_FILE_HIDE | GUARD_FILE_SUBTREE);
	cr_expect_eq(rules[4].bits, GUARD_FILE_EXECUTE | GUARD_FILE_SUBTREE);
	cr_expect_eq(rules[5].kind, GUARD_RULE_UNIX);
	cr_expect_str_eq(rules[5].text, "@dbus");
	cr_expect_eq(rules[7].value, 0x5877);
	cr_expect_eq(rules[8].value, 0x5878, "once, though it was named twice");
	cr_expect_eq(rules[9].value, 0xbeef);
	table_close(table);
}

Test(policy, what_extends_joins_lists_replaces_words_and_may_narrow_families)
{
	struct policy_table *table = table_open();
	struct policy *child;

	(void)loaded(table, "name: base\nfiles: {hide: [/a, /b]}\nprocesses: {bpf: deny}\n"
			    "sockets: {families: [unix, inet]}\nphases: {one: default}\n");
	child = loaded(table, "name: child\nextends: base\nfiles: {hide: [/b, /c]}\n"
			      "processes: {bpf: allow, keyctl: deny}\nsockets: {families: [unix]}\n"
			      "phases: {one: verify, two: child}\n");
	cr_expect(rule_of(child, "files.hide /a"));
	cr_expect(rule_of(child, "files.hide /c"));
	cr_expect_eq(strcmp(child->guard.rules[1].label, "files.hide /b"), 0);
	cr_expect_not(rule_of(child, "processes.bpf deny"));
	cr_expect(rule_of(child, "processes.keyctl deny"));
	cr_expect(rule_of(child, "sockets.families inet"),
		  "refused, as the child lists unix alone");
	cr_expect_not(rule_of(child, "sockets.families unix"));
	cr_assert_eq(child->phase_count, 2);
	cr_expect_str_eq(child->phases[0].policy, "verify");
	cr_expect_str_eq(child->phases[1].policy, "child");
	/* What a child was made of does not change with its base. */
	(void)loaded(table, "name: base\n");
	policies_sweep(table);
	cr_expect(rule_of(policies_find(table, 0, "child"), "files.hide /a"));
	table_close(table);
}

/* 0x541b is FIONREAD, of group file; 0x5412 TIOCSTI, of tty-injection alone. */
Test(policy, ioctls_that_may_be_refuse_all_others_and_what_is_denied_stays_so)
{
	struct policy_table *table = table_open();
	const struct policy *list =
		loaded(table, "name: list\nioctls: {deny: [0x541b], allow: [tty, file, 0x5412]}\n");
	const struct policy *less =
		loaded(table, "name: less\nextends: list\nioctls: {allow: [tty]}\n");
	const struct policy *named =
		loaded(table, "name: named\nioctls: {deny: [tty-injection]}\n");
	const struct guard_rule *others = &list->rules[1];

	cr_expect_str_eq(list->rules[0].label, "ioctls.deny 0x541b");
	cr_expect_str_eq(others->label, "ioctls.allow others");
	cr_expect_eq(others->bits, GUARD_IOCTL_OTHERS);
	cr_expect_eq(list->rules[2].bits, GUARD_IOCTL_ALLOW);
	for (uint32_t i = 1; i < list->guard.rule_count; i++)
		cr_expect_neq(list->rules[i].value, 0x541b, "denied, and of group file");
	cr_expect_eq(list->rules[list->guard.rule_count - 1].value, 0x5412);
	cr_expect_lt(less->guard.rule_count, list->guard.rule_count, "a list replaces another");
	cr_expect_eq(policy_lacks(less, list), 0);
	cr_expect_eq(policy_lacks(list, less), 2, "it allows more");
	cr_expect_eq(policy_lacks(less, named), 0, "others are refused, these among them");
	cr_expect_neq(policy_lacks(list, named), 0, "but for one that it allows");
	cr_expect_eq(policy_lacks(named, less), 1);
	table_close(table);
}

Test(policy, anomalies_are_tuned_by_name_and_the_rest_stays)
{
	struct policy_table *table = table_open();
	const struct policy *base = loaded(
		table, "name: a\nanomalies:\n  port-scan: {limit: 4, window: 9, severity: note}\n"
		       "files: {readonly: [/r], verify: [/v]}\n");
	const struct policy *child =
		loaded(table, "name: b\nextends: a\n"
			      "anomalies: {port-scan: {limit: 5}, hunting: {severity: off}}\n"
			      "files: {verify: [/w]}\n");
	const struct anomaly_rule *scan = &child->anomalies.rules[DSEC_ANOMALY_PORT_SCAN];

	cr_expect_eq(base->anomalies.rules[DSEC_ANOMALY_PORT_SCAN].limit, 4);
	cr_expect_eq(base->anomalies.judged[0], 2, "the second rule's files are judged");
	cr_expect_eq(scan->limit, 5);
	cr_expect_eq(scan->window_s, 9);
	cr_expect_eq(scan->severity, ANOMALY_NOTE);
	cr_expect_eq(child->anomalies.rules[DSEC_ANOMALY_HUNTING].severity, ANOMALY_OFF);
	cr_expect_eq(child->anomalies.rules[DSEC_ANOMALY_HUNTING].limit, 3);
	cr_expect_eq(child->anomalies.judged[0], 6);
	cr_expect_str_eq(scan->name, "port-scan");
	table_close(table);
}

/* Bodies of documents, and which rule of the wider one the other lacks. */
static const struct {
	const char *wider, *policy;
	uint32_t lacks;
} narrowings[] = {
	{ "", "", 0 },
	{ "", "files: {hide: [/a]}", 0 },
	{ "files: {readonly: [/a]}", "", 1 },
	{ "files: {readonly: [/a]}", "files: {readonly: [/a]}", 0 },
	{ "files: {readonly: [/a]}", "files: {protect: [/a]}", 0 },
	{ "files: {protect: [/a]}", "files: {readonly: [/a]}", 1 },
	{ "files: {readonly: [/a/b]}", "files: {readonly: [/a]}", 0 },
	{ "files: {readonly: [/a]}", "files: {readonly: [/a/b]}", 1 },
	{ "files: {readonly: [/ab]}", "files: {readonly: [/a]}", 1 },
	{ "files: {protect: [/a], noexec: [/b]}", "files: {hide: [/a, /b]}", 0 },
	{ "files: {hide: [/a]}", "files: {protect: [/a], noexec: [/a]}", 1 },
	{ "files: {readonly: [/a], noexec: [/a]}", "files: {readonly: [/a]}", 2 },
	{ "files: {readonly: [/a]}", "files: {readonly: [/a]}\nenforce: {files: audit}", 1 },
	{ "files: {readonly: [/a]}\nenforce: {files: audit}", "", 0 },
	{ "ioctls: {deny: [fs-trim]}", "ioctls: {deny: [fs-trim, fs-freeze]}", 0 },
	{ "ioctls: {deny: [fs-trim, 0x5878]}", "ioctls: {deny: [fs-trim]}", 2 },
	{ "processes: {ptrace: inside}", "processes: {ptrace: deny}", 0 },
	{ "processes: {ptrace: deny}", "processes: {ptrace: inside}", 1 },
	{ "sockets: {unix: {deny: ['@a']}}", "sockets: {unix: {deny: ['@b', '@a']}}", 0 },
	{ "sockets: {unix: {deny: ['@a']}}", "sockets: {unix: {deny: ['@b']}}", 1 },
};

Test(policy, one_is_narrower_that_refuses_all_that_the_other_does)
{
	struct policy_table *table = table_open();

	for (size_t i = 0; i < sizeof narrowings / sizeof narrowings[0]; i++) {
		char a[128], b[128];

		(void)snprintf(a, sizeof a, "name: a\n%s\n", narrowings[i].wider);
		(void)snprintf(b, sizeof b, "name: b\n%s\n", narrowings[i].policy);
		cr_expect_eq(policy_lacks(loaded(table, b), loaded(table, a)), narrowings[i].lacks,
			     "%zu: %s against %s", i, narrowings[i].policy, narrowings[i].wider);
	}
	table_close(table);
}

Test(policy, the_ready_made_say_what_their_names_do)
{
	struct policy_table *table = table_open();

	cr_expect_eq(policies_find(table, 3, "default")->guard.rule_count, 0);
	cr_expect_eq(policies_find(table, 0, "no-network")->network, POLICY_NETWORK_NONE);
	cr_expect(rule_of(policies_find(table, 0, "no-network"), "sockets.families inet"));
	cr_expect(rule_of(policies_find(table, 0, "swe-agent"), "files.protect /usr/bin")
			  ->is_required);
	cr_expect(rule_of(policies_find(table, 0, "verify"), "files.verify /opt/tests"));
	cr_expect(rule_of(policies_find(table, 0, "verify"), "files.protect /usr/bin"));
	cr_expect(rule_of(policies_find(table, 0, "fncall"), "processes.io_uring deny"));
	cr_expect_not(rule_of(policies_find(table, 0, "builder"), "processes.userns deny"));
	table_close(table);
}

/* ---- versions ---- */

Test(policy, a_version_lives_while_it_is_used_and_its_number_is_never_used_again)
{
	struct policy_table *table = table_open();
	struct policy_mistake mistake;
	struct policy_request request = { .name = "mine", .version = 99 };
	struct policy *first = loaded(table, "name: mine\n"), *other;
	uint32_t number = first->guard.number;

	cr_expect_eq(loaded(table, "name: mine\n"), first, "the same again is the same");
	policy_use(first);
	other = loaded(table, "name: mine\nfiles: {hide: [/a]}\n");
	cr_expect_neq(other, first);
	cr_expect_gt(other->guard.number, number);
	policies_sweep(table);
	cr_expect_eq(first->guard.number, number, "it is still there for who has it");
	policy_put(first);
	policies_sweep(table);
	cr_expect_eq(policies_remove(table, &request), -ESTALE);
	request.version = other->guard.number;
	number = other->guard.number;
	cr_expect_eq(policies_remove(table, &request), 0);
	cr_expect_eq(policies_remove(table, &request), -ENOENT);
	policies_sweep(table);
	cr_expect_gt(loaded(table, "name: mine\n")->guard.number, number);
	request.name = "default";
	request.version = 0;
	cr_expect_eq(policies_remove(table, &request), -EPERM);
	cr_expect_eq(load(table, 0, "name: default\n", &other, &mistake), -EPERM);
	table_close(table);
}

Test(policy, a_tenant_finds_its_own_and_the_ready_made)
{
	struct policy_table *table = table_open();
	struct policy_mistake mistake;
	struct policy *blue = NULL, *red = NULL;

	cr_assert_eq(load(table, 1, "name: mine\nfiles: {hide: [/blue]}\n", &blue, &mistake), 0);
	cr_expect_null(policies_find(table, 2, "mine"));
	cr_expect_eq(load(table, 2, "name: x\nextends: mine\n", &red, &mistake), -EBADMSG);
	cr_assert_eq(load(table, 2, "name: mine\n", &red, &mistake), 0);
	cr_expect_eq(policies_find(table, 1, "mine"), blue);
	cr_expect_eq(policies_find(table, 2, "mine"), red);
	cr_expect(policies_find(table, 2, "verify"));
	table_close(table);
}

/* ---- the schema ---- */

static const json_t *schema_at(const json_t *schema, const char *path)
{
	char part[64];

	while (schema && *path) {
		size_t bytes = strcspn(path, ".");

		(void)snprintf(part, sizeof part, "%.*s", (int)bytes, path);
		schema = json_object_get(json_object_get(schema, "properties"), part);
		path += bytes + (path[bytes] == '.');
	}
	return schema;
}

static bool list_has(const json_t *list, const char *word)
{
	const json_t *item;
	size_t at;

	json_array_foreach(list, at, item) if (json_is_string(item) &&
					       !strcmp(json_string_value(item), word)) return true;
	return false;
}

/* Words may stand at the value, at the items of a list, or in one of an anyOf. */
static const json_t *schema_words(const json_t *at)
{
	const json_t *items = json_object_get(at, "items");

	if (items)
		at = items;
	if (json_object_get(at, "anyOf"))
		at = json_array_get(json_object_get(at, "anyOf"), 0);
	return json_object_get(at, "enum");
}

static size_t schema_leaves(const json_t *at)
{
	const json_t *properties = json_object_get(at, "properties"), *value;
	const char *name;
	size_t count = 0;

	if (!properties)
		return 1;
	cr_expect(json_is_false(json_object_get(at, "additionalProperties")));
	json_object_foreach((json_t *)properties, name, value) count += schema_leaves(value);
	return count;
}

Test(policy, the_published_schema_says_what_the_parser_takes)
{
	json_error_t error;
	json_t *schema = json_load_file(getenv("DSEC_SCHEMA"), 0, &error);

	cr_assert(schema, "%s:%d %s", getenv("DSEC_SCHEMA"), error.line, error.text);
	cr_expect_eq(schema_leaves(schema), POLICY_FIELDS);
	for (uint32_t id = 0; id < POLICY_FIELDS; id++) {
		const struct policy_field *field = policy_field(id);
		const json_t *at = schema_at(schema, field->path);
		const json_t *words = schema_words(at);

		cr_expect(at, "%s", field->path);
		cr_expect_eq(json_array_size(words), field->words.count, "%s", field->path);
		for (size_t i = 0; i < field->words.count; i++)
			cr_expect(list_has(words, field->words.words[i].name), "%s %s", field->path,
				  field->words.words[i].name);
	}
	json_decref(schema);
}
