/*
 * What one sandbox leaves for the next one in its slot: nothing, whether the root was proven
 * untouched and kept, or made anew. One shard, and one sandbox at a time, so that slots repeat.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

/* The sandbox that lives alone: its slot, and which root it has there. */
struct place {
	struct dsec_id id;
	char slot[32], age[64];
	bool reused;
};

static bool place_take(struct engine *e, struct place *place)
{
	struct dsec_create_opts opts = create_opts(1);
	pid_t init;

	/* A touched root is made anew behind our back: the slot is free again after that. */
	expect(until(10000, holdings_now(e->d).slots_rebuilding == 0));
	auto_made struct made made = create_run(e->d, &opts);

	if (!expect(made.created == 1) || !expect(engine_inits(e, &init, 1) == 1) ||
	    !expect(engine_slot_of(e, init, place->slot)))
		return false;
	place->id = made.ids[0];
	place->reused = made.reused;
	auto_ran struct ran age =
		command_run(e->d, place->id, &(struct command){ .argv = { "touch_root", "age" } });

	if (!expect(ran_exited(&age, 0)))
		return false;
	(void)snprintf(place->age, sizeof place->age, "%.*s", (int)ran_output(&age, 1)->head.bytes,
		       (const char *)ran_output(&age, 1)->head.data);
	return true;
}

static void touch(struct engine *e, const struct place *place, const char *way)
{
	const struct command c = { .argv = { "touch_root", way } };
	auto_ran struct ran ran = command_run(e->d, place->id, &c);

	if (!expect(ran_says(&ran, "")))
		note("%s", way);
}

static void an_untouched_root_is_kept_and_a_touched_one_is_not(struct engine *e)
{
	static const struct {
		const char *way;
		bool touches;
	} ways[] = {
		{ "read", false },    { "write", true },     { "mkdir-rmdir", true },
		{ "tmpfile", false }, { "chmod", true },     { "create-unlink", true },
		{ "chown", true },    { "utimensat", true }, { "setxattr", true },
		{ "mmap", true },     { "link", true },	     { "setxattr-removexattr", true },
		{ "read", false },    { "whiteout", true },  { "rename", true },
		{ "symlink", true },  { "shm", true },	     { "tmpfile", false },
	};
	struct place first, second;

	for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++) {
		const char *way = ways[i].way;

		if (!place_take(e, &first))
			return;
		touch(e, &first, way);
		sandbox_end(e->d, first.id);
		if (!place_take(e, &second))
			return;
		if (!expect(!strcmp(first.slot, second.slot) && second.reused))
			note("%s: slot %s then %s", way, first.slot, second.slot);
		if (!expect(!strcmp(first.age, second.age) == !ways[i].touches))
			note("%s: root of %s then %s", way, first.age, second.age);
		touch(e, &second, "look");
		sandbox_end(e->d, second.id);
	}
}

static void a_root_is_made_anew_when_it_was_asked_for_or_used_up(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(1);
	struct place first, second;
	unsigned changes = 0;

	/* --slot-uses-max 8 */
	if (!place_take(e, &first))
		return;
	sandbox_end(e->d, first.id);
	for (int i = 0; i < 20; i++) {
		if (!place_take(e, &second))
			return;
		sandbox_end(e->d, second.id);
		changes += strcmp(first.age, second.age) != 0;
		first = second;
	}
	if (!expect(changes == 2 || changes == 3))
		note("%u new roots in 20", changes);
	opts.flags |= DSEC_CREATE_FRESH_ROOT;
	auto_made struct made fresh = create_run(e->d, &opts);

	expect(fresh.created == 1 && !fresh.reused);
	sandbox_end(e->d, fresh.ids[0]);
}

/* What a sandbox could leave beside files, and how the next would see it. */
struct remains {
	const char *leave, *look; /* look says nothing when nothing is there */
	bool is_seen_inside;	  /* not: it changes nothing that lasts even there */
};

