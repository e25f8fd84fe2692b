/*
 * The governor: one thread of the engine that freezes leaves which make processes too fast, for a
 * moment that grows while they go on (throttle.h). It is a realtime thread where the host lets it,
 * because such a storm keeps every ordinary task from running: shards and workers too.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct containers;
struct governor;
struct slot;

/* On the control thread. -EOPNOTSUPP, -EPERM …: `ret_step` names what is not to be had here. */
int governor_start(int cgroup_fd, uint32_t shards, const char **ret_step, struct governor **ret);
/* It runs as realtime. */
bool governor_is_prompt(const struct governor *g);
/* Everything is thawed and its thread has ended: no mail of it comes any more. NULL is fine. */
void governor_stop(struct governor *g);

/* A shard is there for its mail, or not any more (NULL). On the shard's thread. */
void governor_meet(struct governor *g, uint32_t shard, struct containers *c);
/*
 * A sandbox has the slot, and may make so many a second; 0: as many as it likes. On the shard's
 * thread; g NULL is fine. -errno: it is not limited.
 */
int governor_limit(struct governor *g, uint32_t shard, struct slot *slot, uint32_t per_s);
