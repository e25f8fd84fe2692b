/*
 * Many sandboxes: what one costs does not depend on how many there are. Requests in any order are
 * test_engine_property.c's.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

enum { SAMPLES = 200, ALIVE_MAX = 3000 };

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
	uint32_t alive = 0, steps[] = { 0, fewer(1000, 100), fewer(ALIVE_MAX, 300) };
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
	/*
	 * At the median, which others move least; and once more while they do. An emulated machine
	 * says nothing.
	 */
	for (int i = 0; i < 5 && p50_ms[2] >= p50_ms[0] * 2 + 0.2; i++)
		p50_ms[2] = making_ms(e, &p99_ms[2]);
	expect(slowness() > 1 || p50_ms[2] < p50_ms[0] * 2 + 0.2);
	double begun_ms = clock_ms();

	expect(sandboxes_end(e->d, ids, alive).code == DSEC_OK);
	note("%u destroyed in %.0f ms", alive, clock_ms() - begun_ms);
	expect(list_count(e->d) == 0);
}

static const struct claim scale[] = { CLAIM(making_one_costs_the_same_beside_three_thousand) };
static const char *const large[] = { "--sandboxes-max", "4000", "--shards", "2", NULL };
static const struct suite suites[] = {
	SUITE("scale", scale, .arguments = large),
};

int main(int argc, char **argv)
{
	return suites_main(argc, argv, suites, sizeof suites / sizeof *suites);
}
