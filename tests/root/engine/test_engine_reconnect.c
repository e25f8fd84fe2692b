/*
 * Clients that stay while their engine goes or their connection is cut: every request ends once,
 * nothing runs twice, and the same handle works on.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_follow.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/file_client.h"

enum { THREADS = 4, FLIGHT = 16, KILLS = 3, CUTS = 20, FD_MAX = 256, RUNS_MAX = 4096 };
/* An engine that was killed is back in a second; on a machine that has other work, in many. */
enum { LAST_MS = 30000, RECONNECT_MS = 60000 };

/* Several threads on one connection, some with a queue they share. */
struct crowd {
	struct dsec *d;
	struct dsec_queue *q;
	pthread_t threads[2 * THREADS];
	_Atomic bool stop;
	_Atomic uint64_t by_code[DSEC_LOST + 1], asked, ended, replayed, strange, reconnected;
	struct dsec_id id; /* where commands of the cut crowd run */
	_Atomic uint32_t number;
	_Atomic uint8_t ran[RUNS_MAX]; /* by number: it ended */
};

static struct dsec *connect_staying(struct engine *e, bool by_stream)
{
	char address[160];
	struct dsec_open_opts opts = { .size = sizeof opts,
				       .address = address,
				       .reconnect_ms = (uint32_t)longer(RECONNECT_MS) };
	struct dsec *d;
	int r;

	(void)snprintf(address, sizeof address, "%s%s",
		       by_stream ? "stream+unix:" : "unix:", e->socket);
	r = dsec_open(&opts, &d);
	if (r == 0)
		return d;
	expect(!"a client can connect");
	note("%s", dsec_error(NULL, r));
	return NULL;
}

static void ended_note(struct crowd *crowd, const struct dsec_event *event)
{
	atomic_fetch_add(&crowd->ended, 1);
	atomic_fetch_add(&crowd->replayed, !!(event->flags & DSEC_REPLAYED));
	if (event->status.code <= DSEC_LOST)
		atomic_fetch_add(&crowd->by_code[event->status.code], 1);
	switch (event->status.code) {
	case DSEC_OK:
	case DSEC_UNKNOWN: /* asked of the engine before */
	case DSEC_ABSENT:  /* its sandbox was */
	case DSEC_REFUSED:
		return;
	default:
		if (atomic_fetch_add(&crowd->strange, 1) == 0)
			note("code %u error %d at \"%s\" %s", event->status.code,
			     event->status.error, event->status.step, event->status.detail);
	}
}

/* Waits for the one LAST; the first sandbox that was told of. */
static struct dsec_id settle(struct crowd *crowd, int64_t ticket)
{
	struct dsec_id made = { 0, 0 };
	struct dsec_event *event;
	bool last = false;

	if (ticket < 0) {
		atomic_fetch_add(&crowd->strange, 1);
		return made;
	}
	atomic_fetch_add(&crowd->asked, 1);
	while (!last && dsec_wait(crowd->d, ticket, LAST_MS, &event) == 0) {
		last = event->flags & DSEC_LAST;
		if (event->kind == DSEC_EV_CREATED && event->status.code == DSEC_OK)
			made = event->subject;
		if (last)
			ended_note(crowd, event);
		dsec_event_free(event);
	}
	/* Its name is gone: nothing can follow. */
	if (!last || dsec_wait(crowd->d, ticket, 0, &event) != -ENOENT)
		atomic_fetch_add(&crowd->strange, 1);
	return made;
}

static int64_t shell_start(struct crowd *crowd, struct dsec_queue *q, uint64_t tag,
			   const char *script)
{
	struct dsec_bytes argv[] = { { "/bin/sh", 7 }, { "-c", 2 }, { script, strlen(script) } };
	struct dsec_exec_opts opts = {
		.size = sizeof opts, .flags = DSEC_EXEC_CAPTURE, .argv = argv, .argc = 3
	};
	struct dsec_call call = { .size = sizeof call, .queue = q, .tag = tag };

	return dsec_exec(crowd->d, &call, crowd->id, &opts);
}

