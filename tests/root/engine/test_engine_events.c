/*
 * Subscriptions: what happens to sandboxes is told once and in order, to each of many subscribers,
 * and what one of them misses is counted. An engine with a small journal, and one of its own.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

enum { EVENT_MS = 20000, NEWS_MAX = 4096, CROWD = 64, BURST = 700 };

/* A subscription and what came of it. */
struct listener {
	struct dsec *d;
	int64_t ticket;
	uint64_t first_seq, next_seq; /* by STARTED; behind the last event */
	uint32_t count, gaps;
	uint64_t missed, missed_unselected;
	bool reset;
	struct dsec_status last;
	bool over;
	struct heard {
		struct dsec_id id;
		uint64_t seq, exec;
		uint32_t topic, cause, reason;
		int32_t exit_code;
		uint32_t label_count;
	} heard[NEWS_MAX];
};

static void listener_note(struct listener *l, const struct dsec_event *event)
{
	const struct dsec_news *news = event->body;
	const struct dsec_missed *missed = event->body;

	if (event->flags & DSEC_LAST) {
		l->last = event->status;
		l->over = true;
	} else if (event->kind == DSEC_EV_STARTED) {
		expect(!l->first_seq);
		l->first_seq = l->next_seq = event->offset;
	} else if (event->kind == DSEC_EV_STATE && expect(news) && expect(l->count < NEWS_MAX)) {
		/* In order, with nothing told twice. */
		if (!expect(news->seq >= l->next_seq))
			note("%llu after %llu", (unsigned long long)news->seq,
			     (unsigned long long)l->next_seq);
		l->next_seq = news->seq + 1;
		l->heard[l->count++] = (struct heard){
			.id = news->sandbox,
			.seq = news->seq,
			.exec = news->exec,
			.topic = news->topic,
			.cause = news->cause,
			.reason = news->reason,
			.exit_code = news->exit_code,
			.label_count = news->label_count,
		};
	} else if (event->kind == DSEC_EV_GAP && expect(missed)) {
		l->gaps++;
		l->reset |= missed->flags & DSEC_MISSED_RESET;
		if (missed->flags & DSEC_MISSED_UNSELECTED)
			l->missed_unselected += missed->count;
		else
			l->missed += missed->count;
		l->next_seq = missed->next_seq;
	}
}

/* One event. False: none came in time, or it is over. */
static bool listener_step(struct listener *l, int ms)
{
	struct dsec_event *event;

	if (l->over || dsec_wait(l->d, l->ticket, ms, &event) < 0)
		return false;
	listener_note(l, event);
	dsec_event_free(event);
	return true;
}

static struct listener *listener_new(struct dsec *d, const struct dsec_subscribe_opts *opts)
{
	struct listener *l = calloc(1, sizeof *l);

	l->d = d;
	l->ticket = dsec_subscribe(d, NULL, opts);
	if (!expect(l->ticket >= 0))
		note("%s", dsec_error(d, l->ticket));
	while (!l->first_seq && listener_step(l, EVENT_MS))
		;
	return l;
}

static struct listener *listener_of(struct dsec *d, const struct dsec_select *select,
				    uint64_t topics, uint64_t from_seq)
{
	/* So wide that claims need not read while they make events. */
	struct dsec_subscribe_opts opts = { .size = sizeof opts,
					    .select = select,
					    .topics = topics,
					    .from_seq = from_seq,
					    .window = 1024 };

	return listener_new(d, &opts);
}

/* Cancelled, and to its end. */
static void listener_free(struct listener *l)
{
	if (!l->over)
		expect(dsec_cancel(l->d, l->ticket) == 0);
	while (listener_step(l, EVENT_MS))
		;
	expect(l->over);
	free(l);
}

static bool listener_hears(struct listener *l, uint32_t count)
{
	while (l->count < count && listener_step(l, EVENT_MS))
		;
	return l->count >= count;
}

static bool heard_is(const struct heard *h, uint32_t topic, struct dsec_id id, uint64_t exec)
{
	bool is = h->topic == topic && h->id.hi == id.hi && h->id.lo == id.lo && h->exec == exec;

	if (!is)
		note("topic %u exec %llu, not %u %llu", h->topic, (unsigned long long)h->exec,
		     topic, (unsigned long long)exec);
	return is;
}

/* So many, and all of them. */
static void listener_expect_all(struct listener *l, uint32_t count)
{
	if (!expect(listener_hears(l, count) && !l->gaps))
		note("%u heard, %llu + %llu missed in %u gaps, next %llu, over %u code %u",
		     l->count, (unsigned long long)l->missed,
		     (unsigned long long)l->missed_unselected, l->gaps,
		     (unsigned long long)l->next_seq, l->over, l->last.code);
}

