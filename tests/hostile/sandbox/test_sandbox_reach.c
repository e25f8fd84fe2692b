/*
 * Sandboxes that reach for what is not theirs: the kernel's settings, the host, each other,
 * programs on their way in. What the launcher's own tests find inside must hold in an engine's
 * sandboxes too.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/engine_image.h"

enum { ENTRIES = 300 };

static struct dsec_id private_make(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(1);

	opts.network = DSEC_NETWORK_PRIVATE;
	auto_made struct made made = create_run(e->d, &opts);

	return expect(made.created == 1) ? made.ids[0] : (struct dsec_id){ 0, 0 };
}

static void probes_run(struct engine *e, struct dsec_id id, const char *const (*probes)[2])
{
	for (unsigned i = 0; probes[i][0]; i++) {
		const struct command c = { .argv = { "probe", probes[i][0], probes[i][1] } };
		auto_ran struct ran ran = command_run(e->d, id, &c);

		if (!expect(ran_exited(&ran, 0)))
			note("probe %s", probes[i][0]);
	}
}

static void what_holds_in_the_launchers_sandboxes_holds_in_the_engines(struct engine *e)
{
	static const char *const none[][2] = {
		{ "calls", NULL },	 { "ioctls", NULL },   { "personality", NULL },
		{ "foreign", NULL },	 { "mounts", NULL },   { "masks", NULL },
		{ "devices", NULL },	 { "terminal", NULL }, { "limits", NULL },
		{ "descriptors", NULL }, { "init", NULL },     { "escape", NULL },
		{ "names", "sandbox" },	 { NULL, NULL },
	};
	static const char *const private[][2] = {
		{ "calls", NULL },    { "sockets", NULL },	 { "mounts", NULL },
		{ "loopback", "up" }, { "network-masks", NULL }, { "names", "sandbox" },
		{ NULL, NULL },
	};
	struct dsec_id closed = sandbox_make(e->d), open = private_make(e);

	probes_run(e, closed, none);
	probes_run(e, open, private);
	sandbox_end(e->d, closed);
	sandbox_end(e->d, open);
}

static void without_a_network_there_are_unix_sockets_and_no_others(struct engine *e)
{
	static const char script[] = "for f in '127.0.0.1 80' '::1 80' '10.0.0.1 80'; do "
				     "nc -w 1 $f </dev/null && echo $f; done; "
				     "ls -A /sys; cat /proc/net/tcp /proc/net/unix; :";
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran ran = shell_run(e->d, id, script);

	if (!expect(ran_says(&ran, "")))
		ran_note(&ran);
	sandbox_end(e->d, id);
}

static void the_kernels_settings_and_devices_stay_closed(struct engine *e)
{
	static const char *const users[] = { "root", "agent" };
	struct dsec_id ids[] = { sandbox_make(e->d), private_make(e) };

	for (int i = 0; i < 4; i++) {
		const struct command c = { .argv = { "attack", "write-settings" },
					   .user = users[i / 2] };
		auto_ran struct ran ran = command_run(e->d, ids[i % 2], &c);

		expect(ran_says(&ran, "done\n"));
	}
	expect(sandboxes_end(e->d, ids, 2).code == DSEC_OK);
}

static void nobody_sees_or_signals_a_process_of_another(struct engine *e)
{
	struct dsec_id crowd = sandbox_make(e->d), alone = sandbox_make(e->d);
	const struct command see = { .argv = { "attack", "see", "2" } }; /* PID 1 and itself */

	for (int i = 0; i < 10; i++) {
		auto_ran struct ran ran = shell_run(e->d, crowd, "sleep 300 >&- 2>&- & :");

		expect(ran_exited(&ran, 0));
	}
	auto_ran struct ran ran = command_run(e->d, alone, &see);

	expect(ran_says(&ran, "done\n"));
	sandbox_end(e->d, crowd);
	sandbox_end(e->d, alone);
}

static void debuggers_work_on_children_of_ones_own(struct engine *e)
{
	static const char *const users[] = { "root", "agent" };
	struct dsec_id id = sandbox_make(e->d);

	for (int i = 0; i < 2; i++) {
		const struct command c = { .argv = { "attack", "debug-own" }, .user = users[i] };
		auto_ran struct ran ran = command_run(e->d, id, &c);

		if (!expect(ran_says(&ran, "done\n")))
			ran_note(&ran);
	}
	sandbox_end(e->d, id);
}

/* Shared memory, temporary and other files, beside it and after it. */
static void files_of_one_never_show_in_another(struct engine *e)
{
	static const char mark[] = "for d in /tmp /dev/shm /var/tmp /root / /home; do "
				   "echo mine >$d/mark 2>/dev/null; done; :";
	static const char look[] = "ls -d /tmp/mark /dev/shm/mark /var/tmp/mark /root/mark /mark "
				   "/home/mark 2>/dev/null; :";
	struct dsec_id ids[] = { sandbox_make(e->d), sandbox_make(e->d) };
	auto_ran struct ran marked = shell_run(e->d, ids[0], mark);
	auto_ran struct ran looked = shell_run(e->d, ids[1], look);

	expect(ran_says(&marked, "") && ran_says(&looked, ""));
	/* Nor in one that gets the same slot. */
	sandbox_end(e->d, ids[0]);
	for (int i = 0; i < 8; i++) {
		struct dsec_id next = sandbox_make(e->d);
		auto_ran struct ran ran = shell_run(e->d, next, look);

		expect(ran_says(&ran, ""));
		sandbox_end(e->d, next);
	}
	sandbox_end(e->d, ids[1]);
}

/* ---- the host's sockets ---- */

