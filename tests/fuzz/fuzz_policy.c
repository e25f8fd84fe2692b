/*
 * Feeds the reader of policies arbitrary documents: what it refuses has a place inside the text and
 * words; what it takes compiles to rules that keep the contract of guard_policy.h, twice the same.
 * Holds no state between inputs.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/policy/names.h"
#include "engine/policy/narrower.h"
#include "engine/policy/policies.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void rule_check(const struct guard_rule *rule)
{
	const bool has_text = rule->kind == GUARD_RULE_FILE || rule->kind == GUARD_RULE_UNIX ||
			      rule->kind == GUARD_RULE_DESTINATION || rule->kind == GUARD_RULE_NAME;

	assert(rule->kind >= GUARD_RULE_FILE);
	assert(rule->kind <= GUARD_RULE_CAP);
	assert(rule->label);
	assert(has_text == (rule->text != NULL));
	assert(!has_text || strlen(rule->text) <= GUARD_RULE_TEXT_MAX);
	assert(has_text || rule->value);
	assert(rule->kind != GUARD_RULE_FILE || (rule->text[0] == '/' && rule->bits));
	assert(!rule->is_audit || !rule->is_required);
}

/* Each prefix once, wider ones before what they hold, and ports as the kernel takes them. */
static void destinations_check(const struct guard_policy *policy)
{
	for (uint32_t i = 0; i < policy->destination_count; i++) {
		const struct guard_destination *d = &policy->destinations[i];

		assert(d->prefix_bits <= 128);
		assert(d->port_count <= GUARD_PORT_RANGES_MAX);
		assert(d->rule >= 1);
		assert(d->rule <= policy->rule_count);
		assert(!i || d[-1].prefix_bits <= d->prefix_bits);
		assert(!i || d[-1].prefix_bits < d->prefix_bits ||
		       memcmp(d[-1].address, d->address, sizeof d->address) < 0);
		for (uint32_t k = 0; k < d->port_count; k++) {
			assert(d->ports[k].first <= d->ports[k].last);
			assert(d->ports[k].rule >= 1);
			assert(d->ports[k].rule <= policy->rule_count);
		}
	}
}

/* Each text once; what holds a name comes before it and allows no more. */
static void names_check(const struct guard_policy *policy)
{
	for (uint32_t i = 0; i < policy->name_count; i++) {
		const struct guard_name *name = &policy->names[i];
		const struct guard_name *found = names_find(policy, name->text);

		assert(!name_check(name->text));
		assert(found == name);
		assert(name->to.port_count >= 1);
		assert(name->to.port_count <= GUARD_PORT_RANGES_MAX);
		assert(name->to.rule >= 1);
		assert(name->to.rule <= policy->rule_count);
		for (uint32_t k = 0; k < i; k++)
			assert(strcmp(policy->names[k].text, name->text) != 0);
	}
}

static void policy_check(const struct policy *policy)
{
	assert(policy_name_is_good(policy->guard.name));
	assert(policy->guard.rule_count <= GUARD_POLICY_RULES_MAX);
	for (uint32_t i = 0; i < policy->guard.rule_count; i++)
		rule_check(&policy->guard.rules[i]);
	destinations_check(&policy->guard);
	names_check(&policy->guard);
}

static void mistake_check(const struct policy_mistake *mistake, const char *text, size_t bytes)
{
	uint32_t lines = 1;

	for (size_t i = 0; i < bytes; i++)
		lines += text[i] == '\n' || text[i] == '\r';
	assert(mistake->line >= 1);
	assert(mistake->line <= 3 * lines + bytes); /* YAML has line ends of its own */
	assert(mistake->column >= 1);
	assert(*mistake->text);
	assert(memchr(mistake->text, 0, sizeof mistake->text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct policy_table table = { 0 };
	struct policy_mistake mistake = { 0 };
	struct policy *policy = NULL, *again = NULL;
	char *text = malloc(bytes ? bytes : 1);
	struct policy_request request = { .name = "", .document = text, .document_bytes = bytes };
	int r;

	assert(text);
	memcpy(text, data, bytes); /* exactly as large: a read past the end is seen */
	r = policies_open(&table, &mistake);
	assert(r == 0);
	r = policies_check(&table, &request, &policy, &mistake);
	assert(r == 0 || r == -EBADMSG);
	if (r == 0) {
		policy_check(policy);
		r = policies_load(&table, &request, &again, &mistake);
		assert(r == 0 || r == -EPERM);
		if (r == 0) {
			assert(again->guard.rule_count == policy->guard.rule_count);
			for (uint32_t i = 0; i < policy->guard.rule_count; i++)
				assert(!strcmp(again->rules[i].label, policy->rules[i].label));
			assert(policy_goes_no_further(again, policy));
			policy_put(again);
		}
		policy_put(policy);
	} else {
		mistake_check(&mistake, text, bytes);
	}
	policies_sweep(&table);
	policies_close(&table);
	free(text);
	return 0;
}