/* Until it was told to stop and all has ended, which takes its time: then something never does. */
static bool crowd_goes_on(const struct crowd *crowd, double *stopped_ms)
{
	if (!atomic_load(&crowd->stop)) {
		*stopped_ms = clock_ms();
		return true;
	}
	return atomic_load(&crowd->asked) != atomic_load(&crowd->ended) &&
	       clock_ms() - *stopped_ms < longer(LAST_MS);
}

/* ---- an engine that is killed ---- */

static void *live_by_waiting(void *argument)
{
	struct crowd *crowd = argument;
	struct dsec_create_opts create = create_opts(1);
	const struct command command = SH("echo crowd");

	while (!atomic_load(&crowd->stop)) {
		struct dsec_id id = settle(crowd, dsec_create(crowd->d, NULL, &create));
		struct dsec_select select = { .size = sizeof select, .count = 1, .ids = &id };

		if (!id.lo)
			continue;
		(void)settle(crowd, command_start(crowd->d, id, &command, NULL));
		(void)settle(crowd, dsec_destroy(crowd->d, NULL, &select));
	}
	return NULL;
}

/* Keeps some creates in flight, and destroys what they make. */
static void *live_by_queue(void *argument)
{
	struct crowd *crowd = argument;
	struct dsec_call call = { .size = sizeof call, .queue = crowd->q };
	struct dsec_create_opts create = create_opts(2);
	struct dsec_event *event;
	double stopped_ms = 0;

	while (crowd_goes_on(crowd, &stopped_ms)) {
		if (!atomic_load(&crowd->stop) && dsec_create(crowd->d, &call, &create) >= 0)
			atomic_fetch_add(&crowd->asked, 1);
		if (dsec_queue_poll(crowd->q, &event, 1, 10) != 1)
			continue;
		if (event->kind == DSEC_EV_RECONNECTED)
			atomic_fetch_add(&crowd->reconnected, 1);
		else if (event->flags & DSEC_LAST)
			ended_note(crowd, event);
		if (event->kind == DSEC_EV_CREATED && event->status.code == DSEC_OK) {
			struct dsec_select select = { .size = sizeof select,
						      .count = 1,
						      .ids = &event->subject };

			(void)settle(crowd, dsec_destroy(crowd->d, NULL, &select));
		}
		dsec_event_free(event);
	}
	return NULL;
}

static bool crowd_start(struct crowd *crowd, void *(*first)(void *), void *(*second)(void *))
{
	if (!crowd->d || !expect(dsec_queue_new(crowd->d, &crowd->q) == 0))
		return false;
	for (int i = 0; i < 2 * THREADS; i++)
		if (!expect(pthread_create(&crowd->threads[i], NULL, i % 2 ? second : first,
					   crowd) == 0))
			return false;
	return true;
}

static void crowd_end(struct crowd *crowd)
{
	atomic_store(&crowd->stop, true);
	for (int i = 0; i < 2 * THREADS; i++)
		(void)pthread_join(crowd->threads[i], NULL);
	note("%llu asked: %llu ok (%llu from the record), %llu unknown, %llu absent, %llu refused",
	     (unsigned long long)crowd->asked, (unsigned long long)crowd->by_code[DSEC_OK],
	     (unsigned long long)crowd->replayed, (unsigned long long)crowd->by_code[DSEC_UNKNOWN],
	     (unsigned long long)crowd->by_code[DSEC_ABSENT],
	     (unsigned long long)crowd->by_code[DSEC_REFUSED]);
	expect(crowd->asked == crowd->ended && crowd->strange == 0);
}

