/*
 * Clients that die or stop at the worst moment: killed after each message that a client sends or
 * gets in its life, stopped for a minute in the middle of a stream, and ten thousand that come and
 * go meanwhile. Only they are cut, and nothing of theirs is left.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/hostile/client/claims.h"
#include "tests/hostile/client/payloads.h"
#include "tests/slowness.h"

enum {
	LAST_MS = 60000,
	EXEC = 1000,
	FILED = 2000,
	IMPORT = 3000,
	CONNECTIONS = 10000,
	STOPPED_S = 60,
	STREAM_BYTES = 8 << 20
};

/* ---- killed at every message ---- */

static const struct dsec_wire_id nobody = { 0 };

/* One message of a client's life: what it sends. */
struct message {
	const char *name;
	struct dsec_ring_request entry; /* its subject is the sandbox */
	struct pack *(*pack)(void);	/* NULL: no payload */
	bool is_last;			/* its end is waited for; else it goes on */
	bool is_of_nobody;
};

static struct pack *pack_exec_stream(void)
{
	static const char *const words[] = { "/bin/payload", "drain", NULL };
	struct pack *pack = pack_exec(words);

	pack->exec.flags = DSEC_EXEC_STREAM | DSEC_EXEC_INPUT_STREAM;
	return pack;
}

static struct pack *pack_attach(void)
{
	return pack_new(sizeof(struct dsec_wire_attach));
}

static struct pack *pack_bytes(void)
{
	struct pack *pack = pack_new(sizeof pack->size);

	memcpy(pack->data, "byte", 4); /* INPUT takes any bytes */
	return pack;
}

static struct pack *pack_write(void)
{
	struct pack *pack = pack_new(sizeof pack->file);

	pack->file.verb = DSEC_FILE_WRITE;
	pack->file.flags = DSEC_FILE_INPUT;
	pack_text(pack, &pack->file.path, "/never-whole");
	return pack;
}

static struct pack *pack_list(void)
{
	return pack_new(sizeof(struct dsec_wire_list));
}

static struct pack *pack_import(void)
{
	struct pack *pack = pack_new(sizeof pack->image);

	pack->image.verb = DSEC_IMAGE_IMPORT;
	pack_text(pack, &pack->image.name, "hostile");
	return pack;
}

static struct pack *pack_subscribe(void)
{
	return pack_new(sizeof(struct dsec_wire_subscribe));
}

static const struct message messages[] = {
	{ "subscribe", { .ticket = 9, .op = DSEC_OP_SUBSCRIBE }, pack_subscribe, false, true },
	{ "list", { .ticket = 10, .op = DSEC_OP_LIST }, pack_list, true, true },
	{ "exec", { .ticket = EXEC, .op = DSEC_OP_EXEC }, pack_exec_stream, false, false },
	{ "input",
	  { .ticket = 11, .op = DSEC_OP_INPUT, .number = { EXEC } },
	  pack_bytes,
	  true,
	  true },
	{ "attach", { .ticket = 12, .op = DSEC_OP_ATTACH, .exec = 1 }, pack_attach, false, false },
	{ "credit",
	  { .ticket = 13, .op = DSEC_OP_CREDIT, .number = { EXEC, 1, 0 } },
	  NULL,
	  true,
	  true },
	{ "write", { .ticket = FILED, .op = DSEC_OP_FILE }, pack_write, false, false },
	{ "content",
	  { .ticket = 14, .op = DSEC_OP_INPUT, .number = { FILED } },
	  pack_bytes,
	  true,
	  true },
	{ "change", { .ticket = 15, .op = DSEC_OP_CHANGE }, pack_change, true, false },
	{ "inspect", { .ticket = 16, .op = DSEC_OP_INSPECT }, NULL, true, false },
	{ "stats", { .ticket = 17, .op = DSEC_OP_STATS }, NULL, true, false },
	{ "import", { .ticket = IMPORT, .op = DSEC_OP_IMAGE }, pack_import, false, true },
	{ "archive",
	  { .ticket = 18, .op = DSEC_OP_INPUT, .number = { IMPORT } },
	  pack_bytes,
	  true,
	  true },
	{ "cancel",
	  { .ticket = 19, .op = DSEC_OP_CANCEL, .number = { IMPORT } },
	  NULL,
	  true,
	  true },
	{ "signal",
	  { .ticket = 20, .op = DSEC_OP_SIGNAL, .exec = 1, .number = { SIGCONT } },
	  NULL,
	  true,
	  false },
	{ "destroy", { .ticket = 21, .op = DSEC_OP_DESTROY }, NULL, true, false },
};

