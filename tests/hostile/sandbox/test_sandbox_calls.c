/*
 * Calls that use all they get and end as they like: the engine answers each with its verdict,
 * another function's calls go on, and nothing is left; also where engine or workers are killed in
 * the middle.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/root/engine/call_client.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"
#include "tests/root/engine/engine_image.h"

static const struct attack {
	const char *name, *script;
	uint32_t verdict; /* 0: any, but one */
} attacks[] = {
	{ "forks", "exec attack bomb-forks", DSEC_VERDICT_TLE },
	{ "flees", "exec attack bomb-sessions", DSEC_VERDICT_TLE },
	{ "deaf", "trap '' TERM HUP INT QUIT; while :; do sleep 1; done", DSEC_VERDICT_TLE },
	{ "fills", "while :; do head -c 10m /dev/zero >>/tmp/full || sleep 60; done 2>/dev/null",
	  DSEC_VERDICT_TLE },
	{ "floods", "while :; do head -c 1m /dev/zero; head -c 1m /dev/zero >&2; done",
	  DSEC_VERDICT_OLE },
	{ "holds", "exec attack hold-output 1", DSEC_VERDICT_TLE },
	{ "keeps", "setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & exit 0", 0 },
	{ "kills", "kill -9 -1; exit 0", 0 },
	{ "stops", "kill -STOP -1; kill -STOP $$", DSEC_VERDICT_TLE },
	{ "reaps-none", "for i in $(seq 60); do sh -c 'exit 0' & done; exec sleep 60",
	  DSEC_VERDICT_TLE },
};

static struct dsec_id attack_make(struct engine *e, const struct attack *attack, uint32_t isolation)
{
	const bool floods = attack->verdict == DSEC_VERDICT_OLE;
	const struct dsec_function_opts opts = { .isolation = isolation,
						 .wall_ms = floods ? (uint32_t)longer(10000) : 400,
						 .pids_max = 100,
						 .disk_bytes = 8 << 20,
						 .output_bytes = 100000 };

	return function_of(e->d, attack->name, attack->script, &opts);
}

static void attack_run(struct engine *e, const struct attack *attack, struct dsec_id neighbour)
{
	for (uint32_t isolation = DSEC_ISOLATION_FRESH; isolation <= DSEC_ISOLATION_DOMAIN;
	     isolation++) {
		const struct dsec_bytes inputs[4] = { 0 };
		struct dsec_id id = attack_make(e, attack, isolation);
		int64_t ticket = calls_start(e->d, id, inputs, 4);

		auto_called struct called fine = call_run(e->d, neighbour, "fine");

		expect(called_says(&fine, "fine"));
		expect(fine.ms < (double)held_up_ms());
		auto_calls struct calls calls = calls_wait(e->d, ticket, 4);

		for (uint32_t i = 0; i < 4; i++) {
			const struct called *called = &calls.all[i];

			if (!expect(called->times == 1 && called->result.size) ||
			    !expect(!attack->verdict || called_is(called, attack->verdict)) ||
			    !expect(called->ms < longer(30000)))
				note("%s, isolation %u", attack->name, isolation);
		}
		expect(function_end(e->d, id).code == DSEC_OK);
	}
	/* The neighbour's own set is all that may be there. */
	if (!expect(until(10000, engine_members(e, NULL, 0) <= 1)))
		note("%s left %u processes", attack->name, engine_members(e, NULL, 0));
}

static void each_attack_is_answered_and_leaves_nothing(struct engine *e)
{
	const struct dsec_function_opts opts = { .isolation = DSEC_ISOLATION_DOMAIN };
	struct dsec_id neighbour = function_of(e->d, "neighbour", "cat", &opts);

	for (unsigned i = 0; i < sizeof attacks / sizeof *attacks; i++)
		attack_run(e, &attacks[i], neighbour);
	expect(function_end(e->d, neighbour).code == DSEC_OK);
}

struct tally {
	uint32_t called, refused, asked;
};

static void calls_count(struct engine *e, int64_t ticket, uint32_t asked, struct tally *tally)
{
	auto_calls struct calls calls = calls_wait(e->d, ticket, asked);

	for (uint32_t n = 0; n < calls.count; n++) {
		const struct dsec_status *s = &calls.all[n].status;

		/* Cancelled before it began at all: the last event says so for all. */
		if (!expect(calls.all[n].times == 1 ||
			    (!calls.all[n].times && calls.last.code == DSEC_CANCELLED)))
			note("input %u came %u times", n, calls.all[n].times);
		tally->called += calls.all[n].result.size != 0;
		tally->refused += s->code == DSEC_REFUSED;
		expect(s->code != DSEC_REFUSED || s->retry_after_ms);
	}
	tally->asked += calls.count;
}

