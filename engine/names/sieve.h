/* Which addresses no name may have for a sandbox: DNS rebinding. Pure. */
#pragma once

#include <stdint.h>

/* Addresses of sandboxes and of the way out, in host byte order. */
struct sieve_range {
	uint32_t first, bytes;
};

/*
 * 0: it may; else in the name of which of every policy's own rules it may not
 * (enum policy_own_rule). The address: IPv6, or IPv4 as ::ffff:a.b.c.d.
 */
uint32_t sieve_rule(const uint8_t address[16], const struct sieve_range *own);
