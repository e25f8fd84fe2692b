/* The programs of network `shared` (shared.bpf.c). For guard.c only. */
#pragma once

#include <stdint.h>

struct guard_programs_options;
struct guard_shared;
struct guard_shared_counts;
struct shared_bpf;

/* Loads and attaches them; on failure nothing of them is attached. */
int guard_shared_open(const struct guard_programs_options *options, struct shared_bpf **ret);
void guard_shared_close(struct shared_bpf *shared); /* they are detached already. NULL is fine */

/* Anew, where it was there. */
int guard_shared_add(struct shared_bpf *shared, uint64_t cgroup_id,
		     const struct guard_shared *what);
int guard_shared_read(const struct shared_bpf *shared, uint64_t cgroup_id,
		      struct guard_shared_counts *ret);
/* Fine where it is not there, and with NULL. */
int guard_shared_clear(const struct shared_bpf *shared, uint64_t cgroup_id);
