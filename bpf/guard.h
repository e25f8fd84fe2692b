/*
 * The only door to BPF (libbpf, later libxdp and libapparmor): probe, load, attach, pin, and the
 * stream of deaths. Policy will grow behind this header. Where BPF was not built or the host refuses
 * it, the same functions return -EOPNOTSUPP and the engine goes on without; callers have no #ifdef.
 *
 * All functions are called from the engine's control thread, except those that take a
 * `struct guard_exits`, which belongs to one shard.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct guard;
struct guard_exits;

struct guard_options {
	const char *instance; /* names the pins */
	int cgroup_fd;	      /* directory of the instance's cgroup root */
	uint64_t cgroup_id;
	uint32_t cgroup_level; /* of the root below the cgroup2 mount: 1 for a child of the mount */
	uint32_t shards;
	const uint64_t *shard_cgroup_ids; /* children of the root, one per shard */
	int engine_pid;		/* deaths of this process' children are reported */
};

enum guard_capability {
	GUARD_EXIT_EVENTS = 1, /* deaths by tp_btf/sched_process_exit */
	GUARD_NETWORK_NONE = 2, /* sandboxes of network `none` cannot open inet sockets */
	GUARD_ABSTRACT = 4,	/* … nor reach abstract unix names */
	GUARD_PINNED = 8,	/* enforcement outlives the engine */
};

/* What is missing is told in ret_why, one line per capability with the remedy. Fails only on -ENOMEM
 * or -EINVAL: a host without BPF gives a guard without capabilities. */
int guard_open(const struct guard_options *options, char *ret_why, size_t why_bytes,
	       struct guard **ret);
/* Detach, unpin and free. NULL is fine. */
void guard_close(struct guard *guard);
/* Remove what a dead engine of this instance left pinned or attached. */
int guard_sweep(const char *instance, int cgroup_fd);
uint32_t guard_capabilities(const struct guard *guard);

/*
 * A sandbox's cgroup (bS, by id) may open inet sockets and use abstract names (network `private`:
 * a network namespace of its own), or may not (`none`: the default for ids never told).
 */
int guard_network_set(struct guard *guard, uint64_t cgroup_id, bool is_private);

/* One death. `code` is a wait status. The zombie may not be there yet: wait for the pid. */
struct guard_death {
	uint64_t cgroup_id; /* of the shard's child the task was in: the slot's cgroup */
	int32_t pid;	    /* in the engine's pid namespace */
	int32_t code;
};

/* The shard's stream. fd becomes readable (poll) when deaths wait. -EOPNOTSUPP without capability. */
int guard_exits_open(struct guard *guard, uint32_t shard, struct guard_exits **ret);
int guard_exits_fd(const struct guard_exits *exits);
/*
 * Calls `death` for each waiting one, those that found the ring full included. At most `max`;
 * returns how many, or -errno.
 */
int guard_exits_consume(struct guard_exits *exits, int max,
			void (*death)(void *context, const struct guard_death *d), void *context);
void guard_exits_close(struct guard_exits *exits);
