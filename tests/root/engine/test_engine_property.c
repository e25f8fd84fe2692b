/*
 * 29: whatever is asked, in whatever order, everything can be deleted and nothing is left: random
 * operations from a seed that is printed, then a delete of all, and every gauge is zero. The seed
 * of a failure is given again as DSEC_SEED.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/file_client.h"
#include "tests/slowness.h"

enum { OPERATIONS = 1500, KNOWN_MAX = 64, OPEN_MAX = 24, CONNECTIONS = 2 };

struct play {
	struct engine *e;
	uint64_t seed;
	struct dsec *d[CONNECTIONS];
	struct dsec_id ids[KNOWN_MAX];
	uint32_t known;
	struct {
		struct dsec *d;
		int64_t ticket;
	} open[OPEN_MAX];
	uint32_t open_count;
	uint32_t asked[10];
};

static uint32_t pick(struct play *p, uint32_t below)
{
	/* xorshift64* */
	p->seed ^= p->seed >> 12;
	p->seed ^= p->seed << 25;
	p->seed ^= p->seed >> 27;
	return (uint32_t)((p->seed * 0x2545f4914f6cdd1dull) >> 33) % below;
}

static struct dsec_id pick_id(struct play *p)
{
	struct dsec_id id = { 1, 2 };

	if (!p->known)
		return id;
	id = p->ids[pick(p, p->known < KNOWN_MAX ? p->known : KNOWN_MAX)];
	if (pick(p, 20) == 0)
		id.lo ^= 1ull << pick(p, 60);
	return id;
}

static void id_learn(struct play *p, struct dsec_id id)
{
	p->ids[p->known++ % KNOWN_MAX] = id;
}

/* To the end of a ticket, learning from what comes. */
static void finish(struct play *p, uint32_t at)
{
	struct dsec *d = p->open[at].d;
	struct dsec_event *event;
	bool is_last = false;

	while (!is_last && expect(dsec_wait(d, p->open[at].ticket, 60000, &event) == 0)) {
		is_last = event->flags & DSEC_LAST;
		if (event->kind == DSEC_EV_CREATED && event->status.code == DSEC_OK)
			id_learn(p, event->subject);
		/* Whatever came of it is one of the known ends. */
		if (!expect(event->status.code != DSEC_LOST &&
			    (event->status.code != DSEC_INVALID ||
			     !strncmp(event->status.step, "import.", 7)) &&
			    (event->status.code != DSEC_UNKNOWN ||
			     !strncmp(event->status.step, "file.", 5))))
			note("code %u at \"%s\": %s", event->status.code, event->status.step,
			     event->status.detail);
		dsec_event_free(event);
	}
	p->open[at] = p->open[--p->open_count];
}

static void opened(struct play *p, struct dsec *d, int64_t ticket)
{
	if (!expect(ticket >= 0))
		return;
	p->open[p->open_count].d = d;
	p->open[p->open_count++].ticket = ticket;
	if (p->open_count == OPEN_MAX)
		finish(p, pick(p, OPEN_MAX));
}

static int64_t create(struct play *p, struct dsec *d, const struct dsec_call *call)
{
	struct dsec_create_opts opts = create_opts(1 + pick(p, 3));

	opts.ttl_s = pick(p, 4) == 0 ? 1 : 0;
	opts.idle_ttl_s = pick(p, 6) == 0 ? 1 : 0;
	opts.flags |= pick(p, 4) == 0 ? DSEC_CREATE_FRESH_ROOT : 0;
	opts.flags |= pick(p, 4) == 0 ? DSEC_CREATE_DESTROY_IF_CANCELLED : 0;
	opts.network = pick(p, 3) == 0 ? DSEC_NETWORK_PRIVATE : DSEC_NETWORK_NONE;
	opts.pids_max = pick(p, 6) == 0 ? 50 : 0;
	return dsec_create(d, call, &opts);
}

static int64_t exec(struct play *p, struct dsec *d, const struct dsec_call *call)
{
	static const char *const scripts[] = {
		"exit 3",
		"sleep 0.05",
		"exec sleep 100",
		"sleep 100 & sleep 100 & exit 0",
		"echo x >/tmp/x",
		"kill -9 $$",
		"setsid sleep 100 >&- 2>&- & exit 0",
		"setsid sh -c 'while sleep 0.01; do echo more; done' & exit 0",
		"exec yes",
	};
	struct command c = SH(scripts[pick(p, sizeof scripts / sizeof *scripts)]);

	c.timeout_ms = 50 + pick(p, 400);
	c.output_limit_bytes = pick(p, 3) == 0 ? 10000 : 0;
	return command_try(d, pick_id(p), &c, call);
}

static int64_t change(struct play *p, struct dsec *d, const struct dsec_select *select)
{
	const struct dsec_label label = { { "k", 1 }, { "v", 1 } };
	struct dsec_change_opts opts = {
		.size = sizeof opts, .set = DSEC_CHANGE_LABELS, .labels = &label, .label_count = 1
	};

	if (pick(p, 3) == 0) {
		opts.set |= DSEC_CHANGE_TTL;
		opts.ttl_s = 1 + pick(p, 100);
	}
	return dsec_change(d, NULL, select, &opts);
}