static void check_kills(struct engine *e, bool by_stream)
{
	auto_free struct crowd *crowd = calloc(1, sizeof *crowd);

	crowd->d = connect_staying(e, by_stream);
	if (!crowd_start(crowd, live_by_waiting, live_by_queue))
		return;
	for (int i = 0; i < KILLS; i++) {
		uint64_t before = atomic_load(&crowd->by_code[DSEC_OK]);
		double begun_ms = clock_ms();
		pid_t pid = engine_pid(e);

		if (!expect(until(20000, crowd->by_code[DSEC_OK] > before + 50)))
			break;
		(void)kill(pid, SIGKILL); /* the keeper has not reaped it yet */
		if (!expect(until(RECONNECT_MS, crowd->reconnected == (unsigned)i + 1)))
			break;
		before = atomic_load(&crowd->by_code[DSEC_OK]);
		expect(until(20000, crowd->by_code[DSEC_OK] > before + 50));
		note("killed, and served again after %.0f ms", clock_ms() - begun_ms);
	}
	crowd_end(crowd);
	expect(crowd->by_code[DSEC_LOST] == 0);
	expect(crowd->by_code[DSEC_UNKNOWN] > 0);
	dsec_close(crowd->d);
}

static void killed_engines_cost_what_they_had_and_the_handle_works_on(struct engine *e)
{
	check_kills(e, false);
}

static void so_they_do_over_the_stream(struct engine *e)
{
	check_kills(e, true);
}

/* ---- a connection that is cut ---- */

/* Descriptors of connections to the engine, but for `other`. */
static int connection_fd(const struct engine *e, int other)
{
	for (int fd = 3; fd < FD_MAX; fd++) {
		struct sockaddr_un address = { 0 };
		socklen_t bytes = sizeof address;

		if (fd != other && getpeername(fd, (struct sockaddr *)&address, &bytes) == 0 &&
		    address.sun_family == AF_UNIX && !strcmp(address.sun_path, e->socket))
			return fd;
	}
	return -1;
}

static uint32_t script_new(struct crowd *crowd, char *script, size_t bytes)
{
	uint32_t number = atomic_fetch_add(&crowd->number, 1);

	(void)snprintf(script, bytes, "echo %u >>/tmp/ran; sleep 0.0%u", number, number % 6);
	return number;
}

static void *run_by_waiting(void *argument)
{
	struct crowd *crowd = argument;
	char script[64];

	while (!atomic_load(&crowd->stop) && atomic_load(&crowd->number) < RUNS_MAX - 64) {
		uint32_t number = script_new(crowd, script, sizeof script);

		(void)settle(crowd, shell_start(crowd, NULL, 0, script));
		atomic_store(&crowd->ran[number], 1);
	}
	return NULL;
}

static void *run_by_queue(void *argument)
{
	struct crowd *crowd = argument;
	char script[64];
	struct dsec_event *event;
	int64_t ticket = 0;
	uint32_t number = 0;
	double stopped_ms = 0;

	while (crowd_goes_on(crowd, &stopped_ms)) {
		if (!crowd->stop && crowd->number < RUNS_MAX - 64 &&
		    crowd->asked < crowd->ended + FLIGHT) {
			if (ticket >= 0)
				number = script_new(crowd, script, sizeof script);
			/* What was put off is the same command: it was not sent. */
			ticket = shell_start(crowd, crowd->q, number, script);
			atomic_fetch_add(&crowd->asked, ticket >= 0);
		}
		if (dsec_queue_poll(crowd->q, &event, 1, 10) != 1)
			continue;
		if (event->kind == DSEC_EV_RECONNECTED)
			atomic_fetch_add(&crowd->reconnected, 1);
		else if (event->flags & DSEC_LAST)
			ended_note(crowd, event);
		if (event->flags & DSEC_LAST)
			atomic_store(&crowd->ran[event->tag], 1);
		dsec_event_free(event);
	}
	return NULL;
}

