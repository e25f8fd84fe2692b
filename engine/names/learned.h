/*
 * The addresses that a sandbox's names were found to have, as the guard is told them. Pure: who
 * calls it tells the guard.
 */
#pragma once

#include <stdint.h>

#include "bpf/guard_policy.h"

enum { LEARNED_MAX = 128 /* of a sandbox */ };

struct learned {
	uint8_t address[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint32_t range_count;
	struct guard_ports ranges[GUARD_PORT_RANGES_MAX];
	uint64_t until_ns[GUARD_PORT_RANGES_MAX];
};

struct learned_list {
	struct learned *all;
	uint32_t count, room;
};

/*
 * What is allowed there until then, beside what was before: ranges that are there last longer, and
 * of too many the one goes that ends first. Where there are LEARNED_MAX addresses the one that ends
 * first makes room, and *ret_gone is it; else its range_count is 0. -ENOMEM.
 */
int learned_add(struct learned_list *list, const struct guard_destination *to, uint64_t until_ns,
		struct learned **ret, struct learned *ret_gone);
void learned_done(struct learned_list *list);
