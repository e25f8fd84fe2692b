/*
 * Feeds the reader of DNS messages arbitrary bytes, as a question and as an answer to one of this
 * file's own: what it takes keeps the contract of dns.h, and a reply that is made of it reads back
 * as it was. Holds no state between inputs.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/names/dns.h"
#include "engine/names/odd.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void reply_check(const struct dns_question *question, const struct dns_answer *answer,
			size_t room)
{
	uint8_t reply[DNS_MESSAGE_BYTES_MAX];
	const size_t count = dns_reply_write(reply, room, question, answer);
	struct dns_answer again;

	assert(count <= room);
	if (!question->raw_bytes)
		return;
	assert(dns_answer_read(reply, count, question->id, question, &again) == 0);
	assert(again.rcode == answer->rcode);
	assert(again.is_cut || again.count == (answer->rcode ? 0 : answer->count));
	if (!again.is_cut)
		assert(!memcmp(again.addresses, answer->addresses,
			       again.count * sizeof again.addresses[0]));
}

static void question_check(const uint8_t *message, size_t bytes)
{
	const struct dns_answer refused = { .rcode = DNS_REFUSED };
	struct dns_question question, again;
	uint8_t query[DNS_QUERY_BYTES_MAX];
	size_t count;
	int r = dns_question_read(message, bytes, &question);

	assert(r == 0 || r == -EBADMSG || r == DNS_FORMERR || r == DNS_NOTIMP);
	if (r != 0)
		return;
	assert(strlen(question.name) < DNS_NAME_BYTES);
	assert(question.room >= DNS_QUERY_BYTES_MAX);
	assert(question.room <= DNS_UDP_BYTES);
	(void)name_is_odd(question.name); /* it ends */
	reply_check(&question, &refused, question.room);
	if (strpbrk(question.name, "?"))
		return; /* no such name is asked for */
	count = dns_query_write(query, 7, &question);
	assert(count <= sizeof query);
	assert(dns_question_read(query, count, &again) == 0);
	assert(again.type == question.type);
	assert(!strcmp(again.name, question.name));
}

static void answer_check(const uint8_t *message, size_t bytes, uint16_t type)
{
	struct dns_question question = { .type = type, .name = "api.example" };
	static const uint8_t name[] = "\3api\7example";
	struct dns_answer answer;
	uint16_t id;

	if (bytes < 2)
		return;
	id = (uint16_t)(message[0] << 8 | message[1]);
	memcpy(question.raw, name, sizeof name);
	question.raw[sizeof name + 1] = (uint8_t)type;
	question.raw[sizeof name + 3] = 1;
	question.raw_bytes = sizeof name + 4;
	if (dns_answer_read(message, bytes, id, &question, &answer) < 0)
		return;
	assert(answer.count <= DNS_ADDRESSES_MAX);
	assert(!answer.is_cut || !answer.count);
	reply_check(&question, &answer, DNS_QUERY_BYTES_MAX);
	reply_check(&question, &answer, DNS_MESSAGE_BYTES_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	uint8_t *message = malloc(bytes ? bytes : 1);

	assert(message);
	memcpy(message, data, bytes); /* exactly as large: a read past the end is seen */
	question_check(message, bytes);
	answer_check(message, bytes, DNS_A);
	answer_check(message, bytes, DNS_AAAA);
	free(message);
	return 0;
}
