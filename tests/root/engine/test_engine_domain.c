/*
 * A domain: what one call plants the next does not see, in the same set of namespaces where it can
 * be cleaned or cannot be planted, in a new one where it cannot be cleaned. One shard, and one call
 * at a time, so that calls follow one another in one set.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/root/engine/call_client.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

static const struct dsec_bytes argv[] = { { "/bin/probe_call", 15 } };
static const struct dsec_function_opts domain = { .isolation = DSEC_ISOLATION_DOMAIN,
						  .argv = argv,
						  .argc = 1 };

/* What a call says: its pid, and a word. */
struct said {
	int pid;
	char word[16];
};

static struct said ask(struct engine *e, struct dsec_id id, const char *verb, const char *way)
{
	struct said said = { 0 };
	char input[64];

	(void)snprintf(input, sizeof input, "%s %s", verb, way);
	auto_called struct called called = call_run(e->d, id, input);

	if (!expect(called_is(&called, DSEC_VERDICT_OK)) ||
	    !expect(called.bytes[0] &&
		    sscanf(called.bytes[0], "%d %15s", &said.pid, said.word) >= 1))
		note("%s: \"%s\"", input, called.bytes[0] ? called.bytes[0] : "");
	return said;
}

static const struct {
	const char *way;
	bool is_refused; /* it cannot be planted at all */
	bool is_new;	 /* what it leaves ends the set */
} ways[] = {
	{ "file", .is_new = true },	     { "file-gone", .is_new = true },
	{ "root", .is_new = true },	     { "device", .is_new = true },
	{ "shared-memory", .is_new = true }, { "segment", .is_new = true },
	{ "semaphore", .is_new = true },     { "message", .is_new = true },
	{ "init-nice", .is_new = true },     { "init-limit", .is_new = true },
	{ "init-cpu", .is_new = true },	     { "queue", .is_refused = true },
	{ "key", .is_refused = true },	     { "setting", .is_refused = true },
	{ "host", .is_refused = true },	     { "pts", .is_refused = true },
	{ "name", .is_new = false },	     { "child", .is_new = false },
	{ "timer", .is_new = false },	     { "limit", .is_new = false },
	{ "process", .is_new = false },	     { "lock", .is_new = false },
};

static void what_a_call_plants_the_next_does_not_see(struct engine *e)
{
	struct dsec_id id = function_of(e->d, "domain", NULL, &domain);

	for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
		const char *way = ways[i].way;
		struct said planted = ask(e, id, "plant", way), seen = ask(e, id, "look", way);
		/* A new set begins to count its processes anew. */
		const bool is_new = seen.pid <= planted.pid;

		if (!expect(!strcmp(planted.word, ways[i].is_refused ? "refused" : "planted") &&
			    !seen.word[0] && is_new == ways[i].is_new))
			note("%s: %s by %d, then \"%s\" to %d", way, planted.word, planted.pid,
			     seen.word, seen.pid);
	}
	expect(function_end(e->d, id).code == DSEC_OK);
}

static void two_functions_never_share_a_set(struct engine *e)
{
	struct dsec_id one = function_of(e->d, "one", NULL, &domain);
	struct dsec_id other = function_of(e->d, "other", NULL, &domain);
	struct said first = ask(e, one, "look", "file"), second = ask(e, one, "look", "file");
	struct said foreign = ask(e, other, "look", "file");

	expect(second.pid > first.pid && foreign.pid == first.pid);
	expect(function_end(e->d, one).code == DSEC_OK);
	expect(function_end(e->d, other).code == DSEC_OK);
	/* And none of them is left. */
	expect(until(10000, engine_inits(e, NULL, 0) == 0));
}

static void a_fresh_call_is_always_in_a_new_one(struct engine *e)
{
	struct dsec_function_opts opts = domain;
	struct dsec_id id;

	opts.isolation = DSEC_ISOLATION_FRESH;
	id = function_of(e->d, "fresh", NULL, &opts);
	for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
		struct said planted = ask(e, id, "plant", ways[i].way);
		struct said seen = ask(e, id, "look", ways[i].way);

		if (!expect(!seen.word[0] && seen.pid == planted.pid))
			note("%s: %s, then \"%s\" to %d", ways[i].way, planted.word, seen.word,
			     seen.pid);
	}
	expect(function_end(e->d, id).code == DSEC_OK);
}

static const char *const one_shard[] = { "--shards", "1", NULL };

static const struct claim claims[] = {
	CLAIM(what_a_call_plants_the_next_does_not_see),
	CLAIM(two_functions_never_share_a_set),
	CLAIM(a_fresh_call_is_always_in_a_new_one),
};

int main(int argc, char **argv_)
{
	static const struct suite suites[] = { SUITE("domain", claims, .arguments = one_shard) };

	return suites_main(argc, argv_, suites, sizeof suites / sizeof *suites);
}
