/*
 * Cuts the flows of a network namespace, or of one sandbox in it.
 */
#pragma once

#include <stdint.h>

struct guard_flows {
	int namespace_fd;
	uint32_t address;   /* of struct guard_shared: its own alone; 0: all that are there */
	uint64_t cgroup_id; /* with an address: the slot's */
};

/*
 * Ends these TCP and UDP sockets, whoever has them open: connections are reset, what listens is
 * told that it does not. How many, into *ret_count. It takes milliseconds, and a thread of its own.
 * -EOPNOTSUPP: this kernel does not do it.
 */
int guard_flows_cut(const struct guard_flows *flows, uint32_t *ret_count);
