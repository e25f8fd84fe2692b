/*
 * The life of sandboxes as clients see it: made, listed, measured, cancelled, ended by request, by
 * time and by a connection's end. One engine for all claims.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

enum { MANY = 40 };

static struct dsec_bytes bytes_of(const char *text)
{
	return (struct dsec_bytes){ text, strlen(text) };
}

static bool ids_equal(struct dsec_id a, struct dsec_id b)
{
	return a.hi == b.hi && a.lo == b.lo;
}

/* ---- making ---- */

static void forty_are_made_each_with_its_own_id_and_hostname(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(MANY);

	opts.hostname = "tower";
	auto_made struct made made = create_run(e->d, &opts);

	expect(made.created == MANY && !made.refused && !made.failed && !made.last.code);
	for (uint32_t i = 0; i < made.created; i++)
		for (uint32_t n = 0; n < i; n++)
			expect(!ids_equal(made.ids[i], made.ids[n]));
	auto_ran struct ran ran = shell_run(e->d, made.ids[MANY / 2], "hostname");

	expect(ran_says(&ran, "tower\n"));
	expect(holdings_now(e->d).sandboxes == MANY && list_count(e->d) == MANY);
	expect(sandboxes_end(e->d, made.ids, made.created).code == DSEC_OK);
	expect(list_count(e->d) == 0);
}

static void the_settings_in_force_are_echoed(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(1);
	struct dsec_event *event;
	int64_t ticket;

	opts.ttl_s = 77;
	opts.idle_ttl_s = 33;
	opts.network = DSEC_NETWORK_PRIVATE;
	opts.disk_bytes = 8 << 20;
	opts.inodes = 500;
	opts.on_disconnect = DSEC_DISCONNECT_DESTROY;
	ticket = create_start(e->d, &opts, NULL);
	if (!expect(dsec_wait(e->d, ticket, -1, &event) == 0))
		return;
	const struct dsec_created *body = event->body;
	struct dsec_id id = event->subject;

	if (expect(body)) {
		expect(body->ttl_s == 77 && body->idle_ttl_s == 33 && body->backend == 1);
		expect(body->network == DSEC_NETWORK_PRIVATE && body->disk_bytes == 8 << 20);
		expect(body->inodes == 500 && body->on_disconnect == DSEC_DISCONNECT_DESTROY);
	}
	dsec_event_free(event);
	expect(ticket_end(e->d, ticket).code == DSEC_OK);
	/* And they are what is in force. */
	auto_ran struct ran ran = shell_run(
		e->d, id,
		"df -Pm / | tail -1 | awk '{print $2}'; ip addr 2>/dev/null | grep -c 'inet 127'");

	expect(ran_says(&ran, "8\n1\n"));
	sandbox_end(e->d, id);
}

struct wrong_create {
	const char *step;
	uint32_t code;
	void (*make_wrong)(struct dsec_create_opts *opts);
};

static void wrong_image(struct dsec_create_opts *o)
{
	o->image = "nosuch";
}

static void wrong_path(struct dsec_create_opts *o)
{
	o->image = "../etc/passwd";
}

static void wrong_backend(struct dsec_create_opts *o)
{
	o->backend = "microvm";
}

static void wrong_policy(struct dsec_create_opts *o)
{
	o->policy = "strict";
}

static void wrong_network(struct dsec_create_opts *o)
{
	o->network = 9;
}

static void wrong_ttl(struct dsec_create_opts *o)
{
	o->ttl_s = UINT32_MAX;
}

static void wrong_count(struct dsec_create_opts *o)
{
	o->count = 100000;
}

static void wrong_job(struct dsec_create_opts *o)
{
	o->job = (struct dsec_id){ 1, 1 };
}

static void wrong_disconnect(struct dsec_create_opts *o)
{
	o->on_disconnect = 7;
}

static void wrong_memory(struct dsec_create_opts *o)
{
	o->memory_bytes = 1 << 20;
	o->cpu_weight = 100;
	o->flags = 0;
}

