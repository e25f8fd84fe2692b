/*
 * Queues: tickets that have events, handed out to whoever polls; and events one by one, for
 * dsec_wait(). A queue is the client's alone: the engine does not know of it.
 *
 * A ticket is linked in its queue's `ready` list while it has events to take. While a thread has
 * events of it that it did not free, only that thread gets more: nobody can reorder them.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "sdk/lib/cleanup.h"
#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"

int dsec_queue_new(struct dsec *d, struct dsec_queue **ret)
{
	struct dsec_queue *q;
	int r;

	r = dsec__owned(d, "queue");
	if (r < 0)
		return r;
	if (!ret)
		return dsec__fail(-EINVAL, "queue: NULL");
	q = malloc(sizeof(*q));
	if (!q)
		return dsec__fail(-ENOMEM, "queue: no memory");
	*q = (struct dsec_queue){ .d = d, .epoll_fd = -1 };
	q->ready_last = &q->ready;
	q->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (q->event_fd < 0) {
		r = -errno;
		free(q);
		return dsec__fail(r, "queue: no descriptor");
	}
	pthread_mutex_lock(&d->lock);
	q->next = d->queues;
	d->queues = q;
	pthread_mutex_unlock(&d->lock);
	*ret = q;
	return 0;
}

static void notices_free(struct event *notices)
{
	while (notices) {
		struct event *notice = notices;

		notices = notice->next;
		dsec__event_discard(notice);
	}
}

void dsec__queue_free(struct dsec_queue *q)
{
	notices_free(q->notices);
	if (q->epoll_fd >= 0)
		(void)close(q->epoll_fd); /* nothing to do about a failing close */
	(void)close(q->event_fd);	  /* as above */
	free(q);
}

static int socket_watch(struct dsec *d, int epoll_fd)
{
	struct epoll_event socket = { .events = EPOLLIN };

	if (d->socket_fd < 0)
		return 0;
	if (d->sending.bytes)
		socket.events |= EPOLLOUT;
	return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, d->socket_fd, &socket) < 0 ? -errno : 0;
}

int dsec__queues_watch_socket(struct dsec *d, bool watch)
{
	int r = 0;

	for (struct dsec_queue *q = d->queues; q && r == 0; q = q->next) {
		if (q->epoll_fd < 0)
			continue;
		/* Taking it out fails where adding it did. */
		if (watch)
			r = socket_watch(d, q->epoll_fd);
		else
			(void)epoll_ctl(q->epoll_fd, EPOLL_CTL_DEL, d->socket_fd, NULL);
	}
	return r;
}

static int queue_fd_new(struct dsec_queue *q)
{
	struct dsec *d = q->d;
	struct epoll_event readable = { .events = EPOLLIN };
	auto_close int fd = epoll_create1(EPOLL_CLOEXEC);
	int r;

	if (fd < 0)
		return -errno;
	if (epoll_ctl(fd, EPOLL_CTL_ADD, q->event_fd, &readable) < 0)
		return -errno;
	if (epoll_ctl(fd, EPOLL_CTL_ADD, d->timer_fd, &readable) < 0)
		return -errno;
	r = socket_watch(d, fd);
	return r < 0 ? r : take_fd(&fd);
}

int dsec_queue_fd(struct dsec_queue *q)
{
	struct dsec *d = q ? q->d : NULL;
	int r;

	r = dsec__owned(d, "queue");
	if (r < 0)
		return r;
	pthread_mutex_lock(&d->lock);
	r = q->epoll_fd;
	if (r < 0) {
		r = queue_fd_new(q);
		if (r >= 0) {
			q->epoll_fd = r;
			d->fd_users++;
			/* What came before anybody could see it. */
			dsec__queue_signal(q);
			dsec__wait_leave(d);
		}
	}
	pthread_mutex_unlock(&d->lock);
	return r < 0 ? dsec__fail(r, "queue: no descriptor to wait on") : r;
}

void dsec__queues_watch_output(struct dsec *d, bool watch)
{
	struct epoll_event socket = { .events = EPOLLIN | (watch ? EPOLLOUT : 0) };

	for (struct dsec_queue *q = d->queues; q; q = q->next) {
		/* Cannot fail: the socket was added, and changing it needs no memory. */
		if (q->epoll_fd >= 0)
			(void)epoll_ctl(q->epoll_fd, EPOLL_CTL_MOD, d->socket_fd, &socket);
	}
}

static struct event *notice_new(void)
{
	struct event *notice = calloc(1, sizeof(*notice));

	if (notice)
		notice->seen = (struct dsec_event){
			.size = sizeof(notice->seen),
			.kind = DSEC_EV_RECONNECTED,
			.ticket = -1,
		};
	return notice;
}

