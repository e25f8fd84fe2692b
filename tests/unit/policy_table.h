/*
 * A table of policies, for tests of documents: what a tenant loads is found, and freed with it.
 */
#pragma once

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "engine/policy/policies.h"

static inline struct policy_table *table_open(void)
{
	struct policy_table *table = calloc(1, sizeof *table);
	struct policy_mistake mistake = { 0 };

	cr_assert_eq(policies_open(table, &mistake), 0, "%u:%u %s", mistake.line, mistake.column,
		     mistake.text);
	return table;
}

static inline void table_close(struct policy_table *table)
{
	policies_close(table);
	free(table);
}

static inline int load(struct policy_table *table, uint32_t tenant, const char *document,
		       struct policy **ret, struct policy_mistake *mistake)
{
	const struct policy_request request = { .tenant = tenant,
						.name = "",
						.document = document,
						.document_bytes = strlen(document) };
	int r = policies_load(table, &request, ret, mistake);

	if (r == 0)
		policy_put(*ret);
	return r;
}

static inline struct policy *loaded(struct policy_table *table, const char *document)
{
	struct policy_mistake mistake = { 0 };
	struct policy *policy = NULL;
	int r = load(table, 0, document, &policy, &mistake);

	cr_assert_eq(r, 0, "%s: %d %u:%u %s", document, r, mistake.line, mistake.column,
		     mistake.text);
	return policy;
}
