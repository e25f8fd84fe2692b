/*
 * What sandboxes of a shard tried and were refused: read from the guard, told as events, judged,
 * and summed up in a verdict that stays. See docs/anomalies.md.
 */
#pragma once

#include <stdint.h>

#include "engine/base/io.h"
#include "engine/integrity/own.h"

struct exec;
struct guard;
struct guard_violations;
struct policy_violation;
struct sandbox;
struct shard;

/* Of a shard. All zero: nothing is told on this host. */
struct integrity {
	struct shard *shard;
	struct guard_violations *violations; /* NULL: nothing */
	struct io_op poll;
	struct sandbox **buckets; /* by the id of their cgroup */
	uint32_t bucket_count;
};

/* guard NULL, or one that tells nothing: 0, and all below do nothing. */
int integrity_open(struct shard *shard, struct guard *guard);
void integrity_close(struct shard *shard);
/* Its box is built: what its cgroup breaks from here on is its own. */
void integrity_watch(struct sandbox *sandbox);
/* Nothing runs in that cgroup any more: all is told, and forgotten for the next one there. */
void integrity_emptied(struct shard *shard, uint64_t cgroup_id);
/* All that happened so far is told and judged: before a leaf is used, and before a result. */
void integrity_settle(struct sandbox *sandbox);
/* It was frozen for making processes too fast, and is counted in `throttles`. */
void integrity_throttled(struct sandbox *sandbox);
/*
 * The engine itself refused it something: counted and told as what the kernel refuses is. Rule,
 * hook, and what was refused are the caller's; of the tallies a rule and hook of it has only these.
 */
void integrity_refused(struct sandbox *sandbox, struct policy_violation *v);
/* It asked for a name, the text of `v`, that looks like data. */
void integrity_odd_name(struct sandbox *sandbox, struct policy_violation *v);
/*
 * Somebody who serves packages saw it fetch that. 1: its task's own, 0: not that; -EOPNOTSUPP:
 * nothing is judged on this host; -ENOMEM.
 */
int integrity_fetched(struct sandbox *sandbox, struct own_text path);
/* It asked for that host, whether it may reach it or not. */
void integrity_asked(struct sandbox *sandbox, const char *host);
/* Bits 1 << enum dsec_anomaly of rules that taint it; 0: clean. */
uint32_t integrity_taint(const struct sandbox *sandbox);
