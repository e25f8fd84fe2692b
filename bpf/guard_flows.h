/*
 * Cuts the flows of a network namespace.
 */
#pragma once

#include <stdint.h>

/*
 * Ends every TCP and UDP socket in the namespace, whoever has it open: connections are reset, what
 * listens is told that it does not. How many, into *ret_count. It takes milliseconds, and a thread
 * of its own. -EOPNOTSUPP: this kernel does not do it.
 */
int guard_flows_cut(int namespace_fd, uint32_t *ret_count);
