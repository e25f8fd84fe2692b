/*
 * Rounds of one claim: the bystander alone for a while, then beside the claim, which begins again
 * until the while is over. Called by claims.c in place of the test. Nothing is judged by time here:
 * a ratio is told beside what the quiet rounds differ by themselves. Must hold: the engine has
 * settled before a quiet round begins, so that what an attack left is not counted as quiet.
 */
#include "tests/hostile/client/figures.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SLICE_US = 2000000, SETTLE_MS = 20000 };

struct slice {
	struct bystander_share noops, execs;
	uint64_t long_callbacks;
};

struct rounds {
	struct slice alone[FIGURES_ROUNDS_MAX], beside[FIGURES_ROUNDS_MAX];
	uint32_t count;
};

/* Of the p99s of one sort of question, over the rounds. */
struct compared {
	uint32_t alone_us, beside_us, quiet_least_us, quiet_most_us;
	double ratio;
};

/* Alone without a claim. */
static bool slice_run(const struct claim *claim, struct scene *scene, struct slice *ret)
{
	uint64_t end_us = claim_now_us() + SLICE_US;
	struct dsec_holdings before, after;
	bool holds = true;

	CHECK(scene_holdings(scene, &before) == 0);
	CHECK(bystander_start(&scene->bystander) == 0);
	if (!claim)
		claim_sleep_ms(SLICE_US / 1000);
	while (claim && holds && claim_now_us() < end_us)
		holds = claim->holds(scene);
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
	uint32_t alone[FIGURES_ROUNDS_MAX], beside[FIGURES_ROUNDS_MAX], count = rounds->count;

	p99_sorted(rounds->alone, count, of_execs, alone);
	p99_sorted(rounds->beside, count, of_execs, beside);
	return (struct compared){
		.alone_us = alone[count / 2],
		.beside_us = beside[count / 2],
		.quiet_least_us = alone[0],
		.quiet_most_us = alone[count - 1],
		.ratio = alone[count / 2] ? (double)beside[count / 2] / alone[count / 2] : 0,
	};
}

static void compared_print(const char *what, const struct compared *c)
{
	printf("  %-6s p99 alone %6u us (%u to %u)  beside %6u us  x %.2f\n", what, c->alone_us,
	       c->quiet_least_us, c->quiet_most_us, c->beside_us, c->ratio);
}

static int compared_write(FILE *file, const char *what, const struct compared *c)
{
	return fprintf(file,
		       ", \"%s_alone_p99_us\": %u, \"%s_beside_p99_us\": %u, "
		       "\"%s_quiet_least_us\": %u, \"%s_quiet_most_us\": %u, "
		       "\"%s_ratio_p99\": %.3f",
		       what, c->alone_us, what, c->beside_us, what, c->quiet_least_us, what,
		       c->quiet_most_us, what, c->ratio);
}

static bool figures_tell(const struct figures_options *options, const struct claim *claim,
			 const struct rounds *rounds)
{
	struct compared noops = compare(rounds, false), execs = compare(rounds, true);
	uint64_t long_alone = 0, long_beside = 0;
	FILE *file = fopen(options->json_path, "ae");
	bool is_written;

	for (uint32_t i = 0; i < rounds->count; i++) {
		long_alone += rounds->alone[i].long_callbacks;
		long_beside += rounds->beside[i].long_callbacks;
	}
	compared_print("no-ops", &noops);
	compared_print("execs", &execs);
	printf("  callbacks over 1 ms: alone %" PRIu64 ", beside %" PRIu64 "\n", long_alone,
	       long_beside);
	CHECK(file != NULL);
	is_written = fprintf(file, "{\"scenario\": \"hostile-%s\", \"rounds\": %u", claim->name,
			     rounds->count) > 0 &&
		     compared_write(file, "noop", &noops) > 0 &&
		     compared_write(file, "exec", &execs) > 0 &&
		     fprintf(file,
			     ", \"callbacks_over_1ms_alone\": %" PRIu64
			     ", \"callbacks_over_1ms_beside\": %" PRIu64 "}\n",
			     long_alone, long_beside) > 0;
	is_written &= fclose(file) == 0;
	CHECK(is_written);
	return true;
}

bool figures_of_claim(const struct figures_options *options, const struct claim *claim,
		      struct scene *scene)
{
	struct rounds rounds = { .count = options->rounds };

	printf("%s\n", claim->name);
	for (uint32_t i = 0; i < rounds.count; i++) {
		CHECK(scene_settles(scene, SETTLE_MS));
		CHECK(slice_run(NULL, scene, &rounds.alone[i]));
		CHECK(slice_run(claim, scene, &rounds.beside[i]));
	}
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
