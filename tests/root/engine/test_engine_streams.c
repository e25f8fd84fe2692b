/*
 * Streams of execs: input, output as it comes, windows, readers that stop, and attaching. One
 * engine for all claims; each makes the sandboxes it needs and ends them.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_follow.h"
#include "tests/root/engine/engine_harness.h"

enum { MIB = 1 << 20, WAIT_MS = 20000, EVENTS = 110000 };

static struct follower stream_start(struct engine *e, struct dsec_id id, const char *script,
				    uint32_t flags)
{
	struct command c = SH(script);

	c.flags = DSEC_EXEC_STREAM | flags;
	return follower_of(e->d, command_start(e->d, id, &c, NULL));
}

static bool exited(const struct follower *f, int code)
{
	return f->result && f->last->status.code == DSEC_OK && f->result->reason == DSEC_EXIT &&
	       f->result->exit_code == code;
}

/* A file appears in the sandbox. */
static bool appears(struct engine *e, struct dsec_id id, const char *path)
{
	const struct command c = { .argv = { "test", "-e", path } };

	return until(WAIT_MS, ({
			     auto_ran struct ran ran = command_run(e->d, id, &c);
			     ran.result &&ran.result->exit_code == 0;
		     }));
}

/* ---- live ---- */

static void output_comes_as_it_is_written_and_input_is_answered(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_follower struct follower f =
		stream_start(e, id, "echo out; echo err >&2; while read x; do echo \"<$x>\"; done",
			     DSEC_EXEC_INPUT_STREAM);

	expect(follower_until(&f, 1, 4, WAIT_MS));
	expect(follower_until(&f, 2, 4, WAIT_MS));
	expect(follower_give(e->d, f.ticket, 0, "one\ntw") == DSEC_OK);
	expect(follower_until(&f, 1, 10, WAIT_MS));
	expect(!f.last);
	expect(follower_give(e->d, f.ticket, 6, "o\n") == DSEC_OK);
	expect(follower_until(&f, 1, 16, WAIT_MS));
	expect(follower_give(e->d, f.ticket, 8, "") == DSEC_OK);
	expect(follower_to_end(&f, WAIT_MS));
	expect(exited(&f, 0));
	expect(follower_has(&f, 1, "out\n<one>\n<two>\n", 16));
	expect(follower_has(&f, 2, "err\n", 4));
	sandbox_end(e->d, id);
}

static void input_in_the_wrong_place_is_refused_and_repeated_input_is_taken_once(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_follower struct follower f = stream_start(e, id, "cat", DSEC_EXEC_INPUT_STREAM);

	expect(follower_give(e->d, f.ticket, 1, "x") == DSEC_INVALID);
	expect(follower_give(e->d, f.ticket, 0, "abc") == DSEC_OK);
	expect(follower_give(e->d, f.ticket, 0, "abc") == DSEC_OK);
	expect(follower_give(e->d, f.ticket, 2, "cd") == DSEC_INVALID);
	expect(follower_give(e->d, f.ticket, 3, "de") == DSEC_OK);
	expect(follower_give(e->d, f.ticket, 4, "") == DSEC_INVALID);
	expect(follower_give(e->d, f.ticket, 5, "") == DSEC_OK);
	expect(follower_to_end(&f, WAIT_MS));
	expect(follower_has(&f, 1, "abcde", 5));
	sandbox_end(e->d, id);
}

