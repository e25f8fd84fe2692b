/*
 * Waiting without a thread of our own: of the threads that wait, one leads. The leader sleeps on
 * the transport, with the lock released; whoever holds the lock may sort what came, and wakes
 * those it concerns. The others, followers, sleep on the futex of their ticket or queue.
 *
 * What must hold when the lock is released: if nobody leads, then either a follower was woken and
 * has not run yet, or there are no followers. Each thread that stops waiting passes through
 * dsec__wait_leave(), which keeps that.
 *
 * No wake-up is missed: a futex word is read under the lock before sleeping on it, and is changed
 * before it is woken: under the lock, or by dsec_queue_wake(), which sets `woken` first.
 */
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "sdk/lib/connection.h"

/* A futex does not tell that the engine died: look at the socket this often. */
#define FUTEX_SLICE_NS (100 * 1000 * 1000ll)
/* Before a request, only if nobody saw the engine for so long: it costs a call. */
#define LOOK_SLICE_NS  (5 * 1000 * 1000ll)

enum { DRAIN_TURNS_MAX = 1024 }; /* one that goes on talking is cut short */

int64_t dsec__deadline(int timeout_ms)
{
	if (timeout_ms < 0)
		return INT64_MAX;
	return timeout_ms ? dsec__clock_ns() + timeout_ms * 1000000ll : 0;
}

/* What is left, at most `most`. */
static struct timespec time_left(int64_t deadline_ns, int64_t most_ns)
{
	int64_t left = most_ns;

	if (deadline_ns != INT64_MAX && deadline_ns - dsec__clock_ns() < left)
		left = deadline_ns - dsec__clock_ns();
	if (left < 0)
		left = 0;
	return (struct timespec){ .tv_sec = left / 1000000000, .tv_nsec = left % 1000000000 };
}

static void futex_wait(uint32_t *word, uint32_t seen, int flags, const struct timespec *timeout)
{
	/* Woken, changed, interrupted or timed out: the caller looks again in any case. */
	(void)syscall(SYS_futex, word, FUTEX_WAIT | flags, seen, timeout, NULL, 0);
}

static void futex_wake(uint32_t *word, int count, int flags)
{
	(void)syscall(SYS_futex, word, FUTEX_WAKE | flags, count, NULL, NULL, 0);
}

void dsec__leader_kick(struct dsec *d)
{
	__atomic_store_n(&d->kicked, 1, __ATOMIC_SEQ_CST);
	if (d->leader->queue) {
		dsec__queue_signal(d->leader->queue);
		return;
	}
	if (d->leader_futex) {
		uint32_t *word = &d->channels[0].shared->need_wakeup;

		(void)__atomic_exchange_n(word, DSEC_AWAKE, __ATOMIC_SEQ_CST);
		futex_wake(word, 1, 0);
		return;
	}
	(void)eventfd_write(d->kick_fd, 1); /* full: it is readable already */
}

void dsec__ticket_notify(struct dsec *d, struct ticket *ticket)
{
	if (ticket->queue) {
		dsec__queue_notify(ticket->queue);
		return;
	}
	__atomic_add_fetch(&ticket->word, 1, __ATOMIC_SEQ_CST);
	if (d->leader && d->leader->word == &ticket->word)
		dsec__leader_kick(d);
	else if (ticket->waiters)
		futex_wake(&ticket->word, 1, FUTEX_PRIVATE_FLAG);
}

void dsec__queue_rouse(struct dsec_queue *q)
{
	__atomic_add_fetch(&q->word, 1, __ATOMIC_SEQ_CST);
	futex_wake(&q->word, 1, FUTEX_PRIVATE_FLAG);
}

void dsec__queue_notify(struct dsec_queue *q)
{
	__atomic_add_fetch(&q->word, 1, __ATOMIC_SEQ_CST);
	/* All: a ticket may be for one thread only, and which one sleeps where is unknown. */
	if (q->waiters)
		futex_wake(&q->word, INT_MAX, FUTEX_PRIVATE_FLAG);
	if (q->epoll_fd >= 0 || (q->d->leader && q->d->leader->queue == q))
		dsec__queue_signal(q);
}