enum { MESSAGES = sizeof messages / sizeof *messages };

static int message_send(struct raw *raw, const struct message *message, struct dsec_wire_id sandbox)
{
	struct dsec_ring_request entry = message->entry;
	struct pack *pack = message->pack ? message->pack() : NULL;
	int r;

	entry.subject = message->is_of_nobody ? nobody : sandbox;
	r = raw_ask(raw, &entry, pack ? pack->data : NULL, pack ? pack->bytes : 0);
	free(pack);
	return r;
}

/*
 * What is too early may be refused: a signal before its program has started, an import while those
 * of lives before still leave; and then there is none to feed.
 */
static bool is_answer(const struct message *message, int code)
{
	return code == DSEC_OK || code == DSEC_REFUSED || message->entry.number[0] == IMPORT;
}

__attribute__((noreturn)) static void life_fail(const struct message *message, int code)
{
	printf("  %s: code %d\n", message->name, code);
	(void)fflush(stdout);
	_exit(3);
}

/* A life up to the message: killed when that was sent, or when it was answered. */
static void life_live(struct scene *scene, enum dsec_transport transport, unsigned until,
		      bool is_answered)
{
	struct pack *pack = pack_create(1);
	struct dsec_wire_id sandbox;
	struct raw raw;

	pack->create.on_disconnect = DSEC_DISCONNECT_DESTROY;
	if (raw_open(&raw, scene->engine.socket, transport) < 0 ||
	    pack_create_ids(&raw, pack, 1, &sandbox) != 1)
		_exit(1);
	for (unsigned i = 0; i <= until; i++) {
		const struct message *message = &messages[i];
		struct dsec_ring_event event;

		if (message_send(&raw, message, sandbox) < 0)
			_exit(2);
		if (message->is_last && (i < until || is_answered) &&
		    (raw_last(&raw, message->entry.ticket, LAST_MS, &event, NULL) < 0 ||
		     !is_answer(message, event.code)))
			life_fail(message, event.code);
	}
	(void)kill(getpid(), SIGKILL);
	_exit(4);
}

static bool life_ends(struct scene *scene, enum dsec_transport transport, unsigned until,
		      bool is_answered)
{
	int status;
	pid_t pid;

	(void)fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		life_live(scene, transport, until, is_answered);
	CHECK(waitpid(pid, &status, 0) == pid);
	if (!WIFSIGNALED(status) || !scene_settles(scene, 10000)) {
		printf("  at %s, transport %d, answered %d: status %#x\n", messages[until].name,
		       (int)transport, is_answered, (unsigned)status);
		return false;
	}
	return true;
}

static bool a_client_killed_at_every_message_leaves_nothing(struct scene *scene)
{
	for (unsigned i = 0; i < MESSAGES; i++)
		for (unsigned way = 0; way < 4; way++)
			CHECK(life_ends(scene,
					way & 1 ? DSEC_TRANSPORT_RING : DSEC_TRANSPORT_STREAM, i,
					way & 2));
	CHECK(neighbour_works(scene));
	return true;
}

/* ---- stopped, while others come and go ---- */

