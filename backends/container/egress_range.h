/*
 * The ranges of addresses that ways out have: `dsecd --egress` and `--egress6`. Four addresses for
 * each network, in one block; the first block is the link's to the host. Control thread, but for
 * the addresses of a network, which any thread may ask for.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { EGRESS_RANGE6_TEXT_BYTES = 50 };

/* In host byte order. */
struct egress_range4 {
	uint32_t first, bytes;
};

struct egress_range6 {
	uint8_t first[16];
	uint8_t prefix_bits; /* 0: there is none */
	uint32_t blocks;
};

/* "10.200.0.0/16". -EINVAL: it is none; -EADDRNOTAVAIL: it holds addresses that are others'. */
int egress_range4_read(const char *text, struct egress_range4 *ret);
/* "fd00:d5ec::/64": of fc00::/7; likewise. */
int egress_range6_read(const char *text, struct egress_range6 *ret);
/* Whether a route of this namespace, but the default ones, lies in it: -EADDRINUSE. */
int egress_range4_check(const struct egress_range4 *range);
int egress_range6_check(const struct egress_range6 *range);
/* The first address of a network's block, 0 or false: the range has no more. */
uint32_t egress_range4_block(const struct egress_range4 *range, uint32_t network);
bool egress_range6_block(const struct egress_range6 *range, uint32_t network, uint8_t ret[16]);
/* As nft(8) reads it. */
void egress_range4_print(uint32_t first, uint32_t bytes, char ret[static 24]);
void egress_range6_print(const struct egress_range6 *range,
			 char ret[static EGRESS_RANGE6_TEXT_BYTES]);
