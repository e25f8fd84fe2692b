/* What dsec-storms measures, and with which settings. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { STORMS_ROUNDS_MAX = 64, STORMS_KINDS_MAX = 16 };

struct storms_options {
	double seconds, rate_per_s; /* of a slice; the neighbour's commands */
	uint32_t rounds;
	const char *kinds[STORMS_KINDS_MAX];
	uint32_t kind_count;
	const char *image, *command, *program; /* program: the storm's, on this host */
	const char *json_path, *name;	       /* name: of these settings, in the report */
	/* the storming sandbox's; 0: the engine's */
	uint32_t pids_max, cpu_permille, cpu_weight;
	uint64_t memory_bytes;
	bool is_sched_idle;
};

struct storms_slice {
	double p50_us, p99_us;
};

/* Medians of the rounds. */
struct storms_result {
	const char *kind;
	struct storms_slice alone, beside;
};

/* 1: help was asked for and told; -EINVAL after a line on stderr. */
int storms_options_parse(struct storms_options *options, int argc, char **argv);