/* Reads a stream of a program to its end, and says whether all of it came. */
static void reader_run(struct scene *scene, int told_fd)
{
	static const char *const words[] = { "/bin/payload", "out", "8388608" };
	const struct dsec_open_opts opts = { .size = sizeof opts, .address = scene->engine.socket };
	struct dsec_bytes argv[3];
	struct dsec_exec_opts exec = {
		.size = sizeof exec, .flags = DSEC_EXEC_STREAM, .argv = argv, .argc = 3
	};
	struct dsec_event *event;
	struct dsec_id sandbox;
	uint64_t bytes = 0;
	struct dsec *d;
	int64_t ticket;
	bool is_over = false;

	for (int i = 0; i < 3; i++)
		argv[i] = (struct dsec_bytes){ words[i], strlen(words[i]) };
	if (dsec_open(&opts, &d) < 0 || dsec_sandbox(d, "tiny", &sandbox) < 0)
		_exit(1);
	ticket = dsec_exec(d, NULL, sandbox, &exec);
	while (!is_over && dsec_wait(d, ticket, LAST_MS, &event) >= 0) {
		if (event->kind == DSEC_EV_DATA && !bytes &&
		    write(told_fd, &sandbox, sizeof sandbox) != sizeof sandbox)
			_exit(2);
		if (event->kind == DSEC_EV_DATA)
			bytes += event->bytes;
		is_over = event->flags & DSEC_LAST;
		dsec_event_free(event);
		if (bytes && bytes < STREAM_BYTES / 2)
			claim_sleep_ms(1); /* so that it is stopped in the middle */
	}
	_exit(is_over && bytes == STREAM_BYTES ? 0 : 3);
}

/* So many connections, each shaken hands with or turned away, each used or not. */
static bool connections_come_and_go(struct scene *scene, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct dsec_ring_request nop = { .ticket = i, .op = DSEC_OP_NOP };
		struct raw raw;
		int r = raw_open(&raw, scene->engine.socket,
				 i % 2 ? DSEC_TRANSPORT_RING : DSEC_TRANSPORT_STREAM);

		/* Those that went before may not have been let go yet: then it is turned away. */
		CHECK(r == 0 || r == -EACCES);
		if (r == 0 && i % 3)
			CHECK(raw_code(&raw, &nop, NULL, 0) == DSEC_OK);
		raw_close(&raw);
	}
	return true;
}

static bool stopped_reader_holds_nobody_up(struct scene *scene, uint64_t until_us)
{
	uint32_t connections = 0;
	struct service service;

	do {
		CHECK(connections_come_and_go(scene, 500));
		connections += 500;
		CHECK(neighbour_serve(scene, 200, &service) == 0);
		CHECK(service.worst_us < claim_held_up_us());
		CHECK(neighbour_works(scene));
	} while (claim_now_us() < until_us || connections < fewer(CONNECTIONS, 1000));
	printf("  %u connections came and went; then served in %llu us, at worst %llu us\n",
	       connections, (unsigned long long)service.median_us,
	       (unsigned long long)service.worst_us);
	return true;
}

static bool a_client_stopped_for_a_minute_holds_nobody_up_and_goes_on(struct scene *scene)
{
	struct dsec_id sandbox;
	int pair[2], status;
	bool holds;
	pid_t pid;

	CHECK(pipe(pair) == 0);
	(void)fflush(stdout);
	pid = fork();
	CHECK(pid >= 0);
	if (pid == 0)
		reader_run(scene, pair[1]);
	CHECK(read(pair[0], &sandbox, sizeof sandbox) == sizeof sandbox);
	(void)close(pair[0]);
	(void)close(pair[1]);
	CHECK(kill(pid, SIGSTOP) == 0);
	holds = stopped_reader_holds_nobody_up(scene,
					       claim_now_us() + fewer(STOPPED_S, 10) * 1000000ull);
	CHECK(kill(pid, SIGCONT) == 0);
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK(WIFEXITED(status));
	if (WEXITSTATUS(status))
		printf("  the reader ended with %d\n", WEXITSTATUS(status));
	CHECK(WEXITSTATUS(status) == 0);
	CHECK(neighbour_destroy(scene, &sandbox, 1) == 0);
	return holds;
}

int main(int argc, char **argv)
{
	static const struct claim claims[] = {
#define CLAIM(name) { #name, name }
		CLAIM(a_client_killed_at_every_message_leaves_nothing),
		CLAIM(a_client_stopped_for_a_minute_holds_nobody_up_and_goes_on),
#undef CLAIM
	};
	const struct engine_options options = { 0 };

	(void)argc;
	return claims_run(claims, sizeof claims / sizeof *claims, &options, argv + 1);
}
