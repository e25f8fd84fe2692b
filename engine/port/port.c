/*
 * The port op: waits, where it was asked to, until something listens on a port of a sandbox, then
 * makes a forward to it and tells address and token. Called by request.c. A wait is a timer and now
 * and then a look by a worker: no descriptor, no thread. It knows its sandbox by id alone, so that
 * one that ends meanwhile is absent at the next look.
 */
#include "engine/port/port.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/port/forward.h"
#include "engine/request/request.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"

enum { LOOK_FIRST_MS = 5, LOOK_LAST_MS = 250 };

struct port_wait {
	struct part *part;
	struct box_port port;
	struct timer timer;
	uint64_t until_ns;
	uint32_t pause_ms;
};

static struct status port_status(enum dsec_code code, const char *step, const char *detail)
{
	return (struct status){ .code = code,
				.blame = DSEC_BLAME_CALLER,
				.table = "port",
				.step = step,
				.detail = detail };
}

/* ---- the answer ---- */

static void port_answer(struct part *part, struct sandbox *sandbox, bool is_ipv6)
{
	const struct dsec_wire_port *wish = &part->request->body.port;
	struct dsec_wire_forward body = { .size = sizeof body, .port = wish->port };
	struct emission e = { .kind = DSEC_EV_DONE, .subject = sandbox->id };
	struct forward *forward;
	const char *limit;
	struct status s;
	int r = forward_get(sandbox, wish->port, &forward, &limit);

	if (r < 0) {
		s = status_of_errno(r, "port", limit);
		part_end(part, &s, NULL);
		return;
	}
	if (wish->wait_ms)
		body.family = is_ipv6 ? 6 : 4;
	(void)strncpy(body.address, forward_address(forward), sizeof body.address - 1);
	(void)strncpy(body.token, forward->token, sizeof body.token - 1);
	e.body = &body;
	e.bytes = sizeof body;
	part_end(part, NULL, &e);
}

/* ---- waiting ---- */

static void wait_end(struct port_wait *wait, const struct status *status)
{
	struct part *part = wait->part;

	timer_clear(&part->shard->timers, &wait->timer);
	part->shard->port_waits--;
	quota_give(tenancy_of(part), QUOTA_PORT_WAITS, 1);
	part->work = NULL;
	free(wait);
	if (status)
		part_end(part, status, NULL);
}

static void wait_look(struct timer *timer);

static struct status nobody_listens(void)
{
	struct status s = port_status(DSEC_DEADLINE, "listen",
				      "nothing listens on 127.0.0.1 or ::1 at this port");

	s.error = ECONNREFUSED;
	s.blame = DSEC_BLAME_GUEST;
	return s;
}

static void wait_again(struct port_wait *wait)
{
	struct shard *shard = wait->part->shard;
	uint64_t now_ns = io_now_ns(shard->io), at_ns = now_ns + wait->pause_ms * 1000000ull;
	struct status s = nobody_listens();

	if (now_ns >= wait->until_ns) {
		wait_end(wait, &s);
		return;
	}
	wait->pause_ms = wait->pause_ms * 3 / 2 < LOOK_LAST_MS ? wait->pause_ms * 3 / 2 :
								 LOOK_LAST_MS;
	/* There is room: the heap counts waits. */
	(void)timer_set(&shard->timers, &wait->timer,
			at_ns < wait->until_ns ? at_ns : wait->until_ns);
}

/* A worker that is busy or was lost is asked again. */
static bool look_can_be_repeated(int error)
{
	return error == -ECONNREFUSED || error == -EAGAIN || error == -EPIPE;
}

static struct sandbox *port_sandbox(struct part *part)
{
	struct sandbox *sandbox = sandbox_of(part);

	return sandbox && sandbox->state == DSEC_STATE_RUNNING ? sandbox : NULL;
}

