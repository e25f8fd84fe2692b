/*
 * While an engine is away: how long libdsec tries, what calls do meanwhile, who makes progress, and
 * that nothing is left of the connections that went. What of requests: test_client_reconnect.c.
 */
#include <assert.h>
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/client_peer.h"

#define BOTH_TRANSPORTS(name)                                                                      \
	static void name(enum dsec_transport transport);                                           \
	Test(client_away, name##_by_ring)                                                          \
	{                                                                                          \
		name(DSEC_TRANSPORT_RING);                                                         \
	}                                                                                          \
	Test(client_away, name##_by_stream)                                                        \
	{                                                                                          \
		name(DSEC_TRANSPORT_STREAM);                                                       \
	}                                                                                          \
	static void name(enum dsec_transport transport)

enum { WAIT_MS = 10 * 1000 };

static double now_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* What a peer's connections do, by number: '!' goes at the first request, '1' to '4' goes at that
 * stage of the handshake, 'v' and 'b' refuse for the version or for now; others serve. */
struct plan {
	const char *steps;
	struct dsec_ring_request last;
	uint32_t served;
};

static char plan_step(const struct peer *peer)
{
	const struct plan *plan = peer->options.state;

	return peer->connection < strlen(plan->steps) ? plan->steps[peer->connection] : ' ';
}

static void plan_arrive(struct peer *peer)
{
	char step = plan_step(peer);

	peer->options.goes_before = step >= '1' && step <= '4' ? (enum peer_stage)(step - '0') :
								 PEER_STAYS;
	peer->options.epoch = 100 + peer->connection;
}

static void plan_welcome(struct peer *peer, struct dsec_ring_welcome *welcome)
{
	char step = plan_step(peer);

	welcome->clock_ms += peer->connection * 3600 * 1000ull;
	if (step == 'v')
		welcome->code = DSEC_UNSUPPORTED;
	if (step == 'b')
		welcome->code = DSEC_REFUSED;
}

static void plan_serve(struct peer *peer, uint32_t channel, const struct dsec_ring_request *request,
		       const void *payload)
{
	struct plan *plan = peer->options.state;
	struct dsec_wire_caps caps = { .size = sizeof(caps), .epoch = peer->options.epoch };
	struct dsec_ring_event event = peer_event(request, DSEC_EV_DONE, DSEC_EVENT_LAST);

	(void)payload;
	plan->last = *request;
	plan->served++;
	if (plan_step(peer) == '!') {
		peer_hang_up(peer);
		return;
	}
	event.bytes = request->op == DSEC_OP_CAPABILITIES ? sizeof(caps) : 0;
	peer_post(peer, channel, &event, &caps);
}

static struct peer *plan_start(enum dsec_transport transport, struct plan *plan)
{
	struct peer_options options = {
		.serve = plan_serve,
		.arrive = plan_arrive,
		.welcome = plan_welcome,
		.state = plan,
		.connections = 10000,
	};

	return peer_start(transport, &options);
}

static int64_t exec_start(struct dsec *d, const struct dsec_call *call)
{
	struct dsec_bytes argv[] = { { "/bin/true", 9 } };
	struct dsec_exec_opts opts = { .size = sizeof(opts), .argv = argv, .argc = 1 };

	return dsec_exec(d, call, (struct dsec_id){ 3, 9 }, &opts);
}

static struct dsec_status status_await(struct dsec *d, int64_t ticket)
{
	struct dsec_status status;
	struct dsec_event *event;

	cr_assert_geq(ticket, 0, "%s", dsec_error(d, ticket));
	cr_assert_eq(dsec_wait(d, ticket, WAIT_MS, &event), 0);
	cr_assert_eq(event->flags, DSEC_LAST);
	status = event->status;
	dsec_event_free(event);
	return status;
}

/* The engine's socket goes, and comes back. */
static void peer_hide(struct peer *peer, bool hides)
{
	char other[sizeof(peer->path) + 8];

	(void)snprintf(other, sizeof(other), "%s.hidden", peer->path);
	cr_assert_eq(rename(hides ? peer->path : other, hides ? other : peer->path), 0);
}

/* Its first connection is over. */
static void gone_await(struct peer *peer)
{
	while (__atomic_load_n(&peer->connection, __ATOMIC_SEQ_CST) == 0)
		(void)usleep(1000);
}

/* ---- how it ends ---- */

BOTH_TRANSPORTS(an_engine_that_goes_at_any_stage_is_asked_again)
{
	struct plan plan = { .steps = "!1b234b1!!24" };
	struct peer *peer = plan_start(transport, &plan);
	struct dsec *d = peer_connect_for(peer, 0, 0);

	cr_assert_eq(status_await(d, exec_start(d, NULL)).code, DSEC_OK);
	cr_assert_eq(status_await(d, exec_start(d, NULL)).code, DSEC_OK);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(an_engine_that_refuses_for_good_is_not_asked_again)
{
	struct plan plan = { .steps = "!2bv" };
	struct peer *peer = plan_start(transport, &plan);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	double begun_ms = now_ms();
	struct dsec_status status = status_await(d, exec_start(d, NULL));

	cr_assert_eq(status.code, DSEC_LOST);
	cr_assert_eq(status.error, EPROTO);
	cr_assert_eq(status.blame, DSEC_BLAME_PLATFORM);
	cr_assert_str_eq(status.detail, "the engine that came refuses this client");
	cr_assert_lt(now_ms() - begun_ms, 5000);
	cr_assert_eq(exec_start(d, NULL), -ENOTCONN);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(one_that_stays_away_ends_every_ticket_in_time)
{
	struct plan plan = { .steps = "!" };
	struct peer *peer = plan_start(transport, &plan);
	struct dsec *d = peer_connect_for(peer, 0, 200);
	struct dsec_call call = { .size = sizeof(call) };
	struct dsec_event *event;
	struct dsec_status status;
	double begun_ms = now_ms();
	int64_t ticket;

	peer_hide(peer, true);
	cr_assert_eq(dsec_queue_new(d, &call.queue), 0);
	cr_assert_geq(exec_start(d, &call), 0);
	ticket = dsec_list(d, NULL, NULL);
	if (ticket >= 0) {
		status = status_await(d, ticket);
		cr_assert_eq(status.code, DSEC_LOST);
		cr_assert_eq(status.error, ETIMEDOUT);
	} else {
		cr_assert_eq(ticket, -ENOTCONN, "it waited for room until it was over");
	}
	cr_assert_gt(now_ms() - begun_ms, 190);
	cr_assert_lt(now_ms() - begun_ms, 5000);
	cr_assert_eq(dsec_queue_poll(call.queue, &event, 1, WAIT_MS), 1);
	cr_assert_eq(event->status.code, DSEC_LOST);
	cr_assert_str_eq(event->status.detail, "the engine went and did not come back in time");
	dsec_event_free(event);
	cr_assert_eq(dsec_queue_poll(call.queue, &event, 1, WAIT_MS), -ENOTCONN);
	peer_hide(peer, false);
	dsec_close(d);
	peer_stop(peer);
}

static void arrive_and_sleep(struct peer *peer)
{
	struct pollfd quit = { .fd = peer->quit_fd, .events = POLLIN };

	/* It took the connection and says nothing, until the test ends. */
	if (peer->connection)
		(void)poll(&quit, 1, -1);
	plan_arrive(peer);
}

BOTH_TRANSPORTS(nobody_waits_longer_than_asked_while_the_engine_says_nothing)
{
	struct plan plan = { .steps = "!" };
	struct peer_options options = {
		.serve = plan_serve,
		.arrive = arrive_and_sleep,
		.state = &plan,
		.connections = 2,
	};
	struct peer *peer = peer_start(transport, &options);
	struct dsec *d = peer_connect_for(peer, 0, 60 * 1000);
	struct dsec_call call = { .size = sizeof(call) };
	struct dsec_event *event;
	double begun_ms = now_ms();
	int64_t ticket = exec_start(d, NULL), timed;

	cr_assert_eq(dsec_queue_new(d, &call.queue), 0);
	cr_assert_eq(dsec_wait(d, ticket, 50, &event), -ETIMEDOUT);
	cr_assert_eq(dsec_wait(d, ticket, 0, &event), -ETIMEDOUT);
	cr_assert_eq(dsec_queue_poll(call.queue, &event, 1, 50), 0);
	cr_assert_eq(dsec_queue_poll(call.queue, &event, 1, 0), 0);
	cr_assert_eq(exec_start(d, &call), -EAGAIN, "with a queue");
	call.queue = NULL;
	call.timeout_ms = 50;
	timed = exec_start(d, &call);
	cr_assert_eq(timed, -EAGAIN, "without, in its time");
	cr_assert_eq(dsec_cancel(d, ticket), 0);
	cr_assert_eq(status_await(d, ticket).code, DSEC_LOST, "at once");
	dsec_close(d);
	cr_assert_lt(now_ms() - begun_ms, 5000);
	peer_stop(peer);
}

BOTH_TRANSPORTS(a_calls_time_passes_while_the_engine_is_away)
{
	struct plan plan = { .steps = "!" };
	struct peer *peer = plan_start(transport, &plan);
	struct dsec *d = peer_connect_for(peer, 0, 60 * 1000);
	struct dsec_call call = { .size = sizeof(call), .timeout_ms = 100 };
	double begun_ms = now_ms();
	struct dsec_status status;

	peer_hide(peer, true);
	status = status_await(d, exec_start(d, &call));
	cr_assert_eq(status.code, DSEC_LOST);
	cr_assert_eq(status.error, ETIMEDOUT);
	cr_assert_lt(now_ms() - begun_ms, 5000);
	peer_hide(peer, false);
	cr_assert_eq(status_await(d, exec_start(d, NULL)).code, DSEC_OK, "it was that one alone");
	dsec_close(d);
	peer_stop(peer);
}

/* ---- who makes progress ---- */

BOTH_TRANSPORTS(a_queues_descriptor_is_enough_to_come_back_and_not_busy)
{
	struct plan plan = { .steps = "!12b4b" };
	struct peer *peer = plan_start(transport, &plan);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	struct dsec_call call = { .size = sizeof(call) };
	struct pollfd fd = { .events = POLLIN };
	struct dsec_event *event;
	int wakes = 0, events = 0;
	double hidden_ms;
	bool hidden = true;

	cr_assert_eq(dsec_queue_new(d, &call.queue), 0);
	fd.fd = dsec_queue_fd(call.queue);
	peer_hide(peer, true);
	cr_assert_geq(exec_start(d, &call), 0);
	hidden_ms = now_ms();
	while (events < 2) {
		cr_assert_eq(poll(&fd, 1, WAIT_MS), 1);
		wakes++;
		while (dsec_queue_poll(call.queue, &event, 1, 0) == 1) {
			cr_assert_eq(event->kind, events ? DSEC_EV_DONE : DSEC_EV_RECONNECTED);
			events++;
			dsec_event_free(event);
		}
		if (hidden && now_ms() - hidden_ms > 400) {
			peer_hide(peer, false);
			hidden = false;
		}
	}
	cr_assert_lt(wakes, 60, "%d", wakes);
	cr_assert_eq(poll(&fd, 1, 0), 0, "quiet again");
	dsec_close(d);
	peer_stop(peer);
}

static void *call_later(void *argument)
{
	struct peer *peer = argument;

	(void)usleep(100 * 1000); /* whenever it comes back, the test holds: sooner tests less */
	peer_hide(peer, false);
	return NULL;
}

BOTH_TRANSPORTS(new_requests_are_put_off_or_wait_and_are_as_old_as_their_engine)
{
	struct plan plan = { .steps = "!" };
	struct peer *peer = plan_start(transport, &plan);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	struct dsec_call call = { .size = sizeof(call) };
	struct dsec_event *event;
	pthread_t thread;
	uint64_t ms = 0;
	int64_t first = exec_start(d, NULL), waited;

	cr_assert_eq(dsec_queue_new(d, &call.queue), 0);
	peer_hide(peer, true);
	gone_await(peer);
	cr_assert_eq(dsec_wait(d, first, 20, &event), -ETIMEDOUT);
	cr_assert_eq(exec_start(d, &call), -EAGAIN);
	cr_assert_eq(pthread_create(&thread, NULL, call_later, peer), 0);
	waited = exec_start(d, NULL);
	cr_assert_eq(pthread_join(thread, NULL), 0);
	cr_assert_eq(status_await(d, waited).code, DSEC_OK);
	for (int at = 0; at < 6; at++)
		ms = ms << 8 | plan.last.request_id[at];
	cr_assert_geq(ms, 1700000000000ull + 3600 * 1000);
	cr_assert_eq(status_await(d, first).code, DSEC_OK);
	cr_assert_eq(dsec_queue_poll(call.queue, &event, 1, 0), 1);
	cr_assert_eq(event->kind, DSEC_EV_RECONNECTED);
	dsec_event_free(event);
	dsec_close(d);
	peer_stop(peer);
}

/* A request into the memory of an engine that went might, for all the next one knows, have run. */
BOTH_TRANSPORTS(who_was_idle_when_the_engine_went_asks_the_next_one_as_if_nothing_happened)
{
	struct plan plan = { .steps = "!" };
	struct peer *peer = plan_start(transport, &plan);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	uint64_t ms = 0;

	/* Its end shows in the socket; nobody here looks. */
	(void)dsec_cancel(d, exec_start(d, NULL));
	gone_await(peer);
	(void)usleep(10 * 1000); /* nobody saw the engine for more than 5 ms */
	cr_assert_eq(status_await(d, exec_start(d, NULL)).code, DSEC_OK);
	for (int at = 0; at < 6; at++)
		ms = ms << 8 | plan.last.request_id[at];
	cr_assert_geq(ms, 1700000000000ull + 3600 * 1000);
	dsec_close(d);
	peer_stop(peer);
}

/* The second request is answered together with the first, and then it goes. */
static void serve_both_then_go(struct peer *peer, uint32_t channel,
			       const struct dsec_ring_request *request, const void *payload)
{
	struct plan *plan = peer->options.state;

	(void)payload;
	plan->served++;
	if (plan->served == 2)
		peer_done(peer, channel, &plan->last);
	if (plan->served >= 2)
		peer_done(peer, channel, request);
	if (plan->served == 2)
		peer_hang_up(peer);
	plan->last = *request;
}

BOTH_TRANSPORTS(what_was_answered_before_it_went_counts_though_a_request_finds_it_gone)
{
	struct plan plan = { .steps = "" };
	struct peer_options options = {
		.serve = serve_both_then_go,
		.state = &plan,
		.connections = 2,
	};
	struct peer *peer = peer_start(transport, &options);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	int64_t tickets[3];

	tickets[0] = exec_start(d, NULL);
	tickets[1] = exec_start(d, NULL);
	gone_await(peer);
	tickets[2] = exec_start(d, NULL);
	for (int at = 0; at < 3; at++)
		cr_assert_eq(status_await(d, tickets[at]).code, DSEC_OK);
	cr_assert_eq(plan.served, 3, "nothing went again");
	dsec_close(d);
	peer_stop(peer);
}

/* ---- what is left ---- */

static unsigned int descriptors(void)
{
	DIR *folder = opendir("/proc/self/fd");
	unsigned int count = 0;

	while (folder && readdir(folder))
		count++;
	(void)closedir(folder);
	return count;
}

static unsigned int mappings(void)
{
	FILE *file = fopen("/proc/self/maps", "re");
	unsigned int count = 0;
	char line[512];

	while (fgets(line, sizeof(line), file))
		count += strstr(line, "memfd:peer") != NULL;
	(void)fclose(file);
	return count;
}

/* Each request goes through an engine that goes when it has it, and one that goes before that. */
BOTH_TRANSPORTS(nothing_is_left_of_connections_that_went)
{
	struct plan plan = { .steps = "!4 !1 !3 !2 !4 !1 !3 !2 !4 !1 !3 " };
	struct peer *peer = plan_start(transport, &plan);
	struct dsec *d = peer_connect_for(peer, 0, 60 * 1000);
	struct dsec_call call = { .size = sizeof(call) };
	unsigned int fds, maps;

	cr_assert_eq(dsec_queue_new(d, &call.queue), 0);
	cr_assert_geq(dsec_queue_fd(call.queue), 0);
	fds = descriptors();
	maps = mappings();
	cr_assert_eq(status_await(d, exec_start(d, NULL)).code, DSEC_OK);
	cr_assert_geq(__atomic_load_n(&peer->connection, __ATOMIC_SEQ_CST),
		      transport == DSEC_TRANSPORT_RING ? 2 : 1);
	cr_assert_eq(descriptors(), fds);
	cr_assert_eq(mappings(), maps);
	for (int turn = 0; turn < 10; turn++) {
		/* The one that served goes, too. */
		plan.steps = "!!!!!!!!!!!!";
		cr_assert_geq(exec_start(d, NULL), 0);
		(void)usleep(1000);
		plan.steps = "";
		cr_assert_eq(status_await(d, exec_start(d, NULL)).code, DSEC_OK);
	}
	cr_assert_eq(descriptors(), fds);
	cr_assert_eq(mappings(), maps);
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(capabilities_are_the_engines_that_is_there)
{
	struct plan plan = { .steps = "  " };
	struct peer *peer = plan_start(transport, &plan);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	const struct dsec_caps *first, *again, *other;

	cr_assert_eq(dsec_capabilities(d, &first), 0);
	cr_assert_eq(dsec_capabilities(d, &again), 0);
	cr_assert_eq(first, again);
	cr_assert_eq(first->epoch, 100);
	cr_assert_eq(plan.served, 1, "asked once");
	plan.steps = "!"; /* for the one that is served now */
	cr_assert_eq(status_await(d, exec_start(d, NULL)).code, DSEC_OK);
	cr_assert_eq(dsec_capabilities(d, &other), 0);
	cr_assert_eq(other->epoch, 101);
	cr_assert_eq(first->epoch, 100, "what was looked at stays");
	dsec_close(d);
	peer_stop(peer);
}

BOTH_TRANSPORTS(a_forked_child_has_no_part_in_it)
{
	struct plan plan = { .steps = "!" };
	struct peer *peer = plan_start(transport, &plan);
	struct dsec *d = peer_connect_for(peer, 0, 0);
	struct dsec_event *event;
	int64_t ticket;
	int status;
	pid_t pid;

	peer_hide(peer, true);
	ticket = exec_start(d, NULL);
	cr_assert_eq(dsec_wait(d, ticket, 30, &event), -ETIMEDOUT);
	pid = fork();
	if (pid == 0) {
		bool good = exec_start(d, NULL) == -EOWNERDEAD &&
			    dsec_wait(d, ticket, 0, &event) == -EOWNERDEAD;

		dsec_close(d);
		_exit(good ? 0 : 1);
	}
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0);
	peer_hide(peer, false);
	cr_assert_eq(status_await(d, ticket).code, DSEC_OK);
	dsec_close(d);
	peer_stop(peer);
}
