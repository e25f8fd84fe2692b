/*
 * Ports of sandboxes from outside: found wherever on their loopback they listen, opened by a token
 * and by nothing else, cut when the sandbox ends, and nothing is left of any connection.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/port_client.h"

enum { PORT = 80, WAIT_MS = 20000, BULK_BYTES = 200 << 20 };

/* ---- claims ---- */

static void a_listener_is_found_wherever_on_the_loopback_it_is(struct engine *e)
{
	static const struct {
		const char *where, *delay_ms;
		uint32_t family;
	} cases[] = {
		{ "4", "0", 4 },    { "6", "0", 6 },   { "4any", "0", 4 },
		{ "6any", "0", 6 }, { "any", "0", 4 }, { "6", "2000", 6 },
	};

	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		const char *const words[] = { "probe_net", "serve", cases[i].where,
					      "80",	   "hi ",   cases[i].delay_ms,
					      NULL };
		struct dsec_id id = private_make(e->d);
		int64_t ticket = server_start(e->d, id, words, NULL);
		struct told told = port_wait(e->d, id, PORT, WAIT_MS);

		if (!expect(told.status.code == DSEC_OK) ||
		    !expect(told.forward.family == cases[i].family) ||
		    !expect(exchange(&told.forward, "ping ", "hi ping end")) ||
		    !expect(told.ms + 50 >= atoi(cases[i].delay_ms)))
			note("%s after %s ms: %s %s", cases[i].where, cases[i].delay_ms,
			     told.status.step, told.status.detail);
		server_end(e->d, id, ticket);
	}
}

static void a_port_below_1024_needs_no_root_and_two_sandboxes_have_the_same(struct engine *e)
{
	static const char *const first[] = { "probe_net", "serve", "any", "80", "first ", NULL };
	static const char *const second[] = { "probe_net", "serve", "any", "80", "second ", NULL };
	struct dsec_id ids[2] = { private_make(e->d), private_make(e->d) };
	int64_t tickets[2] = { server_start(e->d, ids[0], first, "1000:1000"),
			       server_start(e->d, ids[1], second, "1000:1000") };
	struct told told[2] = { port_wait(e->d, ids[0], PORT, WAIT_MS),
				port_wait(e->d, ids[1], PORT, WAIT_MS) };

	expect(exchange(&told[0].forward, "", "first end"));
	expect(exchange(&told[1].forward, "", "second end"));
	server_end(e->d, ids[0], tickets[0]);
	expect(exchange(&told[1].forward, "", "second end"));
	server_end(e->d, ids[1], tickets[1]);
}

static void nobody_who_listens_is_told_within_the_wait(struct engine *e)
{
	struct dsec_id id = private_make(e->d);
	struct told told = port_wait(e->d, id, PORT, 300);
	const struct dsec_call call = { .size = sizeof call, .timeout_ms = 300 };
	const struct dsec_port_opts opts = { .size = sizeof opts, .port = PORT, .wait_ms = 60000 };
	int64_t ticket;

	expect(told.status.code == DSEC_DEADLINE && told.status.error == ECONNREFUSED);
	expect(told.ms >= 300 && told.ms < longer(5000));
	/* The request's own deadline, a cancel, and the sandbox's end end a wait as well. */
	ticket = dsec_port(e->d, &call, id, &opts);
	expect(ticket_end(e->d, ticket).code == DSEC_DEADLINE);
	ticket = dsec_port(e->d, NULL, id, &opts);
	expect(dsec_cancel(e->d, ticket) >= 0 && ticket_end(e->d, ticket).code == DSEC_CANCELLED);
	ticket = dsec_port(e->d, NULL, id, &opts);
	sandbox_end(e->d, id);
	expect(ticket_end(e->d, ticket).code == DSEC_ABSENT);
}

static void what_makes_no_sense_is_refused_and_names_the_field(struct engine *e)
{
	struct dsec_id none = sandbox_make(e->d), id = private_make(e->d);
	struct told told = port_wait(e->d, none, PORT, 0);
	const struct dsec_port_opts zero = { .size = sizeof zero };
	struct dsec_port_opts flags = { .size = sizeof flags, .port = 1, .flags = 2 };

	expect(told.status.code == DSEC_UNSUPPORTED && !strcmp(told.status.step, "port.network"));
	expect(strstr(told.status.detail, "--network private"));
	expect(dsec_port(e->d, NULL, id, &zero) == -EINVAL);
	expect(dsec_port(e->d, NULL, id, &flags) == -EINVAL);
	told = port_wait(e->d, id, PORT, 600001);
	expect(told.status.code == DSEC_INVALID && !strcmp(told.status.step, "port.wait"));
	sandbox_end(e->d, none);
	sandbox_end(e->d, id);
	told = port_wait(e->d, id, PORT, 0);
	expect(told.status.code == DSEC_ABSENT);
}

