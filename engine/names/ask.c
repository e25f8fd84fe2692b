/*
 * One question to the upstream: by UDP from a port of its own, by TCP where the answer is cut, and
 * of the next upstream when none comes. Called by the resolver and from the loop. Must hold: while
 * its op is in flight a question is in its place; id and source port are by chance, and what does
 * not answer exactly this question changes nothing.
 *
 *	udp --answer--> (freed)          each --no answer in time--> udp, of the next one; after
 *	   \--cut--> connect --> tcp --answer--> (freed)             ATTEMPTS_MAX SERVFAIL, (freed)
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/config_dns.h"
#include "engine/names/resolver_state.h"
#include "engine/shard.h"

enum { ATTEMPTS_MAX = 4, STRANGE_MAX = 16, UDP_NS = 1500 * 1000000, TCP_NS = 2000 * 1000000 };

static void question_received(struct io_op *op, int res);

/* ---- the end ---- */

static void question_free(struct question *question)
{
	struct resolver *resolver = question->in;

	cleanup_close(&question->fd);
	if (question->asker)
		question->asker->question_count--;
	pool_put(&resolver->questions, question);
}

static void question_answer(struct question *question, struct dns_answer *answer)
{
	struct stream *stream = question->stream;
	const struct reply_to to = { question->asker, stream, question->port };

	if (answer->rcode == DNS_NOERROR && answer->count)
		answer_learn(question->asker, &question->dns, answer);
	reply_send(question->in, &to, &question->dns, answer);
	question_free(question);
	if (!stream)
		return;
	stream->question = NULL;
	stream_next(stream);
}

static void question_fail(struct question *question)
{
	struct dns_answer answer = { .rcode = DNS_SERVFAIL };

	question_answer(question, &answer);
}

void question_abandon(struct question *question)
{
	question->asker->question_count--;
	question->asker = NULL;
	if (question->stream)
		question->stream->question = NULL;
	question->stream = NULL;
	question->cancelled = true;
	io_cancel(question->in->shard->io, &question->op);
}

/* ---- an attempt ---- */

static const struct upstream *question_upstream(const struct question *question)
{
	const struct upstreams *upstreams = question->in->upstreams;

	return &upstreams->all[(question->attempts - 1) % upstreams->count];
}

