/*
 * Storms inside a sandbox that has limits: memory of every kind (E20), and faults that the kernel
 * would log (E52). The sandbox fails alone, with a typed end; its neighbour works; ending it is
 * quick; nothing is left. For hosts whose controllers are on cgroup v2: guests. Ratios are printed,
 * not judged. Storms that every host can bear are tests/hostile/sandbox's.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

enum { MIB = 1 << 20, ROUNDS = 24 };

struct storm {
	const char *name, *script;
	bool ends; /* by itself or by its limit, within its time */
};

/* Of a limit of 48 MiB: each takes all it can get. */
static const struct storm storms[] = {
	{ "anonymous memory", "exec dd if=/dev/zero of=/dev/null bs=200M count=1", true },
	{ "many processes with memory",
	  "for i in 1 2 3 4 5 6 7 8; do dd if=/dev/zero of=/dev/null bs=30M count=20 & done; wait",
	  true },
	{ "files in memory", "dd if=/dev/zero of=/tmp/full bs=1M count=200", true },
	{ "shared memory", "dd if=/dev/zero of=/dev/shm/full bs=1M count=200", true },
	{ "faults", "while :; do sh -c 'kill -SEGV $$'; done", false },
	{ "small files", "i=0; while :; do : >/tmp/$i; i=$((i+1)); done", false },
};

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The slowest but one of a neighbour's commands, each of which must do. */
static double neighbour_ms(struct dsec *d, struct dsec_id id)
{
	double ms[ROUNDS];

	for (int i = 0; i < ROUNDS; i++) {
		auto_ran struct ran ran = shell_run(d, id, "echo fine");

		if (!expect(ran_says(&ran, "fine\n")))
			ran_note(&ran);
		ms[i] = ran.ms;
	}
	qsort(ms, ROUNDS, sizeof *ms, by_value);
	return ms[ROUNDS - 2];
}

static bool is_typed(const struct ran *ran)
{
	return (ran->result && ran->result->reason != DSEC_RUNNING &&
		ran->result->reason != DSEC_END_UNKNOWN) ||
	       (ran->status.code != DSEC_OK && *ran->status.step);
}

static void storm_run(struct engine *e, const struct storm *storm, struct dsec_id neighbour)
{
	struct dsec_create_opts opts = create_opts(1);
	struct command c = SH(storm->script);
	double calm_ms = neighbour_ms(e->d, neighbour), storm_ms, end_ms;
	uint64_t lost = holdings_now(e->d).launchers_lost;

	opts.flags = 0;
	opts.memory_bytes = 48 * MIB;
	opts.pids_max = 64;
	opts.cpu_max_permille = 500;
	opts.inodes = 2000;
	c.timeout_ms = storm->ends ? (uint32_t)longer(15000) : 6000;
	auto_made struct made made = create_run(e->d, &opts);

	if (!expect(made.created == 1))
		return;
	int64_t ticket = command_start(e->d, made.ids[0], &c, NULL);

	storm_ms = neighbour_ms(e->d, neighbour);
	auto_ran struct ran ran = command_wait(e->d, ticket);

	if (!expect(is_typed(&ran) && ran.ms < longer(20000)))
		ran_note(&ran);
	if (storm->ends)
		expect(ran.result && ran.result->reason != DSEC_TIMEOUT);
	/* Whatever is left of it, its next command has a typed end, too. */
	auto_ran struct ran next = shell_run(e->d, made.ids[0], "echo well");

	if (!expect(ran_says(&next, "well\n") || is_typed(&next)))
		ran_note(&next);
	end_ms = clock_ms();
	sandbox_end(e->d, made.ids[0]);
	end_ms = clock_ms() - end_ms;
	expect(end_ms < (double)held_up_ms());
	note("%s: reason %u, then code %u at \"%s\"; neighbour x %.1f; ended in %.0f ms; "
	     "%llu workers lost",
	     storm->name, ran.result ? ran.result->reason : 99, next.status.code, next.status.step,
	     storm_ms / calm_ms, end_ms,
	     (unsigned long long)(holdings_now(e->d).launchers_lost - lost));
}

static void a_storm_costs_nobody_but_its_sandbox(struct engine *e)
{
	const struct dsec_caps *caps;
	struct dsec_id neighbour;

	if (!expect(dsec_capabilities(e->d, &caps) == 0))
		return;
	if (caps->unenforced & (DSEC_LIMIT_MEMORY | DSEC_LIMIT_CPU)) {
		note("left out: no memory and cpu controllers here");
		return;
	}
	neighbour = sandbox_make(e->d);
	for (size_t i = 0; i < sizeof storms / sizeof *storms; i++)
		storm_run(e, &storms[i], neighbour);
	sandbox_end(e->d, neighbour);
}

static const struct claim claims[] = { CLAIM(a_storm_costs_nobody_but_its_sandbox) };
static const char *const arguments[] = { "--sandboxes-max", "16", "--shards", "2", NULL };
static const struct suite suites[] = { SUITE("storms", claims, .arguments = arguments,
					     .is_hurt = true) };

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