static void wrong_creates_are_refused_by_field_and_make_nothing(struct engine *e)
{
	static const struct wrong_create rows[] = {
		{ "create.image", DSEC_ABSENT, wrong_image },
		{ "create.image", 0, wrong_path },
		{ "create.backend", DSEC_UNSUPPORTED, wrong_backend },
		{ "create.policy", DSEC_ABSENT, wrong_policy },
		{ "create.network", DSEC_INVALID, wrong_network },
		{ "create.ttl", DSEC_INVALID, wrong_ttl },
		{ "create.count", DSEC_INVALID, wrong_count },
		{ "create.job", DSEC_UNSUPPORTED, wrong_job },
		{ "create.on_disconnect", DSEC_INVALID, wrong_disconnect },
		{ "", DSEC_UNSUPPORTED, wrong_memory },
	};

	for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct dsec_create_opts opts = create_opts(1);

		rows[i].make_wrong(&opts);
		int64_t ticket = dsec_create(e->d, NULL, &opts);

		if (ticket < 0)
			continue; /* the library knows already */
		auto_made struct made made = create_wait(e->d, ticket, 1);
		const struct dsec_status *s = made.last.code ? &made.last : &made.trouble;

		if (rows[i].make_wrong == wrong_memory && made.created) {
			sandbox_end(e->d, made.ids[0]); /* the controllers are here */
			continue;
		}
		if (!expect(!made.created && s->blame == DSEC_BLAME_CALLER &&
			    (rows[i].code ? s->code == rows[i].code : s->code != DSEC_OK) &&
			    (!*rows[i].step || !strcmp(s->step, rows[i].step))))
			note("row %u: code %u blame %u step \"%s\"", i, s->code, s->blame, s->step);
	}
	expect(holdings_now(e->d).sandboxes == 0);
}

/* ---- looking ---- */

static void listing_is_in_order_live_and_goes_on_from_a_cursor(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(MANY);
	auto_made struct made made = create_run(e->d, &opts);
	struct dsec_list_opts list = { .size = sizeof list, .limit = 7 };
	struct dsec_id last = { 0, 0 };
	uint32_t rows = 0, before = 1;

	while (before && rows < 1000) {
		int64_t ticket = dsec_list(e->d, NULL, &list);
		struct dsec_event *event;
		bool is_last = !expect(ticket >= 0);

		before = 0;
		while (!is_last && expect(dsec_wait(e->d, ticket, -1, &event) == 0)) {
			const struct dsec_row *row = event->kind == DSEC_EV_ROW ? event->body :
										  NULL;

			if (row) {
				expect(row->id.lo > last.lo || row->id.hi > last.hi);
				expect(row->state == DSEC_STATE_RUNNING && row->execs_total == 0);
				expect(row->image.bytes == 4 &&
				       !memcmp(row->image.data, "test", 4));
				last = row->id;
				before++;
				rows++;
			}
			is_last = event->flags & DSEC_LAST;
			dsec_event_free(event);
		}
		expect(before <= 7);
		list.after = last;
	}
	expect(rows == MANY);
	expect(sandboxes_end(e->d, made.ids, made.created).code == DSEC_OK);
}

static void stats_are_read_now(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct dsec_select select = { .size = sizeof select, .count = 1, .ids = &id };
	const struct command hold = SH("head -c 3000000 /dev/zero >/tmp/f; exec sleep 300");
	int64_t exec = command_start(e->d, id, &hold, NULL);
	struct dsec_event *event;

	expect(until(5000, engine_running(e, "sleep") == 1));
	int64_t ticket = dsec_stats(e->d, NULL, &select);

	if (expect(dsec_wait(e->d, ticket, -1, &event) == 0)) {
		const struct dsec_usage *usage = event->kind == DSEC_EV_ROW ? event->body : NULL;

		if (expect(usage && ids_equal(usage->id, id))) {
			expect(usage->processes == 2);
			expect(usage->disk_bytes >= 3000000 && usage->disk_bytes < 4000000);
			expect(usage->inodes >= 2 && usage->inodes < 20);
			expect(usage->cpu_us > 0);
		}
		dsec_event_free(event);
	}
	expect(ticket_end(e->d, ticket).code == DSEC_OK);
	sandbox_end(e->d, id);
	auto_ran struct ran ran = command_wait(e->d, exec);

	expect(ran.result && ran.result->reason == DSEC_KILLED);
}

/* ---- ending ---- */

static void destroying_twice_or_what_is_not_there_is_success(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct dsec_id ids[] = {
		id, id, { id.hi, id.lo ^ 1ull << 20 }, { 1, 2 }, { id.hi, ~0ull }
	};

	sandbox_end(e->d, id);
	sandbox_end(e->d, id);
	expect(sandboxes_end(e->d, ids, 5).code == DSEC_OK);
	expect(sandboxes_end(e->d, ids + 3, 2).code == DSEC_OK);
	struct dsec_select nothing = { .size = sizeof nothing };
	int64_t ticket = dsec_destroy(e->d, NULL, &nothing);

	expect(ticket == -EINVAL);
}

