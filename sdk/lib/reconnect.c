/*
 * What becomes of a connection whose engine went: it is taken apart, made anew in steps that never
 * wait, and what was under way is sent again. Called by whoever holds the lock and looks (wait.c,
 * submit.c); there is no thread that does it.
 *
 * The leader sleeps without the lock on what belongs to the link: so a link is taken apart and made
 * only while there is none. One that is found broken under a leader is LINK_BROKEN until that has
 * come back, which it is told to. While the link is not up no ticket is `sent`, but under BROKEN.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sdk/lib/connection.h"

#define BACKOFF_MIN_NS (10 * 1000 * 1000ll)
#define BACKOFF_MAX_NS (500 * 1000 * 1000ll)
/* A full ring empties without telling: look again after this long. */
#define ROOM_SLICE_NS  (1000 * 1000ll)
/* A link that was up for so long was a good one: losing it is a new trouble. */
#define SETTLED_NS     (1000 * 1000 * 1000ll)

static const char *lost_detail(int error)
{
	switch (error) {
	case -EPROTO:
		return "the engine sent what makes no sense";
	case -ENOMEM:
		return "no memory for what the engine sent";
	default:
		return "the engine closed the connection";
	}
}

void dsec__link_lose(struct dsec *d, int error)
{
	if (d->lost || d->link != LINK_UP)
		return;
	if (error != -ECONNRESET || !d->reconnect.patience_ns) {
		dsec__lose(d, error, lost_detail(error));
		return;
	}
	d->link = LINK_BROKEN;
	if (d->leader)
		dsec__leader_kick(d);
}

static void handshake_drop(struct dsec *d)
{
	if (!d->reconnect.handshake)
		return;
	dsec__handshake_done(d->reconnect.handshake);
	free(d->reconnect.handshake);
	d->reconnect.handshake = NULL;
}

/* Nothing is open afterwards. */
static void link_close(struct dsec *d)
{
	handshake_drop(d);
	d->transport->close(d);
	if (d->socket_fd < 0)
		return;
	(void)dsec__queues_watch_socket(d, false); /* this way it cannot fail */
	/* A child of ours may have it still: the engine shall not believe that this lives. */
	(void)shutdown(d->socket_fd, SHUT_RDWR);
	(void)close(d->socket_fd); /* nothing to do about a failing close */
	d->socket_fd = -1;
}

static void backoff_grow(struct reconnect *reconnect)
{
	reconnect->backoff_ns *= 2;
	if (reconnect->backoff_ns < BACKOFF_MIN_NS)
		reconnect->backoff_ns = BACKOFF_MIN_NS;
	if (reconnect->backoff_ns > BACKOFF_MAX_NS)
		reconnect->backoff_ns = BACKOFF_MAX_NS;
}

static void link_dismantle(struct dsec *d, int64_t now)
{
	struct reconnect *reconnect = &d->reconnect;
	bool settled = now - reconnect->up_ns >= SETTLED_NS;

	dsec__tickets_recall(d);
	link_close(d);
	d->link = LINK_AWAY;
	if (settled || reconnect->heard)
		reconnect->give_up_ns = now + reconnect->patience_ns;
	if (settled)
		reconnect->backoff_ns = 0;
	else if (reconnect->heard)
		reconnect->backoff_ns = BACKOFF_MIN_NS;
	else
		backoff_grow(reconnect);
	reconnect->try_ns = now + reconnect->backoff_ns;
}

/* An answer that the same question would get again. */
static bool error_is_final(int error)
{
	return error == -EPROTO || error == -EACCES || error == -EINVAL;
}

static void try_failed(struct dsec *d, int64_t now, int error)
{
	bool shaking = d->link == LINK_SHAKING;

	link_close(d);
	d->link = LINK_AWAY;
	if (shaking && error_is_final(error)) {
		dsec__lose(d, error, "the engine that came refuses this client");
		return;
	}
	backoff_grow(&d->reconnect);
	d->reconnect.try_ns = now + d->reconnect.backoff_ns;
}

static int try_begin(struct dsec *d)
{
	int r;

	d->reconnect.handshake = malloc(sizeof(*d->reconnect.handshake));
	if (!d->reconnect.handshake)
		return -ENOMEM;
	dsec__handshake_init(d->reconnect.handshake);
	r = dsec__connect(d);
	return r < 0 ? r : dsec__queues_watch_socket(d, true);
}

static int link_made(struct dsec *d, int64_t now)
{
	int r;

	r = dsec__queues_tell_reconnected(d);
	if (r < 0)
		return r;
	handshake_drop(d);
	d->link = LINK_UP;
	d->reconnect.up_ns = d->reconnect.seen_ns = now;
	d->reconnect.heard = false;
	d->reconnect.links++;
	d->caps_known &= d->caps && d->caps->engine_epoch == d->welcome.epoch &&
			 d->caps->caps.channels == d->channel_count;
	d->resend_due_ns = now;
	return 1;
}

/* 1: the handshake is over; 0: it goes on. */
static int link_shake(struct dsec *d, int64_t now)
{
	int r;

	r = dsec__handshake_step(d, d->reconnect.handshake);
	if (r > 0)
		return link_made(d, now);
	/* A new socket takes these few bytes: one that does not is not worth waiting for. */
	if (r == 0 && d->reconnect.handshake->events != POLLIN)
		return -EAGAIN;
	return r;
}

/* Nobody sleeps on the link. > 0: it is up, or lost for good. */
static int link_step(struct dsec *d, int64_t now)
{
	int r = 0;

	if (d->link == LINK_BROKEN)
		link_dismantle(d, now);
	if (d->link == LINK_AWAY && now >= d->reconnect.try_ns) {
		r = try_begin(d);
		if (r < 0)
			try_failed(d, now, r);
		else
			d->link = LINK_SHAKING;
	}
	if (d->link == LINK_SHAKING) {
		r = link_shake(d, now);
		if (r < 0)
			try_failed(d, now, r);
	}
	if (d->link != LINK_UP && !d->lost && now >= d->reconnect.give_up_ns) {
		link_close(d);
		d->link = LINK_AWAY;
		dsec__lose(d, -ETIMEDOUT, "the engine went and did not come back in time");
	}
	return d->link == LINK_UP || d->lost;
}

int dsec__link_drive(struct dsec *d)
{
	int changed = 0;

	if (d->lost)
		return 0;
	if (d->link != LINK_UP && !d->leader)
		changed = link_step(d, dsec__clock_ns());
	if (d->lost)
		return 1;
	if (d->credits_due)
		dsec__credits_send(d);
	return changed + dsec__tickets_resend(d);
}

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int64_t dsec__link_due_ns(const struct dsec *d)
{
	int64_t due_ns = d->unsent ? d->resend_due_ns : INT64_MAX, link_ns;

	if (d->lost)
		return INT64_MAX;
	if (d->link == LINK_UP && d->credits_due)
		due_ns = earlier(due_ns, dsec__clock_ns() + ROOM_SLICE_NS);
	if (d->link == LINK_UP)
		return due_ns;
	if (d->link == LINK_BROKEN)
		return 0;
	link_ns = d->reconnect.give_up_ns;
	if (d->link == LINK_AWAY && d->reconnect.try_ns < link_ns)
		link_ns = d->reconnect.try_ns;
	return link_ns < due_ns ? link_ns : due_ns;
}

void dsec__reconnect_done(struct dsec *d)
{
	handshake_drop(d);
	free(d->reconnect.address);
	free(d->reconnect.token);
	free(d->reconnect.tenant);
	d->reconnect.address = d->reconnect.token = d->reconnect.tenant = NULL;
}
