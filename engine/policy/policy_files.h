/*
 * Where tenants' own policies are kept over the engine's end: one file for each in the folder of
 * the instance's state, `policy.TENANT.NAME`: a line with its number and how many bytes follow, and
 * the document. Of the control thread.
 */
#pragma once

#include <stdint.h>

#include "engine/policy/policies.h"

struct policy_files {
	struct policy_store store;  /* what the table asks */
	const char *state;	    /* folder of all instances' */
	const char *instance;	    /* its own below */
	const char *const *tenants; /* names, by index */
	uint32_t tenant_count;
};

/* For a table: the other fields are set. */
void policy_files_init(struct policy_files *files);
/*
 * Into a table that has the ready-made ones: each with the number it had, what it extends compiled
 * in as that is by now. What is not one any more, or nobody's, stays where it is, and a line of the
 * log says why. How many came back.
 */
uint32_t policy_files_restore(const struct policy_files *files, struct policy_table *table,
			      uint64_t now_ns);
/* The instance is no more: its folder goes. Fine where there is none; -errno, logged. */
int policy_files_forget(const struct policy_files *files);
