/* What was told of an attack. Called by test_policy_attacks.c after each. */
#include "tests/hostile/policy/told.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include <criterion/criterion.h>

#include "bpf/guard.h"
#include "bpf/guard_policy.h"
#include "bpf/policy.h"

struct told {
	const struct stage *stage;
	const struct attack *attack;
	const struct guard_policy *policy;
	bool is_as_wanted;
	char seen[512]; /* for people */
};

/* Names from the last one to the first, each with a NUL; as people write it, without "/". */
static void text_of(const struct policy_violation *v, char ret[static POLICY_TEXT_BYTES + 1])
{
	uint32_t used = 0, at = v->text_bytes;

	ret[0] = '\0';
	if (v->text_kind != POLICY_TEXT_PATH) {
		memcpy(ret, v->text, at);
		ret[at] = '\0';
		return;
	}
	while (at > 0) {
		size_t bytes;

		for (at--; at > 0 && v->text[at - 1]; at--)
			;
		bytes = strnlen(v->text + at, POLICY_TEXT_BYTES - at);
		if (used)
			ret[used++] = '/';
		memcpy(ret + used, v->text + at, bytes);
		used += (uint32_t)bytes;
	}
	ret[used] = '\0';
}

/* Whom it was about. */
static bool argument_fits(const struct policy_violation *v, pid_t victim)
{
	if (v->hook == POLICY_HOOK_PTRACE)
		return v->argument == (uint64_t)victim;
	if (v->hook == POLICY_HOOK_SIGNAL)
		return v->argument >> 32 == (uint64_t)victim;
	return v->hook != POLICY_HOOK_IOCTL || v->argument;
}

static void told_take(void *context, const struct policy_violation *v)
{
	struct told *told = context;
	const struct attack *attack = told->attack;
	const char *label = v->rule && v->rule <= told->policy->rule_count ?
				    told->policy->rules[v->rule - 1].label :
				    NULL;
	const size_t used = strlen(told->seen);
	char text[POLICY_TEXT_BYTES + 1];

	text_of(v, text);
	(void)snprintf(told->seen + used, sizeof told->seen - used, " [%u %s \"%s\" %llx]", v->hook,
		       label ? label : "-", text, (unsigned long long)v->argument); /* cut */
	told->is_as_wanted |= v->cgroup_id == told->stage->inside_id && v->hook == attack->hook &&
			      v->verdict == POLICY_DENIED && v->policy == told->policy->number &&
			      (attack->rule ? label && !strcmp(label, attack->rule) : !label) &&
			      (!attack->text || !strcmp(text, attack->text)) &&
			      argument_fits(v, told->stage->victim);
}

void expect_told(const struct stage *stage, const struct attack *attack,
		 const struct guard_policy *policy)
{
	struct told told = { .stage = stage, .attack = attack, .policy = policy };
	struct guard_tallies tallies;

	if (policy)
		while (guard_violations_consume(stage->told, 64, told_take, &told) == 64)
			;
	cr_expect(!policy || !attack->hook || told.is_as_wanted, "%s is told as%s", attack->name,
		  *told.seen ? told.seen : " nothing");
	cr_expect(attack->hook || !*told.seen, "%s is told as%s", attack->name, told.seen);
	cr_assert_eq(guard_tallies_read(stage->told, stage->neighbour_id, &tallies), 0);
	cr_expect_eq(tallies.count + tallies.others, 0, "%s: a neighbour is told of", attack->name);
	(void)guard_tallies_drop(stage->told, stage->inside_id); /* each is told of anew */
}