/* The connection is closed without a word, and counted. */
static void is_turned_away(struct engine *e, const char *address, const char *line, unsigned ms)
{
	uint64_t before = holdings_now(e->d).tokens_refused;
	double begun = clock_ms();
	char text[16] = "";
	auto_close int fd = address_connect(address);

	if (!expect(fd >= 0) || !expect(text_send(fd, line)))
		return;
	if (!expect(text_receive(fd, text, sizeof text) <= 0) || !expect(!*text) ||
	    !expect(clock_ms() - begun < ms))
		note("\"%s\": \"%s\" after %.0f ms", line, text, clock_ms() - begun);
	expect(until(2000, holdings_now(e->d).tokens_refused == before + 1));
}

static void only_the_token_opens_it(struct engine *e)
{
	static const char *const words[] = { "probe_net", "serve", "4", "80", "hi ", NULL };
	struct dsec_id id = private_make(e->d), other = private_make(e->d);
	int64_t ticket = server_start(e->d, id, words, NULL);
	struct told told = port_wait(e->d, id, PORT, WAIT_MS), again;
	char line[400];

	expect(told.status.code == DSEC_OK);
	is_turned_away(e, told.forward.address, "\n", 2000);
	is_turned_away(e, told.forward.address, "GET / HTTP/1.0\r\n\r\n", 2000);
	(void)snprintf(line, sizeof line, "%s\n", told.forward.token);
	line[strlen(line) - 2] ^= 1;
	is_turned_away(e, told.forward.address, line, 2000);
	line[0] = 'f'; /* of a forward that never was */
	is_turned_away(e, told.forward.address, line, 2000);
	memset(line, 'a', sizeof line - 1);
	line[sizeof line - 1] = '\0';
	is_turned_away(e, told.forward.address, line, 2000);
	/* Nothing at all, and a token that has no end: after five seconds. */
	is_turned_away(e, told.forward.address, "", 10000);
	is_turned_away(e, told.forward.address, told.forward.token, 10000);
	again = port_wait(e->d, id, PORT, 0);
	expect(!strcmp(again.forward.token, told.forward.token));
	expect(exchange(&told.forward, "", "hi end"));
	again = port_wait(e->d, other, PORT, 0);
	expect(strcmp(again.forward.token, told.forward.token) != 0);
	sandbox_end(e->d, other);
	server_end(e->d, id, ticket);
}

static void a_token_that_was_revoked_or_whose_sandbox_went_opens_nothing(struct engine *e)
{
	static const char *const words[] = { "probe_net", "serve", "4", "80", "hi ", NULL };
	const struct dsec_port_opts revoke = { .size = sizeof revoke,
					       .port = PORT,
					       .flags = DSEC_PORT_REVOKE };
	struct dsec_id id = private_make(e->d), keeper = private_make(e->d);
	int64_t ticket = server_start(e->d, id, words, NULL);
	struct told told = port_wait(e->d, id, PORT, WAIT_MS), again;
	char line[80];

	(void)port_wait(e->d, keeper, PORT, 0); /* so that somebody listens on its shard */
	(void)snprintf(line, sizeof line, "%s\n", told.forward.token);
	expect(exchange(&told.forward, "", "hi end"));
	expect(port_ask(e->d, id, &revoke).status.code == DSEC_OK);
	expect(port_ask(e->d, id, &revoke).status.code == DSEC_OK);
	again = port_wait(e->d, id, PORT, 0);
	expect(strcmp(again.forward.token, told.forward.token) != 0);
	is_turned_away(e, again.forward.address, line, 2000);
	(void)snprintf(line, sizeof line, "%s\n", again.forward.token);
	server_end(e->d, id, ticket);
	told = port_wait(e->d, keeper, PORT, 0);
	if (!strcmp(told.forward.address, again.forward.address))
		is_turned_away(e, again.forward.address, line, 2000);
	sandbox_end(e->d, keeper);
}

static void where_nothing_listens_the_connection_is_closed(struct engine *e)
{
	struct dsec_id id = private_make(e->d);
	struct told told = port_wait(e->d, id, PORT, 0);

	expect(told.status.code == DSEC_OK && told.forward.family == 0);
	expect(exchange(&told.forward, "", ""));
	sandbox_end(e->d, id);
}

