/*
 * Claims as figures: how a good client fares alone and beside each hostile client, in turn. What
 * `test_hostile_X --figures FILE ROUNDS CLAIM...` prints, and run.sh --only hostile asks for.
 */
#pragma once

#include <stdint.h>

#include "tests/hostile/client/claims.h"

enum { FIGURES_ROUNDS_MAX = 32 };

struct figures_options {
	const char *json_path; /* a line for each claim is added */
	uint32_t rounds;
};

/* From a program's words, which begin with --figures; -EINVAL after a line on stderr. */
int figures_options_parse(struct figures_options *options, char **words);

/*
 * One claim, on a scene whose bystander has a sandbox: prints its line. False after saying why: the
 * claim does not hold, the bystander was not served, or the file could not be written.
 */
bool figures_of_claim(const struct figures_options *options, const struct claim *claim,
		      struct scene *scene);
