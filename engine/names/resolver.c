/*
 * The resolver of a shard: who asks, whether they may, and what is learned. Called by the loop, and
 * as sandboxes begin, change their policy and end. Must hold: a name that a policy does not allow
 * leaves this file only as a violation; the guard is told an address before its sandbox is; no
 * callback takes more than QUESTIONS_AT_ONCE questions.
 */
#include "engine/names/resolver.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "bpf/guard.h"
#include "bpf/guard_policy.h"
#include "bpf/policy.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/integrity/integrity.h"
#include "engine/names/resolver_state.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"

_Static_assert(QUESTIONS_MAX + STREAMS_MAX + 2 * OUTBOUNDS_MAX + 3 <= (int)NAMES_DESCRIPTORS,
	       "counted at startup");

enum { QUESTIONS_AT_ONCE = 16, TICK_NS = 200 * 1000000 };

/* ---- who asks ---- */

static struct asker **address_bucket(const struct resolver *resolver, uint32_t address4)
{
	return &resolver->by_address[ntohl(address4) / 4 & (resolver->bucket_count - 1)];
}

static struct asker **cgroup_bucket(const struct resolver *resolver, uint64_t cgroup_id)
{
	return &resolver->by_cgroup[cgroup_id & (resolver->bucket_count - 1)];
}

struct asker *asker_find(struct resolver *resolver, uint32_t address4)
{
	struct asker *asker = *address_bucket(resolver, address4);

	while (asker && asker->address4 != address4)
		asker = asker->next_address;
	return asker;
}

void resolver_begin(struct sandbox *sandbox)
{
	struct resolver *resolver = sandbox->shard->resolver;
	struct asker *asker, **bucket;

	if (!resolver || !sandbox->box->spec.asks_names)
		return;
	asker = calloc(1, sizeof *asker);
	if (!asker) {
		log_error("names are not answered id=%u.%llx err=ENOMEM, continuing",
			  sandbox->shard->number, (unsigned long long)sandbox->id.lo);
		return;
	}
	*asker = (struct asker){ .in = resolver,
				 .sandbox = sandbox,
				 .cgroup_id = sandbox->box->cgroup_id,
				 .address4 = sandbox->box->address4,
				 .policy = sandbox->box->spec.policy };
	asker->rate = bucket_of(NAMES_PER_S, 1);
	asker->rate.burst = NAMES_BURST;
	bucket = address_bucket(resolver, asker->address4);
	asker->next_address = *bucket;
	*bucket = asker;
	bucket = cgroup_bucket(resolver, asker->cgroup_id);
	asker->next_cgroup = *bucket;
	*bucket = asker;
	sandbox->asker = asker;
}

static void learned_forget(struct asker *asker)
{
	struct guard *guard = asker->in->shard->node->guard;

	for (uint32_t i = 0; i < asker->learned.count; i++) {
		struct guard_learned gone = { 0 };

		memcpy(gone.address, asker->learned.all[i].address, sizeof gone.address);
		(void)guard_egress_learn(guard, asker->cgroup_id, asker->policy,
					 &gone); /* it can only be gone */
	}
	learned_done(&asker->learned);
}

void resolver_narrowed(struct sandbox *sandbox)
{
	struct asker *asker = sandbox->asker;

	if (!asker)
		return;
	outbounds_end(asker);
	learned_forget(asker);
	asker->policy = sandbox->box->spec.policy;
}

static void asker_leave(struct asker *asker)
{
	struct resolver *resolver = asker->in;
	struct asker **at = address_bucket(resolver, asker->address4);

	for (uint32_t i = 0; asker->question_count && i < resolver->questions.count; i++) {
		struct question *question = pool_at(&resolver->questions, i);

		if (question && question->asker == asker)
			question_abandon(question);
	}
	for (uint32_t i = 0; asker->stream_count && i < resolver->streams.count; i++) {
		struct stream *stream = pool_at(&resolver->streams, i);

		if (stream && stream->asker == asker)
			stream_end(stream);
	}
	outbounds_end(asker);
	while (*at != asker)
		at = &(*at)->next_address;
	*at = asker->next_address;
	learned_forget(asker);
	asker->sandbox->asker = NULL;
	free(asker);
}

void resolver_emptied(struct shard *shard, uint64_t cgroup_id)
{
	struct asker **at, *asker;

	if (!shard->resolver)
		return;
	at = cgroup_bucket(shard->resolver, cgroup_id);
	while ((asker = *at)) {
		if (asker->cgroup_id == cgroup_id) {
			*at = asker->next_cgroup;
			asker_leave(asker);
		} else {
			at = &asker->next_cgroup;
		}
	}
}