static const struct remains remains[] = {
	{ "setsid sleep 300 & setsid sleep 300 &", "pidof sleep", true },
	{ "(trap '' HUP TERM; while :; do sleep 0.01; done) &", "ps | grep '[t]rap'", true },
	{ "mkfifo /tmp/p; (sleep 300 >/tmp/p &) ; :", "ls /tmp", true },
	{ "echo x >/dev/shm/x", "ls /dev/shm", true },
	{ "probe_ipc make", "probe_ipc look", true },
	{ "hostname other 2>/dev/null; :", "hostname | grep other", false },
	{ "ulimit -n 100; (sleep 300 &) ; :", "[ $(ulimit -n) = 1024 ] || ulimit -n", false },
	/* Network `none` lets nobody connect to an abstract name, not even in the same sandbox. */
	{ "probe_ipc listen >/dev/null & until [ -e /tmp/up ]; do sleep 0.01; done",
	  "probe_ipc connect", false },
};

static void nothing_else_of_a_sandbox_reaches_the_next(struct engine *e)
{
	for (unsigned i = 0; i < sizeof remains / sizeof *remains; i++) {
		struct place first, second;
		char look[256];

		if (!place_take(e, &first))
			return;
		auto_ran struct ran left = shell_run(e->d, first.id, remains[i].leave);

		expect(ran_exited(&left, 0));
		sandbox_end(e->d, first.id);
		if (!place_take(e, &second))
			return;
		expect(!strcmp(first.slot, second.slot));
		(void)snprintf(look, sizeof look, "%s; :", remains[i].look);
		auto_ran struct ran found = shell_run(e->d, second.id, look);

		if (!expect(ran_says(&found, "")))
			note("%s", remains[i].leave);
		sandbox_end(e->d, second.id);
	}
}

static bool is_found(struct engine *e, struct dsec_id id, const char *look)
{
	auto_ran struct ran found = shell_run(e->d, id, look);
	const struct dsec_output *output = ran_output(&found, 1);

	return output && output->total_bytes > 0;
}

/* The looks above find what they look for, where it is. */
static void within_one_sandbox_the_same_looks_find_it(struct engine *e)
{
	for (unsigned i = 0; i < sizeof remains / sizeof *remains; i++) {
		struct place place;

		if (!remains[i].is_seen_inside)
			continue;
		if (!place_take(e, &place))
			return;
		auto_ran struct ran left = shell_run(e->d, place.id, remains[i].leave);

		expect(ran_exited(&left, 0));
		if (!expect(until(5000, is_found(e, place.id, remains[i].look))))
			note("%s", remains[i].look);
		sandbox_end(e->d, place.id);
	}
}

static void a_network_of_its_own_keeps_nothing_for_the_next(struct engine *e)
{
	struct dsec_create_opts opts = create_opts(1);

	opts.network = DSEC_NETWORK_PRIVATE;
	for (int i = 0; i < 5; i++) {
		auto_made struct made made = create_run(e->d, &opts);

		if (!expect(made.created == 1))
			return;
		/* Nobody listens yet, on a port or a name; then servers that stay. */
		auto_ran struct ran ran = shell_run(
			e->d, made.ids[0],
			"nc -w 1 127.0.0.1 8080 </dev/null 2>&- && echo found; probe_ipc connect\n"
			"nc -ll -p 8080 -e cat >&- 2>&- & probe_ipc listen >&- 2>&- &\n"
			"i=0; until [ $i = 500 ] || echo hi | nc -w 1 127.0.0.1 8080 2>&-; do\n"
			"sleep 0.01; i=$((i+1)); done\n"
			"until [ -e /tmp/up ]; do sleep 0.01; done; probe_ipc connect");

		expect(ran_says(&ran, "hi\nsomebody answers\n"));
		sandbox_end(e->d, made.ids[0]);
	}
}

static const struct claim claims[] = {
	CLAIM(an_untouched_root_is_kept_and_a_touched_one_is_not),
	CLAIM(a_root_is_made_anew_when_it_was_asked_for_or_used_up),
	CLAIM(nothing_else_of_a_sandbox_reaches_the_next),
	CLAIM(within_one_sandbox_the_same_looks_find_it),
	CLAIM(a_network_of_its_own_keeps_nothing_for_the_next),
};

static const char *const arguments[] = {
	"--sandboxes-max", "4", "--shards", "1", "--slot-uses-max", "8", "--disk", "64M", NULL
};
static const struct suite suites[] = { SUITE("reuse", claims, .arguments = arguments) };

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
