/*
 * Limits: what is over one is refused at once, typed, with a hint, and everything is accounted for.
 * An engine per limit.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

enum { SANDBOXES_MAX = 16, TEN_TIMES = 160, IN_FLIGHT = 10, EXECS_MAX = 4, CLIENTS_MAX = 6 };

static bool is_accounted_for(const struct made *made, uint32_t asked)
{
	bool holds =
		made->created + made->refused == asked && !made->failed && !made->last.code &&
		(!made->refused || (made->trouble.code == DSEC_REFUSED && made->retry_ms_min > 0));

	if (!holds)
		note("created %u refused %u failed %u of %u, first at \"%s\" error %d, last %u",
		     made->created, made->refused, made->failed, asked, made->trouble.step,
		     made->trouble.error, made->last.code);
	return holds;
}

static void ten_times_the_capacity_in_one_create_is_created_or_refused(struct engine *e)
{
	for (int i = 0; i < 5; i++) {
		struct dsec_create_opts opts = create_opts(TEN_TIMES);
		double begun_ms = clock_ms();
		auto_made struct made made = create_run(e->d, &opts);

		expect(is_accounted_for(&made, TEN_TIMES));
		expect(made.created == SANDBOXES_MAX);
		expect(holdings_now(e->d).sandboxes == made.created);
		expect(list_count(e->d) == made.created);
		/* Full: one more is refused, and at once. */
		opts.count = 1;
		begun_ms = clock_ms();
		auto_made struct made more = create_run(e->d, &opts);

		expect(more.refused == 1 && clock_ms() - begun_ms < longer(1000));
		expect(sandboxes_end(e->d, made.ids, made.created).code == DSEC_OK);
	}
}

static void ten_times_the_capacity_in_many_creates_is_created_or_refused(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(SANDBOXES_MAX);
	struct dsec *other = engine_connect(e);
	int64_t tickets[IN_FLIGHT];
	uint32_t created = 0;
	struct dsec_id ids[SANDBOXES_MAX];

	for (int i = 0; i < IN_FLIGHT; i++)
		tickets[i] = create_start(i % 2 ? other : e->d, &opts, NULL);
	for (int i = 0; i < IN_FLIGHT; i++) {
		auto_made struct made made =
			create_wait(i % 2 ? other : e->d, tickets[i], SANDBOXES_MAX);

		expect(is_accounted_for(&made, SANDBOXES_MAX));
		for (uint32_t n = 0; n < made.created && created < SANDBOXES_MAX; n++)
			ids[created++] = made.ids[n];
	}
	expect(created == SANDBOXES_MAX && holdings_now(e->d).sandboxes == created);
	expect(sandboxes_end(e->d, ids, created).code == DSEC_OK);
	dsec_close(other);
}

static void what_was_refused_fits_when_there_is_room(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(SANDBOXES_MAX);
	auto_made struct made first = create_run(e->d, &opts);

	expect(first.created == SANDBOXES_MAX);
	for (int i = 0; i < SANDBOXES_MAX; i++) {
		opts.count = 1;
		auto_made struct made refused = create_run(e->d, &opts);

		expect(refused.refused == 1);
		sandbox_end(e->d, first.ids[i]);
		/* Which shard a single one goes to turns round: the one with room is next. */
		auto_made struct made second = create_run(e->d, &opts);
		auto_made struct made third = create_run(e->d, &opts);

		expect(second.created + third.created == 1);
		first.ids[i] = second.created ? second.ids[0] : third.ids[0];
	}
	expect(sandboxes_end(e->d, first.ids, SANDBOXES_MAX).code == DSEC_OK);
}

static void a_limit_that_shards_cannot_share_evenly_is_kept(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(50);
	auto_made struct made made = create_run(e->d, &opts);

	if (!expect(is_accounted_for(&made, 50) && made.created == 7))
		note("%u created", made.created);
	expect(sandboxes_end(e->d, made.ids, made.created).code == DSEC_OK);
}

static void creates_beyond_those_that_may_wait_are_refused(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(40);
	auto_made struct made made = create_run(e->d, &opts);

	/* Four may wait in each of two shards. */
	expect(is_accounted_for(&made, 40));
	if (!expect(made.created == 8 && made.refused == 32 &&
		    !strcmp(made.trouble.step, "create.creates_waiting_max")))
		note("created %u, first at \"%s\"", made.created, made.trouble.step);
	expect(holdings_now(e->d).sandboxes == made.created);
	expect(sandboxes_end(e->d, made.ids, made.created).code == DSEC_OK);
}

