/* The programs of network `shared` (shared.bpf.c). For guard.c only. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct guard_hooks;
struct guard_shared;
struct guard_shared_counts;
struct guard_violation_maps;
struct shared_bpf;

/* What they need. `log` is the verifier's. */
struct guard_shared_options {
	struct guard_hooks *hooks;
	const struct guard_violation_maps *violations;
	uint32_t slot_level;
	char *log;
	size_t log_bytes;
};

/* Loads and attaches them; on failure nothing of them is attached. */
int guard_shared_open(const struct guard_shared_options *options, struct shared_bpf **ret);
void guard_shared_close(struct shared_bpf *shared); /* they are detached already. NULL is fine */

/* Anew, where it was there. */
int guard_shared_add(struct shared_bpf *shared, uint64_t cgroup_id,
		     const struct guard_shared *what);
int guard_shared_read(const struct shared_bpf *shared, uint64_t cgroup_id,
		      struct guard_shared_counts *ret);
/* Fine where it is not there, and with NULL. */
int guard_shared_clear(const struct shared_bpf *shared, uint64_t cgroup_id);