/* ---- claims ---- */

static void every_step_of_a_sandbox_is_told_once_and_in_order(struct engine *e)
{
	struct listener *l = listener_of(e->d, NULL, 0, 0);
	struct dsec_id id = sandbox_make(e->d);
	const struct command missing = { .argv = { "/nosuch" } };
	const struct command silent = { .argv = { "/bin/sleep", "60" }, .timeout_ms = 50 };
	auto_ran struct ran good = shell_run(e->d, id, "exit 3");
	auto_ran struct ran absent = command_run(e->d, id, &missing);
	auto_ran struct ran late = command_run(e->d, id, &silent);

	sandbox_end(e->d, id);
	if (!expect(listener_hears(l, 9)))
		return listener_free(l);
	expect(heard_is(&l->heard[0], DSEC_TOPIC_CREATING, id, 0));
	expect(heard_is(&l->heard[1], DSEC_TOPIC_RUNNING, id, 0));
	expect(heard_is(&l->heard[2], DSEC_TOPIC_EXEC_STARTED, id, 1));
	expect(heard_is(&l->heard[3], DSEC_TOPIC_EXEC_ENDED, id, 1));
	expect(l->heard[3].reason == DSEC_EXIT && l->heard[3].exit_code == 3);
	expect(heard_is(&l->heard[4], DSEC_TOPIC_EXEC_ENDED, id, 2));
	expect(l->heard[4].reason == DSEC_NOT_STARTED && l->heard[4].exit_code == 127);
	expect(heard_is(&l->heard[5], DSEC_TOPIC_EXEC_STARTED, id, 3));
	expect(heard_is(&l->heard[6], DSEC_TOPIC_EXEC_ENDED, id, 3));
	expect(l->heard[6].reason == DSEC_TIMEOUT);
	expect(heard_is(&l->heard[7], DSEC_TOPIC_DESTROYING, id, 0));
	expect(heard_is(&l->heard[8], DSEC_TOPIC_ENDED, id, 0));
	expect(l->heard[8].cause == DSEC_CAUSE_DESTROYED);
	for (uint32_t i = 1; i < 9; i++)
		expect(l->heard[i].seq == l->heard[i - 1].seq + 1);
	expect(!listener_step(l, 100) && !l->gaps);
	listener_free(l);
}

static void the_cause_of_every_end_is_told(struct engine *e)
{
	struct dsec_create_opts brief = create_opts(1), bound = create_opts(1);
	struct listener *l = listener_of(e->d, NULL, 1ull << DSEC_TOPIC_ENDED, 0);
	struct dsec *other = engine_connect(e);
	struct dsec_id died = sandbox_make(e->d);
	pid_t init;

	if (!other)
		return listener_free(l);
	expect(engine_inits(e, &init, 1) == 1 && kill(init, SIGKILL) == 0);
	expect(listener_hears(l, 1) && heard_is(&l->heard[0], DSEC_TOPIC_ENDED, died, 0));
	expect(l->heard[0].cause == DSEC_CAUSE_DIED);
	brief.ttl_s = 1;
	auto_made struct made short_lived = create_run(e->d, &brief);

	expect(listener_hears(l, 2) && l->heard[1].cause == DSEC_CAUSE_TTL);
	bound.on_disconnect = DSEC_DISCONNECT_DESTROY;
	auto_made struct made bounded = create_run(other, &bound);

	dsec_close(other);
	expect(listener_hears(l, 3) && l->heard[2].cause == DSEC_CAUSE_DISCONNECTED);
	expect(short_lived.created == 1 && bounded.created == 1 && l->count == 3);
	listener_free(l);
}

static void only_what_was_selected_is_told(struct engine *e)
{
	struct dsec_label label = { { "task", 4 }, { "7", 1 } };
	struct dsec_create_opts labelled = create_opts(2);
	struct dsec_id plain = sandbox_make(e->d), named = sandbox_make(e->d);
	struct dsec_select by_id = { .size = sizeof by_id, .count = 1, .ids = &named };
	struct dsec_select by_label = { .size = sizeof by_label,
					.labels = &label,
					.label_count = 1 };
	struct listener *one = listener_of(e->d, &by_id, 0, 0);
	struct listener *all = listener_of(e->d, &by_label, 0, 0);
	struct listener *ends = listener_of(e->d, &by_label, 1ull << DSEC_TOPIC_ENDED, 0);

	labelled.labels = &label;
	labelled.label_count = 1;
	auto_made struct made made = create_run(e->d, &labelled);
	auto_ran struct ran ran = shell_run(e->d, named, "true");

	sandbox_end(e->d, plain);
	expect(sandboxes_end(e->d, made.ids, made.created).code == DSEC_OK);
	sandbox_end(e->d, named);
	expect(listener_hears(one, 4) && listener_hears(all, 8) && listener_hears(ends, 2));
	expect(!listener_step(one, 100) && !listener_step(all, 0) && !listener_step(ends, 0));
	expect(one->count == 4 && all->count == 8 && ends->count == 2);
	expect(!one->gaps && !all->gaps && !ends->gaps);
	for (uint32_t i = 0; i < one->count; i++)
		expect(one->heard[i].id.lo == named.lo && one->heard[i].label_count == 0);
	for (uint32_t i = 0; i < all->count; i++)
		expect(all->heard[i].id.lo != named.lo && all->heard[i].label_count == 1);
	listener_free(one);
	listener_free(all);
	listener_free(ends);
}

