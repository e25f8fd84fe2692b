/*
 * A sandbox's life: what can be changed of it, what is shown of it while it lives, and why it ended
 * afterwards.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

static struct dsec_bytes bytes_of(const char *text)
{
	return (struct dsec_bytes){ text, strlen(text) };
}

static struct dsec_label label_of(const char *key, const char *value)
{
	return (struct dsec_label){ bytes_of(key), bytes_of(value) };
}

static struct dsec_id make(struct dsec *d, const struct dsec_create_opts *opts)
{
	struct dsec_id id = { 0 };
	struct made made = create_wait(d, create_start(d, opts, NULL), 1);

	if (expect(made.created == 1))
		id = made.ids[0];
	made_done(&made);
	return id;
}

/* How it ended; *ret_rows: how many were changed. */
static struct dsec_status change(struct dsec *d, const struct dsec_select *select,
				 const struct dsec_change_opts *opts, uint32_t *ret_rows)
{
	struct dsec_status status = { 0 };
	int64_t ticket = dsec_change(d, NULL, select, opts);
	struct dsec_event *event;
	bool is_last = !expect(ticket >= 0);

	*ret_rows = 0;
	while (!is_last && expect(dsec_wait(d, ticket, -1, &event) == 0)) {
		is_last = event->flags & DSEC_LAST;
		*ret_rows += event->kind == DSEC_EV_ROW;
		status = event->status;
		dsec_event_free(event);
	}
	return status;
}

static struct dsec_status change_one(struct dsec *d, struct dsec_id id,
				     const struct dsec_change_opts *opts)
{
	const struct dsec_select select = { .size = sizeof select, .count = 1, .ids = &id };
	uint32_t rows;
	struct dsec_status status = change(d, &select, opts, &rows);

	expect(rows == (status.code == DSEC_OK));
	return status;
}

/* What inspect says; labels as "k=v k=v", sorted as they are kept. */
struct seen {
	uint32_t code;
	struct dsec_inspected body;
	char labels[256];
};

static struct seen look(struct dsec *d, struct dsec_id id)
{
	struct seen seen = { .code = DSEC_LOST };
	int64_t ticket = dsec_inspect(d, NULL, id);
	struct dsec_event *event;
	size_t used = 0;

	if (!expect(ticket >= 0) || !expect(dsec_wait(d, ticket, -1, &event) == 0))
		return seen;
	seen.code = event->status.code;
	if (event->body)
		seen.body = *(const struct dsec_inspected *)event->body;
	for (uint32_t i = 0; event->body && i < seen.body.label_count; i++)
		used += (size_t)snprintf(seen.labels + used, sizeof seen.labels - used,
					 "%s%.*s=%.*s", i ? " " : "",
					 (int)seen.body.labels[i].key.bytes,
					 (const char *)seen.body.labels[i].key.data,
					 (int)seen.body.labels[i].value.bytes,
					 (const char *)seen.body.labels[i].value.data);
	seen.body.labels = NULL;
	dsec_event_free(event);
	return seen;
}

static bool ended_by(struct dsec *d, struct dsec_id id, enum dsec_cause cause)
{
	struct seen seen = { 0 };

	if (until(20000, (seen = look(d, id)).body.state == DSEC_STATE_ENDED))
		return seen.body.cause == cause && seen.body.ended_ms < 20000;
	note("code %u state %u cause %u", seen.code, seen.body.state, seen.body.cause);
	return false;
}

