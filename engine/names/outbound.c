/*
 * One connection that leaves a sandbox for a name, by TLS: the guard has sent it here, and where it
 * was to go it tells. Called by the resolver's listener and tick, and from the loop. Must hold: not
 * a byte goes on before the name was shown, is one that the sandbox's policy allows at that port,
 * and was found to have that address; who shows none in time costs one place and no more.
 *
 *	hello --a name that may--> connect --there--> relay --both ended--> (freed)
 *	     \--none, another, late--\--not there, late--\--cut, idle----> reset, (freed)
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "backends/backend.h"
#include "bpf/guard.h"
#include "bpf/guard_policy.h"
#include "bpf/policy.h"
#include "engine/base/cleanup.h"
#include "engine/integrity/integrity.h"
#include "engine/names/hello.h"
#include "engine/names/resolver_state.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"

#define MS_NS	   1000000ull
#define HELLO_NS   (5000 * MS_NS)
#define CONNECT_NS (10000 * MS_NS)
#define IDLE_NS	   (900000 * MS_NS) /* without a byte either way */

static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };

/* ---- the end ---- */

static void outbound_leave(struct outbound *outbound)
{
	if (outbound->asker)
		outbound->asker->outbound_count--;
	outbound->asker = NULL;
}

/* Nothing is in flight. */
static void outbound_free(struct outbound *outbound)
{
	outbound_leave(outbound);
	relay_done(&outbound->relay);
	free(take_ptr(outbound->hello));
	cleanup_close(&outbound->fds[0]);
	cleanup_close(&outbound->fds[1]);
	pool_put(&outbound->in->outbounds, outbound);
}

/* Likewise, and it did not end by itself. */
static void outbound_drop(struct outbound *outbound)
{
	relay_reset(outbound->fds);
	outbound_free(outbound);
}

void outbound_end(struct outbound *outbound)
{
	if (!outbound->asker)
		return;
	outbound_leave(outbound);
	relay_reset(outbound->fds);
	if (outbound->state != OUTBOUND_RELAY)
		io_cancel(outbound->in->shard->io, &outbound->op);
	else if (relay_stop(&outbound->relay))
		outbound_free(outbound);
}

void outbounds_end(struct asker *asker)
{
	struct resolver *resolver = asker->in;

	for (uint32_t i = 0; asker->outbound_count && i < resolver->outbounds.count; i++) {
		struct outbound *outbound = pool_at(&resolver->outbounds, i);

		if (outbound && outbound->asker == asker)
			outbound_end(outbound);
	}
}

void outbounds_close(struct resolver *resolver)
{
	for (uint32_t i = 0; i < resolver->outbounds.count; i++) {
		struct outbound *outbound = pool_at(&resolver->outbounds, i);

		if (outbound)
			outbound_drop(outbound);
	}
	pool_done(&resolver->outbounds);
}

static void deadline_set(struct outbound *outbound, uint64_t ns)
{
	outbound->deadline_ns = io_now_ns(outbound->in->shard->io) + ns;
}

/* name: "" where none was shown. */
static void outbound_refuse(struct outbound *outbound, const char *name)
{
	struct policy_violation v =
		name_violation(outbound->asker, name, POLICY_RULE_EGRESS, POLICY_HOOK_TLS);

	if (!*name)
		v.text_kind = POLICY_TEXT_NONE;
	v.error = ECONNRESET;
	v.family = 4;
	v.protocol = IPPROTO_TCP;
	v.port = outbound->port;
	memcpy(v.address, outbound->address, sizeof v.address);
	integrity_refused(outbound->asker->sandbox, &v);
	outbound_drop(outbound);
}

/* ---- relay ---- */

static void relay_over(struct relay *relay, int error)
{
	struct outbound *outbound = container_of(relay, struct outbound, relay);

	if (error)
		outbound_drop(outbound);
	else
		outbound_free(outbound);
}

