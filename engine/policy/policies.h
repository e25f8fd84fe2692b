/*
 * The policies of an engine: ready-made ones, which are everybody's and never change, and each
 * tenant's own. The table is the control thread's. A version that was replaced or removed is found
 * no more; it is freed when nobody uses it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "engine/policy/compile.h"
#include "engine/policy/services.h"

#define POLICY_DEFAULT "default"

enum { POLICIES_OWN_MAX = 64, POLICIES_READY = 6 };

/* A ready-made document. */
struct policy_ready {
	const char *name, *text;
	size_t bytes;
};

extern const struct policy_ready policies_ready[POLICIES_READY];

/* Where tenants' own are kept for who comes after this engine. -EIO, and it said why. */
struct policy_store {
	int (*put)(const struct policy_store *store, const struct policy *policy);
	int (*remove)(const struct policy_store *store, uint32_t tenant, const char *name);
};

struct guard;

/* What enforces policies on this host, by versions. */
struct policy_enforcer {
	struct guard *guard; /* NULL: none */
	bool has_resolver;   /* names can be asked */
	/* Of rule `at`, from 0. */
	uint32_t (*rule_levels)(const struct policy_enforcer *e, const struct guard_policy *policy,
				uint32_t at);
	/* Of a version that sandboxes may get: once it is compiled, and before it is freed. */
	int (*walls_new)(const struct policy_enforcer *e, const struct guard_policy *policy,
			 struct backend_walls **ret);
	void (*walls_free)(struct backend_walls *walls);
	/* Into the kernel, before its first sandbox, and out of it; it may take a while. */
	int (*load)(struct guard *guard, const struct guard_policy *policy);
	int (*drop)(struct guard *guard, const struct guard_policy *policy);
};

struct policy_table {
	struct policy *ready[POLICIES_READY];
	struct policy *policies; /* all, with those that are stale, in order of names */
	uint32_t numbers;	 /* given so far */
	const struct policy_enforcer *enforcer; /* NULL: there is none. Set before opening */
	struct services *services; /* those read last; NULL: none. They outlive the policies */
	const struct policy_store *store; /* tenants' own outlive the table; NULL: they do not */
};

struct policy_request {
	uint32_t tenant; /* POLICY_EVERYBODYS: of all tenants */
	const char *name;
	const char *document;
	size_t document_bytes;
	uint64_t version; /* load, remove: only if this is the one there is; 0: whatever is */
	uint64_t now_ns;
	bool is_restored; /* it was looked at once: its phases' policies may come after it */
};

/*
 * The services of a folder are those that are named from now on; policies that are there keep the
 * places they have until they are loaded again. 1; 0: they are as they were; or what
 * services_read() says, and they stay as they were.
 */
int policies_read_services(struct policy_table *table, const char *folder,
			   char ret_why[SERVICES_WHY_BYTES]);
/* By any thread: with that number of the table's services, it has places of an earlier reading. */
bool policy_is_dated(const struct policy *policy, uint32_t services);
/* The ready-made are compiled. -EBADMSG: one is wrong, and the mistake says which; -ENOMEM. */
int policies_open(struct policy_table *table, struct policy_mistake *mistake);
/* Nobody uses any of them. */
void policies_close(struct policy_table *table);

/* What a tenant finds under a name: ready-made, or its own. NULL: nothing. */
struct policy *policies_find(const struct policy_table *table, uint32_t tenant, const char *name);
/*
 * Compiled, and not kept: used once, and found by nobody. -EBADMSG: the mistake says what; -ENOMEM.
 */
int policies_check(struct policy_table *table, const struct policy_request *request,
		   struct policy **ret, struct policy_mistake *mistake);
/*
 * Under its name from now on; used once. The same document again is the version that is there. The
 * same errors, and -EPERM: the name is ready-made; -ENOSPC: POLICIES_OWN_MAX; -ESTALE: another
 * version is there; -EIO: it cannot be kept.
 */
int policies_load(struct policy_table *table, const struct policy_request *request,
		  struct policy **ret, struct policy_mistake *mistake);
/* -ENOENT, -EPERM: ready-made, -ESTALE: another version is there, -EIO: it stays. */
int policies_remove(struct policy_table *table, const struct policy_request *request);
/*
 * One that an engine before this had, under its number where that is free. The errors of
 * policies_check(), and -EEXIST; -ENOSPC: POLICIES_OWN_MAX.
 */
int policies_restore(struct policy_table *table, const struct policy_request *request,
		     uint32_t number, struct policy_mistake *mistake);
/*
 * The kernel has its rules from here on: before the first sandbox that gets it. Of a version that
 * is used. 0 also where the kernel takes none (then it is POLICY_HELD_NOT), or what load() says.
 */
int policies_hold(struct policy_table *table, struct policy *policy);
/* By any thread: whether that was done; its number in the kernel, 0: it is not there. */
bool policy_is_held(const struct policy *policy);
uint32_t policy_number_held(const struct policy *policy);
/* Those that nobody finds and nobody uses are freed. */
void policies_sweep(struct policy_table *table);

void policy_use(struct policy *policy);
/* By any thread. */
void policy_put(struct policy *policy);
