/* Claims about the anomaly rules: limits, windows, distinct destinations, severities. */
#include "engine/integrity/anomaly.h"

#include <errno.h>
#include <netinet/in.h>

#include <criterion/criterion.h>

#include "bpf/policy.h"

enum { SECOND_NS = 1000000000 };

static struct policy_violation seen(uint16_t hook, uint64_t second)
{
	return (struct policy_violation){ .time_ns = (second + 1) * SECOND_NS, .hook = hook };
}

static uint32_t judge(struct anomaly_state *state, const struct policy_violation *v, uint64_t times)
{
	return anomaly_judge(state, &anomaly_defaults, v, times);
}

Test(anomaly, one_write_to_what_is_protected_taints)
{
	struct anomaly_state state = { 0 };
	const struct policy_violation v = seen(POLICY_HOOK_RENAME, 0);
	const uint32_t bit = 1u << DSEC_ANOMALY_PROTECTED_WRITE;

	cr_expect_eq(judge(&state, &v, 1), bit);
	cr_expect_eq(judge(&state, &v, 1), 0, "it is raised once");
	cr_expect_eq(anomaly_taints(&anomaly_defaults, bit), bit);
}

Test(anomaly, compiled_files_that_python_would_keep_count_for_nothing)
{
	struct anomaly_state state = { 0 };
	const struct policy_violation v = seen(POLICY_HOOK_BYTECODE, 0);

	cr_expect_eq(judge(&state, &v, 1000000), 0);
}

Test(anomaly, what_is_hidden_is_hunted_and_not_written)
{
	struct anomaly_state state = { 0 };
	struct policy_violation v = seen(POLICY_HOOK_OPEN, 0);

	v.error = ENOENT;
	cr_expect_eq(judge(&state, &v, 2), 0);
	cr_expect_eq(judge(&state, &v, 1), 1u << DSEC_ANOMALY_HUNTING);
}

Test(anomaly, who_looks_at_the_kernels_memory_hunts_although_nothing_is_refused)
{
	struct anomaly_state state = { 0 };
	struct policy_violation v = seen(POLICY_HOOK_OPEN, 0);

	v.verdict = POLICY_AUDITED;
	cr_expect_eq(judge(&state, &v, 100), 0, "watched by a policy: no anomaly");
	v.rule = POLICY_RULE_PLATFORM;
	cr_expect_eq(judge(&state, &v, 2), 0, "a search through all of / meets it once");
	cr_expect_eq(judge(&state, &v, 1), 1u << DSEC_ANOMALY_HUNTING);
}

Test(anomaly, a_limit_is_of_its_window)
{
	struct anomaly_state state = { 0 };
	struct policy_violation v = seen(POLICY_HOOK_UNIX_CONNECT, 0);

	cr_expect_eq(judge(&state, &v, 2), 0);
	v = seen(POLICY_HOOK_UNIX_SEND, 61);
	cr_expect_eq(judge(&state, &v, 2), 0, "the first two are over");
	v = seen(POLICY_HOOK_UNIX_SEND, 62);
	cr_expect_eq(judge(&state, &v, 1), 1u << DSEC_ANOMALY_SOCKET_PROBING);
}

Test(anomaly, a_scan_is_of_distinct_destinations)
{
	struct anomaly_state state = { 0 };
	struct policy_violation v = seen(POLICY_HOOK_CONNECT, 0);

	v.port = 80;
	for (int i = 0; i < 1000; i++)
		cr_assert_eq(judge(&state, &v, 5), 0);
	for (v.port = 81; v.port < 95; v.port++)
		cr_assert_eq(judge(&state, &v, 1), 0, "port %u", v.port);
	v.address[15] = 1;
	v.port = 80;
	cr_expect_eq(judge(&state, &v, 1), 1u << DSEC_ANOMALY_PORT_SCAN);
}

Test(anomaly, a_note_does_not_taint_and_what_is_off_is_not_raised)
{
	struct anomaly_rules rules = { 0 };
	struct anomaly_state state = { 0 };
	const struct policy_violation v = seen(POLICY_HOOK_SOCKET, 0);
	const uint32_t bit = 1u << DSEC_ANOMALY_OFFLINE_SOCKETS;

	cr_expect_eq(judge(&state, &v, 99), 0);
	cr_expect_eq(judge(&state, &v, 1), bit);
	cr_expect_eq(anomaly_taints(&anomaly_defaults, bit), 0);
	for (int i = 0; i < DSEC_ANOMALIES; i++)
		rules.rules[i] = (struct anomaly_rule){ .severity = ANOMALY_OFF };
	state = (struct anomaly_state){ 0 };
	cr_expect_eq(anomaly_judge(&state, &rules, &v, 1000), 0);
}