static void input_that_nobody_reads_ends_with_its_program(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_follower struct follower closed =
		stream_start(e, id, "exec <&-; echo closed; sleep 0.3", DSEC_EXEC_INPUT_STREAM);
	auto_follower struct follower none = stream_start(e, id, "sleep 0.3", 0);
	auto_free char *big = malloc(MIB);
	int64_t waits;

	expect(follower_until(&closed, 1, 7, WAIT_MS));
	/* What is taken before is written in vain; then it is known. */
	(void)follower_give(e->d, closed.ticket, 0, "x");
	expect(follower_give(e->d, closed.ticket, 1, "y") == DSEC_FAILED);
	expect(follower_give(e->d, none.ticket, 0, "x") == DSEC_INVALID);
	expect(follower_to_end(&closed, WAIT_MS));
	expect(follower_to_end(&none, WAIT_MS));
	/* More than any pipe holds, to one that sleeps and is gone. */
	auto_follower struct follower deaf =
		stream_start(e, id, "sleep 0.3", DSEC_EXEC_INPUT_STREAM);

	memset(big, 'x', MIB);
	expect(ticket_end(e->d,
			  dsec_input(e->d, NULL, deaf.ticket, 0, (struct dsec_bytes){ big, MIB }))
		       .code == DSEC_OK);
	waits = dsec_input(e->d, NULL, deaf.ticket, MIB, (struct dsec_bytes){ "y", 1 });
	expect(follower_to_end(&deaf, WAIT_MS) && exited(&deaf, 0));
	expect(ticket_end(e->d, waits).code == DSEC_FAILED);
	sandbox_end(e->d, id);
}

/* Reads along until the input was taken: what it is taken by waits for us. */
static bool input_passes(struct follower *f, uint64_t offset, const char *bytes, uint32_t count)
{
	int64_t input =
		dsec_input(f->d, NULL, f->ticket, offset, (struct dsec_bytes){ bytes, count });
	struct dsec_event *event;
	bool taken;

	while (dsec_wait(f->d, input, 0, &event) == -ETIMEDOUT)
		(void)follower_step(f, 10); /* in vain is fine */
	taken = event->status.code == DSEC_OK;
	dsec_event_free(event);
	return taken;
}

static void megabytes_pass_through_a_program_unchanged(struct engine *e)
{
	enum { CHUNK = 200000, COUNT = 40 };
	struct dsec_id id = sandbox_make(e->d);
	auto_follower struct follower f = stream_start(e, id, "cat", DSEC_EXEC_INPUT_STREAM);
	auto_free char *all = malloc(CHUNK * COUNT);

	for (int i = 0; i < CHUNK * COUNT; i++)
		all[i] = (char)(i * 31 + i / 8191);
	for (uint64_t i = 0; i < COUNT; i++)
		expect(input_passes(&f, i * CHUNK, all + i * CHUNK, CHUNK));
	expect(input_passes(&f, CHUNK * COUNT, NULL, 0));
	expect(follower_to_end(&f, WAIT_MS) && exited(&f, 0));
	expect(follower_has(&f, 1, all, CHUNK * COUNT));
	sandbox_end(e->d, id);
}

/* ---- windows ---- */

static void an_unread_stream_stalls_neither_the_other_nor_another_exec(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct command c = SH("yes & sleep 0.3; echo err >&2; exec sleep 60");
	uint64_t before = process_rss_bytes(engine_pid(e)), out_bytes = 0, err_bytes = 0;
	auto_free struct dsec_event **kept = calloc(EVENTS, sizeof *kept);
	unsigned count = 0;
	int64_t ticket;

	c.flags = DSEC_EXEC_STREAM;
	c.window_bytes = 100000;
	ticket = command_start(e->d, id, &c, NULL);
	/* Nothing is freed: no credit is given. */
	while (count < EVENTS - 1 && !err_bytes &&
	       dsec_wait(e->d, ticket, WAIT_MS, &kept[count]) == 0) {
		out_bytes += kept[count]->stream == 1 ? kept[count]->bytes : 0;
		err_bytes += kept[count]->stream == 2 ? kept[count]->bytes : 0;
		count++;
	}
	expect(err_bytes == 4);
	expect(out_bytes == 100000);
	expect(dsec_wait(e->d, ticket, 300, &kept[count]) == -ETIMEDOUT);
	auto_ran struct ran other = shell_run(e->d, id, "echo other");

	expect(ran_says(&other, "other\n"));
	expect(process_rss_bytes(engine_pid(e)) < before + 16 * MIB);
	while (count)
		dsec_event_free(kept[--count]);
	/* Now it goes on. */
	auto_follower struct follower rest = follower_of(e->d, ticket);

	rest.streams[0].from = rest.streams[0].next = out_bytes;
	expect(follower_until(&rest, 1, out_bytes + 500000, WAIT_MS) && !rest.wrong_offset);
	sandbox_end(e->d, id);
}

