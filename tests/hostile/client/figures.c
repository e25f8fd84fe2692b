/*
 * Rounds of one claim: the bystander alone for a while; beside the claim, which begins again until
 * the while is over; and beside the controls (company.h): a burner of as much CPU time, a good
 * client that asks without a pause, and one that makes sandboxes and runs programs, which is a
 * control for attacks that make sandboxes. Called by claims.c in place of the test. Nothing is
 * judged by time here: what counts is told, beside / the harsher of the controls. Must hold: the
 * engine has settled before each, so that what one left is not counted as the next one's.
 */
#include "tests/hostile/client/figures.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SLICE_US = 2000000, SETTLE_MS = 20000 };

enum company { ALONE, BESIDE, BURNER, ASKER, WORKER, COMPANIES };

static const char *const company_names[COMPANIES] = { "alone", "beside", "burner", "asker",
						      "worker" };

struct slice {
	struct bystander_share noops, execs;
	uint64_t long_callbacks, sandboxes_made;
	struct efforts efforts; /* of the company, the bystander's left out */
};

struct rounds {
	struct slice slices[COMPANIES][FIGURES_ROUNDS_MAX];
	uint32_t count;
	bool makes_sandboxes; /* the claim */
};

/* Of the p99s of one sort of question, over the rounds: medians, and how far the quiet ones are. */
struct compared {
	uint32_t p99_us[COMPANIES], quiet_least_us, quiet_most_us;
	enum company harsher;
};

static bool attack(const struct claim *claim, struct scene *scene, uint64_t end_us)
{
	bool holds = true;

	while (holds && claim_now_us() < end_us)
		holds = claim->holds(scene);
	return holds;
}

/* `efforts`: of the claim, which the burner takes too. */
static bool company_keep(const struct claim *claim, struct scene *scene, enum company company,
			 const struct efforts *efforts)
{
	uint64_t end_us = claim_now_us() + SLICE_US;

	switch (company) {
	case BESIDE:
		return attack(claim, scene, end_us);
	case BURNER:
		CHECK(company_burns(efforts, end_us) == 0);
		return true;
	case ASKER:
		return company_asks(scene, &efforts->others, end_us);
	case WORKER:
		return company_works(scene, end_us);
	case ALONE:
	case COMPANIES:
		break;
	}
	claim_sleep_ms(SLICE_US / 1000);
	return true;
}

/* What `ret` was at the beginning: what came since then, and of what `less` is not. */
static void effort_since(struct effort *ret, const struct effort *now, const struct effort *less)
{
	ret->elapsed_us = now->elapsed_us - ret->elapsed_us;
	ret->cpu_us = now->cpu_us - ret->cpu_us - less->cpu_us;
	ret->pieces = now->pieces - ret->pieces - less->pieces;
}

/* Since the two were read, in this thread and process. */
static void efforts_since(struct efforts *ret, const struct effort *bystander)
{
	const struct effort none = { 0 };
	struct effort own, all, less;

	effort_of_thread(&own);
	effort_of_process(&all);
	effort_since(&ret->own, &own, &none);
	less = ret->own;
	less.cpu_us += bystander->cpu_us;
	less.pieces += bystander->pieces;
	effort_since(&ret->others, &all, &less);
	ret->own.threads = 1;
	ret->others.threads = bystander->threads > 2 ? bystander->threads - 2 : 0;
}

static bool slice_run(const struct claim *claim, struct scene *scene, enum company company,
		      const struct efforts *efforts, struct slice *ret)
{
	struct dsec_holdings before, after;
	bool holds;

	CHECK(scene_settles(scene, SETTLE_MS));
	CHECK(scene_holdings(scene, &before) == 0);
	effort_of_thread(&ret->efforts.own);
	effort_of_process(&ret->efforts.others);
	CHECK(bystander_start(&scene->bystander) == 0);
	holds = company_keep(claim, scene, company, efforts);
	bystander_join(&scene->bystander);
	efforts_since(&ret->efforts, &scene->bystander.effort);
	CHECK(holds);
	CHECK(!scene->bystander.failed);
	CHECK(scene_holdings(scene, &after) == 0);
	ret->noops = bystander_noops(&scene->bystander);
	ret->execs = bystander_execs(&scene->bystander);
	CHECK(ret->noops.count > 0);
	CHECK(ret->execs.count > 0);
	ret->long_callbacks = after.callbacks_over_1ms - before.callbacks_over_1ms;
	ret->sandboxes_made = after.created_total - before.created_total;
	return true;
}

