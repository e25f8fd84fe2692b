/*
 * One connection to a port of a sandbox: token, connection inside, bytes. Called by the listener of
 * its shard and from the loop. Who shows no token in time, or a wrong one, learns nothing and costs
 * one place of those that have shown none. A connection counts as use of its sandbox.
 *
 *	token --shown--> connect --a worker made it--> relay --both streams ended--> (freed)
 *	     \--wrong, late--\--nobody listens----------\--cut, sandbox ended-------> (freed)
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/base/cleanup.h"
#include "engine/port/forward.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"

/* ---- the end ---- */

static void inbound_leave(struct inbound *inbound)
{
	struct sandbox *sandbox = inbound->sandbox;

	inbound->sandbox = NULL;
	if (!sandbox)
		return;
	sandbox->inbound_count--;
	quota_give(sandbox->tenancy, QUOTA_INBOUNDS, 1);
	sandbox_touch(sandbox);
}

static void inbound_proven(struct inbound *inbound)
{
	timer_clear(&inbound->in->shard->timers, &inbound->deadline);
	inbound->in->unproven--;
}

/* Nothing is in flight. */
static void inbound_free(struct inbound *inbound)
{
	struct shard *shard = inbound->in->shard;

	inbound_leave(inbound);
	relay_done(&inbound->relay);
	cleanup_close(&inbound->fds[0]);
	cleanup_close(&inbound->fds[1]);
	pool_put(&inbound->in->inbounds, inbound);
	shard_check_stopped(shard);
}

void inbound_end(struct inbound *inbound)
{
	if (inbound->ending)
		return;
	inbound->ending = true;
	inbound_leave(inbound);
	if (inbound->state == INBOUND_TOKEN) {
		io_cancel(inbound->in->shard->io, &inbound->op);
	} else if (inbound->state == INBOUND_RELAY) {
		relay_reset(inbound->fds);
		if (relay_stop(&inbound->relay))
			inbound_free(inbound);
	}
	/* Else when the worker has answered. */
}

/* ---- relay ---- */

static void relay_over(struct relay *relay, int error)
{
	struct inbound *inbound = container_of(relay, struct inbound, relay);

	if (error)
		relay_reset(inbound->fds);
	inbound_free(inbound);
}

static void inbound_relay(struct inbound *inbound)
{
	inbound->state = INBOUND_RELAY;
	inbound->relay.owner = inbound;
	inbound->relay.over = relay_over;
	if (relay_open(&inbound->relay, inbound->in->shard->io, inbound->fds,
		       inbound->line + inbound->token_bytes,
		       inbound->line_bytes - inbound->token_bytes) < 0)
		inbound_free(inbound);
}

/* ---- connect ---- */

static void connected(struct box_port *port, int error)
{
	struct inbound *inbound = port->owner;

	inbound->fds[1] = take_fd(&port->fd);
	if (error) {
		inbound->in->refused_total++;
		inbound_free(inbound);
	} else if (inbound->ending) {
		relay_reset(inbound->fds);
		inbound_free(inbound);
	} else {
		inbound_relay(inbound);
	}
}

static void inbound_connect(struct inbound *inbound, const struct forward *forward)
{
	struct sandbox *sandbox = forward->sandbox;

	inbound->state = INBOUND_CONNECT;
	if (sandbox->inbound_count >= INBOUNDS_PER_SANDBOX_MAX ||
	    !quota_take(sandbox->tenancy, QUOTA_INBOUNDS, 1)) {
		inbound->in->refused_total++;
		inbound_free(inbound);
		return;
	}
	inbound->sandbox = sandbox;
	sandbox->inbound_count++;
	sandbox_touch(sandbox);
	inbound->port = (struct box_port){ .box = sandbox->box,
					   .port = forward->port,
					   .connect = true,
					   .fd = -1,
					   .owner = inbound,
					   .done = connected };
	if (sandbox->box->backend->class->port_ask(&inbound->port) < 0) {
		inbound->in->refused_total++;
		inbound_free(inbound);
	}
}

/* ---- token ---- */

static void token_receive(struct inbound *inbound);

static void token_wrong(struct inbound *inbound)
{
	inbound->in->tokens_refused++;
	inbound_proven(inbound); /* never: but it does not wait any more */
	inbound_free(inbound);
}

static void token_received(struct io_op *op, int res)
{
	struct inbound *inbound = container_of(op, struct inbound, op);
	const struct forward *forward;
	const char *end;

	if (res > 0)
		inbound->line_bytes += (uint32_t)res;
	end = memchr(inbound->line, '\n', inbound->line_bytes);
	if (inbound->ending || res <= 0 || (!end && inbound->line_bytes == sizeof inbound->line)) {
		token_wrong(inbound);
		return;
	}
	if (!end) {
		token_receive(inbound);
		return;
	}
	inbound->token_bytes = (uint32_t)(end - inbound->line) + 1;
	forward = forward_of_token(inbound->in, inbound->line, inbound->token_bytes - 1);
	if (!forward) {
		token_wrong(inbound);
		return;
	}
	inbound_proven(inbound);
	inbound_connect(inbound, forward);
}

static void token_receive(struct inbound *inbound)
{
	inbound->op.done = token_received;
	io_recv(inbound->in->shard->io, &inbound->op, inbound->fds[0],
		inbound->line + inbound->line_bytes,
		(uint32_t)sizeof inbound->line - inbound->line_bytes);
}

static void token_late(struct timer *timer)
{
	inbound_end(container_of(timer, struct inbound, deadline));
}

/*
 * Too many have shown no token: the one that has had the longest time for it goes, so that silent
 * ones cannot keep out those that would show theirs at once.
 */
static void unproven_make_room(struct forwards *forwards)
{
	struct inbound *oldest = NULL;

	for (uint32_t i = 0; i < forwards->inbounds.count; i++) {
		struct inbound *inbound = pool_at(&forwards->inbounds, i);

		if (inbound && inbound->state == INBOUND_TOKEN && !inbound->ending &&
		    (!oldest || inbound->sequence < oldest->sequence))
			oldest = inbound;
	}
	if (oldest)
		inbound_end(oldest);
}

void inbound_begin(struct forwards *forwards, int fd)
{
	struct shard *shard = forwards->shard;
	struct inbound *inbound;

	if (forwards->unproven >= INBOUNDS_UNPROVEN_MAX)
		unproven_make_room(forwards);
	inbound = pool_take(&forwards->inbounds);
	/* In blocking mode the loop waits for the socket; else it would say EAGAIN. */
	if (!inbound || forwards->stopping || fcntl(fd, F_SETFL, 0) < 0) {
		if (inbound)
			pool_put(&forwards->inbounds, inbound);
		forwards->refused_total++;
		(void)close(fd); /* the connection is all there was */
		return;
	}
	inbound->in = forwards;
	inbound->fds[0] = fd;
	inbound->fds[1] = -1;
	inbound->sequence = ++forwards->inbound_sequence;
	forwards->unproven++;
	inbound->deadline.expired = token_late;
	/* There is room: the heap counts inbounds. */
	(void)timer_set(&shard->timers, &inbound->deadline,
			io_now_ns(shard->io) + INBOUND_TOKEN_MS * 1000000ull);
	token_receive(inbound);
}