static int question_connect(struct question *question, int type)
{
	const struct upstream *upstream = question_upstream(question);

	cleanup_close(&question->fd);
	question->cancelled = false;
	question->got = 0;
	question->fd = socket(upstream->address.ss_family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (question->fd < 0)
		return -errno;
	if (connect(question->fd, (const struct sockaddr *)&upstream->address, upstream->bytes) <
		    0 &&
	    errno != EINPROGRESS)
		return -errno;
	question->op.done = question_received;
	return 0;
}

static int question_send(const struct question *question)
{
	const bool is_tcp = question->step != QUESTION_UDP;
	uint8_t bytes[2 + DNS_QUERY_BYTES_MAX];
	size_t count = dns_query_write(bytes + 2, question->id, &question->dns);
	const uint8_t *from = is_tcp ? bytes : bytes + 2;

	bytes[0] = (uint8_t)(count >> 8);
	bytes[1] = (uint8_t)count;
	count += is_tcp ? 2 : 0;
	/* A new socket has room for it. */
	return send(question->fd, from, count, MSG_NOSIGNAL) == (ssize_t)count ? 0 : -EIO;
}

static void question_receive(struct question *question)
{
	io_recv(question->in->shard->io, &question->op, question->fd,
		question->buffer + question->got,
		(uint32_t)sizeof question->buffer - question->got);
}

static int udp_begin(struct question *question)
{
	int r;

	question->attempts++;
	question->step = QUESTION_UDP;
	question->strange = 0;
	io_random(question->in->shard->io, &question->id, sizeof question->id);
	question->deadline_ns = io_now_ns(question->in->shard->io) + UDP_NS;
	r = question_connect(question, SOCK_DGRAM);
	if (r == 0)
		r = question_send(question);
	if (r == 0)
		question_receive(question);
	return r;
}

/* The next upstream, until one is asked or none is left. */
static void question_again(struct question *question)
{
	while (question->attempts < ATTEMPTS_MAX)
		if (udp_begin(question) == 0)
			return;
	question_fail(question);
}

/* The answer by UDP was cut. */
static void tcp_begin(struct question *question)
{
	question->step = QUESTION_CONNECT;
	question->deadline_ns = io_now_ns(question->in->shard->io) + TCP_NS;
	if (question_connect(question, SOCK_STREAM) < 0)
		question_again(question);
	else
		io_poll_once(question->in->shard->io, &question->op, question->fd, POLLOUT);
}

static void tcp_connected(struct question *question)
{
	question->step = QUESTION_TCP;
	if (question_send(question) < 0)
		question_again(question);
	else
		question_receive(question);
}

/* ---- answers ---- */

/* The whole message, or NULL: there is more to come. */
static const uint8_t *message_find(const struct question *question, size_t *ret_bytes)
{
	const uint8_t *bytes = question->buffer;

	*ret_bytes = question->got;
	if (question->step == QUESTION_UDP)
		return bytes;
	if (question->got < 2)
		return NULL;
	*ret_bytes = (size_t)bytes[0] << 8 | bytes[1];
	return question->got - 2u >= *ret_bytes ? bytes + 2 : NULL;
}

static void answer_take(struct question *question, const uint8_t *message, size_t bytes)
{
	const bool is_udp = question->step == QUESTION_UDP;
	struct dns_answer answer;
	int r = dns_answer_read(message, bytes, question->id, &question->dns, &answer);

	if (r < 0 && is_udp && ++question->strange < STRANGE_MAX) {
		question->got = 0;
		question_receive(question);
	} else if (r < 0 || (answer.rcode != DNS_NOERROR && answer.rcode != DNS_NXDOMAIN)) {
		question_again(question);
	} else if (answer.is_cut && is_udp) {
		tcp_begin(question);
	} else if (answer.is_cut) {
		question_fail(question); /* larger than anything that is read here */
	} else {
		question_answer(question, &answer);
	}
}

static void question_received(struct io_op *op, int res)
{
	struct question *question = container_of(op, struct question, op);
	const uint8_t *message;
	size_t bytes;

	if (!question->asker) {
		question_free(question);
	} else if (question->cancelled || res < 0) {
		question_again(question);
	} else if (question->step == QUESTION_CONNECT) {
		tcp_connected(question);
	} else {
		question->got += (uint32_t)res;
		message = message_find(question, &bytes);
		if (message)
			answer_take(question, message, bytes);
		else if (res == 0 || question->got == sizeof question->buffer)
			question_again(question);
		else
			question_receive(question);
	}
}

/* ---- the beginning, and the time ---- */

static bool has_room(const struct resolver *resolver, const struct asker *asker)
{
	const uint32_t most = pool_taken(&resolver->questions) < QUESTIONS_FAIR ?
				      QUESTIONS_ASKER_MAX :
				      QUESTIONS_FEW;

	return asker->question_count < most;
}

bool question_begin(struct resolver *resolver, const struct reply_to *to,
		    const struct dns_question *dns)
{
	struct question *question =
		has_room(resolver, to->asker) ? pool_take(&resolver->questions) : NULL;

	if (!question)
		return false;
	question->in = resolver;
	question->asker = to->asker;
	question->stream = to->stream;
	question->port = to->port;
	question->dns = *dns;
	question->fd = -1;
	while (question->attempts < ATTEMPTS_MAX) {
		if (udp_begin(question) < 0)
			continue;
		to->asker->question_count++;
		if (to->stream)
			to->stream->question = question;
		resolver_wake(resolver);
		return true;
	}
	cleanup_close(&question->fd);
	pool_put(&resolver->questions, question);
	return false;
}

void questions_expire(struct resolver *resolver, uint64_t now_ns)
{
	for (uint32_t i = 0; pool_taken(&resolver->questions) && i < resolver->questions.count;
	     i++) {
		struct question *question = pool_at(&resolver->questions, i);

		if (!question || question->cancelled || question->deadline_ns > now_ns)
			continue;
		question->cancelled = true;
		io_cancel(resolver->shard->io, &question->op);
	}
}