/* ---- what is told of them ---- */

struct policy_violation name_violation(const struct asker *asker, const char *name, uint32_t rule,
				       uint16_t hook)
{
	struct policy_violation v = { .cgroup_id = asker->cgroup_id,
				      .rule = rule,
				      .policy = asker->policy,
				      .hook = hook,
				      .text_kind = POLICY_TEXT_NAME };
	const size_t bytes = strlen(name);

	v.text_bytes = bytes < sizeof v.text ? (uint16_t)bytes : (uint16_t)sizeof v.text;
	v.is_cut = bytes > sizeof v.text;
	memcpy(v.text, name, v.text_bytes);
	return v;
}

static void name_refused(struct asker *asker, const char *name)
{
	struct policy_violation v =
		name_violation(asker, name, POLICY_RULE_EGRESS, POLICY_HOOK_DNS);

	v.error = ENOENT;
	integrity_refused(asker->sandbox, &v);
}

static void name_judge(struct asker *asker, const char *name)
{
	struct policy_violation v = name_violation(asker, name, POLICY_RULE_DNS, POLICY_HOOK_DNS);
	const uint64_t now_ns = io_now_ns(asker->in->shard->io);
	uint32_t retry_ms;

	if (bucket_take(&asker->rate, now_ns, 1, &retry_ms) &&
	    !(name_is_odd(name) && name_is_new(&asker->lately, name)))
		return;
	v.count = 1;
	integrity_odd_name(asker->sandbox, &v);
}

/* ---- replies ---- */

void reply_send(struct resolver *resolver, const struct reply_to *to,
		const struct dns_question *question, const struct dns_answer *answer)
{
	const struct sockaddr_in at = { .sin_family = AF_INET,
					.sin_port = to->port,
					.sin_addr.s_addr = to->asker->address4 };
	uint8_t bytes[DNS_MESSAGE_BYTES_MAX];
	const size_t count = dns_reply_write(bytes, to->stream ? sizeof bytes : question->room,
					     question, answer);

	if (to->stream)
		stream_reply(to->stream, bytes, count);
	else
		(void)sendto(resolver->udp_fd, bytes, count, MSG_DONTWAIT, /* or it asks again */
			     (const struct sockaddr *)&at, sizeof at);
}

static void rcode_send(struct resolver *resolver, const struct reply_to *to,
		       const struct dns_question *question, uint8_t rcode)
{
	const struct dns_answer answer = { .rcode = rcode };

	reply_send(resolver, to, question, &answer);
}

/* ---- questions ---- */

/* Without its first parts that begin with _: a service at a name, as _https._tcp.api.example. */
static const char *service_host(const char *name)
{
	while (*name == '_') {
		const size_t bytes = strcspn(name, ".");

		name += bytes + (name[bytes] == '.');
	}
	return name;
}

/* The forwarder goes by IPv4: such a name has no other addresses. */
static bool is_forwarded(const struct asker *asker, const char *text)
{
	const struct guard_name *name = sandbox_name(asker->sandbox, text);

	for (uint32_t i = 0; name && i < name->to.port_count; i++)
		if (name->to.ports[i].is_tls)
			return true;
	return false;
}

bool question_take(struct resolver *resolver, const struct reply_to *to, const uint8_t *bytes,
		   size_t count)
{
	struct dns_question question;
	int r = dns_question_read(bytes, count, &question);

	if (r < 0)
		return true; /* no question: nobody waits for an answer */
	if (r > 0) {
		rcode_send(resolver, to, &question, (uint8_t)r);
		return true;
	}
	name_judge(to->asker, question.name);
	integrity_asked(to->asker->sandbox, question.name);
	if (!sandbox_name(to->asker->sandbox, question.name)) {
		/* Package managers ask for these of each host that they are told. */
		if (!sandbox_name(to->asker->sandbox, service_host(question.name)))
			name_refused(to->asker, question.name);
		rcode_send(resolver, to, &question, DNS_NXDOMAIN);
		return true;
	}
	if (question.type != DNS_A &&
	    (question.type != DNS_AAAA || is_forwarded(to->asker, question.name))) {
		rcode_send(resolver, to, &question, DNS_NOERROR); /* it has none of those */
		return true;
	}
	if (question_begin(resolver, to, &question))
		return false;
	rcode_send(resolver, to, &question, DNS_SERVFAIL);
	return true;
}