/* What was shown goes on first, as it came. In blocking mode the loop waits for the sockets. */
static void outbound_relay(struct outbound *outbound)
{
	int r = 0;

	outbound->state = OUTBOUND_RELAY;
	deadline_set(outbound, IDLE_NS);
	outbound->relay.over = relay_over;
	if (fcntl(outbound->fds[1], F_SETFL, 0) < 0)
		r = -errno;
	if (r == 0)
		r = relay_open(&outbound->relay, outbound->in->shard->io, outbound->fds,
			       (const char *)outbound->hello, outbound->got);
	if (r < 0)
		outbound_drop(outbound);
	else
		free(take_ptr(outbound->hello));
}

/* ---- connect ---- */

static void connected(struct io_op *op, int res)
{
	struct outbound *outbound = container_of(op, struct outbound, op);
	socklen_t bytes = sizeof(int);
	int error = 0;

	if (res >= 0 && getsockopt(outbound->fds[1], SOL_SOCKET, SO_ERROR, &error, &bytes) < 0)
		error = errno;
	if (!outbound->asker || res < 0 || error)
		outbound_drop(outbound);
	else
		outbound_relay(outbound);
}

static void outbound_connect(struct outbound *outbound)
{
	struct shard *shard = outbound->in->shard;
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(outbound->port) };

	memcpy(&to.sin_addr, outbound->address + sizeof mapped, sizeof to.sin_addr);
	outbound->state = OUTBOUND_CONNECT;
	deadline_set(outbound, CONNECT_NS);
	outbound->op.done = connected;
	outbound->fds[1] = backend_outbound_socket(shard->node->backend_node);
	if (outbound->fds[1] < 0 ||
	    (connect(outbound->fds[1], (const struct sockaddr *)&to, sizeof to) < 0 &&
	     errno != EINPROGRESS))
		outbound_drop(outbound);
	else
		io_poll_once(shard->io, &outbound->op, outbound->fds[1], POLLOUT);
}

/* ---- hello ---- */

static void hello_receive(struct outbound *outbound);

static bool port_is_allowed(const struct guard_name *name, uint16_t port)
{
	for (uint32_t i = 0; name && i < name->to.port_count; i++) {
		const struct guard_ports *ports = &name->to.ports[i];

		if (ports->protocol == IPPROTO_TCP && port >= ports->first && port <= ports->last)
			return true;
	}
	return false;
}

static bool name_is_admitted(const struct outbound *outbound, const char *name)
{
	const struct asker *asker = outbound->asker;

	return port_is_allowed(sandbox_name(asker->sandbox, name), outbound->port) &&
	       learned_is_of(&asker->learned, outbound->address, name);
}

static void hello_take(struct outbound *outbound)
{
	char name[HELLO_NAME_BYTES] = "";
	int r = hello_read(outbound->hello, outbound->got, name);

	if (r == -EAGAIN && outbound->got < HELLO_BYTES_MAX)
		hello_receive(outbound);
	else if (r < 0 || !name_is_admitted(outbound, name))
		outbound_refuse(outbound, name);
	else
		outbound_connect(outbound);
}

static void hello_received(struct io_op *op, int res)
{
	struct outbound *outbound = container_of(op, struct outbound, op);

	if (!outbound->asker || res < 0) {
		outbound_drop(outbound);
	} else if (res == 0 && !outbound->got) {
		outbound_free(outbound); /* it looked whether somebody is there */
	} else if (res == 0) {
		outbound_refuse(outbound, "");
	} else {
		outbound->got += (uint32_t)res;
		hello_take(outbound);
	}
}

static void hello_receive(struct outbound *outbound)
{
	outbound->op.done = hello_received;
	io_recv(outbound->in->shard->io, &outbound->op, outbound->fds[0],
		outbound->hello + outbound->got, HELLO_BYTES_MAX - outbound->got);
}

/* ---- the beginning, and the time ---- */

