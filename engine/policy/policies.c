/*
 * The table of policies. Called on the control thread, by policy_op.c and control.c, and by tests;
 * uses are given back by shards. Must hold: a number is given once; what is found does not change
 * until it is used no more; nobody takes a new use of a version that is stale.
 */
#include "engine/policy/policies.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void policy_use(struct policy *policy)
{
	(void)__atomic_fetch_add(&policy->users, 1, __ATOMIC_RELAXED);
}

void policy_put(struct policy *policy)
{
	(void)__atomic_fetch_sub(&policy->users, 1, __ATOMIC_RELEASE);
}

/* Out of the table. */
static void version_free(const struct policy_table *table, struct policy *policy)
{
	if (policy->held == POLICY_HELD)
		(void)table->enforcer->drop(table->enforcer->guard,
					    &policy->guard); /* gone at last */
	if (policy->walls)
		table->enforcer->walls_free(policy->walls);
	policy_free(policy);
}

/* What sandboxes get of it, by its number; a failure leaves it as it was. */
static int version_arm(const struct policy_table *table, struct policy *policy)
{
	return table->enforcer ?
		       table->enforcer->walls_new(table->enforcer, &policy->guard, &policy->walls) :
		       0;
}

bool policy_is_held(const struct policy *policy)
{
	return __atomic_load_n(&policy->held, __ATOMIC_ACQUIRE) != POLICY_NOT_HELD;
}

uint32_t policy_number_held(const struct policy *policy)
{
	return __atomic_load_n(&policy->held, __ATOMIC_ACQUIRE) == POLICY_HELD ?
		       policy->guard.number :
		       0;
}

int policies_hold(struct policy_table *table, struct policy *policy)
{
	const struct policy_enforcer *enforcer = table->enforcer;
	enum policy_held held = POLICY_HELD_NOT;
	int r;

	if (policy_is_held(policy))
		return 0;
	if (enforcer && enforcer->guard && policy->guard.rule_count) {
		r = enforcer->load(enforcer->guard, &policy->guard);
		if (r < 0 && r != -EOPNOTSUPP)
			return r;
		if (r == 0)
			held = POLICY_HELD;
	}
	__atomic_store_n(&policy->held, (uint32_t)held, __ATOMIC_RELEASE);
	return 0;
}

static void policy_insert(struct policy_table *table, struct policy *policy)
{
	struct policy **at = &table->policies;

	while (*at && strcmp((*at)->guard.name, policy->guard.name) <= 0)
		at = &(*at)->next;
	policy->next = *at;
	*at = policy;
}

struct policy *policies_find(const struct policy_table *table, uint32_t tenant, const char *name)
{
	for (struct policy *policy = table->policies; policy; policy = policy->next)
		if (!policy->is_stale && !strcmp(policy->guard.name, name) &&
		    (policy->tenant == tenant || policy->tenant == POLICY_EVERYBODYS))
			return policy;
	return NULL;
}

/* ---- documents ---- */

static int base_find(const struct policy_table *table, uint32_t tenant,
		     const struct policy_document *document, struct policy **ret,
		     struct policy_mistake *mistake)
{
	const struct yaml_node at = { .line = document->extends_line,
				      .column = document->extends_column };

	if (!document->extends)
		return 0;
	*ret = policies_find(table, tenant, document->extends);
	return *ret ? 0 :
		      yaml_mistake(mistake, &at, "extends: there is no policy %s",
				   document->extends);
}

/* A phase's policy is there already, or it is the document's own. */
static int phases_check(const struct policy_table *table, uint32_t tenant,
			const struct policy_document *document, struct policy_mistake *mistake)
{
	for (uint32_t i = 0; i < document->count; i++) {
		const struct policy_entry *entry = &document->entries[i];
		const struct yaml_node at = { .line = entry->line, .column = entry->column };

		if (entry->field == FIELD_PHASES && strcmp(entry->text, document->name) != 0 &&
		    !policies_find(table, tenant, entry->text))
			return yaml_mistake(mistake, &at, "phases.%s: there is no policy %s",
					    entry->key, entry->text);
	}
	return 0;
}