static void a_change_leaves_what_it_does_not_name(struct engine *e)
{
	const struct dsec_label labels[] = { label_of("a", "1"), label_of("b", "2"),
					     label_of("c", "3") };
	const struct dsec_label given[] = { label_of("b", "two"), label_of("d", "4") };
	const struct dsec_bytes removed[] = { bytes_of("c"), bytes_of("none") };
	struct dsec_create_opts opts = create_opts(1);
	struct dsec_change_opts c = { .size = sizeof c };
	struct dsec_id id;
	struct seen seen;

	opts.labels = labels;
	opts.label_count = 3;
	opts.ttl_s = 1000;
	opts.idle_ttl_s = 600;
	id = make(e->d, &opts);
	c.set = DSEC_CHANGE_LABELS;
	c.labels = given;
	c.label_count = 2;
	c.removed = removed;
	c.removed_count = 2;
	expect(change_one(e->d, id, &c).code == DSEC_OK);
	seen = look(e->d, id);
	if (!expect(!strcmp(seen.labels, "a=1 b=two d=4")))
		note("%s", seen.labels);
	expect(seen.body.settings.ttl_s == 1000 && seen.body.settings.idle_ttl_s == 600);
	c = (struct dsec_change_opts){ .size = sizeof c, .set = DSEC_CHANGE_IDLE_TTL };
	expect(change_one(e->d, id, &c).code == DSEC_OK);
	seen = look(e->d, id);
	expect(seen.body.settings.ttl_s == 1000 && seen.body.settings.idle_ttl_s == 0 &&
	       !strcmp(seen.labels, "a=1 b=two d=4"));
	expect(seen.body.ttl_ms <= 1000000 && seen.body.ttl_ms > 900000);
	c = (struct dsec_change_opts){ .size = sizeof c, .set = DSEC_CHANGE_TTL, .ttl_s = 50 };
	expect(change_one(e->d, id, &c).code == DSEC_OK);
	expect(look(e->d, id).body.ttl_ms <= 50000);
	c.set = DSEC_CHANGE_TTL;
	c.ttl_s = 0; /* the engine's default */
	expect(change_one(e->d, id, &c).code == DSEC_OK);
	expect(look(e->d, id).body.settings.ttl_s == 86400);
	sandbox_end(e->d, id);
}

static void what_makes_no_sense_changes_nothing(struct engine *e)
{
	static const char big[1500];
	const struct dsec_label large[] = { { bytes_of("x"), { big, sizeof big } } };
	const struct dsec_label small[] = { label_of("k", "v") };
	const struct {
		struct dsec_change_opts opts;
		const char *step;
	} wrong[] = {
		{ { .set = 16 }, "change.set" },
		{ { .set = DSEC_CHANGE_TTL, .ttl_s = UINT32_MAX }, "change.ttl" },
		{ { .set = DSEC_CHANGE_IDLE_TTL, .ttl_s = 9 }, "change.ttl" },
		{ { .set = DSEC_CHANGE_ON_TIMEOUT, .on_timeout = 3 }, "change.on_timeout" },
		{ { .set = DSEC_CHANGE_ON_TIMEOUT, .on_timeout = DSEC_ON_TIMEOUT_PAUSE },
		  "change.on_timeout" },
		{ { .set = DSEC_CHANGE_TTL, .ttl_s = 9, .labels = small, .label_count = 1 },
		  "change.labels" },
		/* It has as much already. */
		{ { .set = DSEC_CHANGE_LABELS | DSEC_CHANGE_TTL,
		    .ttl_s = 9,
		    .labels = large,
		    .label_count = 1 },
		  "change.labels" },
	};
	struct dsec_label own[] = { { bytes_of("y"), { big, 1000 } } };
	struct dsec_create_opts opts = create_opts(1);
	struct dsec_id id;

	opts.labels = own;
	opts.label_count = 1;
	opts.ttl_s = 700;
	id = make(e->d, &opts);
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		struct dsec_change_opts c = wrong[i].opts;

		c.size = sizeof c;
		struct dsec_status s = change_one(e->d, id, &c);

		uint32_t code = c.on_timeout == DSEC_ON_TIMEOUT_PAUSE ? DSEC_UNSUPPORTED :
									DSEC_INVALID;

		if (!expect(s.code == code && s.blame == DSEC_BLAME_CALLER &&
			    !strcmp(s.step, wrong[i].step)))
			note("%zu: code %u at \"%s\"", i, s.code, s.step);
	}
	struct seen seen = look(e->d, id);

	expect(seen.body.settings.ttl_s == 700 && seen.body.label_count == 1);
	sandbox_end(e->d, id);
}