static int by_size(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static void p99_sorted(const struct slice *slices, uint32_t count, bool of_execs, uint32_t *ret)
{
	for (uint32_t i = 0; i < count; i++)
		ret[i] = of_execs ? slices[i].execs.p99_us : slices[i].noops.p99_us;
	qsort(ret, count, sizeof *ret, by_size);
}

static struct compared compare(const struct rounds *rounds, bool of_execs)
{
	uint32_t sorted_us[FIGURES_ROUNDS_MAX], count = rounds->count;
	struct compared ret = { .harsher = BURNER };

	for (int i = COMPANIES - 1; i >= ALONE;
	     i--) { /* the quiet ones last: their ends are told */
		p99_sorted(rounds->slices[i], count, of_execs, sorted_us);
		ret.p99_us[i] = sorted_us[count / 2];
	}
	ret.quiet_least_us = sorted_us[0];
	ret.quiet_most_us = sorted_us[count - 1];
	if (ret.p99_us[ASKER] > ret.p99_us[ret.harsher])
		ret.harsher = ASKER;
	if (rounds->makes_sandboxes && ret.p99_us[WORKER] > ret.p99_us[ret.harsher])
		ret.harsher = WORKER;
	return ret;
}

static double ratio(const struct compared *c, enum company of, enum company to)
{
	return c->p99_us[to] ? (double)c->p99_us[of] / c->p99_us[to] : 0;
}

static void compared_print(const char *what, const struct compared *c)
{
	printf("  %-6s p99 us: alone %u (%u to %u), burner %u, asker %u, worker %u, beside %u:"
	       " x %.2f of the %s, x %.2f of alone\n",
	       what, c->p99_us[ALONE], c->quiet_least_us, c->quiet_most_us, c->p99_us[BURNER],
	       c->p99_us[ASKER], c->p99_us[WORKER], c->p99_us[BESIDE], ratio(c, BESIDE, c->harsher),
	       company_names[c->harsher], ratio(c, BESIDE, ALONE));
}

static void compared_write(FILE *file, const char *what, const struct compared *c)
{
	(void)fprintf(file, ", \"%s_quiet_least_us\": %u, \"%s_quiet_most_us\": %u", what,
		      c->quiet_least_us, what, c->quiet_most_us);
	for (int i = ALONE; i < COMPANIES; i++)
		(void)fprintf(file, ", \"%s_%s_p99_us\": %u", what, company_names[i], c->p99_us[i]);
	(void)fprintf(file,
		      ", \"%s_harsher\": \"%s\", \"%s_ratio_p99\": %.3f, \"%s_alone_ratio_p99\": "
		      "%.3f",
		      what, company_names[c->harsher], what, ratio(c, BESIDE, c->harsher), what,
		      ratio(c, BESIDE, ALONE));
}

static uint64_t long_callbacks(const struct rounds *rounds, enum company company)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < rounds->count; i++)
		sum += rounds->slices[company][i].long_callbacks;
	return sum;
}

static void effort_print(const struct effort *e)
{
	if (e->threads)
		printf(" (%u) %" PRIu64 " in %" PRIu64, e->threads, e->cpu_us * 100 / e->elapsed_us,
		       e->pieces * 1000000 / e->elapsed_us);
}

/* Of the last round: what the burner took is to be what the claim took. */
static void efforts_print(const struct rounds *rounds)
{
	printf("  percent of a CPU, pieces a second:");
	for (int i = ALONE; i < COMPANIES; i++) {
		const struct efforts *e = &rounds->slices[i][rounds->count - 1].efforts;

		printf(" %s", company_names[i]);
		effort_print(&e->own);
		effort_print(&e->others);
	}
	putchar('\n');
}

static bool figures_tell(const struct figures_options *options, const struct claim *claim,
			 const struct rounds *rounds)
{
	struct compared noops = compare(rounds, false), execs = compare(rounds, true);
	FILE *file = fopen(options->json_path, "ae");
	bool is_written;

	compared_print("no-ops", &noops);
	compared_print("execs", &execs);
	printf("  callbacks over 1 ms:");
	for (int i = ALONE; i < COMPANIES; i++)
		printf(" %s %" PRIu64, company_names[i], long_callbacks(rounds, i));
	putchar('\n');
	efforts_print(rounds);
	CHECK(file != NULL);
	(void)fprintf(file, "{\"scenario\": \"hostile-%s\", \"rounds\": %u", claim->name,
		      rounds->count);
	compared_write(file, "noop", &noops);
	compared_write(file, "exec", &execs);
	for (int i = ALONE; i < COMPANIES; i++)
		(void)fprintf(file, ", \"callbacks_over_1ms_%s\": %" PRIu64, company_names[i],
			      long_callbacks(rounds, i));
	(void)fputs("}\n", file);
	is_written = !ferror(file);
	is_written &= fclose(file) == 0;
	CHECK(is_written);
	return true;
}

static bool round_run(const struct claim *claim, struct scene *scene, struct rounds *rounds,
		      uint32_t at)
{
	const struct slice *beside = &rounds->slices[BESIDE][at];

	for (int company = ALONE; company < COMPANIES; company++)
		CHECK(slice_run(claim, scene, company, &beside->efforts,
				&rounds->slices[company][at]));
	rounds->makes_sandboxes |= beside->sandboxes_made > 0;
	return true;
}

bool figures_of_claim(const struct figures_options *options, const struct claim *claim,
		      struct scene *scene)
{
	struct rounds rounds = { .count = options->rounds };

	printf("%s\n", claim->name);
	for (uint32_t i = 0; i < rounds.count; i++)
		CHECK(round_run(claim, scene, &rounds, i));
	CHECK(scene_settles(scene, SETTLE_MS));
	CHECK(figures_tell(options, claim, &rounds));
	(void)fflush(stdout);
	return true;
}

int figures_options_parse(struct figures_options *options, char **words)
{
	unsigned long rounds;
	char *end;

	if (!words[1] || !words[2])
		goto usage;
	rounds = strtoul(words[2], &end, 10);
	if (*end || !rounds || rounds > FIGURES_ROUNDS_MAX)
		goto usage;
	options->json_path = words[1];
	options->rounds = (uint32_t)rounds;
	return 0;
usage:
	fprintf(stderr, "--figures FILE ROUNDS [CLAIM...]: at most %d rounds\n",
		FIGURES_ROUNDS_MAX);
	return -EINVAL;
}
