/*
 * Files of sandboxes on their way: by credit through a small arena, whole or not at all, and what
 * ends them: a cancel, a client's death, the sandbox's end, a full disk, a limit. One engine for
 * all claims.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/file_client.h"

enum {
	MIB = 1 << 20,
	PIECE_BYTES = 128 << 10,
	PIECES_MAX = 4, /* under way at once */
	FILES_MAX = 16,
};

/* What AddressSanitizer keeps of freed memory, to see who uses it. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KEPT_BYTES (512 * MIB)
#endif
#endif
#ifndef KEPT_BYTES
#define KEPT_BYTES 0
#endif

#define FILE_OPTS(...)                                                                             \
	(&(const struct dsec_file_opts){ .size = sizeof(struct dsec_file_opts), __VA_ARGS__ })

static const char *const nothing_left = "ls -A /tmp | wc -l";

static int64_t write_start(struct dsec *d, struct dsec_id id, const char *path)
{
	int64_t ticket = dsec_write(d, NULL, id, FILE_OPTS(.path = bytes_of(path)));

	if (!expect(ticket >= 0))
		note("%s", dsec_error(d, ticket));
	return ticket;
}

static bool sandbox_says(struct engine *e, struct dsec_id id, const char *script, const char *text)
{
	auto_ran struct ran ran = shell_run(e->d, id, script);

	return ran_says(&ran, text);
}

/* ---- large ones ---- */

/* The file's content: every piece differs. */
static void piece_fill(char *piece, uint64_t at)
{
	uint64_t state = at * 0x9e3779b97f4a7c15ull + 1;

	for (size_t i = 0; i < PIECE_BYTES; i += sizeof state) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		memcpy(piece + i, &state, sizeof state);
	}
}

/* Where the machine is slow it is also small. */
static uint64_t large_bytes(void)
{
	return (slowness() > 1 ? 32ull : 1024ull) * MIB;
}

static bool large_send(struct dsec *d, int64_t ticket)
{
	auto_free char *piece = malloc(PIECE_BYTES);
	int64_t inputs[PIECES_MAX];
	unsigned count = 0;
	bool good = true;

	for (uint64_t at = 0; at < large_bytes() && good; at += PIECE_BYTES) {
		if (at >= PIECES_MAX * (uint64_t)PIECE_BYTES)
			good = ticket_end(d, inputs[count % PIECES_MAX]).code == DSEC_OK;
		piece_fill(piece, at);
		inputs[count++ % PIECES_MAX] =
			dsec_input(d, NULL, ticket, at, (struct dsec_bytes){ piece, PIECE_BYTES });
	}
	for (unsigned i = 0; i < PIECES_MAX && good; i++)
		good = ticket_end(d, inputs[count++ % PIECES_MAX]).code == DSEC_OK;
	return good &&
	       input_give(d, ticket, large_bytes(), (struct dsec_bytes){ 0 }).code == DSEC_OK;
}

/* Takes a read's DATA and compares it. */
static bool large_receive(struct dsec *d, int64_t ticket)
{
	auto_free char *piece = malloc(PIECE_BYTES);
	uint64_t at = 0, filled = UINT64_MAX;
	bool good = true, last = false;

	while (!last) {
		struct dsec_event *event;

		if (dsec_wait(d, ticket, -1, &event) < 0)
			return false;
		for (uint64_t i = 0; event->kind == DSEC_EV_DATA && i < event->bytes; at++, i++) {
			if (at / PIECE_BYTES != filled)
				piece_fill(piece, (filled = at / PIECE_BYTES) * PIECE_BYTES);
			good &= ((const char *)event->data)[i] == piece[at % PIECE_BYTES];
		}
		last = event->flags & DSEC_LAST;
		good &= event->status.code == DSEC_OK;
		dsec_event_free(event);
	}
	return good && at == large_bytes();
}

