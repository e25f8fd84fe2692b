/*
 * Reads the entries of network.egress and folds them. Called by document.c and compile.c, and by
 * tests. Must hold: what is read has one spelling (no host bits, no empty list); after folding the
 * longest prefix alone says all that holds of an address, which is what the kernel's trie asks.
 */
#include "engine/policy/egress.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/policy/names.h"

enum { ADDRESS_BITS = 128, MAPPED_BITS = 96, WORD_BYTES = 256 };
enum { PORT_DNS = 53, PORT_QUIC = 443, PORT_TLS = 443 };

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

/* ---- prefixes ---- */

static bool bits_are_same(const uint8_t *a, const uint8_t *b, unsigned bits)
{
	const uint8_t mask = (uint8_t)(0xff00u >> bits % 8);

	return !memcmp(a, b, bits / 8) && (!(bits % 8) || !((a[bits / 8] ^ b[bits / 8]) & mask));
}

static bool prefix_holds(const struct guard_destination *wide,
			 const struct guard_destination *narrow)
{
	return wide->prefix_bits <= narrow->prefix_bits &&
	       bits_are_same(wide->address, narrow->address, wide->prefix_bits);
}

static bool has_host_bits(const struct guard_destination *d)
{
	static const uint8_t zero[16];
	uint8_t rest[16];

	memcpy(rest, d->address, sizeof rest);
	for (unsigned i = 0; i < d->prefix_bits; i++)
		rest[i / 8] &= (uint8_t) ~(0x80u >> i % 8);
	return memcmp(rest, zero, sizeof rest) != 0;
}

/* A number without sign, without leading zeros, up to `max`; what follows it is in *ret_end. */
static bool number_read(const char *text, unsigned long max, const char **ret_end,
			unsigned long *ret)
{
	char *end;

	if (*text < '0' || *text > '9' || (*text == '0' && text[1] >= '0' && text[1] <= '9'))
		return false;
	*ret = strtoul(text, &end, 10);
	*ret_end = end;
	return *ret <= max;
}

static const char *address_read(char *word, struct guard_destination *ret)
{
	char *slash = strchr(word, '/');
	const char *end = "";
	const bool is_v6 = strchr(word, ':');
	unsigned long prefix = is_v6 ? ADDRESS_BITS : ADDRESS_BITS - MAPPED_BITS;
	const unsigned long most = prefix;

	if (slash) {
		*slash = 0;
		if (!number_read(slash + 1, most, &end, &prefix) || *end)
			return is_v6 ? "a prefix is /0 to /128" : "a prefix is /0 to /32";
	}
	if (is_v6 ? inet_pton(AF_INET6, word, ret->address) != 1 :
		    inet_pton(AF_INET, word, ret->address + sizeof mapped) != 1)
		return "expected an address or ADDRESS/PREFIX first, as 192.0.2.0/24";
	if (!is_v6)
		memcpy(ret->address, mapped, sizeof mapped);
	else if (!memcmp(ret->address, mapped, sizeof mapped))
		return "write an IPv4 address as 192.0.2.1";
	ret->prefix_bits = (uint8_t)(is_v6 ? prefix : MAPPED_BITS + prefix);
	if (has_host_bits(ret))
		return "bits beyond the prefix: write its first address";
	return NULL;
}

/* An address, or a name, which has none yet. */
static const char *place_read(char *word, bool is_deny, struct guard_destination *ret)
{
	if (!name_is_meant(word))
		return address_read(word, ret);
	return is_deny ? "a name cannot be denied: one that nothing allows is refused" :
			 name_check(word);
}

/* ---- protocols and ports ---- */

/* What a protocol is called, and what it is to the kernel. */
static const struct protocol {
	const char *name;
	uint8_t number;
	bool is_tls;
} protocols[] = {
	{ "tcp", IPPROTO_TCP, false },
	{ "udp", IPPROTO_UDP, false },
	{ "tls", IPPROTO_TCP, true },
};

