/*
 * Messages of DNS (RFC 1035, 6891): what sandboxes ask, what is asked for them, and what comes
 * back. Pure: no I/O, no state. All bytes are hostile.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	DNS_NAME_BYTES = 254,	  /* as text, with the NUL */
	DNS_QUESTION_BYTES = 260, /* on the wire: name, type, class */
	DNS_QUERY_BYTES_MAX = 512,
	DNS_MESSAGE_BYTES_MAX = 4096, /* that is read of an answer, or written of a reply */
	DNS_UDP_BYTES = 1232,	      /* asked for, and given at most, by UDP */
	DNS_ADDRESSES_MAX = 32,
	DNS_CHAIN_MAX = 8, /* CNAMEs from the name that was asked for */
};

enum dns_type { DNS_A = 1, DNS_CNAME = 5, DNS_AAAA = 28, DNS_OPT = 41 };

enum dns_rcode {
	DNS_NOERROR = 0,
	DNS_FORMERR = 1,
	DNS_SERVFAIL = 2,
	DNS_NXDOMAIN = 3,
	DNS_NOTIMP = 4,
	DNS_REFUSED = 5,
};

/* What a sandbox asks. */
struct dns_question {
	uint16_t id, type;
	uint16_t room;		   /* of a reply by UDP */
	bool is_recursive;	   /* RD, which comes back as it was */
	char name[DNS_NAME_BYTES]; /* lower case, no dot at its end; "": the root */
	uint8_t raw[DNS_QUESTION_BYTES];
	uint16_t raw_bytes;
};

/*
 * 0, or what to answer: DNS_FORMERR, DNS_NOTIMP (then name and type may not be read); -EBADMSG: it
 * is no question, and nothing is answered.
 */
int dns_question_read(const uint8_t *message, size_t bytes, struct dns_question *ret);

struct dns_address {
	uint8_t address[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint32_t ttl_s;
};

/* What a name has. */
struct dns_answer {
	uint8_t rcode;
	bool is_cut; /* there is more of it by TCP; nothing of it is here */
	uint32_t count;
	struct dns_address addresses[DNS_ADDRESSES_MAX];
};

/* Asks for `name`; how many bytes, at most DNS_QUERY_BYTES_MAX. The name is one that was read. */
size_t dns_query_write(uint8_t *to, uint16_t id, const struct dns_question *question);
/*
 * The answer to that query; 0, or -EBADMSG: it answers something else, or is no answer. Only what
 * the chain of CNAMEs from the name leads to is taken; of more addresses the first ones.
 */
int dns_answer_read(const uint8_t *message, size_t bytes, uint16_t id,
		    const struct dns_question *question, struct dns_answer *ret);
/*
 * The reply: the addresses as the name's own. What does not fit into `room` is cut, and says so.
 * How many bytes, at most room, which is at least DNS_QUERY_BYTES_MAX.
 */
size_t dns_reply_write(uint8_t *to, size_t room, const struct dns_question *question,
		       const struct dns_answer *answer);
