/* The programs of egress (egress.bpf.c). For guard.c only; what the engine calls is in guard.h. */
#pragma once

#include <stdint.h>

struct egress_bpf;
struct guard;
struct guard_programs_options;

/* Loads and attaches them; on failure nothing of them is attached. */
int guard_egress_open(const struct guard_programs_options *options, struct egress_bpf **ret);
void guard_egress_close(struct egress_bpf *egress); /* they are detached already. NULL is fine */
/* guard.c's; NULL without GUARD_EGRESS. */
struct egress_bpf *guard_egress_of(const struct guard *guard);
