/*
 * What networks a create may ask for, and which one it gets that names none: by the engine's
 * configuration, by a policy, and by what this host can do. What `shared` needs, programs, is
 * loaded for the first create that gets it; as the engine starts where the operator named it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "engine/base/io.h"
#include "engine/request/request.h"

struct config;
struct node;
struct policy;
struct shard;

/* By itself, of enum dsec_network. */
struct status network_check(const struct config *config, uint32_t network);
/* It is not wider than the policy's. */
struct status network_fits(const struct policy *policy, uint32_t network);
/* By a policy's rules, if it has any. */
bool network_leads_out(uint32_t network);
enum box_network network_of(uint32_t network, bool is_policed);
/* In network `shared`: with whom, by enum dsec_network_scope; the label `job` says the job. */
struct box_group network_group_of(const struct request *request, uint32_t scope, bool is_policed);

/* Somebody who waits for it. Embedded; lives until ready(). */
struct network_want {
	struct mail mail;
	struct shard *shard;
	uint32_t network, why; /* enum dsec_network, never its default, and why */
	int result;
	void (*ready)(struct network_want *want, int result); /* 0, or why it is not there */
};

/*
 * Which network creates get that name none, once the node's guard is there and before its shards
 * are. -EOPNOTSUPP: the operator wants one that this host cannot have.
 */
int network_start(struct node *node);
/* The one that was asked for; DSEC_NETWORK_DEFAULT: the node's, or less where the policy has. */
void network_choose(struct network_want *want, uint32_t asked, const struct policy *policy);
/* 0: it is there; -EAGAIN: ready() will be called; -EOPNOTSUPP: this host cannot. */
int network_get(struct network_want *want);
/* What a create is told of it; one that named none gets none, and why. */
struct status network_failed(struct network_want *want, int result);