static void a_large_file_goes_both_ways_through_a_small_arena(struct engine *e)
{
	const struct dsec_open_opts opts = { .size = sizeof opts,
					     .address = e->socket,
					     .arena_bytes = MIB };
	struct dsec_create_opts create = create_opts(1);

	create.disk_bytes = large_bytes() + 64ull * MIB;
	auto_made struct made made = create_run(e->d, &create);
	struct dsec_id id = made.ids[0];
	uint64_t before = process_rss_bytes(engine_pid(e)), after;
	struct dsec *d = NULL;
	double begun, sent, received;
	int64_t ticket;

	if (!expect(dsec_open(&opts, &d) == 0))
		return;
	begun = clock_ms();
	ticket = write_start(d, id, "/tmp/large");
	expect(large_send(d, ticket));
	auto_filed struct filed written = filed_wait(d, ticket, false);

	sent = clock_ms();
	expect(filed_well(&written) && written.result.bytes == large_bytes());
	ticket = dsec_read(d, NULL, id, FILE_OPTS(.path = bytes_of("/tmp/large")));
	expect(large_receive(d, ticket));
	received = clock_ms();
	after = process_rss_bytes(engine_pid(e));
	note("%d MiB in %.0f ms in, %.0f ms out", (int)(large_bytes() / MIB), sent - begun,
	     received - sent);
	if (!expect(after < before + 16 * MIB + KEPT_BYTES))
		note("the engine grew from %llu to %llu bytes", (unsigned long long)before,
		     (unsigned long long)after);
	dsec_close(d);
	sandbox_end(e->d, id);
}

static void a_reader_that_stops_costs_only_its_window(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran made =
		shell_run(e->d, id, "head -c 64000000 /dev/zero >/tmp/a; echo b >/tmp/b");
	uint64_t before = process_rss_bytes(engine_pid(e));
	int64_t ticket = dsec_read(e->d, NULL, id, FILE_OPTS(.path = bytes_of("/tmp/a")));

	expect(ran_exited(&made, 0));
	/* Nobody takes its events; others go on. */
	for (int i = 0; i < 20; i++) {
		auto_filed struct filed other = file_read(e->d, id, "/tmp/b", 0);

		expect(filed_says(&other, "b\n"));
	}
	expect(process_rss_bytes(engine_pid(e)) < before + 4 * MIB + KEPT_BYTES);
	expect(dsec_cancel(e->d, ticket) == 0);
	expect(ticket_end(e->d, ticket).code == DSEC_CANCELLED);
	sandbox_end(e->d, id);
}

/* ---- whole or not at all ---- */

static void a_write_appears_at_its_end_and_not_before(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	int64_t ticket = write_start(e->d, id, "/tmp/a");

	expect(input_give(e->d, ticket, 0, bytes_of("half")).code == DSEC_OK);
	expect(sandbox_says(e, id, nothing_left, "0\n"));
	expect(input_give(e->d, ticket, 4, bytes_of("whole")).code == DSEC_OK);
	expect(input_give(e->d, ticket, 9, (struct dsec_bytes){ 0 }).code == DSEC_OK);
	auto_filed struct filed written = filed_wait(e->d, ticket, false);

	expect(filed_well(&written) && written.result.bytes == 9);
	expect(sandbox_says(e, id, "cat /tmp/a; ls -A /tmp", "halfwholea\n"));
	sandbox_end(e->d, id);
}

static void readers_of_an_old_file_see_the_old_or_the_new_one_whole(struct engine *e)
{
	struct command watch =
		SH("echo aaaaaaaa >/tmp/a; while [ ! -e /tmp/end ]; do cat /tmp/a; done |"
		   "sort -u");
	struct dsec_id id = sandbox_make(e->d);
	int64_t ticket = command_start(e->d, id, &watch, NULL);

	expect(until(15000, sandbox_says(e, id, "test -s /tmp/a", "")));
	for (unsigned i = 0; i < fewer(50, 10); i++) {
		auto_filed struct filed written =
			file_write(e->d, id, "/tmp/a", i % 2 ? "aaaaaaaa\n" : "bbbbbbbb\n");

		expect(filed_well(&written));
	}
	auto_filed struct filed end = file_write(e->d, id, "/tmp/end", "");
	auto_ran struct ran seen = command_wait(e->d, ticket);

	expect(filed_well(&end));
	expect(ran_says(&seen, "aaaaaaaa\nbbbbbbbb\n"));
	sandbox_end(e->d, id);
}

