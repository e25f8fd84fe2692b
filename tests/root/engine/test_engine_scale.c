/*
 * Many sandboxes and requests in any order: what one costs does not depend on how many there are,
 * and whatever was asked, nothing is left when all was destroyed.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

enum { SAMPLES = 200, ALIVE_MAX = 3000, STEPS = 3000, OPEN_MAX = 40, KNOWN_MAX = 60 };

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double making_ms(struct engine *e, double *ret_p99)
{
	static double ms[SAMPLES];

	for (int i = 0; i < SAMPLES; i++) {
		double begun_ms = clock_ms();
		struct dsec_id id = sandbox_make(e->d);

		ms[i] = clock_ms() - begun_ms;
		sandbox_end(e->d, id);
	}
	qsort(ms, SAMPLES, sizeof *ms, by_value);
	*ret_p99 = ms[SAMPLES * 99 / 100];
	return ms[SAMPLES / 2];
}

static void making_one_costs_the_same_beside_three_thousand(struct engine *e)
{
	auto_free struct dsec_id *ids = calloc(ALIVE_MAX, sizeof *ids);
	uint32_t alive = 0, steps[] = { 0, 1000, ALIVE_MAX };
	double p50_ms[3], p99_ms[3];

	for (int i = 0; i < 3; i++) {
		struct dsec_create_opts opts = create_opts(steps[i] - alive);

		if (steps[i] > alive) {
			auto_made struct made made = create_run(e->d, &opts);

			if (!expect(made.created == steps[i] - alive))
				return;
			memcpy(ids + alive, made.ids, made.created * sizeof *ids);
			alive += made.created;
		}
		p50_ms[i] = making_ms(e, &p99_ms[i]);
		note("beside %u: p50 %.2f ms, p99 %.2f ms", alive, p50_ms[i], p99_ms[i]);
	}
	/* At the median, which the machine's other work moves least. */
	expect(p50_ms[2] < p50_ms[0] * 2 + 0.2);
	double begun_ms = clock_ms();

	expect(sandboxes_end(e->d, ids, alive).code == DSEC_OK);
	note("%u destroyed in %.0f ms", alive, clock_ms() - begun_ms);
	expect(list_count(e->d) == 0);
}

/* ---- any order ---- */

struct walk {
	struct dsec *clients[3];
	struct dsec_id known[KNOWN_MAX]; /* of sandboxes that are or were */
	struct open_ticket {
		struct dsec *d;
		int64_t ticket;
	} open[OPEN_MAX];
	unsigned open_count, seed;
};

static unsigned chance(struct walk *w, unsigned of)
{
	return (unsigned)rand_r(&w->seed) % of;
}

/* To its end; ids of what was created are remembered. */
static void ticket_finish(struct walk *w, unsigned at)
{
	struct open_ticket open = w->open[at];
	struct dsec_event *event;
	bool is_last = false;

	w->open[at] = w->open[--w->open_count];
	while (!is_last && expect(dsec_wait(open.d, open.ticket, -1, &event) == 0)) {
		if (event->kind == DSEC_EV_CREATED && event->status.code == DSEC_OK)
			w->known[chance(w, KNOWN_MAX)] = event->subject;
		is_last = event->flags & DSEC_LAST;
		dsec_event_free(event);
	}
}

static int64_t create_step(struct walk *w, struct dsec *d)
{
	static const struct dsec_label label = { { "walk", 4 }, { "1", 1 } };
	struct dsec_create_opts opts = create_opts(1 + chance(w, 8));
	struct dsec_call call = { .size = sizeof call, .timeout_ms = chance(w, 4) ? 0 : 2 };

	opts.labels = &label;
	opts.label_count = chance(w, 2);
	opts.ttl_s = chance(w, 10) ? 0 : 1;
	opts.network = chance(w, 8) ? DSEC_NETWORK_NONE : DSEC_NETWORK_PRIVATE;
	opts.on_disconnect = chance(w, 2);
	if (!chance(w, 4))
		opts.flags |= DSEC_CREATE_DESTROY_IF_CANCELLED;
	return dsec_create(d, &call, &opts);
}

