/*
 * Reads the ranges of egress_range.h, compares them with the host's routes, and gives networks
 * their addresses. Called by egress.c. Must hold: a range has no address that something else here
 * goes by, or that a cloud's metadata service has.
 */
#include "backends/container/egress_range.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/container/egress.h"
#include "bpf/policy_shared.h"

enum { PREFIX4_MIN = 8, PREFIX4_MAX = 28, PREFIX6_MIN = 32, PREFIX6_MAX = 112 };
/* More than there can be networks; what is added to an address stays in its last word. */
enum { BLOCK_BITS = 2, BLOCKS_BITS_MAX = 24 };

/* "ADDRESS/BITS". */
static int prefix_read(const char *text, int family, void *ret_address, unsigned long *ret_bits)
{
	char address[INET6_ADDRSTRLEN], *end = NULL;
	const char *slash = strchr(text, '/');

	if (!slash || (size_t)(slash - text) >= sizeof address || slash[1] < '0' || slash[1] > '9')
		return -EINVAL;
	*ret_bits = strtoul(slash + 1, &end, 10);
	(void)snprintf(address, sizeof address, "%.*s", (int)(slash - text), text);
	return *end || inet_pton(family, address, ret_address) != 1 ? -EINVAL : 0;
}

/* Whether one of the two holds the other. */
static bool prefixes_meet(const uint8_t *a, unsigned a_bits, const uint8_t *b, unsigned b_bits)
{
	const unsigned bits = a_bits < b_bits ? a_bits : b_bits, bytes = bits / 8;
	const uint8_t mask = (uint8_t)(0xff00u >> bits % 8);

	return memcmp(a, b, bytes) == 0 && (bits % 8 == 0 || ((a[bytes] ^ b[bytes]) & mask) == 0);
}

/* ---- IPv4 ---- */

int egress_range4_read(const char *text, struct egress_range4 *ret)
{
	struct egress_range4 range;
	struct in_addr address;
	unsigned long bits;
	int r = prefix_read(text, AF_INET, &address, &bits);

	if (r < 0 || bits < PREFIX4_MIN || bits > PREFIX4_MAX)
		return -EINVAL;
	range.first = ntohl(address.s_addr);
	range.bytes = 1u << (32 - bits);
	if (range.first & (range.bytes - 1))
		return -EINVAL;
	if (range.first - POLICY_SHARED_V4 < POLICY_SHARED_V4_COUNT ||
	    POLICY_SHARED_V4 - range.first < range.bytes)
		return -EADDRNOTAVAIL;
	*ret = range;
	return 0;
}

int egress_range4_check(const struct egress_range4 *range)
{
	FILE *routes = fopen("/proc/thread-self/net/route", "re");
	unsigned destination, mask;
	char line[256], name[17];
	int r = 0;

	if (!routes)
		return -errno;
	while (r == 0 && fgets(line, sizeof line, routes)) {
		if (sscanf(line, "%16s %x %*x %*x %*d %*d %*d %x", name, &destination, &mask) !=
			    3 ||
		    !mask)
			continue;
		destination = ntohl(destination);
		mask = ntohl(mask);
		if ((range->first & mask) == destination ||
		    (destination & ~(range->bytes - 1)) == range->first)
			r = -EADDRINUSE;
	}
	(void)fclose(routes); /* only read */
	return r;
}

uint32_t egress_range4_block(const struct egress_range4 *range, uint32_t network)
{
	/* The first block is the link's. */
	uint64_t at = ((uint64_t)network + 1) * EGRESS_BLOCK;

	return at + EGRESS_BLOCK <= range->bytes ? range->first + (uint32_t)at : 0;
}

void egress_range4_print(uint32_t first, uint32_t bytes, char ret[static 24])
{
	const struct in_addr address = { htonl(first) };
	char text[INET_ADDRSTRLEN] = "";

	(void)inet_ntop(AF_INET, &address, text, sizeof text); /* fits */
	(void)snprintf(ret, 24, "%s/%d", text, __builtin_clz(bytes) + 1);
}