static void a_cancelled_write_never_appears_and_leaves_nothing(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);

	for (unsigned i = 0; i < fewer(20, 6); i++) {
		int64_t ticket = write_start(e->d, id, "/tmp/a");

		if (i % 3)
			expect(input_give(e->d, ticket, 0, bytes_of("half")).code == DSEC_OK);
		expect(dsec_cancel(e->d, ticket) == 0);
		expect(ticket_end(e->d, ticket).code == DSEC_CANCELLED);
	}
	expect(sandbox_says(e, id, nothing_left, "0\n"));
	sandbox_end(e->d, id);
}

static void a_write_past_its_time_never_appears(struct engine *e)
{
	struct dsec_call call = { .size = sizeof call, .timeout_ms = 100 };
	struct dsec_id id = sandbox_make(e->d);
	int64_t ticket = dsec_write(e->d, &call, id, FILE_OPTS(.path = bytes_of("/tmp/a")));

	expect(input_give(e->d, ticket, 0, bytes_of("half")).code == DSEC_OK);
	expect(ticket_end(e->d, ticket).code == DSEC_DEADLINE);
	expect(sandbox_says(e, id, nothing_left, "0\n"));
	sandbox_end(e->d, id);
}

/* Another process, which is killed in the middle. */
static void a_client_that_dies_in_the_middle_leaves_nothing(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	int ready[2];
	char byte;
	pid_t pid;

	if (!expect(pipe(ready) == 0))
		return;
	pid = fork();
	if (pid == 0) {
		const struct dsec_open_opts opts = { .size = sizeof opts, .address = e->socket };
		struct dsec *d;
		int64_t ticket;

		if (dsec_open(&opts, &d) < 0)
			_exit(1);
		ticket = dsec_write(d, NULL, id, FILE_OPTS(.path = bytes_of("/tmp/a")));
		if (input_give(d, ticket, 0, bytes_of("half")).code)
			_exit(1);
		(void)!write(ready[1], "r", 1);
		for (;;)
			(void)pause();
	}
	(void)close(ready[1]);
	expect(read(ready[0], &byte, 1) == 1);
	(void)close(ready[0]);
	expect(until(15000, engine_running(e, "dsec-file") == 1));
	(void)kill(pid, SIGKILL);
	(void)waitpid(pid, NULL, 0);
	expect(until(15000, engine_running(e, "dsec-file") == 0));
	expect(sandbox_says(e, id, nothing_left, "0\n"));
	sandbox_end(e->d, id);
}

static void a_full_disk_is_said_and_gives_its_room_back(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(1);
	auto_free char *text = calloc(1, 700000);

	opts.disk_bytes = 4 * MIB;
	auto_made struct made made = create_run(e->d, &opts);
	struct dsec_id id = made.ids[0];
	int64_t ticket = write_start(e->d, id, "/tmp/a");
	struct dsec_status given = { 0 };
	uint64_t at = 0;

	while (!given.code && at < 64 * MIB) {
		given = input_give(e->d, ticket, at, (struct dsec_bytes){ text, 700000 });
		at += 700000;
	}
	auto_filed struct filed filed = filed_wait(e->d, ticket, false);

	expect(filed_failed(&filed, ENOSPC) && !strcmp(filed.status.step, "file.write") &&
	       filed.status.blame == DSEC_BLAME_GUEST);
	expect(at < 8 * MIB);
	expect(sandbox_says(e, id, nothing_left, "0\n"));
	auto_filed struct filed again =
		file_run(e->d, id,
			 FILE_OPTS(.verb = DSEC_FILE_WRITE, .path = bytes_of("/tmp/b"),
				   .input = { text, 700000 }));

	expect(filed_well(&again));
	sandbox_end(e->d, id);
}

static void more_than_bytes_max_is_refused(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_filed struct filed filed =
		file_run(e->d, id,
			 FILE_OPTS(.verb = DSEC_FILE_WRITE, .path = bytes_of("/tmp/a"),
				   .bytes_max = 3, .input = bytes_of("four")));

	expect(filed_failed(&filed, EFBIG));
	expect(sandbox_says(e, id, nothing_left, "0\n"));
	sandbox_end(e->d, id);
}

