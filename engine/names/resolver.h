/*
 * Where the sandboxes of a shard ask for names. What a policy does not allow is refused before
 * anybody else hears of it; what it allows is asked of the upstream, and the addresses are told to
 * the guard before they are told to the sandbox. See docs/names.md.
 */
#pragma once

#include <stdint.h>

struct sandbox;
struct shard;

/* 0 also where the node has none: then shard->resolver is NULL. On the shard's thread. */
int resolver_open(struct shard *shard);
/* After io_close(). Fine where there is none. */
void resolver_close(struct shard *shard);

/* It is built: whoever sends from its address is it. Only where its box asks names. */
void resolver_begin(struct sandbox *sandbox);
/* Its policy is another one now: what was learned under the one before is forgotten. */
void resolver_narrowed(struct sandbox *sandbox);
/* Nothing runs in that cgroup any more: nobody asks, and nothing is known of it. */
void resolver_emptied(struct shard *shard, uint64_t cgroup_id);