static void execs_beyond_those_that_may_run_are_refused(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	const struct command hold = SH("exec sleep 300");
	int64_t tickets[EXECS_MAX];

	for (int i = 0; i < EXECS_MAX; i++)
		tickets[i] = command_start(e->d, id, &hold, NULL);
	expect(until(5000, engine_running(e, "sleep") == EXECS_MAX));
	for (int i = 0; i < 3; i++) {
		auto_ran struct ran more = shell_run(e->d, id, "true");

		if (!expect(more.status.code == DSEC_REFUSED && more.status.retry_after_ms > 0 &&
			    !strcmp(more.status.step, "exec.execs_max")))
			ran_note(&more);
	}
	sandbox_end(e->d, id);
	for (int i = 0; i < EXECS_MAX; i++) {
		auto_ran struct ran ran = command_wait(e->d, tickets[i]);

		expect(ran.result && ran.result->reason == DSEC_KILLED);
	}
}

/* A connection full of programs that do not end is still told to end them. */
static void programs_that_fill_a_connection_are_signalled_and_ended(struct engine *e)
{
	enum { SANDBOXES = 4, EXECS = 256 };
	const struct command hold = SH("exec sleep 300");
	struct dsec_call call = { .size = sizeof call };
	struct dsec_id ids[SANDBOXES];
	struct dsec_event *event;
	int64_t ticket = 0;
	int started = 0, ended = 0;

	if (!expect(dsec_queue_new(e->d, &call.queue) == 0))
		return;
	for (int i = 0; i < SANDBOXES; i++)
		ids[i] = sandbox_make(e->d);
	while (started < EXECS && ticket >= 0) {
		ticket = command_try(e->d, ids[started % SANDBOXES], &hold, &call);
		started += ticket >= 0;
	}
	expect(ticket == -EAGAIN);
	if (!expect(until(10000, engine_running(e, "sleep") == (unsigned)started)))
		note("%u of %d run", engine_running(e, "sleep"), started);
	ticket = dsec_signal(e->d, NULL, ids[0], 1, SIGKILL);
	expect(ticket >= 0 && ticket_end(e->d, ticket).code == DSEC_OK);
	expect(until(5000, engine_running(e, "sleep") == (unsigned)started - 1));
	for (int i = 0; i < SANDBOXES; i++)
		sandbox_end(e->d, ids[i]);
	while (ended < started && expect(dsec_queue_poll(call.queue, &event, 1, 60000) == 1)) {
		ended += !!(event->flags & DSEC_LAST);
		dsec_event_free(event);
	}
	note("%d programs filled it", started);
	dsec_queue_free(call.queue);
}

static void one_connection_cannot_have_all_execs(struct engine *e)
{
	struct dsec *other = engine_connect(e);
	struct dsec_id id = sandbox_make(e->d);
	const struct command hold = SH("exec sleep 300");
	int64_t tickets[3];

	for (int i = 0; i < 3; i++)
		tickets[i] = command_start(e->d, id, &hold, NULL);
	expect(until(5000, engine_running(e, "sleep") == 3));
	auto_ran struct ran more = shell_run(e->d, id, "true");

	if (!expect(more.status.code == DSEC_REFUSED && more.status.retry_after_ms > 0 &&
		    !strcmp(more.status.step, "exec.client_execs_max")))
		ran_note(&more);
	/* Another one's share is its own; and a share comes back. */
	auto_ran struct ran others = shell_run(other, id, "echo fine");

	expect(ran_says(&others, "fine\n"));
	sandbox_end(e->d, id);
	for (int i = 0; i < 3; i++) {
		auto_ran struct ran ran = command_wait(e->d, tickets[i]);

		expect(ran.result && ran.result->reason == DSEC_KILLED);
	}
	id = sandbox_make(e->d);
	auto_ran struct ran again = shell_run(e->d, id, "echo again");

	expect(ran_says(&again, "again\n"));
	sandbox_end(e->d, id);
	dsec_close(other);
}

static void creates_beyond_their_rate_are_refused_with_a_time(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(40);
	auto_made struct made made = create_run(e->d, &opts);
	uint32_t retry_ms = made.retry_ms_min;

	/* A burst of ten. */
	expect(is_accounted_for(&made, 40));
	if (!expect(made.created == 10 && !strcmp(made.trouble.step, "create.creates_per_s") &&
		    retry_ms > 0 && retry_ms <= 200))
		note("created %u, \"%s\", retry after %u ms", made.created, made.trouble.step,
		     retry_ms);
	pause_ms(retry_ms + 1);
	opts.count = 2;
	auto_made struct made next = create_run(e->d, &opts);

	expect(next.created >= 1);
	list_destroy(e->d);
}

