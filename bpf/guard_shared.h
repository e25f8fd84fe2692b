/* The programs of network `shared` (shared.bpf.c). For guard.c only. */
#pragma once

#include <stdint.h>

struct guard;
struct guard_programs_options;
struct shared_bpf;

/* Loads and attaches them; on failure nothing of them is attached. */
int guard_shared_open(const struct guard_programs_options *options, struct shared_bpf **ret);
void guard_shared_close(struct shared_bpf *shared); /* they are detached already. NULL is fine */

/* guard.c's, for any thread. */
struct guard_sharing {
	struct shared_bpf *programs; /* NULL: not loaded */
	int networks_fd;	     /* net.bpf.c's map */
};
struct guard_sharing guard_sharing_of(const struct guard *guard);

/* Fine where it is not there, and where nothing is loaded. */
int guard_shared_clear(const struct guard *guard, uint64_t cgroup_id);
