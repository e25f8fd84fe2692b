/*
 * Reads and writes messages of DNS. Called by the resolver and by tests. Must hold: no read past
 * the message, no loop without end (a compressed name leads backwards only), and of an answer
 * nothing counts but what the asked name leads to.
 */
#include "engine/names/dns.h"

#include <errno.h>
#include <string.h>

enum {
	HEADER_BYTES = 12,
	CLASS_IN = 1,
	FLAG_QR = 0x8000,
	FLAG_TC = 0x0200,
	FLAG_RD = 0x0100,
	FLAG_RA = 0x0080,
	OPCODE_MASK = 0x7800,
	LABEL_MAX = 63,
	RECORDS_MAX = 128, /* of an answer that are looked at */
	POINTERS_MAX = 64,
	RECORD_FIXED_BYTES = 10, /* type, class, ttl, length */
};

/* A message that is read from the front; `at` past the end stays there. */
struct cursor {
	const uint8_t *bytes;
	size_t count, at;
	bool is_bad;
};

static uint32_t number_read(struct cursor *c, unsigned width)
{
	uint32_t value = 0;

	if (c->is_bad || c->count - c->at < width) {
		c->is_bad = true;
		return 0;
	}
	for (unsigned i = 0; i < width; i++)
		value = value << 8 | c->bytes[c->at++];
	return value;
}

static void bytes_skip(struct cursor *c, size_t count)
{
	if (c->is_bad || c->count - c->at < count)
		c->is_bad = true;
	else
		c->at += count;
}

static uint8_t *number_write(uint8_t *to, uint32_t value, unsigned width)
{
	for (unsigned i = width; i > 0; i--)
		*to++ = (uint8_t)(value >> 8 * (i - 1));
	return to;
}

/* ---- names ---- */

static char lower(uint8_t byte)
{
	return (char)(byte >= 'A' && byte <= 'Z' ? byte + ('a' - 'A') : byte);
}

/* What a host's name has; others are read as '?', which no policy allows. */
static char name_letter(uint8_t byte)
{
	const char c = lower(byte);

	return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ? c : '?';
}

/* One part behind those in the name; false: it is too long. */
static bool label_add(char name[DNS_NAME_BYTES], size_t *used, const uint8_t *label, size_t bytes)
{
	if (*used + (*used > 0) + bytes >= DNS_NAME_BYTES)
		return false;
	if (*used)
		name[(*used)++] = '.';
	for (size_t i = 0; i < bytes; i++)
		name[(*used)++] = name_letter(label[i]);
	return true;
}

/* A name, and the cursor behind it. Pointers lead to before where they stand: it has an end. */
static void name_read(struct cursor *c, char ret[DNS_NAME_BYTES])
{
	struct cursor in = *c;
	size_t used = 0, before = c->at;
	bool is_away = false;

	for (unsigned pointers = 0; !in.is_bad;) {
		const uint32_t length = number_read(&in, 1);

		if (in.is_bad || !length)
			break;
		if (length <= LABEL_MAX) {
			const uint8_t *label = in.bytes + in.at;

			bytes_skip(&in, length);
			if (!in.is_bad && !label_add(ret, &used, label, length))
				in.is_bad = true;
			continue;
		}
		in.at--;
		const size_t to = number_read(&in, 2) & 0x3fff;

		if (length < 0xc0 || to >= before || ++pointers > POINTERS_MAX)
			in.is_bad = true;
		if (!is_away)
			c->at = in.at;
		is_away = true;
		before = to;
		in.at = in.is_bad ? in.at : to;
	}
	ret[used] = 0;
	c->is_bad |= in.is_bad;
	if (!is_away)
		c->at = in.at;
}

/* ---- questions ---- */

/* The one additional record that a query may have: how much it takes by UDP. */
static void option_read(struct cursor *c, struct dns_question *ret)
{
	const uint32_t root = number_read(c, 1);
	const uint32_t type = number_read(c, 2), room = number_read(c, 2);

	bytes_skip(c, 4);
	bytes_skip(c, number_read(c, 2));
	if (root || type != DNS_OPT)
		c->is_bad = true;
	else if (room > ret->room)
		ret->room = (uint16_t)(room < DNS_UDP_BYTES ? room : DNS_UDP_BYTES);
}

