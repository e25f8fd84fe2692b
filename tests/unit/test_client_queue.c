/* Queues: descriptors, waking, several threads, and their end. */
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/client_peer.h"

#define BOTH_TRANSPORTS(name)                                                                      \
	static void name(enum dsec_transport transport);                                           \
	Test(client_queue, name##_by_ring)                                                         \
	{                                                                                          \
		name(DSEC_TRANSPORT_RING);                                                         \
	}                                                                                          \
	Test(client_queue, name##_by_stream)                                                       \
	{                                                                                          \
		name(DSEC_TRANSPORT_STREAM);                                                       \
	}                                                                                          \
	static void name(enum dsec_transport transport)

static void serve_done(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		       const void *payload)
{
	(void)payload;
	peer_done(peer, channel, request);
}

static void serve_until_cancelled(struct peer *peer, uint32_t channel,
				  const struct dsec_ring_request *request, const void *payload)
{
	(void)payload;
	if (request->op == DSEC_OP_CANCEL) {
		struct dsec_ring_request cancelled = { .ticket = request->number[0] };

		peer_done(peer, channel, &cancelled);
		peer_done(peer, channel, request);
	}
}

static bool readable(int fd, int timeout_ms)
{
	struct pollfd pollfd = { .fd = fd, .events = POLLIN };

	return poll(&pollfd, 1, timeout_ms) > 0;
}

static int poll_all(struct dsec_queue *q)
{
	struct dsec_event *event;
	int count = 0;

	while (dsec_queue_poll(q, &event, 1, 0) == 1) {
		dsec_event_free(event);
		count++;
	}
	return count;
}

BOTH_TRANSPORTS(a_queues_descriptor_is_readable_while_events_wait)
{
	struct peer *peer = peer_start(transport, &(struct peer_options){ .serve = serve_done });
	struct dsec *d = peer_connect(peer, 0);
	struct dsec_call call = { .size = sizeof(call) };
	int fd, came = 0;

	cr_assert_eq(dsec_queue_new(d, &call.queue), 0);
	fd = dsec_queue_fd(call.queue);
	cr_assert_geq(fd, 0);
	cr_assert_eq(dsec_queue_fd(call.queue), fd);
	(void)poll_all(call.queue);
	cr_assert_not(readable(fd, 0), "quiet while nothing happens");
	for (int turn = 0; turn < 200; turn++) {
		cr_assert_geq(dsec_list(d, &call, NULL), 0);
		came = 0;
		/* Readable may be in vain, but an event always makes it readable. */
		while (!came) {
			cr_assert(readable(fd, 5000), "turn %d", turn);
			came = poll_all(call.queue);
		}
		cr_assert_eq(came, 1);
	}
	(void)poll_all(call.queue);
	cr_assert_not(readable(fd, 0), "quiet again");
	dsec_queue_free(call.queue);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(what_another_queues_poller_sorts_makes_the_descriptor_readable)
{
	struct peer *peer = peer_start(transport, &(struct peer_options){ .serve = serve_done });
	struct dsec *d = peer_connect(peer, 0);
	struct dsec_call mine = { .size = sizeof(mine) }, others = { .size = sizeof(others) };
	struct dsec_event *event;
	int fd;

	cr_assert_eq(dsec_queue_new(d, &mine.queue), 0);
	cr_assert_eq(dsec_queue_new(d, &others.queue), 0);
	fd = dsec_queue_fd(mine.queue);
	cr_assert_geq(dsec_list(d, &mine, NULL), 0);
	cr_assert_geq(dsec_list(d, &others, NULL), 0);
	/* Answers come in order here: the other's event comes after mine was sorted. */
	cr_assert_eq(dsec_queue_poll(others.queue, &event, 1, 5000), 1);
	dsec_event_free(event);
	cr_assert(readable(fd, 0));
	cr_assert_eq(poll_all(mine.queue), 1);
	cr_assert_eq(poll_all(others.queue), 0);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(a_lost_connection_makes_the_descriptor_readable)
{
	struct peer *peer =
		peer_start(transport, &(struct peer_options){ .serve = serve_until_cancelled });
	struct dsec *d = peer_connect(peer, 0);
	struct dsec_call call = { .size = sizeof(call) };
	struct dsec_event *event;
	int fd;

	cr_assert_eq(dsec_queue_new(d, &call.queue), 0);
	fd = dsec_queue_fd(call.queue);
	cr_assert_geq(dsec_list(d, &call, NULL), 0);
	cr_assert_eq(poll_all(call.queue), 0);
	peer_stop(peer);
	cr_assert(readable(fd, 5000));
	cr_assert_eq(dsec_queue_poll(call.queue, &event, 1, 0), 1);
	cr_assert_eq(event->status.code, DSEC_LOST);
	dsec_event_free(event);
	dsec_close(d);
}

/* ---- waking ---- */

static struct dsec_queue *wake_queue; /* for the signal handler */

static void wake_on_signal(int signal)
{
	(void)signal;
	dsec_queue_wake(wake_queue);
}

BOTH_TRANSPORTS(a_signal_handler_can_wake_a_poller)
{
	struct peer *peer =
		peer_start(transport, &(struct peer_options){ .serve = serve_until_cancelled });
	struct dsec *d = peer_connect(peer, 0);
	struct sigaction action = { .sa_handler = wake_on_signal };
	struct dsec_event *event;

	cr_assert_eq(dsec_queue_new(d, &wake_queue), 0);
	cr_assert_eq(sigaction(SIGALRM, &action, NULL), 0);
	(void)alarm(1);
	cr_assert_eq(dsec_queue_poll(wake_queue, &event, 1, -1), 0);
	dsec_queue_wake(wake_queue);
	cr_assert_eq(dsec_queue_poll(wake_queue, &event, 1, -1), 0, "the next one, too");
	cr_assert_eq(dsec_queue_poll(wake_queue, &event, 1, 10), 0, "and none after it: 10 ms");
	dsec_queue_free(wake_queue);
	dsec_close(d);
	peer_stop(peer);
}

struct poller {
	struct dsec_queue *q;
	pthread_t thread;
	int result;
};

static void *poller_run(void *argument)
{
	struct poller *poller = argument;
	struct dsec_event *event;

	poller->result = dsec_queue_poll(poller->q, &event, 1, -1);
	if (poller->result == 1)
		dsec_event_free(event);
	return NULL;
}

BOTH_TRANSPORTS(each_wake_ends_one_poll_of_leaders_and_followers)
{
	enum { POLLERS = 4 };
	struct peer *peer =
		peer_start(transport, &(struct peer_options){ .serve = serve_until_cancelled });
	struct dsec *d = peer_connect(peer, 0);
	struct poller pollers[POLLERS];

	/* A queue each: whoever leads, everybody's wake reaches its own. */
	for (int at = 0; at < POLLERS; at++) {
		cr_assert_eq(dsec_queue_new(d, &pollers[at].q), 0);
		cr_assert_eq(pthread_create(&pollers[at].thread, NULL, poller_run, &pollers[at]),
			     0);
	}
	for (int at = POLLERS - 1; at >= 0; at--) {
		dsec_queue_wake(pollers[at].q);
		cr_assert_eq(pthread_join(pollers[at].thread, NULL), 0);
		cr_assert_eq(pollers[at].result, 0);
	}
	dsec_close(d);
	peer_stop(peer);
}

/* ---- several threads ---- */

static void serve_two(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		      const void *payload)
{
	struct dsec_ring_event event = peer_event(request, DSEC_EV_STARTED, 0);

	(void)payload;
	peer_post(peer, channel, &event, NULL);
	peer_done(peer, channel, request);
}

static void *poll_briefly(void *argument)
{
	struct poller *poller = argument;
	struct dsec_event *event;

	poller->result = dsec_queue_poll(poller->q, &event, 1, 50);
	if (poller->result == 1)
		dsec_event_free(event);
	return NULL;
}

BOTH_TRANSPORTS(while_a_thread_holds_an_event_no_other_gets_the_tickets_next)
{
	struct peer *peer = peer_start(transport, &(struct peer_options){ .serve = serve_two });
	struct dsec *d = peer_connect(peer, 0);
	struct dsec_call call = { .size = sizeof(call) };
	struct dsec_event *first, *second;
	struct poller other = { 0 };

	cr_assert_eq(dsec_queue_new(d, &call.queue), 0);
	other.q = call.queue;
	cr_assert_geq(dsec_list(d, &call, NULL), 0);
	cr_assert_eq(dsec_queue_poll(call.queue, &first, 1, 5000), 1);
	cr_assert_eq(first->kind, DSEC_EV_STARTED);
	cr_assert_eq(pthread_create(&other.thread, NULL, poll_briefly, &other), 0);
	cr_assert_eq(pthread_join(other.thread, NULL), 0);
	cr_assert_eq(other.result, 0, "held by us");
	cr_assert_eq(dsec_queue_poll(call.queue, &second, 1, 5000), 1, "but we may go on");
	cr_assert_eq(second->flags, DSEC_LAST);
	dsec_event_free(first);
	dsec_event_free(second);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(freeing_the_held_event_lets_a_waiting_thread_have_the_next)
{
	struct peer *peer = peer_start(transport, &(struct peer_options){ .serve = serve_two });
	struct dsec *d = peer_connect(peer, 0);
	struct dsec_call call = { .size = sizeof(call) };
	struct poller other = { 0 };
	struct dsec_event *first;

	cr_assert_eq(dsec_queue_new(d, &call.queue), 0);
	other.q = call.queue;
	cr_assert_geq(dsec_list(d, &call, NULL), 0);
	cr_assert_eq(dsec_queue_poll(call.queue, &first, 1, 5000), 1);
	cr_assert_eq(pthread_create(&other.thread, NULL, poller_run, &other), 0);
	dsec_event_free(first);
	cr_assert_eq(pthread_join(other.thread, NULL), 0);
	cr_assert_eq(other.result, 1);
	dsec_close(d);
	peer_stop(peer);
}

/* ---- the end ---- */

BOTH_TRANSPORTS(freeing_a_queue_cancels_what_is_outstanding)
{
	struct peer *peer =
		peer_start(transport, &(struct peer_options){ .serve = serve_until_cancelled });
	struct dsec *d = peer_connect(peer, 0);
	struct dsec_call call = { .size = sizeof(call) };
	struct dsec_event *event;
	int64_t kept;

	cr_assert_eq(dsec_queue_new(d, &call.queue), 0);
	kept = dsec_list(d, NULL, NULL);
	for (int turn = 0; turn < 50; turn++)
		cr_assert_geq(dsec_list(d, &call, NULL), 0);
	dsec_queue_free(call.queue);
	cr_assert_eq(dsec_wait(d, kept, 0, &event), -ETIMEDOUT, "others' go on");
	cr_assert_eq(dsec_cancel(d, kept), 0);
	cr_assert_eq(dsec_wait(d, kept, 5000, &event), 0);
	dsec_event_free(event);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(events_outlive_the_connection)
{
	struct peer *peer = peer_start(transport, &(struct peer_options){ .serve = serve_two });
	struct dsec *d = peer_connect(peer, 0);
	int64_t ticket = dsec_list(d, NULL, NULL);
	struct dsec_event *first, *second;

	cr_assert_eq(dsec_wait(d, ticket, 5000, &first), 0);
	cr_assert_eq(dsec_wait(d, ticket, 5000, &second), 0);
	dsec_close(d);
	cr_assert_eq(first->kind, DSEC_EV_STARTED);
	cr_assert_eq(second->flags, DSEC_LAST);
	dsec_event_free(first);
	dsec_event_free(second);
	peer_stop(peer);
}

/* ---- no room ---- */

static void serve_behind_gate(struct peer *peer, uint32_t channel,
			      const struct dsec_ring_request *request, const void *payload)
{
	sem_t *gate = peer->options.state;

	(void)payload;
	while (sem_wait(gate) < 0)
		;
	peer_done(peer, channel, request);
	(void)sem_post(gate);
}

static void *gate_open_soon(void *argument)
{
	(void)usleep(20 * 1000); /* whenever it opens, the test holds: sooner tests less */
	(void)sem_post(argument);
	return NULL;
}

Test(client_queue, a_full_ring_is_eagain_with_a_queue_and_waited_for_without)
{
	sem_t gate;
	struct peer *peer =
		peer_start(DSEC_TRANSPORT_RING, &(struct peer_options){ .serve = serve_behind_gate,
									.state = &gate,
									.submission_entries = 8 });
	struct dsec *d = peer_connect(peer, 0);
	struct dsec_call call = { .size = sizeof(call) };
	struct dsec_event *event;
	int64_t ticket;
	int asked = 0;
	pthread_t opener;

	cr_assert_eq(sem_init(&gate, 0, 0), 0);
	cr_assert_eq(dsec_queue_new(d, &call.queue), 0);
	/* As many as an engine takes at once, though it took one out of the ring. */
	do {
		ticket = dsec_list(d, &call, NULL);
		asked += ticket >= 0;
	} while (ticket >= 0);
	cr_assert_eq(ticket, -EAGAIN);
	cr_assert_eq(asked, 8);
	cr_assert_str_eq(dsec_error(d, ticket),
			 "request: no room now: fetch events, then ask again");
	call.timeout_ms = 5;
	call.queue = NULL;
	cr_assert_eq(dsec_list(d, &call, NULL), -EAGAIN, "up to timeout_ms");
	cr_assert_eq(pthread_create(&opener, NULL, gate_open_soon, &gate), 0);
	ticket = dsec_list(d, NULL, NULL);
	cr_assert_geq(ticket, 0);
	cr_assert_eq(dsec_wait(d, ticket, 5000, &event), 0);
	dsec_event_free(event);
	cr_assert_eq(pthread_join(opener, NULL), 0);
	dsec_close(d);
	peer_stop(peer);
}

Test(client_queue, what_can_never_fit_is_emsgsize)
{
	struct peer *peer =
		peer_start(DSEC_TRANSPORT_RING,
			   &(struct peer_options){ .serve = serve_done, .arena_bytes = 256 << 10 });
	struct dsec *d = peer_connect(peer, 0);
	static char input[200 << 10];
	struct dsec_bytes argv[] = { { "cat", 3 } };
	struct dsec_exec_opts opts = {
		.size = sizeof(opts),
		.argv = argv,
		.argc = 1,
		.input = { input, sizeof(input) },
	};
	struct dsec_event *event;
	int64_t ticket;

	cr_assert_eq(dsec_exec(d, NULL, (struct dsec_id){ 1, 1 }, &opts), -EMSGSIZE);
	opts.input.bytes = 1000;
	ticket = dsec_exec(d, NULL, (struct dsec_id){ 1, 1 }, &opts);
	cr_assert_geq(ticket, 0);
	cr_assert_eq(dsec_wait(d, ticket, 5000, &event), 0);
	dsec_event_free(event);
	dsec_close(d);
	peer_stop(peer);
}