static void a_change_reaches_all_that_are_selected_and_names_who_is_not_there(struct engine *e)
{
	const struct dsec_label job = label_of("job", "7"), done = label_of("done", "");
	struct dsec_create_opts opts = create_opts(12);
	struct dsec_change_opts c = { .size = sizeof c,
				      .set = DSEC_CHANGE_LABELS | DSEC_CHANGE_TTL,
				      .ttl_s = 333,
				      .labels = &done,
				      .label_count = 1 };
	struct dsec_select select = { .size = sizeof select, .labels = &job, .label_count = 1 };
	struct dsec_id other = sandbox_make(e->d);
	uint32_t rows;

	opts.labels = &job;
	opts.label_count = 1;
	auto_made struct made made = create_run(e->d, &opts);

	expect(made.created == 12);
	expect(change(e->d, &select, &c, &rows).code == DSEC_OK && rows == 12);
	for (uint32_t i = 0; i < made.created; i++) {
		struct seen seen = look(e->d, made.ids[i]);

		expect(seen.body.settings.ttl_s == 333 && !strcmp(seen.labels, "job=7 done="));
	}
	expect(look(e->d, other).body.settings.ttl_s == 86400);
	sandbox_end(e->d, made.ids[3]);
	select = (struct dsec_select){ .size = sizeof select, .count = 12, .ids = made.ids };
	c.ttl_s = 444;
	expect(change(e->d, &select, &c, &rows).code == DSEC_ABSENT && rows == 11);
	expect(change_one(e->d, made.ids[3], &c).code == DSEC_ABSENT);
	expect(sandboxes_end(e->d, made.ids, 12).code == DSEC_OK);
	sandbox_end(e->d, other);
}

/* 34: status is live: after the end no state is a memory of one before. */
static void what_is_shown_is_so_now(struct engine *e)
{
	struct dsec_id id = sandbox_make(e->d);
	struct command hold = SH("exec sleep 100");
	int64_t ticket;
	struct seen seen = look(e->d, id);

	expect(seen.code == DSEC_OK && seen.body.state == DSEC_STATE_RUNNING &&
	       seen.body.processes == 1 && !seen.body.execs_running && !seen.body.execs_total &&
	       seen.body.inodes != UINT64_MAX && seen.body.age_ms < 10000 &&
	       seen.body.settings.size == sizeof seen.body.settings);
	ticket = command_start(e->d, id, &hold, NULL);
	expect(until(5000, engine_running(e, "sleep") == 1));
	seen = look(e->d, id);
	expect(seen.body.execs_running == 1 && seen.body.execs_total == 1 &&
	       seen.body.processes == 2 && !seen.body.idle_ms);
	auto_ran struct ran wrote =
		shell_run(e->d, id, "dd if=/dev/zero of=/tmp/f bs=1M count=3 2>/dev/null");

	expect(ran_exited(&wrote, 0));
	expect(look(e->d, id).body.disk_bytes >= seen.body.disk_bytes + (3 << 20));
	sandbox_end(e->d, id);
	seen = look(e->d, id);
	expect(seen.code == DSEC_OK && seen.body.state == DSEC_STATE_ENDED &&
	       seen.body.cause == DSEC_CAUSE_DESTROYED && !list_has(e->d, id));
	auto_ran struct ran ran = command_wait(e->d, ticket);

	expect(ran.result && ran.result->reason == DSEC_KILLED);
	id.lo ^= 1 << 25;
	expect(look(e->d, id).code == DSEC_ABSENT);
}