static void connections_beyond_the_limit_are_turned_away(struct engine *e)
{
	struct dsec_open_opts opts = { .size = sizeof opts, .address = e->socket };
	struct dsec *clients[CLIENTS_MAX * 2] = { 0 };
	int open = 0, refused = 0;

	for (int i = 0; i < CLIENTS_MAX * 2; i++) {
		if (dsec_open(&opts, &clients[i]) == 0)
			open++;
		else
			refused++;
	}
	if (!expect(open == CLIENTS_MAX - 1 && refused == CLIENTS_MAX + 1))
		note("%d open beside ours, %d refused", open, refused);
	/* Those that are in are served. */
	expect(holdings_now(e->d).clients == CLIENTS_MAX);
	for (int i = 0; i < CLIENTS_MAX * 2; i++)
		dsec_close(clients[i]);
	expect(until(5000, holdings_now(e->d).clients == 1));
	struct dsec *again = engine_connect(e);

	dsec_close(again);
}

static void a_full_disk_is_the_sandboxs_own(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(2);

	opts.disk_bytes = 4 << 20;
	opts.inodes = 200;
	auto_made struct made made = create_run(e->d, &opts);

	expect(made.created == 2);
	auto_ran struct ran bytes =
		shell_run(e->d, made.ids[0],
			  "dd if=/dev/zero of=/tmp/f bs=64k count=1000 2>&1 | grep -c 'No space'");
	auto_ran struct ran files =
		shell_run(e->d, made.ids[0],
			  "rm /tmp/f; i=0; while touch /tmp/$i 2>/dev/null; do i=$((i+1)); done;"
			  "[ $i -gt 50 -a $i -lt 200 ] && echo full");
	auto_ran struct ran neighbour = shell_run(e->d, made.ids[1], "echo x >/tmp/f; cat /tmp/f");

	expect(ran_says(&bytes, "1\n"));
	expect(ran_says(&files, "full\n"));
	expect(ran_says(&neighbour, "x\n"));
	expect(sandboxes_end(e->d, made.ids, 2).code == DSEC_OK);
}

static const struct claim small[] = {
	CLAIM(ten_times_the_capacity_in_one_create_is_created_or_refused),
	CLAIM(ten_times_the_capacity_in_many_creates_is_created_or_refused),
	CLAIM(what_was_refused_fits_when_there_is_room),
	CLAIM(a_full_disk_is_the_sandboxs_own),
};
static const struct claim odd[] = { CLAIM(a_limit_that_shards_cannot_share_evenly_is_kept) };
static const struct claim waiting[] = { CLAIM(creates_beyond_those_that_may_wait_are_refused) };
static const struct claim execs[] = { CLAIM(execs_beyond_those_that_may_run_are_refused) };
static const struct claim shares[] = { CLAIM(one_connection_cannot_have_all_execs) };
static const struct claim fills[] = { CLAIM(
	programs_that_fill_a_connection_are_signalled_and_ended) };
static const struct claim rates[] = { CLAIM(creates_beyond_their_rate_are_refused_with_a_time) };
static const struct claim clients[] = { CLAIM(connections_beyond_the_limit_are_turned_away) };

static const char *const small_arguments[] = { "--sandboxes-max", "16", "--shards", "2", NULL };
static const char *const odd_arguments[] = { "--sandboxes-max", "7", "--shards", "2", NULL };
static const char *const waiting_arguments[] = { "--sandboxes-max",	  "64", "--shards", "2",
						 "--creates-waiting-max", "4",	NULL };
static const char *const execs_arguments[] = {
	"--sandboxes-max",    "16",  "--shards", "1", "--execs-max", "4",
	"--client-execs-max", "100", NULL
};
static const char *const shares_arguments[] = { "--sandboxes-max", "16", "--shards", "1",
						"--execs-max",	   "4",	 NULL };
static const char *const fills_arguments[] = { "--sandboxes-max", "16", "--shards", "1", NULL };
static const char *const rates_arguments[] = { "--sandboxes-max", "64", "--shards", "1",
					       "--creates-per-s", "10", NULL };
static const char *const clients_arguments[] = { "--sandboxes-max", "16", "--shards", "2",
						 "--clients-max",   "6",  NULL };
static const struct suite suites[] = {
	SUITE("sandboxes-max", small, .arguments = small_arguments),
	SUITE("sandboxes-max 7", odd, .arguments = odd_arguments),
	SUITE("creates-waiting-max", waiting, .arguments = waiting_arguments),
	SUITE("execs-max", execs, .arguments = execs_arguments),
	SUITE("client-execs-max", shares, .arguments = shares_arguments),
	SUITE("requests-max", fills, .arguments = fills_arguments),
	SUITE("creates-per-s", rates, .arguments = rates_arguments),
	SUITE("clients-max", clients, .arguments = clients_arguments),
};

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