static void follow(struct dsec *d, struct waiter *waiter, int64_t deadline_ns)
{
	uint32_t seen = __atomic_load_n(waiter->word, __ATOMIC_SEQ_CST);
	struct timespec left = time_left(deadline_ns, INT64_MAX);

	waiter->previous = NULL;
	waiter->next = d->followers;
	if (waiter->next)
		waiter->next->previous = waiter;
	d->followers = waiter;
	++*waiter->waiters;
	pthread_mutex_unlock(&d->lock);
	if (!waiter->queue || !__atomic_load_n(&waiter->queue->woken, __ATOMIC_SEQ_CST))
		futex_wait(waiter->word, seen, FUTEX_PRIVATE_FLAG, &left);
	pthread_mutex_lock(&d->lock);
	--*waiter->waiters;
	if (waiter->next)
		waiter->next->previous = waiter->previous;
	if (waiter->previous)
		waiter->previous->next = waiter->next;
	else
		d->followers = waiter->next;
}

static bool leader_may_sleep(struct dsec *d, const struct waiter *waiter)
{
	if (__atomic_load_n(&d->kicked, __ATOMIC_SEQ_CST))
		return false;
	return !waiter->queue || !__atomic_load_n(&waiter->queue->woken, __ATOMIC_SEQ_CST);
}

static void cpu_relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* A round trip takes less than falling asleep and being woken: try that first. */
static bool leader_spin(struct dsec *d, const struct waiter *waiter, int64_t deadline_ns)
{
	int64_t now = dsec__clock_ns(), end = now + d->spin_us * 1000ll;

	if (!d->shared || !d->many_cpus)
		return false;
	if (end > deadline_ns)
		end = deadline_ns;
	for (; now < end; now = dsec__clock_ns()) {
		for (int times = 0; times < 16; times++) {
			if (d->transport->pending(d))
				return true;
			cpu_relax();
		}
		if (!leader_may_sleep(d, waiter))
			return true;
	}
	return false;
}

/* True: the socket has something. */
static bool leader_poll(struct dsec *d, const struct waiter *waiter, int64_t deadline_ns)
{
	short output = __atomic_load_n(&d->sending.bytes, __ATOMIC_RELAXED) ? POLLOUT : 0;
	struct pollfd fds[2] = {
		{ .fd = d->socket_fd, .events = POLLIN | output },
		{ .fd = waiter->queue ? waiter->queue->event_fd : d->kick_fd, .events = POLLIN },
	};
	struct timespec left = time_left(deadline_ns, INT64_MAX);
	int r;

	r = ppoll(fds, 2, deadline_ns == INT64_MAX ? NULL : &left, NULL);
	if (r > 0 && fds[1].revents && waiter->queue)
		__atomic_store_n(&waiter->queue->signaled, 1, __ATOMIC_SEQ_CST);
	return r > 0 && fds[0].revents;
}

/* While the link is not up there is nothing but a socket, and perhaps not even that. */
static bool leader_sleep(struct dsec *d, const struct waiter *waiter, int64_t deadline_ns, bool up)
{
	bool socket = false;
	struct timespec left;

	if (!up)
		return leader_may_sleep(d, waiter) && leader_poll(d, waiter, deadline_ns);
	if (leader_spin(d, waiter, deadline_ns))
		return false;
	if (d->transport->sleep_begin(d, d->leader_futex ? DSEC_SLEEP_FUTEX : DSEC_SLEEP_FD))
		return false;
	if (leader_may_sleep(d, waiter)) {
		if (d->leader_futex) {
			left = time_left(deadline_ns, FUTEX_SLICE_NS);
			futex_wait(&d->channels[0].shared->need_wakeup, DSEC_SLEEP_FUTEX, 0, &left);
			socket = true;
		} else {
			socket = leader_poll(d, waiter, deadline_ns);
		}
	}
	return socket;
}

/* The number of events. Losing the link is one, too: the caller looks again. */
static int reap(struct dsec *d, bool socket)
{
	int r;

	if (d->lost)
		return 0;
	if (d->link != LINK_UP)
		return dsec__link_drive(d);
	r = d->transport->reap(d, socket);
	if (r > 0) {
		d->reconnect.heard = true;
		d->reconnect.seen_ns = dsec__clock_ns();
	} else if (r < 0) {
		dsec__link_lose(d, r);
		r = 1;
	}
	return r + dsec__link_drive(d);
}

/* The same link is up still. */
static bool link_lasts(const struct dsec *d, uint32_t links)
{
	return d->link == LINK_UP && d->reconnect.links == links && !d->lost;
}

