/* Which addresses no name may have for a sandbox: DNS rebinding. Pure. */
#pragma once

#include <stdint.h>

enum { SIEVE_PREFIXES_MAX = 4 };

/* Addresses of sandboxes and of the ways out; IPv4 as ::ffff:a.b.c.d. */
struct sieve_own {
	struct sieve_prefix {
		uint8_t first[16];
		uint32_t bits;
	} prefixes[SIEVE_PREFIXES_MAX];
	uint32_t count;
};

/*
 * 0: it may; else in the name of which of every policy's own rules it may not
 * (enum policy_own_rule). The address: IPv6, or IPv4 as ::ffff:a.b.c.d.
 */
uint32_t sieve_rule(const uint8_t address[16], const struct sieve_own *own);