/* Beyond what may wait: refused, with a time, and every input has its answer. */
static void what_is_too_much_is_refused_and_accounted_for(struct engine *e)
{
	enum { REQUESTS = 12, FEW = 40, LAST = REQUESTS - 1 };
	static const struct dsec_bytes inputs[CALLS_MAX];
	const struct dsec_function_opts opts = { .wall_ms = 1 };
	struct dsec_id id = function_of(e->d, "much", "sleep 5", &opts);
	struct tally tally = { 0 };
	int64_t tickets[REQUESTS];
	uint32_t asked[REQUESTS];

	for (int i = 0; i < REQUESTS; i++) {
		asked[i] = i == 0 || i == LAST ? FEW : CALLS_MAX;
		tickets[i] = calls_start(e->d, id, inputs, asked[i]);
	}
	/* It begins behind all others, and what there is room for has been taken by then. */
	calls_count(e, tickets[LAST], asked[LAST], &tally);
	expect(tally.refused);
	/* All but the first are taken back: what is of them by then is called. */
	for (int i = 1; i < LAST; i++)
		(void)dsec_cancel(e->d, tickets[i]); /* it may be over */
	for (int i = 0; i < LAST; i++)
		calls_count(e, tickets[i], asked[i], &tally);
	note("%u called, %u refused of %u", tally.called, tally.refused, tally.asked);
	expect(tally.called >= FEW);
	expect(function_end(e->d, id).code == DSEC_OK);
}

static void killed_workers_cost_calls_and_nothing_else(struct engine *e)
{
	enum { COUNT = 200 };
	static const struct dsec_bytes inputs[COUNT];
	uint32_t good = 0;

	for (uint32_t isolation = DSEC_ISOLATION_FRESH; isolation <= DSEC_ISOLATION_DOMAIN;
	     isolation++) {
		const struct dsec_function_opts opts = { .isolation = isolation };
		struct dsec_id id = function_of(e->d, "worked", "exit 0", &opts);
		int64_t ticket = calls_start(e->d, id, inputs, COUNT);
		pid_t pids[16];

		for (int i = 0; i < 5; i++) {
			unsigned count = engine_workers(e, pids, 16);

			if (count)
				(void)kill(pids[i % count], SIGKILL);
			pause_ms(20);
		}
		auto_calls struct calls calls = calls_wait(e->d, ticket, COUNT);

		for (uint32_t i = 0; i < COUNT; i++) {
			expect(calls.all[i].times == 1);
			good += calls.all[i].result.verdict == DSEC_VERDICT_OK;
		}
		expect(function_end(e->d, id).code == DSEC_OK);
	}
	note("%u of %u calls were good", good, 2 * COUNT);
	expect(good > COUNT);
	expect(until(10000, engine_members(e, NULL, 0) == 0));
}

static void an_engine_killed_in_the_middle_leaves_nothing(struct engine *e)
{
	const struct dsec_function_opts opts = { .isolation = DSEC_ISOLATION_DOMAIN };
	struct dsec_id id = function_of(e->d, "cut", "sleep 1000", &opts);
	static const struct dsec_bytes inputs[8];
	struct dsec *d = engine_connect(e);

	pid_t killed = engine_pid(e);

	(void)calls_start(d, id, inputs, 8);
	expect(until(20000, engine_running(e, "sleep") > 0));
	expect(kill(killed, SIGKILL) == 0);
	dsec_close(d);
	expect(until(20000, engine_running(e, "sleep") == 0));
	expect(until(20000, engine_pid(e) > 0 && engine_pid(e) != killed));
	d = engine_connect(e); /* the keeper has the socket: it waits for the next one */
	if (!d)
		return;
	auto_called struct called called = call_run(d, id, "");

	/* It knows no functions. */
	expect(!called.result.size && called.status.code == DSEC_ABSENT);
	dsec_close(d);
}

static const struct claim claims[] = {
	CLAIM(each_attack_is_answered_and_leaves_nothing),
	CLAIM(what_is_too_much_is_refused_and_accounted_for),
};

static const struct claim hurt[] = {
	CLAIM(killed_workers_cost_calls_and_nothing_else),
	CLAIM(an_engine_killed_in_the_middle_leaves_nothing),
};

int main(int argc, char **argv)
{
	static const struct suite suites[] = { SUITE("calls", claims),
					       SUITE("killed", hurt, .is_hurt = true) };

	image_add(ATTACK_PATH, "attack");
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