static void destroying_by_labels_takes_those_on_every_shard_and_no_other(struct engine *e)
{
	struct dsec_label labels[] = { { bytes_of("job"), bytes_of("a") },
				       { bytes_of("kind"), bytes_of("x") } };
	struct dsec_label other = { bytes_of("job"), bytes_of("b") };
	struct dsec_create_opts opts = create_opts(10);
	struct dsec_select select = { .size = sizeof select, .labels = labels, .label_count = 1 };

	opts.labels = labels;
	opts.label_count = 2;
	auto_made struct made both = create_run(e->d, &opts);

	opts.label_count = 1;
	auto_made struct made one = create_run(e->d, &opts);

	opts.labels = &other;
	auto_made struct made none = create_run(e->d, &opts);

	expect(both.created == 10 && one.created == 10 && none.created == 10);
	select.label_count = 2;
	expect(ticket_end(e->d, dsec_destroy(e->d, NULL, &select)).code == DSEC_OK);
	expect(list_count(e->d) == 20 && !list_has(e->d, both.ids[0]));
	select.label_count = 1;
	expect(ticket_end(e->d, dsec_destroy(e->d, NULL, &select)).code == DSEC_OK);
	expect(list_count(e->d) == 10 && list_has(e->d, none.ids[9]));
	expect(sandboxes_end(e->d, none.ids, 10).code == DSEC_OK);
}

static void destroying_what_is_being_made_ends_it(struct engine *e)
{
	struct dsec_label label = { bytes_of("job"), bytes_of("early") };
	struct dsec_select select = { .size = sizeof select, .labels = &label, .label_count = 1 };

	for (unsigned i = 0; i < fewer(10, 4); i++) {
		struct dsec_create_opts opts = create_opts(MANY);

		opts.labels = &label;
		opts.label_count = 1;
		int64_t making = create_start(e->d, &opts, NULL);
		/* Some are being made, some not begun, some there. */
		struct dsec_status status = ticket_end(e->d, dsec_destroy(e->d, NULL, &select));
		auto_made struct made made = create_wait(e->d, making, MANY);

		expect(status.code == DSEC_OK && made.created + made.failed + made.refused == MANY);
		expect(ticket_end(e->d, dsec_destroy(e->d, NULL, &select)).code == DSEC_OK);
		expect(list_count(e->d) == 0);
	}
}

static void a_sandbox_is_gone_when_its_destroy_has_ended(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(20);
	auto_made struct made made = create_run(e->d, &opts);
	pid_t pids[64];

	for (uint32_t i = 0; i < made.created; i++) {
		auto_ran struct ran ran =
			shell_run(e->d, made.ids[i], "setsid sleep 300 & sleep 300 & :");

		expect(ran_exited(&ran, 0));
	}
	expect(until(5000, engine_running(e, "sleep") == 40));
	expect(sandboxes_end(e->d, made.ids, made.created).code == DSEC_OK);
	expect(engine_members(e, pids, 64) == 0 && list_count(e->d) == 0);
}

/* ---- cancelling ---- */

static void a_cancelled_create_accounts_for_every_one(struct engine *e)
{
	for (unsigned i = 0; i < fewer(20, 5); i++) {
		struct dsec_create_opts opts = create_opts(MANY);

		opts.flags |= DSEC_CREATE_DESTROY_IF_CANCELLED;
		int64_t ticket = create_start(e->d, &opts, NULL);

		pause_ms(i % 5); /* another moment each time: what counts is the sum */
		(void)dsec_cancel(e->d, ticket);
		auto_made struct made made = create_wait(e->d, ticket, MANY);

		expect(made.created + made.refused + made.failed == MANY);
		expect(made.created == MANY || made.trouble.code == DSEC_CANCELLED);
		if (made.created)
			expect(sandboxes_end(e->d, made.ids, made.created).code == DSEC_OK);
		expect(until(5000, holdings_now(e->d).sandboxes == 0));
	}
}

static void a_cancelled_exec_runs_on(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	const struct command c =
		SH("until [ -e /tmp/go ]; do sleep 0.01; done; cd /tmp; echo on >on; mv on done");
	int64_t ticket = command_start(e->d, id, &c, NULL);
	struct dsec_event *event;

	/* STARTED; then we hear no more of it. */
	expect(dsec_wait(e->d, ticket, -1, &event) == 0 && event->kind == DSEC_EV_STARTED);
	dsec_event_free(event);
	expect(dsec_cancel(e->d, ticket) == 0);
	auto_ran struct ran ran = command_wait(e->d, ticket);

	expect(ran.status.code == DSEC_CANCELLED && ran.status.blame == DSEC_BLAME_CALLER);
	auto_ran struct ran go = shell_run(
		e->d, id,
		"touch /tmp/go; until [ -e /tmp/done ]; do sleep 0.01; done; cat /tmp/done");

	expect(ran_says(&go, "on\n"));
	sandbox_end(e->d, id);
}

