/*
 * The governor: one thread of the engine that freezes leaves which make processes too fast, for a
 * moment that grows while they go on (throttle.h), and keeps those that compute long off a CPU
 * while others begin something (hogs.h), and tells of fork bombs (bomb.h). It is a realtime thread
 * where the host lets it, because such a storm keeps every ordinary task from running: shards and
 * workers too.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct containers;
struct governor;
struct slot;

struct governor_options {
	int cgroup_fd; /* borrowed: any directory of cgroup v2 */
	uint32_t shards;
	uint32_t cpu_burst_ms; /* who computes longer yields; 0: nobody does */
	uint32_t fork_bomb_s;  /* who does nothing but fail to fork for so long ends; 0: nobody */
};

/* On the control thread. -EOPNOTSUPP, -EPERM …: `ret_step` names what is not to be had here. */
int governor_start(const struct governor_options *options, const char **ret_step,
		   struct governor **ret);
/* It runs as realtime. */
bool governor_is_prompt(const struct governor *g);
/* Who computes long is kept off a CPU: 0, or why not: -EOPNOTSUPP: there is one. */
int governor_yields(const struct governor *g);
/* Everything is thawed and its thread has ended: no mail of it comes any more. NULL is fine. */
void governor_stop(struct governor *g);

/* A shard is there for its mail, or not any more (NULL). On the shard's thread. */
void governor_meet(struct governor *g, uint32_t shard, struct containers *c);
/*
 * A sandbox has the slot, and may make so many a second; 0: as many as it likes. On the shard's
 * thread, as the next one; g NULL is fine for both. -errno: it is not governed.
 */
int governor_limit(struct governor *g, uint32_t shard, struct slot *slot, uint32_t per_s);
/* It has it no more. */
void governor_leave(struct governor *g, struct slot *slot);
/* Something short begins in a slot: a sandbox, a program. Its shard's thread; g may be NULL. */
void governor_begins(struct governor *g, uint32_t shard, const struct slot *slot);