Test(anomaly, each_hook_counts_for_its_rule_up_to_its_limit)
{
	static const struct {
		uint16_t hook;
		enum dsec_anomaly which;
		uint32_t limit;
		bool taints;
	} cases[] = {
		{ POLICY_HOOK_IOCTL, DSEC_ANOMALY_DANGEROUS_IOCTL, 1, true },
		{ POLICY_HOOK_PTRACE, DSEC_ANOMALY_OUTSIDE_PTRACE, 1, true },
		{ POLICY_HOOK_SIGNAL, DSEC_ANOMALY_OUTSIDE_SIGNAL, 8, false },
		{ POLICY_HOOK_STAT, DSEC_ANOMALY_HUNTING, 3, true },
		{ POLICY_HOOK_EXECUTE, DSEC_ANOMALY_HUNTING, 3, true },
		{ POLICY_HOOK_UNIX_SEND, DSEC_ANOMALY_SOCKET_PROBING, 3, true },
		{ POLICY_HOOK_CREATE, DSEC_ANOMALY_PROTECTED_WRITE, 1, true },
		{ POLICY_HOOK_REMOVE, DSEC_ANOMALY_PROTECTED_WRITE, 1, true },
		{ POLICY_HOOK_LINK, DSEC_ANOMALY_PROTECTED_WRITE, 1, true },
		{ POLICY_HOOK_TRUNCATE, DSEC_ANOMALY_PROTECTED_WRITE, 1, true },
		{ POLICY_HOOK_METADATA, DSEC_ANOMALY_PROTECTED_WRITE, 1, true },
		{ POLICY_HOOK_MOUNT, DSEC_ANOMALY_PROTECTED_WRITE, 1, true },
	};

	for (size_t at = 0; at < sizeof(cases) / sizeof(cases[0]); at++) {
		const struct policy_violation v = seen(cases[at].hook, 0);
		const uint32_t bit = 1u << cases[at].which;
		struct anomaly_state state = { 0 };

		if (cases[at].limit > 1)
			cr_expect_eq(judge(&state, &v, cases[at].limit - 1), 0, "row %zu", at);
		cr_expect_eq(judge(&state, &v, 1), bit, "row %zu", at);
		cr_expect_eq(anomaly_taints(&anomaly_defaults, bit), cases[at].taints ? bit : 0,
			     "row %zu", at);
	}
}

Test(anomaly, what_honest_programs_try_counts_for_nothing)
{
	static const uint16_t hooks[] = { POLICY_HOOK_IOCTL_OTHER, POLICY_HOOK_MOUNT_CALL };

	for (size_t at = 0; at < sizeof(hooks) / sizeof(hooks[0]); at++) {
		const struct policy_violation v = seen(hooks[at], 0);
		struct anomaly_state state = { 0 };

		cr_expect_eq(judge(&state, &v, 1000), 0, "hook %u", hooks[at]);
	}
}

Test(anomaly, a_write_to_what_is_judged_is_tampering_and_one_beside_it_is_not)
{
	const uint32_t tamper = 1u << DSEC_ANOMALY_VERIFY_TAMPER;
	struct anomaly_rules rules = anomaly_defaults;
	struct anomaly_state state = { 0 };
	struct policy_violation v = seen(POLICY_HOOK_OPEN, 0);

	rules.judged[1] = 1; /* rule 65 */
	v.rule = 64;
	cr_expect_eq(anomaly_judge(&state, &rules, &v, 1), 1u << DSEC_ANOMALY_PROTECTED_WRITE);
	v.rule = 65;
	cr_expect_eq(anomaly_judge(&state, &rules, &v, 1), tamper);
	cr_expect_eq(anomaly_taints(&rules, tamper), tamper);
	state = (struct anomaly_state){ 0 };
	v.rule = POLICY_RULE_PLATFORM;
	cr_expect_eq(anomaly_judge(&state, &rules, &v, 1), 0, "it is hunted, not written");
	v = seen(POLICY_HOOK_IOCTL, 0);
	v.rule = 65;
	cr_expect_eq(anomaly_judge(&state, &rules, &v, 1), 1u << DSEC_ANOMALY_DANGEROUS_IOCTL);
}

Test(anomaly, files_that_are_made_too_fast_are_a_storm_when_it_goes_on_and_refused_to_nobody)
{
	const uint32_t storm = 1u << DSEC_ANOMALY_STORM;
	struct anomaly_state state = { 0 };
	struct policy_violation v = seen(POLICY_HOOK_CREATE, 0);

	v.rule = POLICY_RULE_FILE_STORM;
	v.verdict = POLICY_AUDITED;
	cr_expect_eq(judge(&state, &v, 7), 0, "seven seconds of it");
	v.time_ns += (uint64_t)70 * SECOND_NS;
	cr_expect_eq(judge(&state, &v, 7), 0, "and seven another time");
	cr_expect_eq(judge(&state, &v, 1), storm);
	cr_expect_eq(anomaly_taints(&anomaly_defaults, storm), 0, "a note");
}