static void levels_take(const struct policy_table *table, struct policy *policy)
{
	for (uint32_t i = 0; i < policy->guard.rule_count; i++) {
		policy->levels[i] =
			table->enforcer ?
				table->enforcer->rule_levels(table->enforcer, &policy->guard, i) :
				0;
		policy->unenforced += !policy->levels[i];
		if (policy->rules[i].is_required && !policy->levels[i] && !policy->unmet)
			policy->unmet = i + 1;
	}
}

static int document_compile(const struct policy_table *table, const struct policy_request *request,
			    struct policy **ret, struct policy_mistake *mistake)
{
	const struct yaml_node start = { .line = 1, .column = 1 };
	struct policy_document *document = NULL;
	struct policy *base = NULL, *policy = NULL;
	int r = policy_document_read(request->document, request->document_bytes, &document,
				     mistake);

	if (r < 0)
		return r;
	if (*request->name && strcmp(request->name, document->name) != 0)
		r = yaml_mistake(mistake, &start, "name: %s, and %s was asked for", document->name,
				 request->name);
	if (r == 0)
		r = base_find(table, request->tenant, document, &base, mistake);
	/* Ready-made ones may name each other. */
	if (r == 0 && request->tenant != POLICY_EVERYBODYS && !request->is_restored)
		r = phases_check(table, request->tenant, document, mistake);
	if (r == 0)
		r = policy_compile(document, base, table->services, &policy, mistake);
	policy_document_free(document);
	if (r < 0)
		return r;
	policy->document = malloc(request->document_bytes + 1);
	if (!policy->document) {
		policy_free(policy);
		return -ENOMEM;
	}
	memcpy(policy->document, request->document, request->document_bytes);
	policy->document_bytes = request->document_bytes;
	policy->tenant = request->tenant;
	policy->loaded_ns = request->now_ns;
	levels_take(table, policy);
	policy->base = base ? base->guard.number : 0;
	policy->services = policy->has_services ? table->services->number : 0;
	*ret = policy;
	return 0;
}

int policies_read_services(struct policy_table *table, const char *folder,
			   char ret_why[SERVICES_WHY_BYTES])
{
	struct services *services = NULL, *before = table->services;
	int r = services_read(folder, &services, ret_why);

	if (r < 0)
		return r;
	if (before && services_are_same(services, before)) {
		services_free(services);
		return 0;
	}
	services->number = before ? before->number + 1 : 1;
	services->older = before;
	table->services = services;
	return 1;
}

bool policy_is_dated(const struct policy *policy, uint32_t services)
{
	return policy->has_services && policy->services != services;
}