void dsec__link_end(struct dsec *d)
{
	uint32_t links = d->reconnect.links;

	for (int turn = 0; turn < DRAIN_TURNS_MAX && link_lasts(d, links); turn++)
		(void)reap(d, true);
	if (link_lasts(d, links))
		dsec__link_lose(d, -ECONNRESET);
}

bool dsec__link_look(struct dsec *d)
{
	struct pollfd fd = { .fd = d->socket_fd, .events = POLLRDHUP };
	int64_t now = dsec__clock_ns();

	if (d->link != LINK_UP || d->leader || now - d->reconnect.seen_ns < LOOK_SLICE_NS)
		return false;
	d->reconnect.seen_ns = now;
	if (poll(&fd, 1, 0) <= 0)
		return false;
	dsec__link_end(d);
	return true;
}

static int64_t earlier(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

static void lead(struct dsec *d, struct waiter *waiter, int64_t deadline_ns)
{
	int64_t until_ns = earlier(deadline_ns, dsec__link_due_ns(d));
	bool socket, up = d->link == LINK_UP;
	eventfd_t count;

	d->leader = waiter;
	d->leader_futex = d->shared && d->channel_count == 1 && !waiter->queue && !d->fd_users;
	pthread_mutex_unlock(&d->lock);
	socket = leader_sleep(d, waiter, until_ns, up);
	pthread_mutex_lock(&d->lock);
	if (up)
		d->transport->sleep_end(d);
	d->leader = NULL;
	if (__atomic_exchange_n(&d->kicked, 0, __ATOMIC_SEQ_CST) && !d->leader_futex)
		(void)eventfd_read(d->kick_fd, &count); /* empty: the kick was a futex's */
	(void)reap(d, socket);				/* the caller looks in any case */
}

int dsec__wait(struct dsec *d, struct waiter *waiter, int64_t deadline_ns)
{
	bool now = deadline_ns == 0;

	if (d->lost || reap(d, now))
		return 0;
	if (now || deadline_ns <= dsec__clock_ns())
		return -ETIMEDOUT;
	if (d->leader)
		follow(d, waiter, deadline_ns);
	else
		lead(d, waiter, deadline_ns);
	return 0;
}

/*
 * Some sleep on the socket: the leader, or an application on queues' descriptors. The engine wakes
 * once, and this thread may have taken the byte that would have told them: ask for the next one.
 */
static void watch_by_socket(struct dsec *d)
{
	int r = 1;

	for (int turn = 0; turn < 4 && r > 0; turn++) {
		if (!d->transport->sleep_begin(d, DSEC_SLEEP_FD))
			return;
		r = d->transport->reap(d, false);
	}
	if (r < 0)
		dsec__link_lose(d, r);
	/* It comes faster than it can be sorted: let them help. */
	for (struct dsec_queue *q = d->queues; q; q = q->next) {
		if (q->epoll_fd >= 0)
			dsec__queue_notify(q);
	}
	if (d->leader)
		dsec__leader_kick(d);
}

/* Where only descriptors are waited on, they tell what is due by time, too. */
static void timer_arrange(struct dsec *d)
{
	int64_t due_ns = d->fd_users && !d->leader && !d->lost ? dsec__link_due_ns(d) : INT64_MAX;
	struct itimerspec timer = { 0 };

	if (due_ns == d->timer_ns)
		return;
	d->timer_ns = due_ns;
	if (due_ns != INT64_MAX) {
		/* Zero would disarm it: at once is 1 ns after boot. */
		timer.it_value.tv_sec = due_ns / 1000000000;
		timer.it_value.tv_nsec = due_ns % 1000000000 + !due_ns;
	}
	/* Cannot fail with times that are in range; being set anew makes it unreadable. */
	(void)timerfd_settime(d->timer_fd, TFD_TIMER_ABSTIME, &timer, NULL);
}

void dsec__wait_leave(struct dsec *d)
{
	struct waiter *follower = d->followers;

	if (d->lost) {
		timer_arrange(d);
		return;
	}
	if (d->leader) {
		if (!d->leader_futex && d->link == LINK_UP)
			watch_by_socket(d);
	} else if (follower) {
		__atomic_add_fetch(follower->word, 1, __ATOMIC_SEQ_CST);
		futex_wake(follower->word, 1, FUTEX_PRIVATE_FLAG);
	} else if (d->fd_users && d->link == LINK_UP) {
		watch_by_socket(d);
	}
	timer_arrange(d);
}
