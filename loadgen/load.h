/*
 * Load on one engine through dsec.h: a scenario is a table of phases, a phase a sequence of
 * requests that each of `in_flight` tasks walks again and again. One thread, one queue.
 *
 * What is counted is the scenario's unit: a whole lifecycle (ready, exec, hold) or an exec
 * (live-exec). At the end asked = done + refused + failed, warm-up and drain included; the rate and
 * the latencies are of what ended, or was meant to start, within the measured time.
 *
 * Closed loop: a task starts its next unit when the last one ended. Open loop (rate_per_s): units
 * start at fixed times whatever the engine does, and latency counts from the time meant, so a stall
 * is seen by every unit that it delayed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct dsec;
struct histogram;

enum load_op { LOAD_END, LOAD_CREATE, LOAD_EXEC, LOAD_PROBE, LOAD_DESTROY };

enum load_pace {
	LOAD_TIMED, /* warm-up, then the measured time, then drain */
	LOAD_FILL,  /* until there are as many sandboxes as the scenario holds */
	LOAD_EMPTY, /* until there are none */
};

enum { LOAD_PHASES_MAX = 3, LOAD_OPS_MAX = 5, LOAD_INCLUDES_MAX = 8 };

struct load_phase {
	enum load_pace pace;
	bool is_asking;	       /* a unit is asked for here */
	bool is_ending;	       /* a unit that gets through here is done */
	bool is_measured;      /* its units and latencies are the scenario's */
	enum load_op timed_op; /* latency: from the unit's intended start to the end of this */
	enum load_op ops[LOAD_OPS_MAX]; /* the sandbox of a phase without CREATE is a held one */
};

/* Sandboxes' lives; the others are calls.h's, and have no phases. */
enum load_kind {
	LOAD_SANDBOXES,
	LOAD_CALL_FRESH,
	LOAD_CALL_DOMAIN,
	LOAD_MIXED,
	LOAD_NOOP,
	LOAD_BURST,
};

struct load_scenario {
	const char *name;
	enum load_kind kind;
	const char *latency_of;
	const char *includes[LOAD_INCLUDES_MAX];
	struct load_phase phases[LOAD_PHASES_MAX];
	uint32_t phase_count;
	bool is_holding; /* `count` sandboxes are held; else as many as are in flight, if any */
};

/* NULL: no such scenario. */
const struct load_scenario *load_scenario_find(const char *name);

struct load_options {
	const struct load_scenario *scenario;
	double seconds, warmup_seconds, rate_per_s;   /* rate 0: closed loop */
	uint32_t in_flight, count, probe_every;	      /* probe_every 0: never */
	const char *image, *policy, *program, *probe; /* policy NULL: the default */
	const char *echo;			      /* the program of functions */
	uint32_t spin_us; /* before sleeping, as dsec_open_opts has it */
	uint32_t network; /* enum dsec_network */
	bool is_fresh_root;
	const char *label; /* value of the label "loadgen" on every sandbox */
};

/* Called by the loop; the loop stands still meanwhile. */
struct load_hooks {
	void *context;
	/* Before the first request of the measured phase, and after the last measured second. */
	void (*measure_begin)(void *context);
	void (*measure_end)(void *context);
	/* `live` sandboxes exist at least, and are not being destroyed. Not 0: the run fails. */
	int (*peak)(void *context, uint64_t live);
	/* Now and then; for showing progress. */
	void (*progress)(void *context, const char *phase, uint64_t units, double share);
};

enum { LOAD_TROUBLE_BYTES = 512, LOAD_RATES_MAX = 4096 };

struct load_result {
	uint64_t asked, done, refused, failed;
	uint64_t measured, duration_ns; /* ended within the measured time, and how long that was */
	uint64_t created, reused, destroyed, probes, assertions;
	struct histogram *latency, *lifecycle;		/* ns; lifecycle: of whole units */
	struct histogram *latency_first, *latency_last; /* of the first and the last tenth (FILL) */
	uint32_t rate_count;
	uint32_t rates[LOAD_RATES_MAX];	  /* units that ended in each measured second */
	char trouble[LOAD_TROUBLE_BYTES]; /* the first failure, for people; "": none */
};

/* 0, or -errno when the run could not go on: result then holds what was seen until that. */
int load_run(struct dsec *d, const struct load_options *options, const struct load_hooks *hooks,
	     struct load_result *result);

/* Empties result; -ENOMEM. load_result_done() accepts a half-made one. */
int load_result_init(struct load_result *result);
void load_result_done(struct load_result *result);

/* How many of the engine's sandboxes carry this label, by its own list. -errno. */
int64_t load_live_count(struct dsec *d, const char *label);