/* Of a sandbox that is not there any more, or never was, nothing is heard. */
static bool datagram_take(struct resolver *resolver)
{
	uint8_t bytes[DNS_QUERY_BYTES_MAX + 1];
	struct sockaddr_in from = { 0 };
	socklen_t from_bytes = sizeof from;
	struct reply_to to = { 0 };
	const ssize_t count = recvfrom(resolver->udp_fd, bytes, sizeof bytes, MSG_DONTWAIT,
				       (struct sockaddr *)&from, &from_bytes);

	if (count < 0)
		return false;
	to.asker = asker_find(resolver, from.sin_addr.s_addr);
	to.port = from.sin_port;
	if (to.asker)
		(void)question_take(resolver, &to, bytes, (size_t)count); /* answered when it is */
	return true;
}

static void datagrams_come(struct io_op *op, int res)
{
	struct resolver *resolver = container_of(op, struct resolver, poll);

	if (res == -ECANCELED)
		return;
	for (int i = 0; i < QUESTIONS_AT_ONCE && datagram_take(resolver); i++)
		;
	io_poll_once(resolver->shard->io, op, resolver->udp_fd, POLLIN);
}

static void stream_comes(struct io_op *op, int res)
{
	struct resolver *resolver = container_of(op, struct resolver, accept);

	if (res >= 0)
		stream_begin(resolver, res);
	if (!(op->flags & IO_MORE) && res != -ECANCELED)
		io_accept(resolver->shard->io, op, resolver->listen_fd);
}

static void connection_comes(struct io_op *op, int res)
{
	struct resolver *resolver = container_of(op, struct resolver, accept_tls);

	if (res >= 0)
		outbound_begin(resolver, res);
	if (!(op->flags & IO_MORE) && res != -ECANCELED)
		io_accept(resolver->shard->io, op, resolver->tls_fd);
}

/* ---- answers ---- */

static int address_learn(struct asker *asker, const char *text, const struct guard_name *name,
			 const struct dns_address *address)
{
	struct guard *guard = asker->in->shard->node->guard;
	const uint64_t seconds = address->ttl_s < TTL_MIN_S ? TTL_MIN_S : address->ttl_s;
	struct guard_destination to = name->to;
	struct learned *learned, gone;
	struct guard_learned told;
	int r;

	memcpy(to.address, address->address, sizeof to.address);
	r = learned_add(&asker->learned, &to,
			io_clock_ns(asker->in->shard->io) + seconds * 1000000000ull, &learned,
			&gone);
	if (r < 0)
		return r;
	learned_name(learned, text);
	if (gone.range_count) {
		told = (struct guard_learned){ 0 };
		memcpy(told.address, gone.address, sizeof told.address);
		(void)guard_egress_learn(guard, asker->cgroup_id, asker->policy,
					 &told); /* it can only be gone */
	}
	told = (struct guard_learned){ .range_count = learned->range_count,
				       .ranges = learned->ranges,
				       .until_ns = learned->until_ns };
	memcpy(told.address, learned->address, sizeof told.address);
	return guard_egress_learn(guard, asker->cgroup_id, asker->policy, &told);
}

static void address_refused(struct asker *asker, const char *name,
			    const struct dns_address *address, uint32_t rule)
{
	struct policy_violation v = name_violation(asker, name, rule, POLICY_HOOK_DNS);

	v.error = EPERM;
	v.family = memcmp(address->address, (uint8_t[12]){ [10] = 0xff, [11] = 0xff }, 12) ? 6 : 4;
	memcpy(v.address, address->address, sizeof v.address);
	integrity_refused(asker->sandbox, &v);
}

void answer_learn(struct asker *asker, const struct dns_question *question,
		  struct dns_answer *answer)
{
	const struct guard_name *name = sandbox_name(asker->sandbox, question->name);
	uint32_t kept = 0;
	int failed = 0;

	for (uint32_t i = 0; name && i < answer->count; i++) {
		struct dns_address *address = &answer->addresses[i];
		const uint32_t rule = sieve_rule(address->address, &asker->in->own);
		int r;

		if (rule) {
			address_refused(asker, question->name, address, rule);
			continue;
		}
		if (address->ttl_s > TTL_MAX_S)
			address->ttl_s = TTL_MAX_S;
		r = address_learn(asker, question->name, name, address);
		if (r < 0)
			failed = r;
		else
			answer->addresses[kept++] = *address;
	}
	answer->count = kept;
	if (!name)
		answer->rcode = DNS_NXDOMAIN; /* its policy is another one by now */
	else if (!kept && failed)
		answer->rcode = DNS_SERVFAIL; /* to reach it would be refused */
}

