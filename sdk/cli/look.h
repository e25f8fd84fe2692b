/* Sandboxes and what they use, as it was at one moment. */
#pragma once

#include <stdbool.h>

#include <dsec/dsec.h>

#include "sdk/cli/session.h"

enum { IMAGE_BYTES = 64 };

struct line {
	struct dsec_id id;
	uint32_t state, processes;
	uint64_t age_ms, execs_running, execs_total;
	uint64_t cpu_us, memory_bytes, memory_peak_bytes; /* UINT64_MAX: unknown */
	uint64_t cpu_before_us;
	char image[IMAGE_BYTES]; /* its beginning */
	size_t image_bytes;
};

/* Lines are in order of ids. */
struct look {
	struct line *lines;
	uint32_t count;
	uint64_t at_us, took_us; /* since the look before; 0: there was none */
	bool no_memory;
};

/*
 * Those that the options select. `before`: the look to count CPU from, or an empty one. 0, or
 * EXIT_TROUBLE after it was told; look_done() in either case.
 */
int look_take(struct session *session, const struct look *before, struct look *ret);
void look_done(struct look *look);
/* NULL: it was not there. */
struct line *look_find(const struct look *look, struct dsec_id id);
/* Lines, by their ids; for qsort(3). */
int look_compare(const void *a, const void *b);
/* In thousandths of a CPU, since the look before, and since it was made; UINT64_MAX: unknown. */
uint64_t look_cpu_permille(const struct look *look, const struct line *line);
uint64_t look_life_permille(const struct line *line);