/* So many events: a program that cannot start has one. */
static void events_make(struct engine *e, struct dsec_id id, uint32_t count)
{
	const struct command missing = { .argv = { "/nosuch" } };

	for (uint32_t i = 0; i < count; i++) {
		auto_ran struct ran ran = command_run(e->d, id, &missing);

		if (!expect(ran.result && ran.result->reason == DSEC_NOT_STARTED))
			return;
	}
}

static void the_past_is_told_from_any_number_that_is_kept(struct engine *e)
{
	struct listener *now = listener_of(e->d, NULL, 0, 0), *then, *beyond;
	struct dsec_id id = sandbox_make(e->d);
	uint64_t from = now->first_seq + 5;

	events_make(e, id, 40);
	expect(listener_hears(now, 42));
	then = listener_of(e->d, NULL, 0, from);
	expect(then->first_seq == from && listener_hears(then, 37));
	expect(then->heard[0].seq == from && then->heard[36].seq == now->heard[41].seq);
	expect(!then->gaps && !now->gaps && !listener_step(then, 100));
	beyond = listener_of(e->d, NULL, 0, now->next_seq + 1);
	expect(beyond->over && beyond->last.code == DSEC_INVALID);
	expect(!strcmp(beyond->last.step, "subscribe.from_seq"));
	sandbox_end(e->d, id);
	expect(listener_hears(then, 39) && !then->gaps);
	listener_free(now);
	listener_free(then);
	listener_free(beyond);
}

/* Its journal holds some 300 events: see the suite's options. */
static void a_number_that_is_gone_is_a_gap_with_the_exact_count(struct engine *e)
{
	struct listener *first = listener_of(e->d, NULL, 0, 0), *all;
	struct dsec_id id = sandbox_make(e->d);

	events_make(e, id, BURST);
	listener_expect_all(first, BURST + 2);
	all = listener_of(e->d, NULL, 0, 1);
	while (all->next_seq < first->next_seq && listener_step(all, EVENT_MS))
		;
	expect(all->first_seq == 1 && all->gaps == 1 && !all->missed && !all->reset);
	if (!expect(all->missed_unselected + all->count == first->next_seq - 1))
		note("%llu missed, %u told, %llu there were",
		     (unsigned long long)all->missed_unselected, all->count,
		     (unsigned long long)first->next_seq - 1);
	expect(all->heard[0].seq == all->missed_unselected + 1 && all->count > 100);
	note("a journal of 64 KiB holds %u events", all->count);
	sandbox_end(e->d, id);
	listener_free(first);
	listener_free(all);
}

/*
 * 64 of them: one does not read, one's connection dies, and the others hear everything. The one
 * that did not read is told how much of what it selected it missed, to the event.
 */
static void one_that_does_not_read_and_one_that_dies_hold_up_nobody(struct engine *e)
{
	struct dsec_subscribe_opts narrow = { .size = sizeof narrow, .window = 8 };
	struct dsec_id other = sandbox_make(e->d), id = sandbox_make(e->d);
	struct dsec_select by_id = { .size = sizeof by_id, .count = 1, .ids = &id };
	struct dsec *dying = engine_connect(e), *stuck_d = engine_connect(e);
	struct dsec *halves[2] = { engine_connect(e), engine_connect(e) };
	struct listener *crowd[CROWD], *stuck;

	if (!dying || !stuck_d || !halves[0] || !halves[1])
		return;
	for (int i = 0; i < CROWD - 2; i++)
		crowd[i] = listener_of(halves[i % 2], NULL, 1ull << DSEC_TOPIC_EXEC_ENDED, 0);
	narrow.select = &by_id;
	stuck = listener_new(stuck_d, &narrow);
	free(listener_of(dying, NULL, 0, 0));
	events_make(e, id, 50);
	dsec_close(dying);
	for (uint32_t round = 0; round < BURST / 50 - 1; round++) {
		events_make(e, id, 50);
		events_make(e, other, 1); /* not the stuck one's */
		for (int i = 0; i < CROWD - 2; i++)
			listener_expect_all(crowd[i], 50 + 51 * (round + 1));
	}
	for (int i = 0; i < CROWD - 2; i++)
		listener_free(crowd[i]);
	sandbox_end(e->d, id);
	while (!(stuck->count && stuck->heard[stuck->count - 1].topic == DSEC_TOPIC_ENDED) &&
	       listener_step(stuck, EVENT_MS))
		;
	expect(stuck->gaps >= 1 && stuck->missed && stuck->missed + stuck->count == BURST + 2);
	expect(!stuck->missed_unselected);
	note("stuck: %u heard, %llu missed in %u gaps", stuck->count,
	     (unsigned long long)stuck->missed, stuck->gaps);
	listener_free(stuck);
	dsec_close(stuck_d);
	dsec_close(halves[0]);
	dsec_close(halves[1]);
	sandbox_end(e->d, other);
}