/* ---- the sandbox's end ---- */

static void destroying_ends_what_is_under_way(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran made = shell_run(e->d, id, "head -c 9000000 /dev/zero >/tmp/a");
	int64_t writes[4], reads[4];
	double begun;

	expect(ran_exited(&made, 0));
	for (int i = 0; i < 4; i++) {
		writes[i] = write_start(e->d, id, "/tmp/b");
		reads[i] = dsec_read(e->d, NULL, id, FILE_OPTS(.path = bytes_of("/tmp/a")));
	}
	expect(input_give(e->d, writes[0], 0, bytes_of("half")).code == DSEC_OK);
	begun = clock_ms();
	sandbox_end(e->d, id);
	expect(clock_ms() - begun < longer(15000));
	for (int i = 0; i < 4; i++) {
		expect(ticket_end(e->d, writes[i]).code == DSEC_ABSENT);
		expect(ticket_end(e->d, reads[i]).code == DSEC_ABSENT);
	}
	auto_filed struct filed after = file_read(e->d, id, "/tmp/a", 0);

	expect(after.status.code == DSEC_ABSENT);
}

static void one_under_way_keeps_an_idle_sandbox(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(1);

	opts.idle_ttl_s = 1;
	auto_made struct made made = create_run(e->d, &opts);
	struct dsec_id id = made.ids[0];
	int64_t ticket = write_start(e->d, id, "/tmp/a");

	expect(!until(fewer(2500, 625), !list_has(e->d, id)));
	expect(input_give(e->d, ticket, 0, (struct dsec_bytes){ 0 }).code == DSEC_OK);
	expect(ticket_end(e->d, ticket).code == DSEC_OK);
	expect(until(15000, !list_has(e->d, id)));
}

static void they_have_a_limit_of_their_own_and_are_no_execs(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	int64_t tickets[FILES_MAX];

	for (int i = 0; i < FILES_MAX; i++)
		tickets[i] = write_start(e->d, id, "/tmp/a");
	auto_filed struct filed more = file_read(e->d, id, "/etc/passwd", 0);
	auto_ran struct ran exec = shell_run(e->d, id, "exit 7");

	expect(more.status.code == DSEC_REFUSED && more.status.retry_after_ms &&
	       !strcmp(more.status.step, "file.files_max"));
	expect(ran_exited(&exec, 7) && exec.result && exec.result->exec == 1);
	expect(holdings_now(e->d).execs == 0);
	for (int i = 0; i < FILES_MAX; i++) {
		expect(dsec_cancel(e->d, tickets[i]) == 0);
		expect(ticket_end(e->d, tickets[i]).code == DSEC_CANCELLED);
	}
	expect(until(15000, ({
			     auto_filed struct filed again =
				     file_verb(e->d, id, DSEC_FILE_STAT, "/");

			     again.status.code == DSEC_OK;
		     })));
	sandbox_end(e->d, id);
}

static const struct claim claims[] = {
	CLAIM(a_large_file_goes_both_ways_through_a_small_arena),
	CLAIM(a_reader_that_stops_costs_only_its_window),
	CLAIM(a_write_appears_at_its_end_and_not_before),
	CLAIM(readers_of_an_old_file_see_the_old_or_the_new_one_whole),
	CLAIM(a_cancelled_write_never_appears_and_leaves_nothing),
	CLAIM(a_write_past_its_time_never_appears),
	CLAIM(a_client_that_dies_in_the_middle_leaves_nothing),
	CLAIM(a_full_disk_is_said_and_gives_its_room_back),
	CLAIM(more_than_bytes_max_is_refused),
	CLAIM(destroying_ends_what_is_under_way),
	CLAIM(one_under_way_keeps_an_idle_sandbox),
	CLAIM(they_have_a_limit_of_their_own_and_are_no_execs),
};

static const char *const arguments[] = { "--sandboxes-max", "64", "--shards", "2", NULL };
static const struct suite suites[] = { SUITE("transfers", claims, .arguments = arguments) };

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