static void a_program_without_a_reader_does_not_wait(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct dsec *other = engine_connect(e);
	struct command c = SH("head -c 3000000 /dev/zero; touch /tmp/written");
	struct dsec_event *event = NULL;
	int64_t ticket, left;

	/* It waits for one that reads nothing, until that cancels. */
	c.flags = DSEC_EXEC_STREAM;
	ticket = command_start(e->d, id, &c, NULL);
	expect(dsec_wait(e->d, ticket, WAIT_MS, &event) == 0);
	expect(dsec_cancel(e->d, ticket) == 0);
	dsec_event_free(event);
	expect(ticket_end(e->d, ticket).code == DSEC_CANCELLED);
	expect(appears(e, id, "/tmp/written"));
	/* And so with one whose connection goes. */
	c = (struct command)SH("head -c 3000000 /dev/zero; touch /tmp/written-too");
	c.flags = DSEC_EXEC_STREAM;
	left = command_start(other, id, &c, NULL);
	expect(left >= 0);
	dsec_close(other);
	expect(appears(e, id, "/tmp/written-too"));
	sandbox_end(e->d, id);
}

static void streams_are_captured_too_where_that_is_asked(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct command c = SH("head -c 5000 /dev/zero; printf end; echo err >&2");
	const struct dsec_output *out;

	c.flags = DSEC_EXEC_STREAM | DSEC_EXEC_CAPTURE;
	c.head_bytes = 100;
	c.tail_bytes = 5;
	auto_follower struct follower f = follower_of(e->d, command_start(e->d, id, &c, NULL));

	expect(follower_to_end(&f, WAIT_MS) && exited(&f, 0));
	expect(f.streams[0].next == 5003);
	out = &f.result->outputs[0];
	expect(out->truncated && out->total_bytes == 5003);
	expect(out->head.bytes == 100 && out->tail.bytes == 5);
	expect(!memcmp(out->tail.data, "\0\0end", 5));
	expect(!f.result->outputs[1].truncated && f.result->outputs[1].head.bytes == 4);
	sandbox_end(e->d, id);
}

/* ---- attaching ---- */

static void attaching_reads_from_an_offset_while_it_runs_and_after(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_follower struct follower first = stream_start(
		e, id, "printf 0123456789; read x; printf abcdef; exit 4", DSEC_EXEC_INPUT_STREAM);

	expect(follower_until(&first, 1, 10, WAIT_MS));
	auto_follower struct follower second = follower_attach(e->d, id, first.exec, 4, 0);

	expect(follower_until(&second, 1, 10, WAIT_MS));
	/* Input is taken from whoever reads along, too. */
	expect(follower_give(e->d, second.ticket, 0, "go\n") == DSEC_OK);
	expect(follower_to_end(&first, WAIT_MS) && exited(&first, 4));
	expect(follower_to_end(&second, WAIT_MS) && exited(&second, 4));
	expect(follower_has(&first, 1, "0123456789abcdef", 16));
	expect(follower_has(&second, 1, "456789abcdef", 12));
	auto_follower struct follower later = follower_attach(e->d, id, first.exec, 9, 0);

	expect(follower_to_end(&later, WAIT_MS) && exited(&later, 4));
	expect(follower_has(&later, 1, "9abcdef", 7));
	auto_follower struct follower beyond = follower_attach(e->d, id, first.exec, 17, 0);

	expect(follower_to_end(&beyond, WAIT_MS));
	expect(beyond.last && beyond.last->status.code == DSEC_INVALID);
	sandbox_end(e->d, id);
}