static const char *range_add(struct guard_destination *to, const struct protocol *protocol,
			     unsigned long first, unsigned long last)
{
	if (to->port_count == GUARD_PORT_RANGES_MAX)
		return "more than 8 ranges of ports";
	to->ports[to->port_count++] = (struct guard_ports){ .first = (uint16_t)first,
							    .last = (uint16_t)last,
							    .protocol = protocol->number,
							    .is_tls = protocol->is_tls };
	return NULL;
}

/* All of a protocol: QUIC is named or refused. TLS has its port. */
static const char *protocol_add(struct guard_destination *to, const struct protocol *protocol)
{
	const char *wrong;

	if (protocol->is_tls)
		return range_add(to, protocol, PORT_TLS, PORT_TLS);
	if (protocol->number == IPPROTO_TCP)
		return range_add(to, protocol, 1, UINT16_MAX);
	wrong = range_add(to, protocol, 1, PORT_QUIC - 1);
	return wrong ? wrong : range_add(to, protocol, PORT_QUIC + 1, UINT16_MAX);
}

static const char *ports_read(const char *text, const struct protocol *protocol,
			      struct guard_destination *to)
{
	const char *wrong = NULL;

	for (bool more = true; more && !wrong; text++) {
		unsigned long first, last;

		if (!number_read(text, UINT16_MAX, &text, &first) || !first)
			return "a port is 1 to 65535";
		last = first;
		if (*text == '-' && !number_read(text + 1, UINT16_MAX, &text, &last))
			return "a port is 1 to 65535";
		if (first > last)
			return "a range of ports begins with its lowest";
		if (first == PORT_DNS && last == PORT_DNS)
			return "port 53 is the resolver's alone: names cannot be asked elsewhere";
		if (*text && *text != ',')
			return "ports are written as 443,8000-8080";
		more = *text == ',';
		wrong = range_add(to, protocol, first, last);
	}
	return wrong;
}

static const char *protocol_read(const char *word, bool is_name, struct guard_destination *to)
{
	const size_t bytes = strcspn(word, "/");
	const struct protocol *protocol = NULL;

	for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++)
		if (bytes == strlen(protocols[i].name) && !memcmp(word, protocols[i].name, bytes))
			protocol = &protocols[i];
	if (!protocol)
		return "expected tcp, udp, tcp/PORTS or udp/PORTS behind the address or name, or "
		       "tls, tls/PORTS behind a name";
	if (protocol->is_tls && !is_name)
		return "tls is of names: an address shows none";
	return word[bytes] ? ports_read(word + bytes + 1, protocol, to) :
			     protocol_add(to, protocol);
}

bool egress_is_name(const char *text)
{
	char word[WORD_BYTES] = "";
	const size_t bytes = strcspn(text, " ");

	if (bytes < sizeof word)
		memcpy(word, text, bytes);
	return name_is_meant(word);
}

const char *egress_read(const char *text, bool is_deny, struct guard_destination *ret)
{
	char word[WORD_BYTES];
	const char *wrong = NULL;
	bool is_first = true, is_name = false;

	*ret = (struct guard_destination){ 0 };
	while (!wrong) {
		const size_t bytes = strcspn(text, " ");

		if (!bytes || bytes >= sizeof word)
			return "expected ADDRESS[/PREFIX] or NAME, then [tcp[/PORTS]] "
			       "[udp[/PORTS]], or [tls[/PORTS]] of a name, one space between";
		memcpy(word, text, bytes);
		word[bytes] = 0;
		if (!is_first && is_deny)
			return "a denied address is denied whole: no protocol, no ports";
		if (is_first)
			is_name = name_is_meant(word);
		wrong = is_first ? place_read(word, is_deny, ret) :
				   protocol_read(word, is_name, ret);
		is_first = false;
		text += bytes;
		if (!*text)
			break;
		text++;
	}
	if (!wrong && !is_deny && !ret->port_count)
		wrong = protocol_add(ret, &protocols[0]);
	return wrong;
}