/* Some end by themselves; some wait for input, a change, or a listener until they are cancelled. */
static int64_t file(struct play *p, struct dsec *d)
{
	static const uint32_t verbs[] = { DSEC_FILE_READ, DSEC_FILE_WRITE, DSEC_FILE_LIST,
					  DSEC_FILE_MKDIR, DSEC_FILE_WATCH };
	struct dsec_call call = { .size = sizeof call, .timeout_ms = 20 + pick(p, 300) };
	struct dsec_file_opts opts = { .size = sizeof opts,
				       .verb = verbs[pick(p, sizeof verbs / sizeof *verbs)],
				       .path = bytes_of("/tmp") };
	struct dsec_id id = pick_id(p);

	if (opts.verb == DSEC_FILE_READ) {
		opts.path = bytes_of("/bin/sh");
		return dsec_read(d, &call, id, &opts);
	}
	if (opts.verb != DSEC_FILE_WRITE)
		return dsec_file(d, &call, id, &opts);
	opts.path = bytes_of("/tmp/y");
	if (pick(p, 2))
		opts.input = bytes_of("whole");
	return dsec_write(d, &call, id, &opts);
}

static int64_t port(struct play *p, struct dsec *d)
{
	struct dsec_port_opts opts = { .size = sizeof opts,
				       .port = 1 + pick(p, 3),
				       .wait_ms = pick(p, 2) * (1 + pick(p, 200)) };

	return dsec_port(d, NULL, pick_id(p), &opts);
}

/* Nothing is an image here: cut off in its middle, or of no bytes. */
static int64_t import(struct play *p, struct dsec *d)
{
	struct dsec_call call = { .size = sizeof call, .timeout_ms = 20 + pick(p, 300) };
	struct dsec_image_opts opts = { .size = sizeof opts,
					.verb = DSEC_IMAGE_IMPORT,
					.name = "property/none" };
	int64_t ticket = dsec_image(d, &call, &opts);

	if (ticket >= 0 && pick(p, 2)) {
		int64_t input = dsec_input(d, NULL, ticket, 0, (struct dsec_bytes){ 0 });

		if (input >= 0)
			(void)ticket_end(d, input); /* taken, or too late */
	}
	return ticket;
}

static void operate_more(struct play *p, struct dsec *d)
{
	uint32_t what = pick(p, 8);

	if (what < 4)
		opened(p, d, file(p, d));
	else if (what < 7)
		opened(p, d, port(p, d));
	else
		opened(p, d, import(p, d));
}

static void operate(struct play *p)
{
	struct dsec *d = p->d[pick(p, CONNECTIONS)];
	struct dsec_call call = { .size = sizeof call,
				  .timeout_ms = pick(p, 10) == 0 ? 1 + pick(p, 20) : 0 };
	struct dsec_id id = pick_id(p);
	struct dsec_select select = { .size = sizeof select, .count = 1, .ids = &id };
	uint32_t what = pick(p, 20);

	p->asked[what / 2]++;
	if (what < 4)
		opened(p, d, create(p, d, &call));
	else if (what < 8)
		opened(p, d, exec(p, d, &call));
	else if (what < 10)
		opened(p, d, dsec_destroy(d, NULL, &select));
	else if (what == 10)
		opened(p, d, change(p, d, &select));
	else if (what == 11)
		opened(p, d, dsec_inspect(d, NULL, id));
	else if (what == 12)
		opened(p, d, dsec_stats(d, NULL, &select));
	else if (what == 13 && p->open_count)
		(void)dsec_cancel(p->open[0].d, p->open[0].ticket); /* it may have ended */
	else if (what > 15)
		operate_more(p, d);
	else if (p->open_count)
		finish(p, pick(p, p->open_count));
}

static void after_any_operations_everything_can_be_deleted(struct engine *e)
{
	const char *given = getenv("DSEC_SEED");
	struct play p = { .e = e, .d = { e->d, engine_connect(e) } };
	struct timespec now;
	struct dsec_holdings held;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	p.seed = given ? strtoull(given, NULL, 0) : (uint64_t)now.tv_sec << 20 | now.tv_nsec >> 10;
	p.seed |= 1;
	note("DSEC_SEED=%#llx", (unsigned long long)p.seed);
	for (unsigned i = 0; i < fewer(OPERATIONS, 300); i++)
		operate(&p);
	while (p.open_count)
		finish(&p, 0);
	note("asked: %u creates, %u execs, %u destroys, %u files, ports and imports",
	     p.asked[0] + p.asked[1], p.asked[2] + p.asked[3], p.asked[4], p.asked[8] + p.asked[9]);
	list_destroy(e->d);
	expect(until(20000, (held = holdings_now(e->d), holdings_are_none(&held))));
	if (!expect(holdings_are_none(&held) && held.created_total == held.destroyed_total &&
		    held.created_total > fewer(50, 15)))
		note("sandboxes %llu execs %llu files %llu forwards %llu waits %llu imports %llu "
		     "sinks %llu created %llu destroyed %llu",
		     (unsigned long long)held.sandboxes, (unsigned long long)held.execs,
		     (unsigned long long)held.files, (unsigned long long)held.forwards,
		     (unsigned long long)held.port_waits, (unsigned long long)held.imports,
		     (unsigned long long)held.sinks, (unsigned long long)held.created_total,
		     (unsigned long long)held.destroyed_total);
	/* Pools conserve: all of its places are there. */
	struct dsec_create_opts opts = create_opts(32);
	auto_made struct made made = create_run(e->d, &opts);

	expect(made.created == 32);
	list_destroy(e->d);
	dsec_close(p.d[1]);
}

static const struct claim claims[] = { CLAIM(after_any_operations_everything_can_be_deleted) };
static const char *const arguments[] = { "--sandboxes-max", "32", "--shards", "2",
					 "--execs-max",	    "64", NULL };
static const struct suite suites[] = { SUITE("property", claims, .arguments = arguments) };

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
