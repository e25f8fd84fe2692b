/*
 * Which sandboxes make processes and threads faster than they may, and which of their leaves
 * compute long (churn.bpf.c). One for the whole engine. Slots may be set by any thread, the rest is
 * for the one that reads the stream.
 */
#pragma once

#include <stdint.h>

struct guard_churn;

/* -EOPNOTSUPP without BPF; else as the kernel has it. Nothing is attached then. */
int guard_churn_open(uint32_t burst_ms, struct guard_churn **ret);
/*
 * From now on CPUs are sampled, and of a leaf that used more than `burst_ms` of CPU time at once,
 * and a fourth of a CPU since, is told. -errno: of none.
 */
int guard_churn_sample(struct guard_churn *churn);
/* Detached, and all is forgotten. NULL is fine. */
void guard_churn_close(struct guard_churn *churn);
/* Becomes readable when somebody was told of. */
int guard_churn_fd(const struct guard_churn *churn);

/* Of a slot's cgroup: whose it is, and its bucket, which holds a quarter of a second's worth. */
struct guard_churn_limit {
	uint32_t per_s; /* 0: as many as it likes */
	uint32_t shard, slot;
	uint64_t sandbox;	/* the caller's number; comes back */
	uint32_t processes_max; /* what bounds it without a controller; comes back */
};

/* With a full bucket. NULL: no limit, which is fine where there was none. -E2BIG; -ENOMEM. */
int guard_churn_set(struct guard_churn *churn, uint64_t cgroup_id,
		    const struct guard_churn_limit *limit);
/* From now on there is room for only so many at once; -ENOENT: it is not this sandbox's. */
int guard_churn_leave(struct guard_churn *churn, uint64_t cgroup_id, uint64_t sandbox,
		      uint32_t left);

enum guard_churn_what { GUARD_CHURN_ENDS, GUARD_CHURN_TIME };

struct guard_churn_event {
	enum guard_churn_what what;
	uint64_t leaf_id;   /* of the cgroup in which the last one ended, right below the slot's */
	uint64_t cgroup_id; /* of the slot */
	uint64_t sandbox;
	uint32_t shard, slot;
	uint32_t processes_max;
};

enum { GUARD_CHURN_SAMPLE_NS = 10000000 }; /* from one look at a CPU to the next */

/* Of a leaf: how often it was seen on a CPU, and how often making a process. They only grow. */
struct guard_churn_forks {
	uint64_t samples, forks;
};

/* Both 0: it is not known, or not any more. */
struct guard_churn_forks guard_churn_forks(const struct guard_churn *churn, uint64_t leaf_id);

/* The next one that waits: 1; 0: none does. */
int guard_churn_next(struct guard_churn *churn, struct guard_churn_event *ret);