/* ---- folding ---- */

/* Wider ones first; of one prefix what denies first. */
static int destination_compare(const void *a, const void *b)
{
	const struct guard_destination *x = a, *y = b;
	int order = x->prefix_bits - y->prefix_bits;

	if (!order)
		order = memcmp(x->address, y->address, sizeof x->address);
	if (!order)
		order = (x->port_count != 0) - (y->port_count != 0);
	if (!order)
		order = x->rule < y->rule ? -1 : x->rule > y->rule;
	return order;
}

static bool ports_hold(const struct guard_ports *wide, const struct guard_ports *narrow)
{
	/* Who may go there directly may by the forwarder, and not the other way round. */
	return wide->protocol == narrow->protocol && (!wide->is_tls || narrow->is_tls) &&
	       wide->first <= narrow->first && wide->last >= narrow->last;
}

int egress_ports_join(struct guard_destination *to, const struct guard_destination *from)
{
	for (uint32_t i = 0; i < from->port_count; i++) {
		bool is_held = false;

		for (uint32_t k = 0; k < to->port_count && !is_held; k++)
			is_held = ports_hold(&to->ports[k], &from->ports[i]);
		if (is_held)
			continue;
		if (to->port_count == GUARD_PORT_RANGES_MAX)
			return -EINVAL;
		to->ports[to->port_count++] = from->ports[i];
	}
	return 0;
}

/* The narrowest of those before that holds it: it is folded already. */
static const struct guard_destination *
parent_find(const struct guard_destination *all, uint32_t count, const struct guard_destination *of)
{
	for (uint32_t i = count; i > 0; i--)
		if (prefix_holds(&all[i - 1], of))
			return &all[i - 1];
	return NULL;
}

int egress_fold(struct guard_destination *entries, uint32_t count, uint32_t *ret_rule)
{
	uint32_t kept = 0;
	int r = 0;

	qsort(entries, count, sizeof entries[0], destination_compare);
	for (uint32_t i = 0; i < count && r == 0; i++) {
		const struct guard_destination entry = entries[i];
		const struct guard_destination *parent = parent_find(entries, kept, &entry);
		struct guard_destination *last = kept ? &entries[kept - 1] : NULL;

		if (last && last->prefix_bits == entry.prefix_bits && prefix_holds(last, &entry)) {
			r = last->port_count ? egress_ports_join(last, &entry) : 0;
		} else {
			entries[kept++] = entry;
			if (entry.port_count && parent)
				r = egress_ports_join(&entries[kept - 1], parent);
		}
		if (r < 0)
			*ret_rule = entry.rule;
	}
	return r < 0 ? r : (int)kept;
}

/* ---- comparing ---- */

/* What the kernel finds for all of a prefix that no other one lies in. */
const struct guard_destination *egress_find(const struct guard_policy *policy,
					    const struct guard_destination *of)
{
	return parent_find(policy->destinations, policy->destination_count, of);
}

bool egress_ports_are_within(const struct guard_destination *ports,
			     const struct guard_destination *wider)
{
	for (uint32_t i = 0; ports && i < ports->port_count; i++) {
		bool is_held = false;

		for (uint32_t k = 0; wider && k < wider->port_count && !is_held; k++)
			is_held = ports_hold(&wider->ports[k], &ports->ports[i]);
		if (!is_held)
			return false;
	}
	return true;
}

/* Between two prefixes of both lists nothing changes: so each of them is looked at once. */
bool egress_is_within(const struct guard_policy *policy, const struct guard_policy *wider)
{
	const struct guard_policy *const lists[] = { policy, wider };

	for (int list = 0; list < 2; list++) {
		for (uint32_t i = 0; i < lists[list]->destination_count; i++) {
			const struct guard_destination *at = &lists[list]->destinations[i];

			if (!egress_ports_are_within(egress_find(policy, at),
						     egress_find(wider, at)))
				return false;
		}
	}
	return true;
}