static void too_many_and_impossible_ones_are_refused_by_name(struct engine *e)
{
	static struct dsec_label labels[9];
	struct dsec *d = engine_connect(e);
	struct dsec_select many = { .size = sizeof many, .labels = labels, .label_count = 9 };
	/* One more than a connection may have. */
	struct listener *all[33], *wrong;

	if (!d)
		return;
	for (int i = 0; i < 33; i++)
		all[i] = listener_of(d, NULL, 0, 0);
	expect(all[32]->over && all[32]->last.code == DSEC_REFUSED);
	expect(!strcmp(all[32]->last.step, "subscribe.client_max"));
	expect(!all[31]->over);
	for (int i = 0; i < 33; i++)
		listener_free(all[i]);
	for (int i = 0; i < 9; i++)
		labels[i] = (struct dsec_label){ { "k", 1 }, { "v", 1 } };
	wrong = listener_of(d, &many, 0, 0);
	expect(wrong->over && wrong->last.code == DSEC_INVALID);
	expect(!strcmp(wrong->last.step, "subscribe.labels"));
	listener_free(wrong);
	dsec_close(d);
}

static void a_subscription_ends_with_its_time(struct engine *e)
{
	struct dsec_subscribe_opts opts = { .size = sizeof opts };
	struct dsec_call call = { .size = sizeof call, .timeout_ms = 200 };
	int64_t ticket = dsec_subscribe(e->d, &call, &opts);

	expect(ticket >= 0 && ticket_end(e->d, ticket).code == DSEC_DEADLINE);
}

static const struct claim claims[] = {
	CLAIM(every_step_of_a_sandbox_is_told_once_and_in_order),
	CLAIM(the_cause_of_every_end_is_told),
	CLAIM(only_what_was_selected_is_told),
	CLAIM(the_past_is_told_from_any_number_that_is_kept),
	CLAIM(a_number_that_is_gone_is_a_gap_with_the_exact_count),
	CLAIM(one_that_does_not_read_and_one_that_dies_hold_up_nobody),
	CLAIM(too_many_and_impossible_ones_are_refused_by_name),
	CLAIM(a_subscription_ends_with_its_time),
};

/* ---- another engine ---- */

static void another_engine_is_told_as_a_reset_and_from_its_beginning(struct engine *e)
{
	struct dsec_open_opts opts = { .size = sizeof opts, .address = e->socket };
	struct dsec *d;

	if (!expect(dsec_open(&opts, &d) == 0))
		return;
	struct listener *l = listener_of(d, NULL, 0, 0);
	struct dsec_id before = sandbox_make(d), after;

	expect(listener_hears(l, 2) && l->heard[1].id.lo == before.lo);
	(void)kill(engine_pid(e), SIGKILL); /* the keeper has not reaped it yet */
	while (!l->reset && listener_step(l, EVENT_MS))
		;
	l->next_seq = 1; /* it counts anew */
	after = sandbox_make(d);
	expect(listener_hears(l, 4) && l->reset && l->gaps == 1 && !l->missed);
	expect(l->heard[2].topic == DSEC_TOPIC_CREATING && l->heard[2].id.lo == after.lo);
	expect(l->heard[2].seq == 1 && l->heard[3].topic == DSEC_TOPIC_RUNNING);
	sandbox_end(d, after);
	listener_free(l);
	dsec_close(d);
}

static const struct claim hurt_claims[] = {
	CLAIM(another_engine_is_told_as_a_reset_and_from_its_beginning),
};

int main(int argc, char **argv)
{
	static const char *const arguments[] = { "--journal", "64K", NULL };
	static const struct suite suites[] = {
		SUITE("events", claims, .arguments = arguments),
		SUITE("events-reset", hurt_claims, .is_hurt = true),
	};

	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
