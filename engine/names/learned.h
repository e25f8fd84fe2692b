/*
 * The addresses that a sandbox's names were found to have, as the guard is told them. Pure: who
 * calls it tells the guard.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bpf/guard_policy.h"

enum {
	LEARNED_MAX = 128,	/* of a sandbox */
	LEARNED_NAMES_MAX = 16, /* of an address: the latest */
};

struct learned {
	uint8_t address[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint32_t range_count;
	struct guard_ports ranges[GUARD_PORT_RANGES_MAX];
	uint64_t until_ns[GUARD_PORT_RANGES_MAX];
	uint64_t names[LEARNED_NAMES_MAX]; /* which were found to have it, as learned_name() says */
	uint32_t name_next;
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
/* An address that was added is one of this name's. */
void learned_name(struct learned *learned, const char *name);
/* Whether it is, as far as it is remembered. Names are compared by 64 bits. */
bool learned_is_of(const struct learned_list *list, const uint8_t *address, const char *name);
void learned_done(struct learned_list *list);