/* The program runs to its end without a reader: of a megabyte head and tail are kept. */
static void what_is_gone_is_told_to_the_byte(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_ran struct ran ran = shell_run(
		e->d, id, "printf head; head -c 1000000 /dev/zero | tr '\\0' x; printf tail");
	auto_follower struct follower f =
		follower_attach(e->d, id, ran.event ? ran.event->exec : 0, 2, 0);
	struct followed *out = &f.streams[0];

	expect(follower_to_end(&f, WAIT_MS) && exited(&f, 0));
	expect(out->next == 1000008 && out->gaps == 1);
	expect(out->missing == 1000008 - 2 * (32 << 10));
	expect(out->bytes && !memcmp(out->bytes, "adxx", 4));
	expect(out->bytes && !memcmp(out->bytes + out->next - out->from - 5, "xtail", 5));
	sandbox_end(e->d, id);
}

static void many_readers_read_and_a_stuck_one_blocks_nobody(struct engine *e)
{
	enum { READERS = 8, BYTES = 2000000 };
	struct dsec_id id = sandbox_make(e->d);
	auto_follower struct follower first = stream_start(
		e, id, "read x; head -c 2000000 /dev/zero; exit 5", DSEC_EXEC_INPUT_STREAM);
	struct follower readers[READERS], stuck;

	expect(follower_step(&first, WAIT_MS)); /* STARTED */
	stuck = follower_attach(e->d, id, first.exec, 0, 0);
	for (int i = 0; i < READERS; i++)
		readers[i] = follower_attach(e->d, id, first.exec, 0, 0);
	expect(follower_give(e->d, first.ticket, 0, "go\n") == DSEC_OK);
	/* In turns: the foremost is the one that the program waits for. */
	for (bool more = true; more;) {
		more = follower_step(&first, first.last ? 0 : 1000);
		for (int i = 0; i < READERS; i++)
			more |= follower_step(&readers[i], readers[i].last ? 0 : 1000);
	}
	expect(exited(&first, 5) && first.streams[0].next == BYTES && !first.wrong_offset);
	for (int i = 0; i < READERS; i++) {
		expect(exited(&readers[i], 5) && !readers[i].wrong_offset);
		expect(readers[i].streams[0].next == BYTES);
		follower_done(&readers[i]);
	}
	/* It reads again: what it was sent, the head, a gap, and the tail. */
	expect(follower_to_end(&stuck, WAIT_MS) && exited(&stuck, 5));
	expect(stuck.streams[0].next == BYTES && stuck.streams[0].missing > 0);
	follower_done(&stuck);
	sandbox_end(e->d, id);
}

static void so_far_ends_without_waiting_and_holds_nobody_back(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_follower struct follower f =
		stream_start(e, id, "echo now; read x; echo later", DSEC_EXEC_INPUT_STREAM);

	expect(follower_until(&f, 1, 4, WAIT_MS));
	auto_follower struct follower log =
		follower_attach(e->d, id, f.exec, 0, DSEC_ATTACH_SO_FAR);

	expect(follower_to_end(&log, WAIT_MS));
	expect(log.result && log.result->reason == DSEC_RUNNING);
	expect(follower_has(&log, 1, "now\n", 4));
	expect(follower_give(e->d, f.ticket, 0, "") == DSEC_OK);
	expect(follower_to_end(&f, WAIT_MS));
	auto_follower struct follower whole =
		follower_attach(e->d, id, f.exec, 0, DSEC_ATTACH_SO_FAR);

	expect(follower_to_end(&whole, WAIT_MS) && exited(&whole, 0));
	expect(follower_has(&whole, 1, "now\nlater\n", 10));
	sandbox_end(e->d, id);
}

