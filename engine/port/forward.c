/*
 * Forwards of a shard: tokens, and the listener. Called by the op, by sandboxes that end and by the
 * shard. Must hold: a token opens one port of one sandbox, as long as that lives; nothing listens
 * before somebody asked for a forward, nor after the last one is gone.
 */
#include "engine/port/forward.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"

enum { BACKLOG = 128 };

int forwards_init(struct forwards *forwards, struct shard *shard)
{
	int r;

	forwards->shard = shard;
	forwards->listener_fd = -1;
	r = pool_init(&forwards->all, sizeof(struct forward), FORWARDS_MAX);
	return r < 0 ? r :
		       pool_init(&forwards->inbounds, sizeof(struct inbound),
				 shard->config->inbounds_max);
}

void forwards_done(struct forwards *forwards)
{
	if (!forwards->shard)
		return;
	cleanup_close(&forwards->listener_fd);
	pool_done(&forwards->inbounds);
	pool_done(&forwards->all);
}

/* ---- the listener ---- */

static void listener_arm(struct forwards *forwards);

static void accepted(struct io_op *op, int res)
{
	struct forwards *forwards = container_of(op, struct forwards, accept);

	forwards->accepting = op->flags & IO_MORE;
	if (res >= 0) {
		forwards->accepted_total++;
		inbound_begin(forwards, res);
	}
	if (forwards->accepting)
		return;
	if (pool_taken(&forwards->all) && !forwards->stopping) {
		listener_arm(forwards);
		return;
	}
	cleanup_close(&forwards->listener_fd);
	forwards->listener_fd = -1;
	shard_check_stopped(forwards->shard);
}

static void listener_arm(struct forwards *forwards)
{
	forwards->accepting = true;
	forwards->accept.done = accepted;
	io_accept(forwards->shard->io, &forwards->accept, forwards->listener_fd);
}

/* System calls that do not wait. */
static int listener_open(struct forwards *forwards)
{
	struct sockaddr_in at = { .sin_family = AF_INET,
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof at;
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, BACKLOG) < 0 ||
	    getsockname(fd, (struct sockaddr *)&at, &bytes) < 0)
		return -errno;
	(void)snprintf(forwards->address, sizeof forwards->address, "127.0.0.1:%u",
		       ntohs(at.sin_port));
	forwards->listener_fd = take_fd(&fd);
	listener_arm(forwards);
	log_info("ports listen shard=%u address=%s", forwards->shard->number, forwards->address);
	return 0;
}

/* ---- tokens ---- */

static void token_make(struct forward *forward, struct forwards *forwards)
{
	uint8_t secret[FORWARD_SECRET_BYTES];
	int at = snprintf(forward->token, sizeof forward->token, "%016llx",
			  (unsigned long long)pool_handle_of(&forwards->all, forward));

	io_random(forwards->shard->io, secret, sizeof secret);
	for (unsigned i = 0; i < sizeof secret; i++)
		at += snprintf(forward->token + at, sizeof forward->token - (size_t)at, "%02x",
			       secret[i]);
}

static bool handle_parse(const char *digits, pool_handle_t *ret)
{
	pool_handle_t handle = 0;

	for (int i = 0; i < 16; i++) {
		const char *all = "0123456789abcdef", *found = strchr(all, digits[i]);

		if (!digits[i] || !found)
			return false;
		handle = handle << 4 | (pool_handle_t)(found - all);
	}
	*ret = handle;
	return true;
}

struct forward *forward_of_token(struct forwards *forwards, const char *token, uint32_t bytes)
{
	struct forward *forward;
	pool_handle_t handle;
	uint8_t difference = 0;

	if (bytes != FORWARD_TOKEN_BYTES - 1 || !handle_parse(token, &handle))
		return NULL;
	forward = pool_find(&forwards->all, handle);
	if (!forward)
		return NULL;
	for (uint32_t i = 0; i < bytes; i++)
		difference |= (uint8_t)(token[i] ^ forward->token[i]);
	return difference ? NULL : forward;
}

static struct forward **forward_find(struct sandbox *sandbox, uint32_t port, uint32_t *ret_count)
{
	struct forward **at = &sandbox->forwards;

	*ret_count = 0;
	for (; *at && (*at)->port != port; at = &(*at)->next)
		++*ret_count;
	return at;
}

int forward_get(struct sandbox *sandbox, uint32_t port, struct forward **ret,
		const char **ret_limit)
{
	struct forwards *forwards = &sandbox->shard->forwards;
	uint32_t count;
	struct forward **at = forward_find(sandbox, port, &count);
	int r = 0;

	*ret_limit = "forwards_per_sandbox_max";
	if (!*at && count >= FORWARDS_PER_SANDBOX_MAX)
		return -EAGAIN;
	if (forwards->listener_fd < 0) {
		*ret_limit = "listen";
		r = listener_open(forwards);
	}
	if (r < 0)
		return r;
	if (!*at) {
		*ret_limit = "forwards_max";
		if (!quota_take(sandbox->tenancy, QUOTA_FORWARDS, 1))
			return -EAGAIN;
		*at = pool_take(&forwards->all);
		if (!*at) {
			quota_give(sandbox->tenancy, QUOTA_FORWARDS, 1);
			return -EAGAIN;
		}
		(*at)->sandbox = sandbox;
		(*at)->port = port;
		token_make(*at, forwards);
	}
	*ret = *at;
	return 0;
}

const char *forward_address(const struct forward *forward)
{
	return forward->sandbox->shard->forwards.address;
}

bool forward_revoke(struct sandbox *sandbox, uint32_t port)
{
	uint32_t count;
	struct forward **at = forward_find(sandbox, port, &count), *forward = *at;

	if (!forward)
		return false;
	*at = forward->next;
	pool_put(&sandbox->shard->forwards.all, forward);
	quota_give(sandbox->tenancy, QUOTA_FORWARDS, 1);
	if (!pool_taken(&sandbox->shard->forwards.all)) /* the listener goes with the last one */
		io_cancel(sandbox->shard->io, &sandbox->shard->forwards.accept);
	return true;
}

/* ---- the end ---- */

static void inbounds_end(struct forwards *forwards, const struct sandbox *sandbox)
{
	for (uint32_t i = 0; i < forwards->inbounds.count; i++) {
		struct inbound *inbound = pool_at(&forwards->inbounds, i);

		if (inbound && (!sandbox || inbound->sandbox == sandbox))
			inbound_end(inbound);
	}
}

void forwards_end(struct sandbox *sandbox)
{
	struct forwards *forwards = &sandbox->shard->forwards;

	while (sandbox->forwards)
		(void)forward_revoke(sandbox, sandbox->forwards->port); /* it is there */
	if (sandbox->inbound_count)
		inbounds_end(forwards, sandbox);
}

void forwards_stop(struct forwards *forwards)
{
	forwards->stopping = true;
	if (forwards->accepting)
		io_cancel(forwards->shard->io, &forwards->accept);
	inbounds_end(forwards, NULL);
}