int dns_question_read(const uint8_t *message, size_t bytes, struct dns_question *ret)
{
	struct cursor c = { .bytes = message, .count = bytes };
	uint32_t flags, questions, answers, options, class;

	*ret = (struct dns_question){ .room = DNS_QUERY_BYTES_MAX };
	ret->id = (uint16_t)number_read(&c, 2);
	flags = number_read(&c, 2);
	if (c.is_bad || flags & FLAG_QR)
		return -EBADMSG;
	ret->is_recursive = flags & FLAG_RD;
	if (flags & OPCODE_MASK)
		return DNS_NOTIMP;
	questions = number_read(&c, 2);
	answers = number_read(&c, 4);
	options = number_read(&c, 2);
	if (c.is_bad || bytes > DNS_QUERY_BYTES_MAX || questions != 1 || answers || options > 1)
		return DNS_FORMERR;
	name_read(&c, ret->name);
	ret->type = (uint16_t)number_read(&c, 2);
	class = number_read(&c, 2);
	if (c.is_bad || c.at - HEADER_BYTES > sizeof ret->raw)
		return DNS_FORMERR;
	ret->raw_bytes = (uint16_t)(c.at - HEADER_BYTES);
	if (ret->raw_bytes != strlen(ret->name) + (*ret->name ? 2 : 1) + 4)
		return DNS_FORMERR; /* there is nothing yet that a name could point to */
	memcpy(ret->raw, message + HEADER_BYTES, ret->raw_bytes);
	if (options)
		option_read(&c, ret);
	if (c.is_bad || c.at != bytes)
		return DNS_FORMERR;
	return class == CLASS_IN ? 0 : DNS_NOTIMP;
}

static uint8_t *name_write(uint8_t *to, const char *name)
{
	while (*name) {
		const size_t bytes = strcspn(name, ".");

		*to++ = (uint8_t)bytes;
		memcpy(to, name, bytes);
		to += bytes;
		name += bytes + (name[bytes] == '.');
	}
	*to++ = 0;
	return to;
}

size_t dns_query_write(uint8_t *to, uint16_t id, const struct dns_question *question)
{
	uint8_t *at = number_write(to, id, 2);

	at = number_write(at, FLAG_RD, 2);
	at = number_write(at, 1, 2);
	at = number_write(at, 0, 4);
	at = number_write(at, 1, 2);
	at = name_write(at, question->name);
	at = number_write(at, question->type, 2);
	at = number_write(at, CLASS_IN, 2);
	*at++ = 0;
	at = number_write(at, DNS_OPT, 2);
	at = number_write(at, DNS_UDP_BYTES, 2);
	at = number_write(at, 0, 4);
	at = number_write(at, 0, 2);
	return (size_t)(at - to);
}

/* ---- answers ---- */

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

/* What a walk through the records of an answer looks for, and finds. */
struct chain {
	char name[DNS_NAME_BYTES]; /* the records of this one, from here on */
	uint32_t ttl_s;		   /* the least of the CNAMEs */
	bool went_on;
};

static void address_add(struct dns_answer *answer, const uint8_t *data, uint32_t bytes,
			uint32_t ttl_s)
{
	struct dns_address *to = &answer->addresses[answer->count];

	/* IPv4 in the clothes of IPv6 is nobody's address. */
	if (answer->count == DNS_ADDRESSES_MAX || (bytes == 16 && !memcmp(data, mapped, 12)))
		return;
	*to = (struct dns_address){ .ttl_s = ttl_s & 0x80000000u ? 0 : ttl_s };
	if (bytes == 4)
		memcpy(to->address, mapped, sizeof mapped);
	memcpy(to->address + 16 - bytes, data, bytes);
	answer->count++;
}

static void record_read(struct cursor *c, uint16_t type, struct chain *chain,
			struct dns_answer *answer)
{
	const uint32_t bytes_wanted = type == DNS_A ? 4 : type == DNS_AAAA ? 16 : 0;
	char owner[DNS_NAME_BYTES], target[DNS_NAME_BYTES];
	uint32_t record, class, ttl_s, bytes;
	size_t data;

