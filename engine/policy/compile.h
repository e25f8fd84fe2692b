/*
 * A version of a policy, made of its document and of the version it extends. It owns all of its
 * texts: neither is needed any more.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bpf/guard_policy.h"
#include "engine/integrity/anomaly.h"
#include "engine/policy/document.h"

enum { POLICY_EXTENDS_MAX = 4, POLICY_PHASES_MAX = 16, POLICY_EVERYBODYS = UINT32_MAX };

/* How much network a sandbox may have, in order. */
enum policy_network {
	POLICY_NETWORK_NONE,
	POLICY_NETWORK_PRIVATE,
	POLICY_NETWORK_SHARED,
	POLICY_NETWORK_ANY
};

struct policy_phase {
	const char *name, *policy;
};

struct backend_walls;

enum policy_held {
	POLICY_NOT_HELD, /* no sandbox has had it yet */
	POLICY_HELD,	 /* the kernel has its rules */
	POLICY_HELD_NOT, /* it has none, or the kernel takes none: walls are all there is */
};

struct policy {
	struct guard_policy guard; /* its rules are what is below */
	struct guard_rule *rules;
	struct guard_destination *destinations;
	struct guard_name *names;
	struct backend_walls *walls; /* the table's enforcer's, or NULL */
	uint32_t *levels;	     /* of each rule: enum guard_level */
	uint32_t unenforced;	     /* how many have none */
	uint32_t unmet;	     /* the first of those that is required, from 1; 0: there is none */
	const char *extends; /* NULL: nothing */
	uint32_t depth;	     /* how many it extends, one behind the other */
	enum policy_network network;
	struct anomaly_rules anomalies;
	struct policy_phase phases[POLICY_PHASES_MAX];
	uint32_t phase_count;
	struct policy_entry *entries; /* with those of what it extends, for who extends it */
	uint32_t entry_count;
	bool has_services; /* some of its places are those of services */
	char *document;	   /* as it was loaded */
	size_t document_bytes;
	char *strings;
	size_t strings_used, strings_room;
	/* the table's, see policies.h */
	uint32_t base;	   /* number of what it extends; 0: nothing */
	uint32_t services; /* number of the reading that its places are of; 0: of none */
	uint32_t tenant;   /* whose it is; POLICY_EVERYBODYS */
	bool is_stale;	   /* found no more: freed once it has no users */
	uint32_t users;	   /* atomic */
	uint32_t held;	   /* atomic, enum policy_held */
	uint64_t loaded_ns;
	struct policy *next; /* in order of names */
};

struct services;

/*
 * `base` is what the document extends, or NULL; `services`, or NULL, outlive it. 0; -EBADMSG: the
 * mistake says what; -ENOMEM. Its number is the caller's to give.
 */
int policy_compile(const struct policy_document *document, const struct policy *base,
		   const struct services *services, struct policy **ret,
		   struct policy_mistake *mistake);
void policy_free(struct policy *policy);
/* Its sandboxes may have a way out: it says where, and something holds them to it. */
bool policy_leads_out(const struct policy *policy);
/*
 * How many of its rules nothing enforces in a sandbox whose image lacks the paths of `absent`, a
 * bit per rule from 0: what stands there later no mount holds.
 */
uint32_t policy_unenforced(const struct policy *policy, const uint64_t *absent);
