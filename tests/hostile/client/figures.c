/*
 * Rounds of one claim: the bystander alone for a while, then beside the claim, which begins again
 * until the while is over, and then beside it once more while its threads only take CPU time that
 * nobody else wants: what is left of the difference is what the engine does for it. Called by
 * claims.c in place of the test. Nothing is judged by time here: a ratio is told beside what the
 * quiet rounds differ by themselves. Must hold: the engine has settled before a quiet round begins,
 * so that what an attack left is not counted as quiet.
 */
#include "tests/hostile/client/figures.h"

#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { SLICE_US = 2000000, SETTLE_MS = 20000 };

enum company { ALONE, BESIDE, YIELDING, COMPANIES };

static const char *const company_names[COMPANIES] = { "alone", "beside", "yielding" };

struct slice {
	struct bystander_share noops, execs;
	uint64_t long_callbacks;
};

struct rounds {
	struct slice slices[COMPANIES][FIGURES_ROUNDS_MAX];
	uint32_t count;
};

/* Of the p99s of one sort of question, over the rounds: medians, and how far the quiet ones are. */
struct compared {
	uint32_t p99_us[COMPANIES], quiet_least_us, quiet_most_us;
};

/* This thread, and those that it starts from here on. */
static int policy_set(int policy)
{
	const struct sched_param none = { 0 };

	return sched_setscheduler(0, policy, &none) < 0 ? -errno : 0;
}

static bool attack(const struct claim *claim, struct scene *scene, enum company company)
{
	uint64_t end_us = claim_now_us() + SLICE_US;
	bool holds = true;

	if (company == ALONE) {
		claim_sleep_ms(SLICE_US / 1000);
		return true;
	}
	CHECK(policy_set(company == YIELDING ? SCHED_IDLE : SCHED_OTHER) == 0);
	while (holds && claim_now_us() < end_us)
		holds = claim->holds(scene);
	CHECK(policy_set(SCHED_OTHER) == 0);
	return holds;
}

static bool slice_run(const struct claim *claim, struct scene *scene, enum company company,
		      struct slice *ret)
{
	struct dsec_holdings before, after;
	bool holds;

	CHECK(scene_settles(scene, SETTLE_MS));
	CHECK(scene_holdings(scene, &before) == 0);
	CHECK(bystander_start(&scene->bystander) == 0);
	holds = attack(claim, scene, company);
	bystander_join(&scene->bystander);
	CHECK(holds);
	CHECK(!scene->bystander.failed);
	CHECK(scene_holdings(scene, &after) == 0);
	ret->noops = bystander_noops(&scene->bystander);
	ret->execs = bystander_execs(&scene->bystander);
	CHECK(ret->noops.count > 0);
	CHECK(ret->execs.count > 0);
	ret->long_callbacks = after.callbacks_over_1ms - before.callbacks_over_1ms;
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
	struct compared ret;

	for (int i = YIELDING; i >= ALONE; i--) { /* the quiet ones last: their ends are told */
		p99_sorted(rounds->slices[i], count, of_execs, sorted_us);
		ret.p99_us[i] = sorted_us[count / 2];
	}
	ret.quiet_least_us = sorted_us[0];
	ret.quiet_most_us = sorted_us[count - 1];
	return ret;
}

static double ratio(const struct compared *c, enum company company)
{
	return c->p99_us[ALONE] ? (double)c->p99_us[company] / c->p99_us[ALONE] : 0;
}

static void compared_print(const char *what, const struct compared *c)
{
	printf("  %-6s p99 alone %6u us (%u to %u)", what, c->p99_us[ALONE], c->quiet_least_us,
	       c->quiet_most_us);
	for (int i = BESIDE; i < COMPANIES; i++)
		printf("  %s %6u us x %.2f", company_names[i], c->p99_us[i], ratio(c, i));
	putchar('\n');
}

static void compared_write(FILE *file, const char *what, const struct compared *c)
{
	(void)fprintf(file, ", \"%s_quiet_least_us\": %u, \"%s_quiet_most_us\": %u", what,
		      c->quiet_least_us, what, c->quiet_most_us);
	for (int i = ALONE; i < COMPANIES; i++)
		(void)fprintf(file, ", \"%s_%s_p99_us\": %u", what, company_names[i], c->p99_us[i]);
	for (int i = BESIDE; i < COMPANIES; i++)
		(void)fprintf(file, ", \"%s_%s_ratio_p99\": %.3f", what, company_names[i],
			      ratio(c, i));
}

static uint64_t long_callbacks(const struct rounds *rounds, enum company company)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < rounds->count; i++)
		sum += rounds->slices[company][i].long_callbacks;
	return sum;
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

bool figures_of_claim(const struct figures_options *options, const struct claim *claim,
		      struct scene *scene)
{
	struct rounds rounds = { .count = options->rounds };

	printf("%s\n", claim->name);
	for (uint32_t i = 0; i < rounds.count; i++)
		for (int company = ALONE; company < COMPANIES; company++)
			CHECK(slice_run(claim, scene, company, &rounds.slices[company][i]));
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