	name_read(c, owner);
	record = number_read(c, 2);
	class = number_read(c, 2);
	ttl_s = number_read(c, 4);
	bytes = number_read(c, 2);
	data = c->at;
	if (!c->is_bad && class == CLASS_IN && !strcmp(owner, chain->name)) {
		ttl_s = ttl_s < chain->ttl_s ? ttl_s : chain->ttl_s;
		if (record == type && bytes_wanted && bytes == bytes_wanted &&
		    c->count - data >= bytes) {
			address_add(answer, c->bytes + data, bytes, ttl_s);
		} else if (record == DNS_CNAME && !chain->went_on) {
			struct cursor at = *c;

			name_read(&at, target);
			if (!at.is_bad && at.at == data + bytes) {
				memcpy(chain->name, target, sizeof target);
				chain->ttl_s = ttl_s;
				chain->went_on = true;
			}
		}
	}
	bytes_skip(c, bytes);
}

/* All records for each name of the chain: they may stand in any order. */
static int records_read(const struct cursor *start, uint32_t count, uint16_t type,
			struct chain *chain, struct dns_answer *answer)
{
	for (int links = 0; links <= DNS_CHAIN_MAX; links++) {
		struct cursor c = *start;

		chain->went_on = false;
		for (uint32_t i = 0; i < count && i < RECORDS_MAX && !chain->went_on; i++)
			record_read(&c, type, chain, answer);
		if (c.is_bad)
			return -EBADMSG;
		if (!chain->went_on || answer->count)
			return 0;
	}
	return -EBADMSG;
}

int dns_answer_read(const uint8_t *message, size_t bytes, uint16_t id,
		    const struct dns_question *question, struct dns_answer *ret)
{
	struct cursor c = { .bytes = message, .count = bytes };
	struct dns_answer answer = { 0 };
	struct chain chain = { .ttl_s = INT32_MAX };
	uint32_t flags, questions, count, its_id, type, class;
	int r;

	its_id = number_read(&c, 2);
	flags = number_read(&c, 2);
	questions = number_read(&c, 2);
	count = number_read(&c, 2);
	bytes_skip(&c, 4);
	name_read(&c, chain.name);
	type = number_read(&c, 2);
	class = number_read(&c, 2);
	if (c.is_bad || its_id != id || !(flags & FLAG_QR) || flags & OPCODE_MASK ||
	    questions != 1 || type != question->type || class != CLASS_IN ||
	    strcmp(chain.name, question->name) != 0)
		return -EBADMSG;
	answer.rcode = flags & 15;
	answer.is_cut = flags & FLAG_TC;
	if (!answer.is_cut && answer.rcode == DNS_NOERROR) {
		r = records_read(&c, count, question->type, &chain, &answer);
		if (r < 0)
			return r;
	}
	*ret = answer;
	return 0;
}

/* ---- replies ---- */

size_t dns_reply_write(uint8_t *to, size_t room, const struct dns_question *question,
		       const struct dns_answer *answer)
{
	const uint32_t bytes = question->type == DNS_A ? 4 : 16;
	const size_t head = HEADER_BYTES + question->raw_bytes;
	uint32_t count = answer->rcode == DNS_NOERROR ? answer->count : 0;
	const bool is_cut = answer->is_cut ||
			    head + count * (2 + RECORD_FIXED_BYTES + bytes) > room;
	uint8_t *at = number_write(to, question->id, 2);

	count = is_cut ? 0 : count;
	at = number_write(at,
			  FLAG_QR | FLAG_RA | (question->is_recursive ? FLAG_RD : 0u) |
				  (is_cut ? FLAG_TC : 0u) | answer->rcode,
			  2);
	at = number_write(at, question->raw_bytes > 0, 2);
	at = number_write(at, count, 2);
	at = number_write(at, 0, 4);
	memcpy(at, question->raw, question->raw_bytes);
	at += question->raw_bytes;
	for (uint32_t i = 0; i < count; i++) {
		const struct dns_address *address = &answer->addresses[i];

		at = number_write(at, 0xc000 | HEADER_BYTES, 2);
		at = number_write(at, question->type, 2);
		at = number_write(at, CLASS_IN, 2);
		at = number_write(at, address->ttl_s, 4);
		at = number_write(at, bytes, 2);
		memcpy(at, address->address + 16 - bytes, bytes);
		at += bytes;
	}
	return (size_t)(at - to);
}