/* Every command that ended well did its work once, and none did it twice. */
static void runs_check(struct crowd *crowd, const char *output, size_t bytes)
{
	auto_free uint8_t *times = calloc(RUNS_MAX, 1);
	unsigned twice = 0, never = 0, count = 0;
	const char *at = output, *end = output + bytes;

	while (at < end) {
		unsigned long number = strtoul(at, NULL, 10);

		if (!expect(number < RUNS_MAX))
			return;
		twice += times[number]++ != 0;
		at = memchr(at, '\n', (size_t)(end - at));
		if (!expect(at != NULL))
			return;
		at++;
	}
	for (uint32_t number = 0; number < RUNS_MAX; number++) {
		never += crowd->ran[number] && !times[number];
		count += crowd->ran[number];
	}
	note("%u commands, %u twice, %u never", count, twice, never);
	expect(twice == 0 && never == 0 && count > 50);
}

static void check_cuts(struct engine *e, bool by_stream)
{
	auto_free struct crowd *crowd = calloc(1, sizeof *crowd);
	int harness_fd = connection_fd(e, -1);

	crowd->id = sandbox_make(e->d);
	crowd->d = connect_staying(e, by_stream);
	if (!crowd_start(crowd, run_by_waiting, run_by_queue))
		return;
	for (unsigned i = 0; i < CUTS; i++) {
		uint64_t ended = atomic_load(&crowd->ended);

		expect(until(20000, crowd->ended > ended + 5 + i));
		/* The library closes it when it sees it: not before this thread looked. */
		int fd = connection_fd(e, harness_fd);

		expect(fd >= 0 && shutdown(fd, SHUT_RDWR) == 0);
		if (!expect(until(RECONNECT_MS, crowd->reconnected == i + 1)))
			break;
	}
	crowd_end(crowd);
	expect(crowd->by_code[DSEC_OK] == crowd->ended && crowd->replayed > 0);
	auto_ran struct ran ran = command_run(crowd->d, crowd->id,
					      &(struct command){ .argv = { "/bin/cat", "/tmp/ran" },
								 .head_bytes = 1 << 20 });
	const struct dsec_output *output = ran.result ? ran_output(&ran, 1) : NULL;

	if (expect(output != NULL))
		runs_check(crowd, output->head.data, output->head.bytes);
	sandbox_end(crowd->d, crowd->id);
	dsec_close(crowd->d);
}

static void cut_connections_bring_results_back_and_nothing_runs_twice(struct engine *e)
{
	check_cuts(e, false);
}

static void so_they_do_too_over_the_stream(struct engine *e)
{
	check_cuts(e, true);
}

/* ---- streams ---- */

/* Cuts the newest connection and waits until the library has another. */
static void stream_cut(struct engine *e, int harness_fd)
{
	int fd = connection_fd(e, harness_fd);

	expect(fd >= 0 && shutdown(fd, SHUT_RDWR) == 0);
}

static void check_streams(struct engine *e, bool by_stream)
{
	enum { LINES = 3000, LINE = 8, EVERY = LINES * LINE / 8 };
	static char all[LINES * LINE + 1];
	struct dsec *d = connect_staying(e, by_stream);
	struct dsec_id id = sandbox_make(e->d);
	struct command c = SH("i=0; while [ $i -lt 3000 ]; do printf '%07d\\n' $i; i=$((i+1));"
			      "[ $((i % 100)) = 0 ] && sleep 0.05; done; exit 8");
	int harness_fd = connection_fd(e, -1);
	uint64_t cut_at = EVERY;
	unsigned cuts = 0;

	for (int i = 0; i < LINES; i++)
		(void)snprintf(all + i * LINE, LINE + 1, "%07d\n", i);
	c.flags = DSEC_EXEC_STREAM | DSEC_EXEC_CAPTURE;
	struct follower f = follower_of(d, command_start(d, id, &c, NULL));

	while (follower_step(&f, LAST_MS) && !f.last) {
		if (f.streams[0].next < cut_at)
			continue;
		stream_cut(e, harness_fd);
		cut_at = f.streams[0].next + EVERY;
		cuts++;
	}
	/* A machine that is slow to connect anew is cut less often while the program runs. */
	if (!expect(cuts >= 2 && f.result && f.result->reason == DSEC_EXIT))
		note("%u cuts, reason %u", cuts, f.result ? f.result->reason : 0);
	expect(f.result && f.result->exit_code == 8 && !f.streams[0].gaps);
	expect(follower_has(&f, 1, all, LINES * LINE));
	expect(f.result && f.result->outputs[0].head.bytes == LINES * LINE &&
	       !memcmp(f.result->outputs[0].head.data, all, LINES * LINE));
	follower_done(&f);
	sandbox_end(e->d, id);
	dsec_close(d);
}