static void a_request_past_its_deadline_says_so(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct command c = SH("exec sleep 300");

	c.call_timeout_ms = 50;
	auto_ran struct ran ran = command_run(e->d, id, &c);

	expect(ran.status.code == DSEC_DEADLINE && ran.ms >= 49 && ran.ms < longer(5000));
	expect(engine_running(e, "sleep") == 1);
	sandbox_end(e->d, id);
	expect(engine_running(e, "sleep") == 0);
	for (unsigned i = 0; i < fewer(10, 3); i++) {
		struct dsec_create_opts opts = create_opts(MANY);
		struct dsec_call call = { .size = sizeof call, .timeout_ms = 1 };
		auto_made struct made made =
			create_wait(e->d, create_start(e->d, &opts, &call), MANY);

		expect(made.created + made.refused + made.failed == MANY);
		expect(made.created == MANY || made.last.code == DSEC_DEADLINE);
		if (made.created)
			expect(sandboxes_end(e->d, made.ids, made.created).code == DSEC_OK);
	}
}

/* ---- time and connections ---- */

static void ttl_and_idle_ttl_end_sandboxes_and_execs_hold_the_latter(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(2);
	double begun_ms = clock_ms();

	opts.ttl_s = 1;
	auto_made struct made ttl = create_run(e->d, &opts);

	opts.ttl_s = 0;
	opts.idle_ttl_s = 1;
	auto_made struct made idle = create_run(e->d, &opts);
	const struct command c = SH("sleep 1.6; echo kept");

	expect(ttl.created == 2 && idle.created == 2);
	int64_t by_ttl = command_start(e->d, ttl.ids[0], &c, NULL);
	int64_t by_idle = command_start(e->d, idle.ids[0], &c, NULL);
	auto_ran struct ran killed = command_wait(e->d, by_ttl);

	expect(killed.result && killed.result->reason == DSEC_KILLED);
	expect(clock_ms() - begun_ms >= 990);
	auto_ran struct ran kept = command_wait(e->d, by_idle);

	expect(ran_says(&kept, "kept\n"));
	expect(!list_has(e->d, idle.ids[1]) && list_has(e->d, idle.ids[0]));
	expect(until(5000, list_count(e->d) == 0));
	expect(clock_ms() - begun_ms >= 2590);
}

static void a_connection_takes_along_what_was_to_go_with_it(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(10);
	struct dsec *other = engine_connect(e);

	if (!other)
		return;
	auto_made struct made stays = create_run(other, &opts);

	opts.on_disconnect = DSEC_DISCONNECT_DESTROY;
	auto_made struct made goes = create_run(other, &opts);
	auto_made struct made ours = create_run(e->d, &opts);
	const struct command c = SH("exec sleep 300");

	(void)command_start(other, goes.ids[0], &c, NULL); /* never heard of again */
	(void)create_start(other, &opts, NULL);		   /* and these are being made */
	expect(stays.created == 10 && goes.created == 10 && ours.created == 10);
	dsec_close(other);
	expect(until(10000, list_count(e->d) == 20));
	for (int i = 0; i < 10; i++)
		expect(list_has(e->d, stays.ids[i]) && list_has(e->d, ours.ids[i]));
	expect(until(5000, engine_running(e, "sleep") == 0));
	expect(sandboxes_end(e->d, stays.ids, 10).code == DSEC_OK);
	expect(sandboxes_end(e->d, ours.ids, 10).code == DSEC_OK);
}

static const struct claim claims[] = {
	CLAIM(forty_are_made_each_with_its_own_id_and_hostname),
	CLAIM(the_settings_in_force_are_echoed),
	CLAIM(wrong_creates_are_refused_by_field_and_make_nothing),
	CLAIM(listing_is_in_order_live_and_goes_on_from_a_cursor),
	CLAIM(stats_are_read_now),
	CLAIM(destroying_twice_or_what_is_not_there_is_success),
	CLAIM(destroying_by_labels_takes_those_on_every_shard_and_no_other),
	CLAIM(destroying_what_is_being_made_ends_it),
	CLAIM(a_sandbox_is_gone_when_its_destroy_has_ended),
	CLAIM(a_cancelled_create_accounts_for_every_one),
	CLAIM(a_cancelled_exec_runs_on),
	CLAIM(a_request_past_its_deadline_says_so),
	CLAIM(ttl_and_idle_ttl_end_sandboxes_and_execs_hold_the_latter),
	CLAIM(a_connection_takes_along_what_was_to_go_with_it),
};

static const char *const arguments[] = { "--sandboxes-max", "64", "--shards", "2", NULL };
static const struct suite suites[] = { SUITE("life", claims, .arguments = arguments) };

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