static void notice_append(struct dsec_queue *q, struct event *notice)
{
	struct event **end = &q->notices;

	while (*end)
		end = &(*end)->next;
	notice->next = NULL;
	*end = notice;
}

int dsec__queues_tell_reconnected(struct dsec *d)
{
	struct event *spare = NULL, *notice;

	for (struct dsec_queue *q = d->queues; q; q = q->next) {
		notice = notice_new();
		if (!notice) {
			notices_free(spare);
			return -ENOMEM;
		}
		notice->next = spare;
		spare = notice;
	}
	for (struct dsec_queue *q = d->queues; q; q = q->next) {
		notice = spare;
		spare = spare->next;
		notice_append(q, notice);
		dsec__queue_notify(q);
	}
	return 0;
}

void dsec__queue_signal(struct dsec_queue *q)
{
	__atomic_store_n(&q->signaled, 1, __ATOMIC_SEQ_CST);
	(void)eventfd_write(q->event_fd, 1); /* full: it is readable already */
}

/* Nothing is here: the descriptor says so, unless somebody called dsec_queue_wake(). */
static void queue_quiet(struct dsec_queue *q)
{
	eventfd_t count;

	if (!__atomic_exchange_n(&q->signaled, 0, __ATOMIC_SEQ_CST) && q->epoll_fd < 0)
		return;
	(void)eventfd_read(q->event_fd, &count); /* empty: as it should be */
	if (__atomic_load_n(&q->woken, __ATOMIC_SEQ_CST))
		dsec__queue_signal(q);
}

void dsec__queue_link(struct ticket *ticket)
{
	struct dsec_queue *q = ticket->queue;

	if (ticket->ready)
		return;
	ticket->ready = true;
	ticket->next = NULL;
	*q->ready_last = ticket;
	q->ready_last = &ticket->next;
}

/* *slot points at the ticket to unlink. */
static void queue_unlink(struct dsec_queue *q, struct ticket **slot)
{
	struct ticket *ticket = *slot;

	*slot = ticket->next;
	if (!ticket->next)
		q->ready_last = slot;
	ticket->ready = false;
	ticket->next = NULL;
}

/* Gives the next event to this thread. True: the ticket is gone with it. */
static bool ticket_give(struct dsec *d, struct ticket *ticket, struct dsec_event **ret)
{
	struct event *event = dsec__ticket_take(ticket);

	*ret = &event->seen;
	if (event->seen.flags & DSEC_LAST)
		return true;
	event->d = d;
	d->references++;
	ticket->held++;
	ticket->holder = pthread_self();
	return false;
}

static int queue_take(struct dsec_queue *q, struct dsec_event **ret, int max)
{
	struct ticket **slot = &q->ready, *ticket;
	int taken = 0;
	bool gone;

	while (q->notices && taken < max) {
		struct event *notice = q->notices;

		q->notices = notice->next;
		ret[taken++] = &notice->seen;
	}
	while ((ticket = *slot) && taken < max) {
		if (ticket->held && !pthread_equal(ticket->holder, pthread_self())) {
			slot = &ticket->next;
			continue;
		}
		gone = false;
		while (ticket->first && taken < max)
			gone = ticket_give(q->d, ticket, &ret[taken++]);
		if (ticket->first)
			break;
		queue_unlink(q, slot);
		if (gone)
			dsec__ticket_release(q->d, ticket);
	}
	return taken;
}

int dsec_queue_poll(struct dsec_queue *q, struct dsec_event **ret, int max, int timeout_ms)
{
	struct waiter waiter = { .queue = q };
	int64_t deadline_ns;
	struct dsec *d;
	int taken, r = 0;

	d = q ? q->d : NULL;
	r = dsec__owned(d, "poll");
	if (r < 0)
		return r;
	if (!ret || max <= 0)
		return dsec__fail(-EINVAL, "poll: no room for events");
	waiter.word = &q->word;
	waiter.waiters = &q->waiters;
	deadline_ns = dsec__deadline(timeout_ms);
	pthread_mutex_lock(&d->lock);
	while (!(taken = queue_take(q, ret, max))) {
		if (!q->ready)
			queue_quiet(q);
		if (__atomic_exchange_n(&q->woken, 0, __ATOMIC_SEQ_CST) || r == -ETIMEDOUT)
			break;
		if (d->lost && !q->outstanding) {
			r = -ENOTCONN;
			break;
		}
		r = dsec__wait(d, &waiter, deadline_ns);
	}
	if (taken && !q->ready && !q->notices)
		queue_quiet(q);
	else if (taken && q->waiters)
		dsec__queue_notify(q);
	dsec__wait_leave(d);
	pthread_mutex_unlock(&d->lock);
	if (!taken && r == -ENOTCONN)
		return dsec__fail(r, "poll: the connection was lost: %s", d->lost_detail);
	return taken;
}