static int64_t exec_step(struct walk *w, struct dsec *d)
{
	static const char *const scripts[] = {
		"exit 0",
		"sleep 0.02",
		"sleep 300",
		"sleep 300 >&- 2>&- &",
		"echo x >/tmp/x",
		"kill -9 -1",
		"head -c 300000 /dev/zero",
	};
	struct command c = SH(scripts[chance(w, sizeof scripts / sizeof *scripts)]);
	struct dsec_call call = { .size = sizeof call, .timeout_ms = chance(w, 8) ? 0 : 5 };

	c.timeout_ms = 1 + chance(w, 60);
	return command_try(d, w->known[chance(w, KNOWN_MAX)], &c, &call);
}

static int64_t select_step(struct walk *w, struct dsec *d, bool is_stats)
{
	static const struct dsec_label label = { { "walk", 4 }, { "1", 1 } };
	struct dsec_select select = { .size = sizeof select,
				      .count = 1 + chance(w, 5),
				      .ids = w->known + chance(w, KNOWN_MAX - 5) };

	if (!chance(w, 10)) {
		select.count = 0;
		select.labels = &label;
		select.label_count = 1;
	}
	return is_stats ? dsec_stats(d, NULL, &select) : dsec_destroy(d, NULL, &select);
}

static void walk_step(struct engine *e, struct walk *w)
{
	struct dsec **d = &w->clients[chance(w, 3)];
	unsigned kind = chance(w, 100);
	int64_t ticket;

	if (w->open_count == OPEN_MAX || (w->open_count && kind < 10)) {
		ticket_finish(w, chance(w, w->open_count));
		return;
	}
	if (kind < 15 && w->open_count) {
		struct open_ticket *open = &w->open[chance(w, w->open_count)];

		(void)dsec_cancel(open->d, open->ticket); /* it may have ended */
		return;
	}
	if (kind < 16) {
		/* Its tickets go with it. */
		for (unsigned i = w->open_count; i > 0; i--)
			if (w->open[i - 1].d == *d)
				w->open[i - 1] = w->open[--w->open_count];
		dsec_close(*d);
		*d = engine_connect(e);
		return;
	}
	ticket = kind < 40 ? create_step(w, *d) :
		 kind < 80 ? exec_step(w, *d) :
			     select_step(w, *d, kind < 85);
	if (ticket < 0) {
		expect(ticket == -EAGAIN);
		return;
	}
	w->open[w->open_count++] = (struct open_ticket){ *d, ticket };
}

static void requests_in_any_order_leave_nothing(struct engine *e)
{
	for (unsigned seed = 1; seed <= 3; seed++) {
		struct walk w = { .seed = seed };

		for (int i = 0; i < 3; i++)
			w.clients[i] = engine_connect(e);
		for (int i = 0; i < STEPS && w.clients[0] && w.clients[1] && w.clients[2]; i++)
			walk_step(e, &w);
		while (w.open_count)
			ticket_finish(&w, w.open_count - 1);
		for (int i = 0; i < 3; i++)
			dsec_close(w.clients[i]);
		struct dsec_holdings h = holdings_now(e->d);

		note("seed %u: %llu created, %llu destroyed, %llu refused, %llu failed in all",
		     seed, (unsigned long long)h.created_total,
		     (unsigned long long)h.destroyed_total, (unsigned long long)h.refused_total,
		     (unsigned long long)h.failed_total);
		/* What is left is listed, and can be destroyed by what the list says. */
		for (uint32_t left; (left = list_count(e->d)) > 0;)
			list_destroy(e->d);
		engine_expect_idle(e);
	}
}

static const struct claim scale[] = { CLAIM(making_one_costs_the_same_beside_three_thousand) };
static const struct claim order[] = { CLAIM(requests_in_any_order_leave_nothing) };
static const char *const large[] = { "--sandboxes-max", "4000", "--shards", "2", NULL };
static const char *const small[] = {
	"--sandboxes-max", "48", "--shards", "2", "--disk", "16M", NULL
};
static const struct suite suites[] = {
	SUITE("order", order, .arguments = small),
	SUITE("scale", scale, .arguments = large),
};

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