struct listeners {
	int stream, datagram, abstract;
	uint16_t port;
};

static bool listeners_open(struct listeners *l)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	socklen_t bytes = sizeof address;

	l->stream = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	l->datagram = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	l->abstract = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (!expect(bind(l->stream, (struct sockaddr *)&address, sizeof address) == 0) ||
	    !expect(listen(l->stream, 8) == 0) ||
	    !expect(getsockname(l->stream, (struct sockaddr *)&address, &bytes) == 0))
		return false;
	l->port = ntohs(address.sin_port);
	if (!expect(bind(l->datagram, (struct sockaddr *)&address, sizeof address) == 0))
		return false;
	bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
			    (size_t)snprintf(name.sun_path + 1, 64, "dsec-%u", l->port));
	return expect(bind(l->abstract, (struct sockaddr *)&name, bytes) == 0) &&
	       expect(listen(l->abstract, 8) == 0);
}

static void nobody_came(const struct listeners *l)
{
	char byte;

	expect(accept(l->stream, NULL, NULL) < 0 && errno == EAGAIN);
	expect(accept(l->abstract, NULL, NULL) < 0 && errno == EAGAIN);
	expect(recv(l->datagram, &byte, 1, 0) < 0 && errno == EAGAIN);
}

static void no_socket_of_the_hosts_is_reached(struct engine *e)
{
	struct listeners l = { -1, -1, -1, 0 };
	char port[8], command[256];

	if (listeners_open(&l)) {
		struct dsec_id ids[] = { sandbox_make(e->d), private_make(e) };

		(void)snprintf(port, sizeof port, "%u", l.port);
		for (int i = 0; i < 2; i++) {
			const struct command c = { .argv = { "attack", "reach", port } };
			auto_ran struct ran ran = command_run(e->d, ids[i], &c);

			expect(ran_says(&ran, "done\n"));
			nobody_came(&l);
		}
		expect(sandboxes_end(e->d, ids, 2).code == DSEC_OK);
		/* From outside the same attack gets through. */
		(void)snprintf(command, sizeof command, "%s reach %s >/dev/null", ATTACK_PATH,
			       port);
		expect(system(command) == 0);
		auto_close int stream = accept(l.stream, NULL, NULL);
		auto_close int abstract = accept(l.abstract, NULL, NULL);

		expect(stream >= 0 && abstract >= 0 && recv(l.datagram, command, 1, 0) == 1);
	}
	cleanup_close(&l.stream);
	cleanup_close(&l.datagram);
	cleanup_close(&l.abstract);
}

static void no_abstract_name_reaches_from_one_to_another(struct engine *e)
{
	struct dsec_id ids[] = { sandbox_make(e->d), sandbox_make(e->d), private_make(e),
				 private_make(e) };

	for (int i = 0; i < 4; i += 2) {
		auto_ran struct ran ran = shell_run(
			e->d, ids[i],
			"probe_ipc listen >&- 2>&- & until [ -e /tmp/up ]; do sleep 0.01; done");

		expect(ran_exited(&ran, 0));
	}
	for (int i = 0; i < 4; i++) {
		auto_ran struct ran ran = shell_run(e->d, ids[i], "probe_ipc connect");

		/* The one that listens in a network of its own is reached there. */
		expect(ran_says(&ran, i == 2 ? "somebody answers\n" : ""));
	}
	expect(sandboxes_end(e->d, ids, 4).code == DSEC_OK);
}

/* ---- programs on their way in ---- */

static void what_enters_cannot_be_traced_read_or_written(struct engine *e)
{
	const struct command enter = { .argv = { "attack", "enter" } };
	struct dsec_id id = sandbox_make(e->d);
	int64_t ticket = command_start(e->d, id, &enter, NULL);
	int met = 0, entered = 0;

	expect(until(5000, engine_running(e, "attack") == 1));
	for (int i = 0; i < ENTRIES; i++) {
		auto_ran struct ran ran = shell_run(e->d, id, "exit 0");

		entered += ran.status.code == DSEC_OK;
	}
	auto_ran struct ran stop = shell_run(e->d, id, "touch /tmp/stop");

	expect(ran_says(&stop, ""));
	auto_ran struct ran ran = command_wait(e->d, ticket);
	const struct dsec_output *output = ran_output(&ran, 1);

	if (!expect(ran_exited(&ran, 0) && output && !output->truncated))
		return;
	/* Two lines: "waiting", and how many it met on their way. */
	expect(sscanf(output->head.data, "waiting\nmet %d\n", &met) == 1);
	note("%d of %d programs were met on their way in", met, entered);
	expect(entered == ENTRIES);
	sandbox_end(e->d, id);
}

static const struct claim claims[] = {
	CLAIM(what_holds_in_the_launchers_sandboxes_holds_in_the_engines),
	CLAIM(without_a_network_there_are_unix_sockets_and_no_others),
	CLAIM(the_kernels_settings_and_devices_stay_closed),
	CLAIM(nobody_sees_or_signals_a_process_of_another),
	CLAIM(debuggers_work_on_children_of_ones_own),
	CLAIM(files_of_one_never_show_in_another),
	CLAIM(no_socket_of_the_hosts_is_reached),
	CLAIM(no_abstract_name_reaches_from_one_to_another),
	CLAIM(what_enters_cannot_be_traced_read_or_written),
};

static const char *const arguments[] = { "--sandboxes-max", "16", "--shards", "2", NULL };
static const struct suite suites[] = { SUITE("reach", claims, .arguments = arguments) };

int main(int argc, char **argv)
{
	image_add(ATTACK_PATH, "attack");
	image_add(LAUNCH_PROBE_PATH, "probe");
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