void dsec_queue_wake(struct dsec_queue *q)
{
	if (!q || dsec__forked(q->d))
		return;
	__atomic_store_n(&q->woken, 1, __ATOMIC_SEQ_CST);
	dsec__queue_rouse(q);
	dsec__queue_signal(q);
}

/* With the lock, where the connection outlives the event in any case. */
static void event_drop(struct dsec *d, struct dsec_event *seen)
{
	struct event *event = (struct event *)seen;

	if (event->d)
		d->references--;
	dsec__event_discard(event);
}

/* What is under way here ends: asked to, and waited for. */
static void queue_settle(struct dsec_queue *q, int64_t deadline_ns)
{
	struct waiter waiter = { .word = &q->word, .waiters = &q->waiters, .queue = q };
	struct dsec *d = q->d;
	struct dsec_event *event;
	int r = 0;

	while (q->outstanding && r != -ETIMEDOUT) {
		while (queue_take(q, &event, 1))
			event_drop(d, event);
		if (!q->outstanding)
			break;
		__atomic_store_n(&q->woken, 0, __ATOMIC_SEQ_CST);
		queue_quiet(q);
		r = dsec__wait(d, &waiter, deadline_ns);
	}
}

void dsec_queue_free(struct dsec_queue *q)
{
	struct dsec *d = q ? q->d : NULL;
	struct dsec_queue **slot;

	if (!q || dsec__forked(d))
		return;
	pthread_mutex_lock(&d->lock);
	for (uint32_t place = 0; place < d->ticket_count; place++) {
		struct ticket *ticket = d->tickets[place];

		/* Whatever this thread does with events of it: they go. */
		if (ticket->used && ticket->queue == q) {
			ticket->held = 0;
			if (!ticket->ended)
				dsec__cancel(d, ticket->name);
		}
	}
	queue_settle(q, dsec__deadline(CLOSE_WAIT_MS));
	for (uint32_t place = 0; place < d->ticket_count; place++) {
		struct ticket *ticket = d->tickets[place];

		if (ticket->used && ticket->queue == q) {
			ticket->queue = NULL;
			ticket->abandoned = true;
		}
	}
	for (slot = &d->queues; *slot != q; slot = &(*slot)->next)
		;
	*slot = q->next;
	if (q->epoll_fd >= 0)
		d->fd_users--;
	dsec__wait_leave(d);
	pthread_mutex_unlock(&d->lock);
	dsec__queue_free(q);
}

int dsec_wait(struct dsec *d, int64_t ticket_name, int timeout_ms, struct dsec_event **ret)
{
	int64_t deadline_ns = dsec__deadline(timeout_ms);
	struct waiter waiter = { 0 };
	struct ticket *ticket;
	int r = 0;

	r = dsec__owned(d, "wait");
	if (r < 0)
		return r;
	if (!ret)
		return dsec__fail(-EINVAL, "wait: NULL");
	pthread_mutex_lock(&d->lock);
	ticket = dsec__ticket_find(d, ticket_name);
	if (!ticket || ticket->abandoned)
		r = dsec__fail(-ENOENT, "wait: no such ticket");
	else if (ticket->queue)
		r = dsec__fail(-EINVAL, "wait: the ticket's events go to its queue");
	if (r < 0) {
		pthread_mutex_unlock(&d->lock);
		return r;
	}
	waiter.word = &ticket->word;
	waiter.waiters = &ticket->waiters;
	while (!ticket->first && r != -ETIMEDOUT)
		r = dsec__wait(d, &waiter, deadline_ns);
	if (ticket->first) {
		r = 0;
		if (ticket_give(d, ticket, ret))
			dsec__ticket_release(d, ticket);
	}
	dsec__wait_leave(d);
	pthread_mutex_unlock(&d->lock);
	return r < 0 ? dsec__fail(r, "wait: nothing came in time") : 0;
}

void dsec_event_free(struct dsec_event *e)
{
	struct event *event = (struct event *)e;
	struct dsec *d = event ? event->d : NULL;
	struct ticket *ticket;

	if (!event)
		return;
	if (!d || dsec__forked(d)) {
		dsec__event_discard(event);
		return;
	}
	pthread_mutex_lock(&d->lock);
	ticket = dsec__ticket_find(d, e->ticket);
	if (ticket && ticket->held && --ticket->held == 0 && ticket->ready)
		dsec__queue_notify(ticket->queue);
	if (ticket)
		dsec__credit_consumed(d, ticket, event);
	dsec__event_discard(event);
	dsec__unreference(d);
}
