/*
 * Threads that wait in every way at once on one connection: for tickets, on queues of their own, on
 * a shared queue, by descriptor, and by polling without waiting; all while one of them leads and
 * the lead changes hands. Every ticket must end once, in order; a lost wake-up hangs, which is a
 * failure by the test's time limit. Runs under ThreadSanitizer too.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/client_peer.h"

enum { TURNS = 2000, THREADS_MAX = 10, DATA_MAX = 5, FLIGHT = 4 };

struct worker {
	struct dsec *d;
	struct dsec_queue *q; /* shared by some; NULL: dsec_wait() */
	pthread_t thread;
	void (*run)(struct worker *worker);
	uint64_t asked, ended, spurious;
	uint64_t *shared_ended; /* of a shared queue; atomic */
};

/* An exec answers with a few pieces of data in order, then LAST; sometimes all at once. */
static void serve(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		  const void *payload)
{
	uint64_t count = request->ticket % (DATA_MAX + 1);

	(void)payload;
	for (uint64_t at = 0; at < count && request->op == DSEC_OP_EXEC; at++) {
		struct dsec_ring_event event = peer_event(request, DSEC_EV_DATA, 0);

		event.stream = 1;
		event.offset = at;
		event.bytes = sizeof(at);
		peer_post(peer, channel, &event, &at);
	}
	peer_done(peer, channel, request);
}

static int64_t ask(struct worker *worker, uint64_t tag)
{
	struct dsec_call call = { .size = sizeof(call), .queue = worker->q, .tag = tag };
	struct dsec_bytes argv[] = { { "true", 4 } };
	struct dsec_exec_opts opts = { .size = sizeof(opts), .argv = argv, .argc = 1 };
	struct dsec_id id = { 1, worker->asked % 3 << 52 | 1 };
	int64_t ticket = dsec_exec(worker->d, &call, id, &opts);

	assert(ticket >= 0 || ticket == -EAGAIN);
	worker->asked += ticket >= 0;
	return ticket;
}

/* The next event of a ticket whose `seen` data came so far. True: it was the last. */
static bool event_check(struct dsec_event *event, uint64_t *seen)
{
	bool last = event->flags & DSEC_LAST;
	uint64_t value;

	assert(event->status.code == DSEC_OK);
	if (last) {
		assert(*seen == (uint64_t)event->ticket % (DATA_MAX + 1));
		*seen = 0;
	} else {
		memcpy(&value, event->data, sizeof(value));
		assert(value == *seen);
		assert(event->offset == *seen);
		++*seen;
	}
	dsec_event_free(event);
	return last;
}

static void run_waiting(struct worker *worker)
{
	while (worker->ended < TURNS) {
		int64_t ticket = ask(worker, 0);
		struct dsec_event *event;
		uint64_t seen = 0;

		do {
			assert(dsec_wait(worker->d, ticket, -1, &event) == 0);
		} while (!event_check(event, &seen));
		worker->ended++;
	}
}

/* How a worker with a queue fetches: with a time-out, by descriptor, or never waiting. */
static int fetch(struct worker *worker, struct dsec_event **events, int timeout_ms)
{
	struct pollfd pollfd = { .fd = -1, .events = POLLIN };
	int n;

	if (timeout_ms != -2)
		return dsec_queue_poll(worker->q, events, FLIGHT, timeout_ms);
	n = dsec_queue_poll(worker->q, events, FLIGHT, 0);
	if (n)
		return n;
	pollfd.fd = dsec_queue_fd(worker->q);
	assert(poll(&pollfd, 1, 60 * 1000) == 1);
	return dsec_queue_poll(worker->q, events, FLIGHT, 0);
}

static void run_queue(struct worker *worker, int timeout_ms)
{
	struct dsec_event *events[FLIGHT];
	uint64_t seen[FLIGHT] = { 0 };
	bool flying[FLIGHT] = { false };

	while (worker->ended < TURNS) {
		bool any = false;
		int n;

		for (uint64_t tag = 0; tag < FLIGHT; tag++) {
			if (!flying[tag] && worker->asked < TURNS)
				flying[tag] = ask(worker, tag) >= 0;
			any |= flying[tag];
		}
		/* Others filled the ring: nothing of ours will come, so ask again soon. */
		n = fetch(worker, events, any ? timeout_ms : 1);
		assert(n >= 0);
		worker->spurious += n == 0;
		for (int at = 0; at < n; at++) {
			uint64_t tag = events[at]->tag;

			assert(tag < FLIGHT);
			assert(flying[tag]);
			if (event_check(events[at], &seen[tag])) {
				flying[tag] = false;
				worker->ended++;
			}
		}
	}
}

