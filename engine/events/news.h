/*
 * What happens to sandboxes and images, told to who subscribed: each shard collects a tenant's
 * events and sends them once a turn to the shard that keeps the journal, which numbers them. See
 * docs/events.md.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/io.h"

struct exec;
struct policy_violation;
struct sandbox;
struct shard;

enum { NEWS_BATCH_BYTES = 128 << 10 /* of a shard */, NEWS_BATCH_BYTES_MIN = 16 << 10 };

/* Before each record. */
struct news_head {
	uint32_t bytes;
	uint32_t is_shared; /* others are told the same: to everyone it is told as its owner's */
};

struct news_batch {
	char *bytes;
	uint32_t used;
	uint64_t lost;	      /* behind them: there was no room */
	uint64_t lost_shared; /* of those: what everyone hears of as another's */
};

/* Of a tenant on a shard. */
struct news {
	struct mail mail; /* a batch on its way, and back */
	struct shard *shard;
	uint32_t tenant; /* its index */
	uint32_t batch_bytes;
	bool is_away;
	struct news_batch filling, sent;
};

/* -ENOMEM. */
int news_open(struct news *news, struct shard *shard, uint32_t tenant, uint32_t batch_bytes);
void news_done(struct news *news);
/* topic: enum dsec_topic. In the order in which they happen. */
void news_of_sandbox(const struct sandbox *sandbox, uint32_t topic);
void news_of_exec(const struct exec *exec, uint32_t topic);
/* exec: the number of the one that did it; 0: unknown. anomaly: enum dsec_anomaly. */
void news_of_violation(const struct sandbox *sandbox, const struct policy_violation *v,
		       uint64_t exec);
void news_of_anomaly(const struct sandbox *sandbox, const struct policy_violation *v, uint64_t exec,
		     uint32_t anomaly);
/* On the shard with the journal: to all tenants that may see it. */
void news_of_image(struct shard *shard, const char *name, uint32_t topic);
/* Nothing of this is on its way to the journal. */
bool news_is_told(const struct news *news);
/* Once a turn: what happened goes to the journal. */
void news_send(struct news *news);