static void streams_go_on_to_the_byte_when_connections_are_cut(struct engine *e)
{
	check_streams(e, false);
	check_streams(e, true);
}

/* Up to so many, in order: how many came. A gap, or a number again, is none of them. */
static uint32_t news_take(struct dsec *d, int64_t ticket, uint32_t count, uint64_t *seq)
{
	uint32_t taken = 0;
	bool good = true;

	while (good && taken < count) {
		struct dsec_event *event;

		if (dsec_wait(d, ticket, LAST_MS, &event) < 0)
			break;
		good = event->kind == DSEC_EV_STATE && event->offset > *seq;
		*seq = event->offset;
		taken += good;
		dsec_event_free(event);
	}
	return taken;
}

static void check_news(struct engine *e, bool by_stream)
{
	enum { ROUNDS = 30, EXECS = 4 };
	struct dsec *d = connect_staying(e, by_stream);
	struct dsec_id id = sandbox_make(e->d);
	struct dsec_select select = { .size = sizeof select, .count = 1, .ids = &id };
	struct dsec_subscribe_opts opts = { .size = sizeof opts, .select = &select };
	int64_t ticket = dsec_subscribe(d, NULL, &opts);
	int harness_fd = connection_fd(e, -1);
	struct dsec_event *event;
	uint64_t seq = 0;

	if (expect(ticket >= 0 && dsec_wait(d, ticket, LAST_MS, &event) == 0)) {
		expect(event->kind == DSEC_EV_STARTED);
		dsec_event_free(event);
	}
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < EXECS; i++) {
			auto_ran struct ran ran = shell_run(e->d, id, "true");

			expect(ran_exited(&ran, 0));
			/* Before they were read, or after. */
			if (i == EXECS / 2 && round % 3 == 0)
				stream_cut(e, harness_fd);
		}
		expect(news_take(d, ticket, 2 * EXECS, &seq) == 2 * EXECS);
	}
	sandbox_end(e->d, id);
	expect(news_take(d, ticket, 2, &seq) == 2);
	expect(dsec_cancel(d, ticket) == 0);
	(void)ticket_end(d, ticket);
	dsec_close(d);
}

static void what_happens_is_told_once_when_connections_are_cut(struct engine *e)
{
	check_news(e, false);
	check_news(e, true);
}

/* What was given and not answered is given again, and taken once. */
static void input_is_taken_once_when_connections_are_cut(struct engine *e)
{
	enum { CHUNK = 20000, COUNT = 60 };
	struct dsec *d = connect_staying(e, false);
	auto_free char *all = malloc(CHUNK * COUNT);
	struct dsec_id id = sandbox_make(e->d);
	struct command c = SH("cat; exit 4");
	int harness_fd = connection_fd(e, -1);
	struct dsec_event *event;

	for (int i = 0; i < CHUNK * COUNT; i++)
		all[i] = (char)(i * 31 + i / 8191);
	c.flags = DSEC_EXEC_STREAM | DSEC_EXEC_INPUT_STREAM;
	struct follower f = follower_of(d, command_start(d, id, &c, NULL));

	for (uint64_t i = 0; i <= COUNT; i++) {
		struct dsec_bytes bytes = { all + i * CHUNK, i < COUNT ? CHUNK : 0 };
		int64_t input = dsec_input(d, NULL, f.ticket, i * CHUNK, bytes);

		if (!expect(input >= 0))
			break;
		if (i % 10 == 5)
			stream_cut(e, harness_fd);
		while (dsec_wait(d, input, 0, &event) == -ETIMEDOUT)
			(void)follower_step(&f, 5); /* in vain is fine */
		expect(event->status.code == DSEC_OK);
		dsec_event_free(event);
		/* What nobody reads is not kept for ever. */
		if (bytes.bytes)
			expect(follower_until(&f, 1, (i + 1) * CHUNK, LAST_MS));
	}
	expect(follower_to_end(&f, LAST_MS) && f.result && f.result->exit_code == 4);
	expect(follower_has(&f, 1, all, CHUNK * COUNT) && !f.streams[0].gaps);
	follower_done(&f);
	sandbox_end(e->d, id);
	dsec_close(d);
}

