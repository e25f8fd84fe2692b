/*
 * What networks a create may ask for: by the engine's configuration, by a policy, and by what this
 * host can do, which for `shared` is programs that the control thread loads for the first that
 * asks.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "engine/base/io.h"
#include "engine/request/request.h"

struct config;
struct policy;
struct shard;

/* By itself, of enum dsec_network. */
struct status network_check(const struct config *config, uint32_t network);
/* It is not wider than the policy's. */
struct status network_fits(const struct policy *policy, uint32_t network);
/* By a policy's rules, if it has any. */
bool network_leads_out(uint32_t network);
enum box_network network_of(uint32_t network, bool is_policed);
/* In network `shared`: of its tenant, and of the job that the create's label of that name says. */
struct box_group network_group_of(const struct request *request, bool is_policed);

/* Somebody who waits for it. Embedded; lives until ready(). */
struct network_want {
	struct mail mail;
	struct shard *shard;
	uint32_t network;
	int result;
	void (*ready)(struct network_want *want, int result); /* 0, or why it is not there */
};

/* 0: it is there; -EAGAIN: ready() will be called; -EOPNOTSUPP: this host cannot. */
int network_get(struct network_want *want);
/* What a create is told of it. */
struct status network_failed(int result);
