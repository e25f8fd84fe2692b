/*
 * Tenants of one engine: whose a connection is, what it may see, and how much of the engine it may
 * use. Made before the shards start; afterwards only the counts change, which all shards share:
 * they are the one thing that is exact for the whole engine.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dsec/ring.h"
#include "engine/tenant/bucket.h"
#include "engine/config.h"

struct node;

/* How a gateway says that it looks at all of them. */
#define TENANT_EVERYONE "*"

struct tenant {
	const struct tenant_config *config; /* NULL: everyone */
	const char *name;
	uint32_t index;	  /* everyone's: behind all others */
	bool is_everyone; /* sees all, makes nothing */
	bool has_limits;  /* there are others, or it was given some */
	char *token;	  /* NULL: none */
	uint32_t token_bytes;
	uint32_t limits[TENANT_LIMITS];
	/* what shards share */
	_Alignas(64) uint32_t used[TENANT_LIMITS];
	struct shared_bucket creates;
};

/* Who connects. */
struct caller {
	uint32_t door; /* the tenant whose socket it came by; 0: the engine's own */
	uint32_t uid;
	const char *token;
	uint32_t token_bytes;
	const char *acts_for; /* a tenant's name; "": itself */
};

/* Who a caller is; or NULL, and why it is turned away. */
struct identity {
	struct tenant *tenant;
	uint32_t code; /* enum dsec_code */
	const char *text;
};

/* Reads their tokens; logs what is wrong. -errno. */
int tenants_open(struct node *node);
void tenants_close(struct node *node);
struct identity tenant_identify(const struct node *node, const struct caller *caller);

/* What belongs to `owner` is there for `viewer`. */
static inline bool tenant_sees(const struct tenant *viewer, const struct tenant *owner)
{
	return viewer == owner || viewer->is_everyone;
}

/* One more of it, of the whole engine; false: it has all it may have. */
bool tenant_take(struct tenant *tenant, enum tenant_limit limit);
void tenant_give(struct tenant *tenant, enum tenant_limit limit);
/* May it read this image, and may it make or remove it. By the name alone. */
bool tenant_reads_image(const struct tenant *tenant, const struct node *node, const char *name);
bool tenant_owns_image(const struct tenant *tenant, const struct node *node, const char *name);
