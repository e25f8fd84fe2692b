/*
 * Says where no answer may lead: to the sandbox itself, its neighbours, the link, many at once, and
 * the services that give a machine's secrets away. Called by the resolver for each address. The
 * kernel refuses metadata services in any case (bpf/metadata.bpf.h): this keeps programs from being
 * told of them.
 */
#include "engine/names/sieve.h"

#include <stdbool.h>
#include <string.h>

#include "bpf/policy.h"

static uint32_t number_of(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 |
	       bytes[3];
}

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

static bool is_own(const uint8_t *address, const struct sieve_own *own)
{
	for (uint32_t i = 0; i < own->count; i++) {
		const struct sieve_prefix *prefix = &own->prefixes[i];
		const uint32_t bytes = prefix->bits / 8, rest = prefix->bits % 8;
		const uint8_t mask = (uint8_t)(0xff00u >> rest);

		if (!memcmp(address, prefix->first, bytes) &&
		    !(rest && (address[bytes] ^ prefix->first[bytes]) & mask))
			return true;
	}
	return false;
}

static uint32_t rule4(uint32_t address, const struct sieve_own *own)
{
	uint8_t whole[16] = { [12] = (uint8_t)(address >> 24),
			      (uint8_t)(address >> 16),
			      (uint8_t)(address >> 8),
			      (uint8_t)address };

	memcpy(whole, mapped, sizeof mapped);
	if (address >> 16 == 0xa9fe || address == 0x646464c8 || address == 0xa83f8110 ||
	    address == 0xc00000c0)
		return POLICY_RULE_METADATA_ADDRESS;
	if (address >> 24 == 0 || address >> 24 == 127 || address >> 29 == 7 || is_own(whole, own))
		return POLICY_RULE_NEIGHBOUR;
	return 0;
}

/* The IPv4 address that stands in an IPv6 one: mapped, compatible, NAT64, 6to4. */
static bool embedded(const uint8_t *address, uint32_t *ret)
{
	static const uint8_t nat64[12] = { 0x00, 0x64, 0xff, 0x9b }, zero[12];
	static const uint8_t local_nat64[6] = { 0x00, 0x64, 0xff, 0x9b, 0x00, 0x01 };

	if (!memcmp(address, zero, 12) || !memcmp(address, mapped, 12) ||
	    !memcmp(address, nat64, 12) || !memcmp(address, local_nat64, 6))
		*ret = number_of(address + 12);
	else if (address[0] == 0x20 && address[1] == 0x02)
		*ret = number_of(address + 2);
	else
		return false;
	return true;
}

uint32_t sieve_rule(const uint8_t address[16], const struct sieve_own *own)
{
	const uint32_t first = number_of(address), last = number_of(address + 12);
	const bool is_short = !number_of(address + 4) && !number_of(address + 8);
	uint32_t four;

	if (embedded(address, &four))
		return rule4(four, own);
	if (first == 0xfd000ec2 || (first == 0xfd0000c1 && is_short && last == 0xa9fea9fe) ||
	    (first == 0xfd2000ce && is_short && last == 0x254))
		return POLICY_RULE_METADATA_ADDRESS;
	if (is_own(address, own))
		return POLICY_RULE_NEIGHBOUR;
	/* fe80::/10, site-local fec0::/10, ff00::/8 */
	return first >> 23 == 0xfe8 >> 3 || first >> 24 == 0xff ? POLICY_RULE_NEIGHBOUR : 0;
}
