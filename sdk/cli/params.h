/* Command lines: what may be asked of which verb. One table drives parsing, ranges and help. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum verb {
	VERB_RUN = 1 << 0,
	VERB_CREATE = 1 << 1,
	VERB_EXEC = 1 << 2,
	VERB_PS = 1 << 3,
	VERB_RM = 1 << 4,
	VERB_STATS = 1 << 5,
	VERB_CHECK = 1 << 6,
	VERB_VERSION = 1 << 7,
	VERB_ATTACH = 1 << 8,
	VERB_LOGS = 1 << 9,
	VERB_EVENTS = 1 << 10,
	VERB_TOP = 1 << 11,
	VERB_POLICY = 1 << 12,
	VERB_PHASE = 1 << 13,
	VERB_FETCHED = 1 << 14,
	VERB_FORK = 1 << 15,
	VERB_LABEL = 1 << 16,
	VERB_CHANGE = 1 << 17,
	VERB_INSPECT = 1 << 18,
	VERB_WAIT = 1 << 19,
	VERB_PORT = 1 << 20,
	VERB_IMAGE = 1 << 21,
	VERB_PROXY = 1 << 22,
	VERB_COMPLETION = 1 << 23,
	VERB_KILL = 1 << 24,
	VERB_CALL = 1 << 25,
	VERB_CP = 1 << 26,
	VERB_LS = 1 << 27,
	VERB_CAT = 1 << 28,
	VERB_FILE = 1 << 29,
	VERB_ALL = (1 << 30) - 1,
};

/* The most that engines keep of one stream. */
enum { OUTPUT_BYTES_MAX = 4 << 20 };

struct texts {
	const char **items;
	uint32_t count;
};

struct options {
	/* all verbs */
	const char *address, *tenant, *token_file;
	bool json, quiet, no_color, help;
	uint64_t timeout_ms; /* run, exec: of the program; others: of the request */
	/* run, create */
	const char *image, *name, *job, *hostname, *images, *backend, *policy;
	struct texts labels; /* "key=value" */
	uint64_t network;    /* enum dsec_network */
	uint64_t memory_bytes, swap_bytes, disk_bytes, inodes, io_bytes_per_s;
	uint64_t pids_max, cpu_permille, cpu_weight, io_weight, count, ttl_ms, idle_ttl_ms;
	uint64_t on_timeout; /* enum dsec_on_timeout */
	bool allow_degraded, fresh_root, sched_idle, remove, keep;
	bool has_ttl, has_idle_ttl; /* change: where 0 means something */
	/* run, exec */
	struct texts env;		   /* "NAME=value"; create, too */
	struct texts env_files, env_texts; /* their names; what they hold, ours to free */
	struct texts copies;		   /* "SOURCE:TARGET"; create, too */
	const char *cwd, *user, *status_file;
	const char *entrypoint; /* run: in place of the image's */
	uint64_t output_bytes, idle_timeout_ms, kill_after_ms;
	uint64_t output_limit_bytes; /* create, too */
	uint64_t processes_per_s;    /* DSEC_PROCESSES_UNLIMITED */
	bool input, tty, no_stream, detach;
	struct texts ulimits; /* "NAME=SOFT[:HARD]" */
	/* attach, logs */
	uint64_t from, from_stderr;
	uint64_t tail_bytes;
	bool follow; /* events, too */
	/* top */
	uint64_t sort, every_ms; /* sort: enum in top.c */
	/* wait */
	const char *wait_for;
	/* events */
	const char *from_event;
	struct texts kinds, sandboxes; /* sandboxes: ids, beside the arguments */
	/* ps */
	const char *execs;
	/* port */
	uint64_t wait_ms;
	const char *listen;
	bool revoke;
	/* kill */
	const char *signal;
	bool all, terminal;
	/* file */
	bool recursive, parents;
	/* call */
	const char *registers, *removes;
	bool list;
	struct texts inputs; /* files */
	uint64_t cpu_ms, wall_ms, isolation;
	/* image */
	bool layer, flatten, kill, dry_run, zstd, lazy;
	const char *wipe, *scan_file;
	struct texts scans;
	/* policy */
	bool effective;
	uint64_t policy_version; /* phase, too */
	/* phase */
	bool kill_old, cut_flows;
	uint64_t in_phase; /* run, exec: its version */
	/* fetched */
	const char *path;
	/* check */
	const char *instance;
	/* what is no option */
	char **arguments;
	int argument_count;
	char problem[256]; /* what is wrong with it, after -EINVAL */
	char **command;	   /* run, exec: the program and its arguments */
	int command_count;
};

/* Options and their values before the verb. The number of arguments used; -EINVAL: see problem. */
int params_parse_global(int argc, char **argv, struct options *options);

/*
 * Everything after the verb. For run and exec what follows `leading` arguments, or "--", is the
 * command, and its options are its own. -EINVAL: see problem.
 */
int params_parse(int argc, char **argv, enum verb verb, struct options *options);

/* The options of a verb, one line each; 0: those of all verbs. */
void params_help(FILE *file, uint32_t verb);

/* For completion. */
#define PARAMS_GLOBAL ((uint32_t)1 << 31) /* in place of a verb: what stands before it */

struct param_value {
	const char *text; /* what follows in the same word; NULL: it is the next word */
	const char *kind; /* as help calls it: "FILE", "none|private" */
	bool is_choice, is_address;
};

/* Whether this option of the verb takes a value, and what kind of. */
bool params_value(const char *word, uint32_t verb, struct param_value *ret);
/* The long names of a verb's options, without their dashes. */
void params_names(uint32_t verb, void (*found)(void *state, const char *name), void *state);

/* Adds one; the text stays whose it is. -ENOMEM. */
int texts_add(struct texts *texts, const char *text);

void params_done(struct options *options);