/* ---- IPv6 ---- */

static bool range6_is_taken(const uint8_t *first, unsigned bits)
{
	static const struct {
		uint8_t first[16];
		unsigned bits;
	} taken[] = {
		{ { 0xfd, 0x5e, 0x00, 0xec }, 64 }, /* network `shared` */
		{ { 0xfd, 0x00, 0x0e, 0xc2 }, 32 }, /* metadata services, as the next */
		{ { 0xfd, 0x00, 0x00, 0xc1 }, 64 },
		{ { 0xfd, 0x20, 0x00, 0xce }, 64 },
	};

	_Static_assert(POLICY_SHARED_V6_0 == 0xfd5e00ec, "the first of them");
	for (unsigned i = 0; i < sizeof taken / sizeof *taken; i++)
		if (prefixes_meet(first, bits, taken[i].first, taken[i].bits))
			return true;
	return false;
}

int egress_range6_read(const char *text, struct egress_range6 *ret)
{
	static const uint8_t local[16] = { 0xfc };
	struct egress_range6 range = { .blocks = 1u << BLOCKS_BITS_MAX };
	unsigned long bits;
	int r = prefix_read(text, AF_INET6, range.first, &bits);

	if (r < 0 || bits < PREFIX6_MIN || bits > PREFIX6_MAX ||
	    !prefixes_meet(range.first, 128, local, 7))
		return -EINVAL;
	for (unsigned i = (unsigned)bits; i < 128; i++)
		if (range.first[i / 8] & 0x80 >> i % 8)
			return -EINVAL; /* not its first address */
	if (range6_is_taken(range.first, (unsigned)bits))
		return -EADDRNOTAVAIL;
	if (128 - bits - BLOCK_BITS < BLOCKS_BITS_MAX)
		range.blocks = 1u << (128 - bits - BLOCK_BITS);
	range.prefix_bits = (uint8_t)bits;
	*ret = range;
	return 0;
}

/* "fd000000000000000000000000000000", which inet_pton() does not read. */
static bool digits_read(const char *digits, uint8_t ret[16])
{
	for (int i = 0; i < 16; i++)
		if (sscanf(digits + 2 * i, "%2hhx", &ret[i]) != 1)
			return false;
	return true;
}

int egress_range6_check(const struct egress_range6 *range)
{
	FILE *routes = fopen("/proc/thread-self/net/ipv6_route", "re");
	char line[256], digits[33];
	uint8_t destination[16];
	unsigned bits;
	int r = 0;

	if (!routes)
		return errno == ENOENT ? -EAFNOSUPPORT : -errno;
	while (r == 0 && fgets(line, sizeof line, routes))
		if (sscanf(line, "%32s %x", digits, &bits) == 2 && strlen(digits) == 32 && bits &&
		    digits_read(digits, destination) &&
		    prefixes_meet(range->first, range->prefix_bits, destination, bits))
			r = -EADDRINUSE;
	(void)fclose(routes); /* only read */
	return r;
}

bool egress_range6_block(const struct egress_range6 *range, uint32_t network, uint8_t ret[16])
{
	uint32_t last;

	if (!range->prefix_bits || (uint64_t)network + 1 >= range->blocks)
		return false;
	memcpy(ret, range->first, 16);
	memcpy(&last, ret + 12, sizeof last);
	last = htonl(ntohl(last) + (network + 1) * EGRESS_BLOCK);
	memcpy(ret + 12, &last, sizeof last);
	return true;
}

void egress_range6_print(const struct egress_range6 *range,
			 char ret[static EGRESS_RANGE6_TEXT_BYTES])
{
	char text[INET6_ADDRSTRLEN] = "";

	(void)inet_ntop(AF_INET6, range->first, text, sizeof text); /* fits */
	(void)snprintf(ret, EGRESS_RANGE6_TEXT_BYTES, "%s/%u", text, range->prefix_bits);
}