static void looked(struct box_port *port, int error)
{
	struct port_wait *wait = port->owner;
	struct part *part = wait->part;
	struct sandbox *sandbox = port_sandbox(part);
	struct status s = STATUS_OK;
	bool is_ipv6 = port->is_ipv6;

	if (part->cancelled)
		s = status_of_errno(-ECANCELED, "port", "cancel");
	else if (!sandbox)
		s = status_absent();
	else if (error && !look_can_be_repeated(error))
		s = status_of_errno(error, "port", "look");
	if (s.code) {
		wait_end(wait, &s);
	} else if (error) {
		wait_again(wait);
	} else {
		wait_end(wait, NULL);
		port_answer(part, sandbox, is_ipv6);
	}
}

static void wait_look(struct timer *timer)
{
	struct port_wait *wait = container_of(timer, struct port_wait, timer);
	struct part *part = wait->part;
	struct sandbox *sandbox = port_sandbox(part);
	struct status s = status_absent();
	int r;

	if (!sandbox) {
		wait_end(wait, &s);
		return;
	}
	sandbox_touch(sandbox); /* somebody waits for it: it is in use */
	wait->port = (struct box_port){ .box = sandbox->box,
					.port = part->request->body.port.port,
					.fd = -1,
					.owner = wait,
					.done = looked };
	r = sandbox->box->backend->class->port_ask(&wait->port);
	if (r < 0)
		looked(&wait->port, r);
}

static void wait_begin(struct part *part)
{
	struct shard *shard = part->shard;
	struct port_wait *wait = calloc(1, sizeof *wait);
	struct status s = status_of_errno(wait ? -EAGAIN : -ENOMEM, "port", "port_waits_max");

	if (!wait || shard->port_waits >= PORT_WAITS_MAX ||
	    !quota_take(tenancy_of(part), QUOTA_PORT_WAITS, 1)) {
		free(wait);
		part_end(part, &s, NULL);
		return;
	}
	shard->port_waits++;
	part->work = wait;
	wait->part = part;
	wait->pause_ms = LOOK_FIRST_MS;
	wait->timer.expired = wait_look;
	wait->until_ns = io_now_ns(shard->io) + part->request->body.port.wait_ms * 1000000ull;
	wait_look(&wait->timer);
}

void port_part_cancel(struct part *part)
{
	struct port_wait *wait = part->work;
	struct status s = status_of_errno(-ECANCELED, "port", "cancel");

	if (wait && timer_is_set(&wait->timer))
		wait_end(wait, &s); /* else when the worker has answered */
}

/* ---- the op ---- */

static struct status port_check(const struct dsec_wire_port *wish)
{
	if (wish->flags & ~(uint32_t)DSEC_PORT_FLAGS_KNOWN)
		return port_status(DSEC_INVALID, "flags", "unknown flag");
	if (!wire_is_zero(wish->reserved, sizeof wish->reserved))
		return port_status(DSEC_INVALID, "reserved", NULL);
	if (wish->port < 1 || wish->port > 65535)
		return port_status(DSEC_INVALID, "port", "1 to 65535");
	if (wish->wait_ms > PORT_WAIT_MS_MAX)
		return port_status(DSEC_INVALID, "wait", "at most 10 minutes");
	return STATUS_OK;
}

void port_part(struct part *part)
{
	const struct dsec_wire_port *wish = &part->request->body.port;
	struct sandbox *sandbox = port_sandbox(part);
	struct status s = port_check(wish);

	if (!s.code && !sandbox)
		s = status_absent();
	if (!s.code && sandbox->network == DSEC_NETWORK_NONE)
		s = port_status(DSEC_UNSUPPORTED, "network",
				"its network is none: create it with --network private");
	if (!s.code && wish->flags & DSEC_PORT_REVOKE) {
		(void)forward_revoke(sandbox, wish->port); /* none: as it is to be */
		part_end(part, NULL, NULL);
	} else if (s.code) {
		part_end(part, &s, NULL);
	} else if (wish->wait_ms) {
		wait_begin(part);
	} else {
		port_answer(part, sandbox, false);
	}
}