static void half_close_goes_through_both_ways(struct engine *e)
{
	static const char *const pours[] = { "probe_net", "pour", "4", "80", "5", NULL };
	struct dsec_id id = private_make(e->d);
	int64_t ticket = server_start(e->d, id, pours, NULL);
	struct told told = port_wait(e->d, id, PORT, WAIT_MS);
	char text[64] = "";
	auto_close int fd = token_connect(&told.forward);

	/* It ends its stream; ours goes on, and so does the connection until ours has ended. */
	expect(text_receive(fd, text, sizeof text) == 5 + 16);
	expect(holdings_now(e->d).inbounds == 1);
	expect(shutdown(fd, SHUT_WR) == 0);
	expect(until(5000, holdings_now(e->d).inbounds == 0));
	server_end(e->d, id, ticket);
}

static uint64_t hash(uint64_t seed, const char *bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		seed = (seed ^ (unsigned char)bytes[i]) * 1099511628211ull;
	return seed;
}

static void two_hundred_megabytes_come_and_go_unchanged(struct engine *e)
{
	static const char *const pours[] = { "probe_net", "pour", "4", "80", "209715200", NULL };
	static const char *const sums[] = { "probe_net", "sum", "6", "81", NULL };
	struct dsec_id id = private_make(e->d);
	int64_t tickets[2] = { server_start(e->d, id, pours, NULL),
			       server_start(e->d, id, sums, NULL) };
	struct told told = port_wait(e->d, id, 80, WAIT_MS),
		    back = port_wait(e->d, id, 81, WAIT_MS);
	auto_free char *buffer = malloc(BULK_BYTES + 64);
	auto_close int fd = token_connect(&told.forward);
	auto_close int back_fd = token_connect(&back.forward);
	char said[64], expected[64];
	double begun = clock_ms(), half;
	uint64_t seed;

	if (!expect(buffer && fd >= 0 && back_fd >= 0))
		return;
	expect(text_receive(fd, buffer, BULK_BYTES + 64) == BULK_BYTES + 16);
	half = clock_ms();
	seed = hash(14695981039346656037ull, buffer, BULK_BYTES);
	(void)snprintf(expected, sizeof expected, "%016llx", (unsigned long long)seed);
	expect(!strcmp(buffer + BULK_BYTES, expected));
	for (size_t sent = 0; sent < BULK_BYTES;) {
		ssize_t n = send(back_fd, buffer + sent, BULK_BYTES - sent, MSG_NOSIGNAL);

		if (!expect(n > 0))
			break;
		sent += (size_t)n;
	}
	expect(shutdown(back_fd, SHUT_WR) == 0);
	expect(text_receive(back_fd, said, sizeof said) > 0);
	(void)snprintf(expected, sizeof expected, "%u %016llx", BULK_BYTES,
		       (unsigned long long)seed);
	expect(!strcmp(said, expected));
	note("out %.0f MB/s, in %.0f MB/s", 200e3 / (half - begun), 200e3 / (clock_ms() - half));
	server_end(e->d, id, tickets[0]);
	(void)ticket_end(e->d, tickets[1]);
}

static void a_sandbox_destroyed_in_the_middle_cuts_its_connections(struct engine *e)
{
	static const char *const pours[] = { "probe_net", "pour", "4", "80", "209715200", NULL };
	struct dsec_id id = private_make(e->d);
	int64_t ticket = server_start(e->d, id, pours, NULL);
	struct told told = port_wait(e->d, id, PORT, WAIT_MS);
	auto_close int fd = token_connect(&told.forward);
	auto_close int idle_fd = token_connect(&told.forward);
	auto_free char *buffer = malloc(BULK_BYTES + 64);
	char first[1024];

	expect(recv(fd, first, sizeof first, 0) > 0);
	server_end(e->d, id, ticket);
	/* It must not look like a whole answer: a reset, not an end. */
	expect(text_receive(fd, buffer, BULK_BYTES + 64) == -ECONNRESET);
	expect(until(5000, holdings_now(e->d).inbounds == 0));
	expect(until(10000, holdings_now(e->d).networks_ending == 0));
}

static void a_thousand_connections_leave_nothing(struct engine *e)
{
	static const char *const words[] = { "probe_net", "serve", "any", "80", "hi ", NULL };
	struct dsec_id id = private_make(e->d);
	int64_t ticket = server_start(e->d, id, words, NULL);
	struct told told = port_wait(e->d, id, PORT, WAIT_MS);
	unsigned fds = process_fd_count(engine_pid(e));
	double begun = clock_ms();

	for (int i = 0; i < 1000; i++)
		if (!expect(exchange(&told.forward, "x", "hi xend")))
			break;
	note("%.2f ms each", (clock_ms() - begun) / 1000);
	expect(until(5000, holdings_now(e->d).inbounds == 0));
	expect(until(5000, process_fd_count(engine_pid(e)) <= fds));
	server_end(e->d, id, ticket);
}