static void run_queue_waiting(struct worker *worker)
{
	run_queue(worker, -1);
}

static void run_queue_descriptor(struct worker *worker)
{
	run_queue(worker, -2);
}

static void run_queue_never_waiting(struct worker *worker)
{
	run_queue(worker, 0);
}

/* Several threads ask and fetch on one queue; any may get any. Tags point at what was seen. */
static void run_shared(struct worker *worker)
{
	static const int64_t total = 2 * TURNS;
	struct dsec_event *event;

	while (__atomic_load_n(worker->shared_ended, __ATOMIC_SEQ_CST) < (uint64_t)total) {
		if (worker->asked < TURNS) {
			uint64_t *seen = calloc(1, sizeof(*seen));

			assert(seen);
			if (ask(worker, (uint64_t)(uintptr_t)seen) < 0)
				free(seen);
		}
		if (dsec_queue_poll(worker->q, &event, 1, 20) == 1) {
			uint64_t *seen = (uint64_t *)(uintptr_t)event->tag;

			if (event_check(event, seen)) {
				free(seen);
				__atomic_add_fetch(worker->shared_ended, 1, __ATOMIC_SEQ_CST);
			}
		}
		if (worker->asked % 16 == 0)
			dsec_queue_wake(worker->q);
	}
	worker->ended = worker->asked;
}

static void *worker_main(void *argument)
{
	struct worker *worker = argument;

	worker->run(worker);
	return NULL;
}

/* With two channels and more the leader sleeps by the socket, with one by futex too. */
static uint64_t check(enum dsec_transport transport, uint32_t shards, bool descriptors)
{
	void (*const runs[THREADS_MAX])(struct worker *) = {
		run_waiting,
		run_waiting,
		run_waiting,
		run_queue_waiting,
		run_queue_waiting,
		run_queue_never_waiting,
		run_shared,
		run_shared,
		descriptors ? run_queue_descriptor : run_waiting,
		descriptors ? run_queue_descriptor : run_waiting,
	};
	struct peer_options options = { .serve = serve,
					.shards = shards,
					.completion_entries = 64 };
	struct peer *peer = peer_start(transport, &options);
	struct dsec *d = peer_connect(peer, UINT32_MAX);
	struct worker workers[THREADS_MAX] = { 0 };
	struct dsec_queue *shared;
	uint64_t ended = 0, shared_ended = 0;

	assert(dsec_queue_new(d, &shared) == 0);
	for (int at = 0; at < THREADS_MAX; at++) {
		struct worker *worker = &workers[at];

		worker->d = d;
		worker->run = runs[at];
		worker->shared_ended = &shared_ended;
		if (worker->run == run_shared)
			worker->q = shared;
		else if (worker->run != run_waiting)
			assert(dsec_queue_new(d, &worker->q) == 0);
	}
	for (int at = 0; at < THREADS_MAX; at++)
		assert(pthread_create(&workers[at].thread, NULL, worker_main, &workers[at]) == 0);
	for (int at = 0; at < THREADS_MAX; at++) {
		assert(pthread_join(workers[at].thread, NULL) == 0);
		assert(workers[at].ended == TURNS);
		ended += workers[at].ended;
	}
	dsec_close(d);
	peer_stop(peer);
	return ended;
}

int main(void)
{
	uint64_t tickets = 0;

	tickets += check(DSEC_TRANSPORT_RING, 1, false);
	tickets += check(DSEC_TRANSPORT_RING, 1, true);
	tickets += check(DSEC_TRANSPORT_RING, 3, true);
	tickets += check(DSEC_TRANSPORT_STREAM, 1, true);
	printf("Tested: %lu tickets\n", (unsigned long)tickets);
	return 0;
}