static void why_it_ended_is_told_for_a_while(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(1);
	struct dsec *other = engine_connect(e);
	struct dsec_id ttl, idle, disconnected, died;
	pid_t before[64], inits[64];
	unsigned had;

	opts.ttl_s = 1;
	ttl = make(e->d, &opts);
	opts.ttl_s = 500;
	opts.idle_ttl_s = 1;
	idle = make(e->d, &opts);
	opts.idle_ttl_s = 0;
	opts.on_disconnect = DSEC_DISCONNECT_DESTROY;
	disconnected = make(other, &opts);
	dsec_close(other);
	had = engine_inits(e, before, 64);
	died = sandbox_make(e->d);
	/* Whoever is there now and was not before. */
	expect(engine_inits(e, inits, 64) <= had + 1);
	for (unsigned i = 0; i <= had; i++) {
		bool is_new = true;

		for (unsigned k = 0; k < had; k++)
			is_new &= inits[i] != before[k];
		if (is_new)
			(void)kill(inits[i], SIGKILL);
	}
	expect(ended_by(e->d, died, DSEC_CAUSE_DIED));
	expect(ended_by(e->d, disconnected, DSEC_CAUSE_DISCONNECTED));
	expect(ended_by(e->d, ttl, DSEC_CAUSE_TTL));
	expect(ended_by(e->d, idle, DSEC_CAUSE_IDLE_TTL));
}

/* ---- a create that is asked again ---- */

struct told {
	uint32_t good, absent, other, replayed, bodies, indices;
	bool last_replayed;
	uint32_t last_code;
};

static struct told create_told(struct dsec *d, const struct dsec_create_opts *opts,
			       const struct dsec_call *call)
{
	struct told told = { .last_code = DSEC_LOST };
	int64_t ticket = dsec_create(d, call, opts);
	struct dsec_event *event;
	bool is_last = !expect(ticket >= 0);

	while (!is_last && expect(dsec_wait(d, ticket, 60000, &event) == 0)) {
		is_last = event->flags & DSEC_LAST;
		if (event->kind == DSEC_EV_CREATED) {
			told.good += event->status.code == DSEC_OK;
			told.absent += event->status.code == DSEC_ABSENT;
			told.replayed += !!(event->flags & DSEC_REPLAYED);
			told.bodies += event->body != NULL;
			told.indices += event->index;
		}
		if (is_last) {
			told.last_code = event->status.code;
			told.last_replayed = event->flags & DSEC_REPLAYED;
		}
		dsec_event_free(event);
	}
	return told;
}

static void a_create_asked_again_tells_of_each_that_was_asked(struct engine *e)
{
	/* Of 3,000 the engine holds 32: the others are refused, and replayed as not there. */
	static const uint32_t counts[] = { 1, 6, 3000 };

	for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
		struct dsec_create_opts opts = create_opts(counts[i]);
		struct dsec_call call = call_now();
		struct told first = create_told(e->d, &opts, &call), again;

		expect(first.good && first.replayed == 0 && !first.last_replayed);
		for (int round = 0; round < 2; round++) {
			again = create_told(e->d, &opts, &call);
			if (!expect(again.good == first.good && again.bodies == again.good &&
				    again.good + again.absent == counts[i] &&
				    again.replayed == counts[i] && again.indices == first.indices &&
				    again.last_replayed && again.last_code == DSEC_OK))
				note("of %u: %u there, %u absent, %u replayed", counts[i],
				     again.good, again.absent, again.replayed);
			expect(holdings_now(e->d).sandboxes == first.good);
		}
		list_destroy(e->d);
		again = create_told(e->d, &opts, &call);
		expect(again.good == 0 && again.absent == counts[i] && again.last_replayed);
		expect(holdings_now(e->d).sandboxes == 0);
	}
}

static const struct claim claims[] = {
	CLAIM(a_create_asked_again_tells_of_each_that_was_asked),
	CLAIM(a_change_leaves_what_it_does_not_name),
	CLAIM(what_makes_no_sense_changes_nothing),
	CLAIM(a_change_reaches_all_that_are_selected_and_names_who_is_not_there),
	CLAIM(what_is_shown_is_so_now),
	CLAIM(why_it_ended_is_told_for_a_while),
};

static const char *const arguments[] = { "--sandboxes-max", "32", "--shards", "2", NULL };
static const struct suite suites[] = { SUITE("change", claims, .arguments = arguments) };

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
