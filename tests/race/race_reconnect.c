/*
 * Threads that wait in every way at once while the engine goes again and again: in the middle of a
 * request, before it took any, and in the handshake. Whoever waits makes the connection anew, so
 * the lead changes hands over connections of which one is gone. Every ticket must end once and
 * well; a lost wake-up hangs, which is a failure by the test's time limit. Runs under
 * ThreadSanitizer too.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/unit/client_peer.h"

enum { TURNS = 400, THREADS = 8, FLIGHT = 4, LIFE = 61 /* requests that an engine serves */ };

struct worker {
	struct dsec *d;
	struct dsec_queue *q; /* shared by some; NULL: dsec_wait() */
	pthread_t thread;
	void (*run)(struct worker *worker);
	uint64_t asked, ended, reconnected;
	uint64_t *shared_ended; /* of a shared queue; atomic */
};

/* How many came over this connection; only the peer's thread looks. */
struct life {
	uint32_t connection, served;
};

static void serve(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		  const void *payload)
{
	struct life *life = peer->options.state;
	struct dsec_ring_event event = peer_event(request, DSEC_EV_STARTED, 0);

	(void)payload;
	if (life->connection != peer->connection)
		*life = (struct life){ .connection = peer->connection };
	/* Some go with something half done, some without a word. */
	if (++life->served == LIFE + peer->connection % 7) {
		if (peer->connection % 2)
			peer_post(peer, channel, &event, NULL);
		peer_hang_up(peer);
		return;
	}
	peer_post(peer, channel, &event, NULL);
	peer_done(peer, channel, request);
}

static void arrive(struct peer *peer)
{
	static const enum peer_stage stages[] = { PEER_STAYS, PEER_STAYS,  PEER_GO,
						  PEER_STAYS, PEER_MAPPED, PEER_STAYS };

	peer->options.goes_before = stages[peer->connection % 6];
	peer->options.submission_entries = 16u << peer->connection % 3;
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

/* True: it was the last. *started counts what was told before it. */
static bool event_check(struct worker *worker, struct dsec_event *event, uint64_t *started)
{
	bool last = event->flags & DSEC_LAST;

	if (event->status.code != DSEC_OK)
		fprintf(stderr, "code %u error %d at %s: %s\n", event->status.code,
			event->status.error, event->status.step, event->status.detail);
	assert(event->status.code == DSEC_OK);
	if (event->kind == DSEC_EV_RECONNECTED) {
		assert(event->ticket == -1);
		assert(!last);
		worker->reconnected++;
	} else if (last) {
		assert(*started == 1);
		*started = 0;
	} else {
		assert(event->kind == DSEC_EV_STARTED);
		++*started;
	}
	dsec_event_free(event);
	return last;
}

static void run_waiting(struct worker *worker)
{
	while (worker->ended < TURNS) {
		int64_t ticket = ask(worker, 0);
		struct dsec_event *event;
		uint64_t started = 0;

		assert(ticket >= 0);
		do {
			assert(dsec_wait(worker->d, ticket, -1, &event) == 0);
		} while (!event_check(worker, event, &started));
		assert(worker->reconnected == 0);
		worker->ended++;
	}
}

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
	uint64_t started[FLIGHT] = { 0 };
	bool flying[FLIGHT] = { false };

	while (worker->ended < TURNS) {
		bool any = false;
		int n;

		for (uint64_t tag = 0; tag < FLIGHT; tag++) {
			if (!flying[tag] && worker->asked < TURNS)
				flying[tag] = ask(worker, tag) >= 0;
			any |= flying[tag];
		}
		/* There is no room, or nobody: nothing of ours will come, so ask again soon. */
		n = fetch(worker, events, any ? timeout_ms : 1);
		assert(n >= 0);
		for (int at = 0; at < n; at++) {
			uint64_t tag = events[at]->tag;

			assert(tag < FLIGHT);
			assert(flying[tag] || events[at]->ticket == -1);
			if (event_check(worker, events[at], &started[tag])) {
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
	static const uint64_t total = 2 * TURNS;
	struct dsec_event *event;

	while (__atomic_load_n(worker->shared_ended, __ATOMIC_SEQ_CST) < total) {
		if (worker->asked < TURNS) {
			uint64_t *started = calloc(1, sizeof(*started));

			assert(started);
			if (ask(worker, (uint64_t)(uintptr_t)started) < 0)
				free(started);
		}
		if (dsec_queue_poll(worker->q, &event, 1, 20) == 1) {
			uint64_t *started = (uint64_t *)(uintptr_t)event->tag;

			if (event_check(worker, event, started)) {
				free(started);
				__atomic_add_fetch(worker->shared_ended, 1, __ATOMIC_SEQ_CST);
			}
		}
	}
	worker->ended = worker->asked;
}

static void *worker_main(void *argument)
{
	struct worker *worker = argument;

	worker->run(worker);
	return NULL;
}

static uint64_t check(enum dsec_transport transport, uint32_t shards, bool descriptors)
{
	void (*const runs[THREADS])(struct worker *) = {
		run_waiting,
		run_waiting,
		run_queue_waiting,
		run_queue_never_waiting,
		run_shared,
		run_shared,
		descriptors ? run_queue_descriptor : run_waiting,
		descriptors ? run_queue_descriptor : run_waiting,
	};
	struct life life = { 0 };
	struct peer_options options = { .serve = serve,
					.arrive = arrive,
					.state = &life,
					.shards = shards,
					.connections = UINT32_MAX,
					.completion_entries = 64 };
	struct peer *peer = peer_start(transport, &options);
	struct dsec *d = peer_connect_for(peer, UINT32_MAX, 60 * 1000);
	struct worker workers[THREADS] = { 0 };
	uint64_t ended = 0, shared_ended = 0, reconnected = 0;
	struct dsec_queue *shared;

	assert(dsec_queue_new(d, &shared) == 0);
	for (int at = 0; at < THREADS; at++) {
		struct worker *worker = &workers[at];

		worker->d = d;
		worker->run = runs[at];
		worker->shared_ended = &shared_ended;
		if (worker->run == run_shared)
			worker->q = shared;
		else if (worker->run != run_waiting)
			assert(dsec_queue_new(d, &worker->q) == 0);
	}
	for (int at = 0; at < THREADS; at++)
		assert(pthread_create(&workers[at].thread, NULL, worker_main, &workers[at]) == 0);
	for (int at = 0; at < THREADS; at++) {
		assert(pthread_join(workers[at].thread, NULL) == 0);
		assert(workers[at].ended == TURNS);
		ended += workers[at].ended;
		reconnected += workers[at].reconnected;
	}
	assert(reconnected > 0);
	dsec_close(d);
	printf("%u connections\n", __atomic_load_n(&peer->connection, __ATOMIC_SEQ_CST));
	peer_stop(peer);
	return ended;
}

int main(void)
{
	uint64_t tickets = 0;

	tickets += check(DSEC_TRANSPORT_RING, 1, false);
	tickets += check(DSEC_TRANSPORT_RING, 1, true);
	tickets += check(DSEC_TRANSPORT_RING, 3, true);
	tickets += check(DSEC_TRANSPORT_STREAM, 1, false);
	tickets += check(DSEC_TRANSPORT_STREAM, 1, true);
	printf("Tested: %lu tickets\n", (unsigned long)tickets);
	return 0;
}