Test(anomaly, a_storm_is_one_that_goes_on_and_bursts_far_apart_are_none)
{
	const uint32_t storm = 1u << DSEC_ANOMALY_STORM;
	const uint64_t second_ns = 1000000000;
	struct anomaly_state state = { 0 };

	for (uint64_t i = 0; i < 20; i++)
		cr_expect_eq(anomaly_happened(&state, &anomaly_defaults, DSEC_ANOMALY_STORM,
					      (1 + 31 * i) * second_ns),
			     0);
	state = (struct anomaly_state){ 0 };
	for (uint64_t i = 0; i < 7; i++)
		cr_expect_eq(anomaly_happened(&state, &anomaly_defaults, DSEC_ANOMALY_STORM,
					      (1 + i) * second_ns),
			     0);
	cr_expect_eq(anomaly_happened(&state, &anomaly_defaults, DSEC_ANOMALY_STORM, 9 * second_ns),
		     storm);
	cr_expect_eq(anomaly_happened(&state, &anomaly_defaults, DSEC_ANOMALY_STORM,
				      10 * second_ns),
		     0, "told once");
	cr_expect_eq(anomaly_taints(&anomaly_defaults, storm), 0);
}

static struct dsec_egress egress_with(uint16_t port, uint64_t bytes, uint32_t rule)
{
	return (struct dsec_egress){
		.flow_count = 2,
		.flows = { { .port = 443, .protocol = IPPROTO_TCP, .rule = 1, .bytes = bytes },
			   { .port = port, .protocol = IPPROTO_TCP, .rule = rule, .bytes = 1 } },
	};
}

Test(anomaly, much_to_one_place_is_noted_once)
{
	const uint32_t bit = 1u << DSEC_ANOMALY_BYTES_PER_DESTINATION;
	struct dsec_egress egress = egress_with(443, (64ull << 20) - 1, 1);
	struct anomaly_rules rules = anomaly_defaults;
	struct anomaly_state state = { 0 };
	uint32_t at[DSEC_ANOMALIES] = { 9 };

	cr_expect_eq(anomaly_flows(&state, &rules, &egress, SECOND_NS, at), 0);
	egress.flows[0].bytes++;
	cr_expect_eq(anomaly_flows(&state, &rules, &egress, SECOND_NS, at), bit);
	cr_expect_eq(at[DSEC_ANOMALY_BYTES_PER_DESTINATION], 0);
	cr_expect_eq(anomaly_flows(&state, &rules, &egress, SECOND_NS, at), 0, "it is raised once");
	cr_expect_eq(anomaly_taints(&rules, bit), 0);
	rules.rules[DSEC_ANOMALY_BYTES_PER_DESTINATION].severity = ANOMALY_OFF;
	state = (struct anomaly_state){ 0 };
	cr_expect_eq(anomaly_flows(&state, &rules, &egress, SECOND_NS, at), 0);
}

Test(anomaly, vcs_ports_are_told_refused_or_reached_unless_they_are_a_service)
{
	const uint32_t bit = 1u << DSEC_ANOMALY_VCS_DIRECT;
	struct dsec_egress egress = egress_with(9418, 1, 70);
	struct anomaly_rules rules = anomaly_defaults;
	struct anomaly_state state = { 0 };
	struct policy_violation v = seen(POLICY_HOOK_CONNECT, 0);
	uint32_t at[DSEC_ANOMALIES] = { 0 };

	rules.services[1] = 1ull << 5;
	cr_expect_eq(anomaly_flows(&state, &rules, &egress, SECOND_NS, at), 0, "a service");
	rules.services[1] = 0;
	cr_expect_eq(anomaly_flows(&state, &rules, &egress, SECOND_NS, at), bit);
	cr_expect_eq(at[DSEC_ANOMALY_VCS_DIRECT], 1);
	rules.rules[DSEC_ANOMALY_VCS_DIRECT].limit = 2;
	state = (struct anomaly_state){ 0 };
	for (int i = 0; i < 3; i++)
		cr_expect_eq(anomaly_flows(&state, &rules, &egress, SECOND_NS, at), 0,
			     "counted once");
	v.port = 22;
	v.protocol = IPPROTO_UDP;
	cr_expect_eq(anomaly_judge(&state, &rules, &v, 1), 0);
	v.protocol = IPPROTO_TCP;
	cr_expect_eq(anomaly_judge(&state, &rules, &v, 1), bit, "one more, refused");
	v.port = 443;
	state = (struct anomaly_state){ 0 };
	cr_expect_eq(anomaly_judge(&state, &rules, &v, 5), 0);
}

Test(anomaly, what_a_cap_stops_is_no_scan)
{
	struct anomaly_state state = { 0 };
	struct policy_violation v = seen(POLICY_HOOK_CONNECT, 0);

	v.rule = POLICY_RULE_EGRESS_CAP;
	for (uint16_t i = 0; i < 40; i++) {
		v.port = i;
		cr_expect_eq(judge(&state, &v, 1), 0);
	}
}

Test(anomaly, every_rule_has_a_name_a_limit_and_a_severity)
{
	for (int i = 0; i < DSEC_ANOMALIES; i++) {
		cr_expect_not_null(anomaly_defaults.rules[i].name);
		cr_expect_gt(anomaly_defaults.rules[i].limit, 0);
		cr_expect_neq(anomaly_defaults.rules[i].severity, ANOMALY_OFF);
	}
}