/* ---- the shard's ---- */

static void resolver_tick(struct timer *timer)
{
	struct resolver *resolver = container_of(timer, struct resolver, timer);
	const uint64_t now_ns = io_now_ns(resolver->shard->io);

	questions_expire(resolver, now_ns);
	streams_expire(resolver, now_ns);
	outbounds_expire(resolver, now_ns);
	if (pool_taken(&resolver->questions) || pool_taken(&resolver->streams) ||
	    pool_taken(&resolver->outbounds))
		resolver_wake(resolver);
}

void resolver_wake(struct resolver *resolver)
{
	resolver->timer.expired = resolver_tick;
	if (!timer_is_set(&resolver->timer)) /* there is room: one of the shard */
		(void)timer_set(&resolver->shard->timers, &resolver->timer,
				io_now_ns(resolver->shard->io) + TICK_NS);
}

static int resolver_fill(struct resolver *resolver, const struct shard *shard)
{
	int r = pool_init(&resolver->questions, sizeof(struct question), QUESTIONS_MAX);

	if (r == 0)
		r = pool_init(&resolver->streams, sizeof(struct stream), STREAMS_MAX);
	if (r == 0)
		r = pool_init(&resolver->outbounds, sizeof(struct outbound), OUTBOUNDS_MAX);
	resolver->bucket_count = 64;
	while (resolver->bucket_count < shard->sandboxes.count)
		resolver->bucket_count *= 2;
	resolver->by_address = calloc(resolver->bucket_count, sizeof(struct asker *));
	resolver->by_cgroup = calloc(resolver->bucket_count, sizeof(struct asker *));
	return r < 0 ? r : resolver->by_address && resolver->by_cgroup ? 0 : -ENOMEM;
}

static void own_take(struct sieve_own *own, const struct backend_resolver *from)
{
	_Static_assert((int)SIEVE_PREFIXES_MAX == (int)BACKEND_PREFIXES_MAX, "all");
	own->count = from->own_count;
	for (uint32_t i = 0; i < from->own_count; i++) {
		own->prefixes[i].bits = from->own[i].bits;
		memcpy(own->prefixes[i].first, from->own[i].first, sizeof from->own[i].first);
	}
}

int resolver_open(struct shard *shard)
{
	struct backend_resolver sockets;
	struct resolver *resolver;
	int r;

	if (!shard->node->upstreams ||
	    !backend_resolver_take(shard->node->backend_node, shard->number, &sockets))
		return 0;
	resolver = calloc(1, sizeof *resolver);
	if (!resolver) {
		cleanup_close(&sockets.udp_fd);
		cleanup_close(&sockets.listen_fd);
		cleanup_close(&sockets.tls_fd);
		return -ENOMEM;
	}
	*resolver = (struct resolver){
		.shard = shard,
		.upstreams = shard->node->upstreams,
		.udp_fd = sockets.udp_fd,
		.listen_fd = sockets.listen_fd,
		.tls_fd = sockets.tls_fd,
		.poll.done = datagrams_come,
		.accept.done = stream_comes,
		.accept_tls.done = connection_comes,
	};
	own_take(&resolver->own, &sockets);
	shard->resolver = resolver;
	r = resolver_fill(resolver, shard);
	if (r < 0)
		return r; /* resolver_close() follows */
	io_poll_once(shard->io, &resolver->poll, resolver->udp_fd, POLLIN);
	io_accept(shard->io, &resolver->accept, resolver->listen_fd);
	io_accept(shard->io, &resolver->accept_tls, resolver->tls_fd);
	return 0;
}

void resolver_close(struct shard *shard)
{
	struct resolver *resolver = shard->resolver;

	if (!resolver)
		return;
	for (uint32_t i = 0; i < resolver->questions.count; i++) {
		struct question *question = pool_at(&resolver->questions, i);

		if (question)
			cleanup_close(&question->fd);
	}
	for (uint32_t i = 0; i < resolver->streams.count; i++) {
		struct stream *stream = pool_at(&resolver->streams, i);

		if (stream)
			cleanup_close(&stream->fd);
	}
	cleanup_close(&resolver->udp_fd);
	cleanup_close(&resolver->listen_fd);
	cleanup_close(&resolver->tls_fd);
	outbounds_close(resolver);
	pool_done(&resolver->questions);
	pool_done(&resolver->streams);
	free(resolver->by_address);
	free(resolver->by_cgroup);
	free(resolver);
	shard->resolver = NULL;
}