static void a_client_that_went_is_followed_from_where_it_was(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct dsec *other = engine_connect(e);
	struct command c =
		SH("i=0; while [ $i -lt 4000 ]; do printf '%07d\\n' $i; i=$((i+1)); done");
	char expected[4000 * 8 + 1];

	for (int i = 0; i < 4000; i++)
		(void)snprintf(expected + i * 8, 9, "%07d\n", i);
	c.flags = DSEC_EXEC_STREAM;
	struct follower before = follower_of(other, command_start(other, id, &c, NULL));

	expect(follower_until(&before, 1, 800, WAIT_MS));
	auto_follower struct follower after =
		follower_attach(e->d, id, before.exec, before.streams[0].next, 0);

	dsec_close(other);
	before.ticket = -1;
	expect(follower_to_end(&after, WAIT_MS) && exited(&after, 0));
	expect(!memcmp(before.streams[0].bytes, expected, before.streams[0].next));
	expect(follower_has(&after, 1, expected + before.streams[0].next,
			    32000 - before.streams[0].next));
	follower_done(&before);
	sandbox_end(e->d, id);
}

/* ---- what is kept ---- */

static uint32_t attach_code(struct engine *e, struct dsec_id id, uint64_t exec, int *ret_error)
{
	auto_follower struct follower f = follower_attach(e->d, id, exec, 0, 0);

	if (!expect(follower_to_end(&f, WAIT_MS)))
		return UINT32_MAX;
	*ret_error = f.last->status.error;
	return f.last->status.code;
}

static void the_forgotten_the_unknown_and_the_destroyed_are_told_apart(struct engine *e)
{
	enum { KEPT = 64 }; /* of a sandbox: config.h */
	struct dsec_id id = sandbox_make(e->d);
	int error;

	for (int i = 0; i < KEPT + 3; i++) {
		auto_ran struct ran ran = shell_run(e->d, id, "echo $$");

		expect(ran_exited(&ran, 0));
	}
	expect(attach_code(e, id, 3, &error) == DSEC_ABSENT && error == ESTALE);
	expect(attach_code(e, id, 4, &error) == DSEC_OK);
	expect(attach_code(e, id, KEPT + 3, &error) == DSEC_OK);
	expect(attach_code(e, id, KEPT + 4, &error) == DSEC_ABSENT && error == ENOENT);
	expect(attach_code(e, id, UINT64_MAX, &error) == DSEC_ABSENT && error == ENOENT);
	sandbox_end(e->d, id);
	expect(attach_code(e, id, 4, &error) == DSEC_ABSENT && error == 0);
}

static void a_destroyed_sandbox_ends_its_readers_with_a_gap(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	auto_follower struct follower f = stream_start(e, id, "yes", 0);
	auto_follower struct follower g = stream_start(e, id, "head -c 500000 /dev/zero", 0);

	expect(follower_step(&f, WAIT_MS));
	expect(follower_step(&g, WAIT_MS));
	sandbox_end(e->d, id);
	expect(follower_to_end(&f, WAIT_MS) && f.result && f.result->reason == DSEC_KILLED);
	expect(f.result && f.streams[0].next == f.result->outputs[0].total_bytes);
	expect(follower_to_end(&g, WAIT_MS));
}

static const struct claim claims[] = {
	CLAIM(output_comes_as_it_is_written_and_input_is_answered),
	CLAIM(input_in_the_wrong_place_is_refused_and_repeated_input_is_taken_once),
	CLAIM(input_that_nobody_reads_ends_with_its_program),
	CLAIM(megabytes_pass_through_a_program_unchanged),
	CLAIM(an_unread_stream_stalls_neither_the_other_nor_another_exec),
	CLAIM(a_program_without_a_reader_does_not_wait),
	CLAIM(streams_are_captured_too_where_that_is_asked),
	CLAIM(attaching_reads_from_an_offset_while_it_runs_and_after),
	CLAIM(what_is_gone_is_told_to_the_byte),
	CLAIM(many_readers_read_and_a_stuck_one_blocks_nobody),
	CLAIM(so_far_ends_without_waiting_and_holds_nobody_back),
	CLAIM(a_client_that_went_is_followed_from_where_it_was),
	CLAIM(the_forgotten_the_unknown_and_the_destroyed_are_told_apart),
	CLAIM(a_destroyed_sandbox_ends_its_readers_with_a_gap),
};

static const char *const arguments[] = { "--sandboxes-max", "64", "--shards", "2", NULL };
static const struct suite suites[] = { SUITE("streams", claims, .arguments = arguments) };

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
