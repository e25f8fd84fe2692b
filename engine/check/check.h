/*
 * What can this host do: a table of probes, each of which does the thing and undoes it. Safe beside
 * a live engine. Linked into dsecd and into the static dsecd-check.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum check_state {
	CHECK_OK,
	CHECK_DEGRADED, /* there, but less than it could be */
	CHECK_MISSING,
};

struct check_options {
	bool json;
	const char *images_path;
	const char *dns_upstream; /* as --dns-upstream; NULL: the host's */
	uint32_t sandboxes_max;	  /* limits are compared with it */
};

/* What a probe runs in, and leaves nothing behind of. */
struct check_context {
	const struct check_options *options;
	char cgroup_name[48]; /* of a cgroup that a probe may make; removed for it */
};

struct check_result {
	enum check_state state;
	char detail[160]; /* what was seen */
};

/*
 * One line of the answer. `run` is called in a process of its own, which is killed after
 * `limit_ms`; what it mounts, opens and sets dies with it.
 */
struct check_probe {
	const char *name;
	bool required;	   /* by an engine that is of any use */
	uint32_t limit_ms; /* 0: CHECK_LIMIT_MS */
	void (*run)(const struct check_context *context, struct check_result *result);
	const char *degrades; /* what is lost without it */
	const char *remedy;
};

enum { CHECK_LIMIT_MS = 5000 };

/* The tables, by subject; each ends with a probe without a name. */
extern const struct check_probe check_kernel_probes[];
extern const struct check_probe check_ring_probes[];
extern const struct check_probe check_cgroup_probes[];
extern const struct check_probe check_namespace_probes[];
extern const struct check_probe check_network_probes[];
extern const struct check_probe check_mount_probes[];
extern const struct check_probe check_bpf_probes[];
extern const struct check_probe check_limit_probes[];

/*
 * Runs all probes and writes the answer. 0 when everything required is there, 1 when not, or when
 * the answer could not be written.
 */
int check_run(const struct check_options *options, FILE *to);

/* Ways for a probe to end. */
void check_ok(struct check_result *result, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void check_degraded(struct check_result *result, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void check_missing(struct check_result *result, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
/* Missing, with the step that failed and errno's text. */
void check_failed(struct check_result *result, const char *step);