/* A file may be another by then, what was given of one is gone; what is whole is asked again. */
static void files_are_lost_in_the_middle_and_written_once_when_cut(struct engine *e)
{
	enum { LINE_BYTES = 300000 }; /* more than a pipe holds */
	struct dsec *d = connect_staying(e, false);
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran made =
		shell_run(e->d, id, "head -c 9000000 /dev/zero >/tmp/large; : >/tmp/log");
	const struct dsec_file_opts large = { .size = sizeof large,
					      .path = bytes_of("/tmp/large") };
	const struct dsec_file_opts part = { .size = sizeof part, .path = bytes_of("/tmp/part") };
	auto_free char *text = calloc(1, LINE_BYTES);
	const struct dsec_file_opts line = { .size = sizeof line,
					     .flags = DSEC_FILE_APPEND,
					     .path = bytes_of("/tmp/log"),
					     .input = { text, LINE_BYTES } };
	int harness_fd = connection_fd(e, -1);
	struct dsec_event *event = NULL;
	int64_t reading, writing;

	expect(ran_exited(&made, 0));
	text[LINE_BYTES - 1] = '\n';
	reading = dsec_read(d, NULL, id, &large);
	expect(dsec_wait(d, reading, LAST_MS, &event) == 0 && event->kind == DSEC_EV_DATA);
	dsec_event_free(event);
	writing = dsec_write(d, NULL, id, &part);
	expect(input_give(d, writing, 0, bytes_of("half")).code == DSEC_OK);
	stream_cut(e, harness_fd);
	expect(ticket_end(d, reading).code == DSEC_LOST);
	expect(ticket_end(d, writing).code == DSEC_LOST);
	for (int i = 0; i < 20; i++) {
		int64_t adding = dsec_write(d, NULL, id, &line);

		if (i % 4 == 0)
			stream_cut(e, harness_fd);
		expect(ticket_end(d, adding).code == DSEC_OK);
	}
	auto_ran struct ran after = shell_run(e->d, id, "ls -A /tmp; wc -l </tmp/log");

	expect(ran_says(&after, "large\nlog\n20\n"));
	sandbox_end(e->d, id);
	dsec_close(d);
}

static const struct claim kills[] = {
	CLAIM(killed_engines_cost_what_they_had_and_the_handle_works_on),
	CLAIM(so_they_do_over_the_stream),
};
static const struct claim cuts[] = {
	CLAIM(cut_connections_bring_results_back_and_nothing_runs_twice),
	CLAIM(so_they_do_too_over_the_stream),
	CLAIM(streams_go_on_to_the_byte_when_connections_are_cut),
	CLAIM(what_happens_is_told_once_when_connections_are_cut),
	CLAIM(input_is_taken_once_when_connections_are_cut),
	CLAIM(files_are_lost_in_the_middle_and_written_once_when_cut),
};

static const char *const arguments[] = { "--sandboxes-max", "128", "--shards", "2", NULL };
static const struct suite suites[] = {
	SUITE("cuts", cuts, .arguments = arguments),
	SUITE("kills", kills, .arguments = arguments, .is_hurt = true),
};

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
