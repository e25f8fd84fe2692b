/* What the files of the resolver share, and nobody else knows. */
#pragma once

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/io.h"
#include "engine/base/pool.h"
#include "engine/base/timer.h"
#include "engine/names/dns.h"
#include "engine/names/learned.h"
#include "engine/names/odd.h"
#include "engine/port/relay.h"
#include "engine/names/sieve.h"
#include "engine/tenant/bucket.h"

enum {
	QUESTIONS_MAX = 256,  /* of a shard, under way */
	QUESTIONS_FAIR = 128, /* beyond them a sandbox has QUESTIONS_FEW */
	QUESTIONS_ASKER_MAX = 16,
	QUESTIONS_FEW = 2,
	STREAMS_MAX = 64, /* connections, of a shard */
	STREAMS_ASKER_MAX = 4,
	STREAM_IDLE_MS = 10000,
	OUTBOUNDS_MAX = 512,  /* connections that are forwarded, of a shard */
	OUTBOUNDS_FAIR = 256, /* beyond them a sandbox has OUTBOUNDS_FEW */
	OUTBOUNDS_ASKER_MAX = 64,
	OUTBOUNDS_FEW = 4,
	TTL_MIN_S = 60, /* so long an address may be reached at least; and at most: */
	TTL_MAX_S = 3600,
	NAMES_PER_S = 20, /* beyond them each counts as odd */
	NAMES_BURST = 200,
};

struct policy_violation;
struct resolver;
struct upstreams;

/* A sandbox that may ask. */
struct asker {
	struct resolver *in;
	struct sandbox *sandbox;
	uint64_t cgroup_id;
	uint32_t address4; /* in network order */
	uint32_t policy;   /* whose addresses were learned, by number in the kernel */
	struct asker *next_address, *next_cgroup; /* of a bucket */
	uint32_t question_count, stream_count, outbound_count;
	struct learned_list learned;
	struct bucket rate;
	struct names_lately lately;
};

/* A connection of a sandbox: questions one after the other. */
struct stream {
	struct resolver *in;
	struct asker *asker; /* NULL: it ends */
	struct question *question;
	int fd;
	uint64_t deadline_ns;
	bool receiving, ending;
	struct io_op op;
	uint32_t got;
	uint8_t buffer[2 + DNS_QUERY_BYTES_MAX];
};

enum outbound_state { OUTBOUND_HELLO, OUTBOUND_CONNECT, OUTBOUND_RELAY };

/* A connection that goes on to where the name leads that it shows. */
struct outbound {
	struct resolver *in;
	struct asker *asker; /* NULL: it ends */
	enum outbound_state state;
	int fds[2];	     /* of the sandbox; of where it goes */
	uint8_t address[16]; /* there, as the sandbox asked for it */
	uint16_t port;
	uint64_t deadline_ns;
	uint64_t moved_bytes; /* of its relay, when it was looked at last */
	struct io_op op;
	struct relay relay;
	uint8_t *hello; /* HELLO_BYTES_MAX; until it was sent on */
	uint32_t got;
};

enum question_step { QUESTION_UDP, QUESTION_CONNECT, QUESTION_TCP };

/* What is asked of the upstream for a sandbox. */
struct question {
	struct resolver *in;
	struct asker *asker;   /* NULL: it is gone */
	struct stream *stream; /* NULL: it came by UDP, from: */
	uint16_t port;	       /* in network order */
	struct dns_question dns;
	uint32_t attempts;
	enum question_step step;
	uint16_t id;
	uint32_t strange; /* answers to something else */
	int fd;
	uint64_t deadline_ns;
	bool cancelled;
	struct io_op op;
	uint32_t got;
	uint8_t buffer[2 + DNS_MESSAGE_BYTES_MAX];
};

struct resolver {
	struct shard *shard;
	const struct upstreams *upstreams;
	struct sieve_own own;
	int udp_fd, listen_fd, tls_fd;
	struct io_op poll, accept, accept_tls;
	struct pool questions, streams, outbounds;
	struct asker **by_address, **by_cgroup;
	uint32_t bucket_count;
	struct timer timer; /* while anything is under way */
};

/* Where a reply goes. */
struct reply_to {
	struct asker *asker;
	struct stream *stream; /* NULL: by UDP, to: */
	uint16_t port;
};

/* ---- resolver.c ---- */

struct asker *asker_find(struct resolver *resolver, uint32_t address4);
/* One question, as it came. False: it is answered later, by question_begin(). */
bool question_take(struct resolver *resolver, const struct reply_to *to, const uint8_t *bytes,
		   size_t count);
/* Sent, or lost as a packet may be. */
void reply_send(struct resolver *resolver, const struct reply_to *to,
		const struct dns_question *question, const struct dns_answer *answer);
/* The addresses that its sandbox may have, and from now on may reach, stay in the answer. */
void answer_learn(struct asker *asker, const struct dns_question *question,
		  struct dns_answer *answer);
/* The timer runs from now on. */
void resolver_wake(struct resolver *resolver);

/* A violation with a name, of a sandbox's; its error is the caller's to say. */
struct policy_violation name_violation(const struct asker *asker, const char *name, uint32_t rule,
				       uint16_t hook);

/* ---- ask.c ---- */

/* False: too many are under way. */
bool question_begin(struct resolver *resolver, const struct reply_to *to,
		    const struct dns_question *dns);
/* Its sandbox or its stream has gone: nobody is answered. */
void question_abandon(struct question *question);
/* Those whose time is over are asked again, or given up. */
void questions_expire(struct resolver *resolver, uint64_t now_ns);

/* ---- stream.c ---- */

void stream_begin(struct resolver *resolver, int fd);
void stream_end(struct stream *stream);
void stream_reply(struct stream *stream, const uint8_t *bytes, size_t count);
/* Its question was answered: the next one. */
void stream_next(struct stream *stream);
void streams_expire(struct resolver *resolver, uint64_t now_ns);

/* ---- outbound.c ---- */

/* Takes the descriptor of a connection that came from a sandbox. */
void outbound_begin(struct resolver *resolver, int fd);
/* Its sandbox may not go there any more, or is gone: both ends get a reset. */
void outbound_end(struct outbound *outbound);
/* All of a sandbox's. */
void outbounds_end(struct asker *asker);
void outbounds_expire(struct resolver *resolver, uint64_t now_ns);
/* After io_close(). */
void outbounds_close(struct resolver *resolver);