/* The one that has had the longest time to show a name goes, if any has. */
static void oldest_end(struct resolver *resolver)
{
	struct outbound *oldest = NULL;

	for (uint32_t i = 0; i < resolver->outbounds.count; i++) {
		struct outbound *outbound = pool_at(&resolver->outbounds, i);

		if (outbound && outbound->asker && outbound->state == OUTBOUND_HELLO &&
		    (!oldest || outbound->deadline_ns < oldest->deadline_ns))
			oldest = outbound;
	}
	if (oldest)
		outbound_end(oldest);
}

static bool has_room(const struct resolver *resolver, const struct asker *asker)
{
	const uint32_t most = pool_taken(&resolver->outbounds) < OUTBOUNDS_FAIR ?
				      OUTBOUNDS_ASKER_MAX :
				      OUTBOUNDS_FEW;

	return asker->outbound_count < most;
}

/* Whose it is, and where it was to go. False: no program of the guard's sent it here. */
static bool origin_find(struct resolver *resolver, int fd, struct asker **ret,
			struct guard_redirect *ret_to)
{
	struct sockaddr_in from = { 0 };
	socklen_t bytes = sizeof from;
	struct asker *asker;

	if (getpeername(fd, (struct sockaddr *)&from, &bytes) < 0)
		return false;
	asker = asker_find(resolver, from.sin_addr.s_addr);
	if (!asker || guard_egress_redirect(resolver->shard->node->guard, asker->address4,
					    from.sin_port, ret_to) < 0)
		return false;
	*ret = asker;
	return !memcmp(ret_to->address, mapped, sizeof mapped);
}

static struct outbound *outbound_take(struct resolver *resolver, const struct asker *asker)
{
	struct outbound *outbound = has_room(resolver, asker) ? pool_take(&resolver->outbounds) :
								NULL;

	if (!outbound && has_room(resolver, asker))
		oldest_end(resolver); /* for the next one: it is in its place until then */
	if (outbound)
		outbound->hello = malloc(HELLO_BYTES_MAX);
	if (outbound && !outbound->hello) {
		pool_put(&resolver->outbounds, outbound);
		outbound = NULL;
	}
	return outbound;
}

void outbound_begin(struct resolver *resolver, int fd)
{
	const int ends[2] = { fd, -1 };
	auto_close int own_fd = fd;
	struct guard_redirect to;
	struct outbound *outbound = NULL;
	struct asker *asker;

	/* In blocking mode the loop waits for the socket; else it would say EAGAIN. */
	if (origin_find(resolver, fd, &asker, &to) && fcntl(fd, F_SETFL, 0) == 0)
		outbound = outbound_take(resolver, asker);
	if (!outbound) {
		relay_reset(ends);
		return;
	}
	outbound->in = resolver;
	outbound->asker = asker;
	outbound->fds[0] = take_fd(&own_fd);
	outbound->fds[1] = -1;
	outbound->port = to.port;
	memcpy(outbound->address, to.address, sizeof outbound->address);
	asker->outbound_count++;
	deadline_set(outbound, HELLO_NS);
	resolver_wake(resolver);
	hello_receive(outbound);
}

/* What moves is not idle. */
static bool is_late(struct outbound *outbound, uint64_t now_ns)
{
	if (outbound->state == OUTBOUND_RELAY &&
	    outbound->moved_bytes != outbound->relay.moved_bytes) {
		outbound->moved_bytes = outbound->relay.moved_bytes;
		deadline_set(outbound, IDLE_NS);
	}
	return outbound->deadline_ns <= now_ns;
}

void outbounds_expire(struct resolver *resolver, uint64_t now_ns)
{
	const bool any = pool_taken(&resolver->outbounds);

	for (uint32_t i = 0; any && i < resolver->outbounds.count; i++) {
		struct outbound *outbound = pool_at(&resolver->outbounds, i);

		if (outbound && outbound->asker && is_late(outbound, now_ns))
			outbound_end(outbound);
	}
}