int policies_open(struct policy_table *table, struct policy_mistake *mistake)
{
	for (size_t i = 0; i < POLICIES_READY; i++) {
		const struct policy_request request = {
			.tenant = POLICY_EVERYBODYS,
			.name = policies_ready[i].name,
			.document = policies_ready[i].text,
			.document_bytes = policies_ready[i].bytes,
		};
		int r = document_compile(table, &request, &table->ready[i], mistake);

		if (r < 0)
			return r;
		table->ready[i]->guard.number = ++table->numbers;
		policy_insert(table, table->ready[i]);
		r = version_arm(table, table->ready[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

void policies_close(struct policy_table *table)
{
	while (table->policies) {
		struct policy *policy = table->policies;

		table->policies = policy->next;
		version_free(table, policy);
	}
}

/* ---- what is asked ---- */

int policies_check(struct policy_table *table, const struct policy_request *request,
		   struct policy **ret, struct policy_mistake *mistake)
{
	int r = document_compile(table, request, ret, mistake);

	if (r < 0)
		return r;
	(*ret)->is_stale = true;
	policy_insert(table, *ret);
	policy_use(*ret);
	return 0;
}

static uint32_t own_count(const struct policy_table *table, uint32_t tenant)
{
	uint32_t count = 0;

	for (const struct policy *policy = table->policies; policy; policy = policy->next)
		count += policy->tenant == tenant && !policy->is_stale;
	return count;
}

static bool is_same(const struct policy *a, const struct policy *b)
{
	return a->base == b->base && a->services == b->services &&
	       a->document_bytes == b->document_bytes &&
	       !memcmp(a->document, b->document, a->document_bytes);
}

/* It can be had from now on, and will be by who comes after this engine; else it is freed. */
static int version_keep(const struct policy_table *table, struct policy *policy)
{
	int r = version_arm(table, policy);

	if (r == 0 && table->store)
		r = table->store->put(table->store, policy);
	if (r < 0)
		version_free(table, policy);
	return r;
}

int policies_load(struct policy_table *table, const struct policy_request *request,
		  struct policy **ret, struct policy_mistake *mistake)
{
	struct policy *policy, *there;
	int r = document_compile(table, request, &policy, mistake);

	if (r < 0)
		return r;
	there = policies_find(table, request->tenant, policy->guard.name);
	if (there && there->tenant == POLICY_EVERYBODYS)
		r = -EPERM;
	else if (request->version && (!there || there->guard.number != request->version))
		r = -ESTALE;
	else if (!there && own_count(table, request->tenant) >= POLICIES_OWN_MAX)
		r = -ENOSPC;
	if (r < 0 || (there && is_same(there, policy))) {
		policy_free(policy);
		policy = there;
	} else {
		policy->guard.number = ++table->numbers;
		r = version_keep(table, policy);
	}
	if (r < 0)
		return r;
	if (policy != there) {
		if (there)
			there->is_stale = true;
		policy_insert(table, policy);
	}
	policy_use(policy);
	*ret = policy;
	return 0;
}

/* The one it had, where that can be. */
static uint32_t number_again(struct policy_table *table, uint32_t wanted)
{
	bool is_free = wanted > 0;

	for (const struct policy *policy = table->policies; policy; policy = policy->next)
		is_free &= policy->guard.number != wanted;
	if (!is_free)
		return ++table->numbers;
	if (table->numbers < wanted)
		table->numbers = wanted;
	return wanted;
}

int policies_restore(struct policy_table *table, const struct policy_request *request,
		     uint32_t number, struct policy_mistake *mistake)
{
	struct policy *policy;
	int r = document_compile(table, request, &policy, mistake);

	if (r < 0)
		return r;
	if (policies_find(table, request->tenant, policy->guard.name))
		r = -EEXIST; /* it is ready-made by now */
	else if (own_count(table, request->tenant) >= POLICIES_OWN_MAX)
		r = -ENOSPC;
	if (r == 0) {
		policy->guard.number = number_again(table, number);
		r = version_arm(table, policy);
	}
	if (r < 0) {
		policy_free(policy);
		return r;
	}
	policy_insert(table, policy);
	return 0;
}

int policies_remove(struct policy_table *table, const struct policy_request *request)
{
	struct policy *policy = policies_find(table, request->tenant, request->name);

	if (!policy)
		return -ENOENT;
	if (policy->tenant == POLICY_EVERYBODYS)
		return -EPERM;
	if (request->version && policy->guard.number != request->version)
		return -ESTALE;
	if (table->store && table->store->remove(table->store, policy->tenant, request->name) < 0)
		return -EIO;
	policy->is_stale = true;
	return 0;
}

void policies_sweep(struct policy_table *table)
{
	struct policy **at = &table->policies;

	if (table->services)
		services_sweep(table->services);
	while (*at) {
		struct policy *policy = *at;

		if (!policy->is_stale || __atomic_load_n(&policy->users, __ATOMIC_ACQUIRE)) {
			at = &policy->next;
			continue;
		}
		*at = policy->next;
		version_free(table, policy);
	}
}
