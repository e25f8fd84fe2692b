/*
 * A table of claims against one engine. After each claim a well-behaved client must still be
 * served, by the same engine process, and what the engine holds must come back to what it held
 * before.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "dsec/dsec.h"
#include "tests/hostile/client/bystander.h"
#include "tests/hostile/client/engine.h"

struct scene {
	struct engine engine;
	struct dsec *neighbour; /* connected before the first attack, as is the bystander */
	struct bystander bystander;
	uint32_t descriptors;	    /* of the engine, before the claim */
	uint32_t descriptor_places; /* of its table of descriptors */
	struct dsec_holdings before;
	uint64_t resident_bytes;
};

struct claim {
	const char *name;
	/* False, after saying what was seen. */
	bool (*holds)(struct scene *scene);
};

#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			printf("  %s:%d: %s\n", __FILE__, __LINE__, #what);                        \
			return false;                                                              \
		}                                                                                  \
	} while (0)

/*
 * As main(): every claim, or those named in `names`; figures of them (figures.h). The exit status;
 * says "Tested: N".
 */
int claims_run(const struct claim *claims, uint32_t count, const struct engine_options *options,
	       char **names);

/* ---- the well-behaved client, for use within claims too ---- */

struct service {
	uint64_t median_us, worst_us;
};

/* So many requests (fewer(), 20 at least) of the neighbour, one after another; 0 or -errno. */
int neighbour_serve(struct scene *scene, uint32_t count, struct service *ret);
/* A sandbox, a program in it with its output, and its end, on a new connection. */
bool neighbour_works(struct scene *scene);
/* Sandboxes of the neighbour's, or all with a label: gone, or -errno. */
int neighbour_destroy(struct scene *scene, const struct dsec_id *ids, uint32_t count);
int scene_holdings(struct scene *scene, struct dsec_holdings *ret);
/* Until the engine holds what it held before the claim. */
bool scene_settles(struct scene *scene, uint32_t timeout_ms);

uint64_t claim_now_us(void);
/* Who waits longer was held up (see held_up_ms()): longer in an engine with sanitizers. */
uint64_t claim_held_up_us(void);
/* Who used as much CPU time of a second did not sleep. */
uint64_t claim_spun_us(void);
void claim_sleep_ms(uint32_t ms);