static void more_forwards_and_connections_than_a_sandbox_may_have_are_refused(struct engine *e)
{
	static const char *const words[] = { "probe_net", "serve", "4", "80", "hi ", NULL };
	struct dsec_id id = private_make(e->d);
	int64_t ticket = server_start(e->d, id, words, NULL);
	struct told told = port_wait(e->d, id, PORT, WAIT_MS), more;
	char text[8] = "";
	int fds[65];

	for (uint32_t i = 1; i < 16; i++)
		expect(port_wait(e->d, id, PORT + i, 0).status.code == DSEC_OK);
	more = port_wait(e->d, id, PORT + 16, 0);
	expect(more.status.code == DSEC_REFUSED && more.status.retry_after_ms > 0);
	expect(!strcmp(more.status.step, "port.forwards_per_sandbox_max"));
	for (int i = 0; i < 64; i++) {
		fds[i] = token_connect(&told.forward);
		expect(recv(fds[i], text, 3, MSG_WAITALL) == 3);
	}
	fds[64] = token_connect(&told.forward);
	expect(text_receive(fds[64], text, sizeof text) <= 0);
	for (int i = 0; i < 65; i++)
		(void)close(fds[i]); /* who listens sees the end */
	server_end(e->d, id, ticket);
}

static void a_sandbox_cannot_reach_the_listener(struct engine *e)
{
	struct dsec_id id = private_make(e->d), none = sandbox_make(e->d);
	struct told told = port_wait(e->d, id, PORT, 0);
	const char *port = strchr(told.forward.address, ':') + 1;
	const struct command c = { .argv = { "probe_net", "reach", "127.0.0.1", port } };
	auto_ran struct ran inside = command_run(e->d, id, &c);
	auto_ran struct ran beside = command_run(e->d, none, &c);

	expect(ran_says(&inside, "Connection refused\n"));
	expect(ran_says(&beside, "Operation not permitted\n"));
	sandbox_end(e->d, id);
	sandbox_end(e->d, none);
}

static void an_engine_with_connections_open_ends_in_time(struct engine *e)
{
	static const char *const words[] = { "probe_net", "serve", "4", "80", "hi ", NULL };
	static const char *const small[] = { "--sandboxes-max", "64", NULL };
	struct engine other;

	if (!expect(engine_start(&other, &(struct engine_options){ .arguments = small })))
		return;
	struct dsec_id id = private_make(other.d);

	(void)server_start(other.d, id, words, NULL);
	struct told told = port_wait(other.d, id, PORT, WAIT_MS);
	auto_close int fd = token_connect(&told.forward);
	auto_close int silent_fd = address_connect(told.forward.address);
	char text[8] = "";

	expect(recv(fd, text, 3, MSG_WAITALL) == 3);
	engine_end(&other);
	expect(recv(fd, text, 3, 0) <= 0);
	(void)e; /* it goes on beside */
}

static const struct claim claims[] = {
	CLAIM(a_listener_is_found_wherever_on_the_loopback_it_is),
	CLAIM(a_port_below_1024_needs_no_root_and_two_sandboxes_have_the_same),
	CLAIM(nobody_who_listens_is_told_within_the_wait),
	CLAIM(what_makes_no_sense_is_refused_and_names_the_field),
	CLAIM(only_the_token_opens_it),
	CLAIM(a_token_that_was_revoked_or_whose_sandbox_went_opens_nothing),
	CLAIM(where_nothing_listens_the_connection_is_closed),
	CLAIM(half_close_goes_through_both_ways),
	CLAIM(two_hundred_megabytes_come_and_go_unchanged),
	CLAIM(a_sandbox_destroyed_in_the_middle_cuts_its_connections),
	CLAIM(a_thousand_connections_leave_nothing),
	CLAIM(more_forwards_and_connections_than_a_sandbox_may_have_are_refused),
	CLAIM(a_sandbox_cannot_reach_the_listener),
	CLAIM(an_engine_with_connections_open_ends_in_time),
};

static const char *const arguments[] = { "--sandboxes-max", "256", NULL };
static const struct suite suites[] = { SUITE("ports", claims, .arguments = arguments) };

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
