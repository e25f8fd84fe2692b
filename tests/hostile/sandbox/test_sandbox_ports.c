/*
 * Ports under attack, from inside sandboxes and from the host: what one does costs itself, and
 * those beside it go on. Rows E49, E56, E57 and E63; those of a way out are in engine_egress.
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

enum { PORT = 80, WAIT_MS = 20000, SILENT = 300, HELD = 64, ROUNDS = 50 };

static const char *const echo[] = { "probe_net", "serve", "any", "80", "hi ", NULL };

/* How long the slowest of some exchanges took. */
static double slowest_ms(const struct dsec_forward *forward)
{
	double slowest = 0;

	for (int i = 0; i < ROUNDS; i++) {
		double begun = clock_ms();

		if (!expect(exchange(forward, "x", "hi xend")))
			return 1e9;
		if (clock_ms() - begun > slowest)
			slowest = clock_ms() - begun;
	}
	return slowest;
}

static void silent_connections_do_not_keep_others_out(struct engine *e)
{
	struct dsec_id id = private_make(e->d);
	int64_t ticket = server_start(e->d, id, echo, NULL);
	struct told told = port_wait(e->d, id, PORT, WAIT_MS);
	int fds[SILENT];

	for (int i = 0; i < SILENT; i++)
		fds[i] = address_connect(told.forward.address);
	note("slowest %.1f ms", slowest_ms(&told.forward));
	for (int i = 0; i < SILENT; i++)
		if (fds[i] >= 0)
			(void)close(fds[i]); /* had its effect */
	expect(until(10000, holdings_now(e->d).inbounds == 0));
	server_end(e->d, id, ticket);
}

/* It listens with a full queue and takes nobody; or takes them, and reads nothing. */
static void a_server_that_takes_or_reads_nothing_costs_itself(struct engine *e)
{
	static const char *const deaf[] = {
		"/bin/sh", "-c",
		"nc -l -p 80 -e sleep 600 & exec probe_net pour any 81 1000000000000", NULL
	};
	struct dsec_id hostile = private_make(e->d), id = private_make(e->d);
	int64_t tickets[2] = { server_start(e->d, hostile, deaf, NULL),
			       server_start(e->d, id, echo, NULL) };
	struct told full = port_wait(e->d, hostile, 80, WAIT_MS),
		    pours = port_wait(e->d, hostile, 81, WAIT_MS),
		    told = port_wait(e->d, id, PORT, WAIT_MS);
	double before = slowest_ms(&told.forward), during;
	int fds[HELD];

	for (int i = 0; i < HELD; i++)
		fds[i] = token_connect(i % 2 ? &pours.forward : &full.forward);
	during = slowest_ms(&told.forward);
	note("slowest %.1f ms before, %.1f ms during", before, during);
	expect(during < 1000);
	server_end(e->d, hostile, tickets[0]);
	for (int i = 0; i < HELD; i++)
		if (fds[i] >= 0)
			(void)close(fds[i]); /* was cut */
	expect(until(10000, holdings_now(e->d).inbounds == 0));
	server_end(e->d, id, tickets[1]);
}

/* Every way in but the token: the listener is the host's, and no sandbox is on its network. */
static void no_sandbox_gets_in_to_another(struct engine *e)
{
	static const char *const closed[] = { "127.0.0.1",	 "::1",
					      "0.0.0.0",	 "10.0.0.1",
					      "169.254.169.254", "fd00:ec2::254" };
	struct dsec_id first = private_make(e->d), second = private_make(e->d);
	int64_t ticket = server_start(e->d, first, echo, NULL);
	struct told told = port_wait(e->d, first, PORT, WAIT_MS);
	const char *listener = strchr(told.forward.address, ':') + 1;

	for (unsigned i = 0; i < sizeof closed / sizeof *closed; i++) {
		const char *ports[] = { "80", listener };

		for (unsigned at = 0; at < 2; at++) {
			const struct command c = { .argv = { "probe_net", "reach", closed[i],
							     ports[at] } };
			auto_ran struct ran ran = command_run(e->d, second, &c);

			if (!expect(ran_exited(&ran, 0)) ||
			    !expect(!ran_wrote(&ran, 1, "open\n", 5)))
				note("%s port %s", closed[i], ports[at]);
		}
	}
	expect(exchange(&told.forward, "", "hi end"));
	server_end(e->d, first, ticket);
	sandbox_end(e->d, second);
}

/* A server comes, goes and comes again while it is looked for and connected to. */
static void a_server_that_comes_and_goes_confuses_nobody(struct engine *e)
{
	static const char *const flapping[] = {
		"/bin/sh", "-c",
		"while :; do timeout 0.05 probe_net serve any 80 'hi ' >/dev/null 2>&1; done", NULL
	};
	struct dsec_id id = private_make(e->d);
	int64_t ticket = server_start(e->d, id, flapping, NULL);
	struct told told = port_wait(e->d, id, PORT, WAIT_MS);
	unsigned whole = 0, all = 0;
	uint64_t end_ms = now_ms() + 2000;

	expect(told.status.code == DSEC_OK);
	for (; now_ms() < end_ms; all++) {
		char text[32] = "";
		auto_close int fd = token_connect(&told.forward);

		if (!expect(fd >= 0))
			break;
		(void)shutdown(fd, SHUT_WR); /* may be cut already */
		whole += text_receive(fd, text, sizeof text) == 6 && !strcmp(text, "hi end");
	}
	note("%u of %u whole", whole, all);
	expect(whole > 0);
	expect(until(10000, holdings_now(e->d).inbounds == 0));
	server_end(e->d, id, ticket);
}

static const struct claim claims[] = {
	CLAIM(silent_connections_do_not_keep_others_out),
	CLAIM(a_server_that_takes_or_reads_nothing_costs_itself),
	CLAIM(no_sandbox_gets_in_to_another),
	CLAIM(a_server_that_comes_and_goes_confuses_nobody),
};

static const struct suite suites[] = { SUITE("ports under attack", claims) };

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
