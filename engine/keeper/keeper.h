/*
 * The keeper: what `dsecd` is. It outlives engines, reaps what they leave behind and holds what the
 * next one needs. And what an engine may ask of it over engine_handover.keeper_fd.
 *
 * The keeper_*() calls below block for a moment (the keeper answers in microseconds; they give up
 * with -ETIMEDOUT after KEEPER_ANSWER_MS): for the engine's control thread only. All may fail with
 * -EPIPE when the keeper is gone.
 */
#pragma once

#include <stdint.h>

#include "engine/keeper/parking.h"

struct config;

enum {
	KEEPER_BACKOFF_FIRST_MS = 100,
	KEEPER_BACKOFF_LAST_MS = 10 * 1000,
	KEEPER_ANSWER_MS = 5000,
	KEEPER_EXIT_REFUSED = 2,  /* dsecd's status when configuration or machine were refused */
	KEEPER_EXIT_RESTART = 75, /* an engine's status that asks for another engine */
};

/* Runs until the last engine ended; returns dsecd's exit status. */
int keeper_run(struct config *config);
/*
 * Removes what is left of the instance, or with `uninstall_all` of every one: processes, cgroups,
 * pinned BPF links and maps, ways out, sockets, locks, state. KEEPER_EXIT_REFUSED, and nothing of
 * it is touched, while it runs; 1: something stays, and it said what.
 */
int keeper_uninstall(struct config *config);

/*
 * The wire, one packet each way, host byte order: both ends are forks of one program.
 */
enum keeper_op {
	KEEPER_ASK = 1, /* pid -> status, time_ns: the end of an orphan. ENOENT: none recorded */
	KEEPER_PUT,	/* name, one descriptor: park it. EEXIST, ENOSPC, EINVAL */
	KEEPER_GET,	/* name -> one descriptor, which stays parked. ENOENT */
	KEEPER_DROP,	/* name: close and forget. ENOENT */
	KEEPER_NAME,	/* at -> name of the place `at`, oldest first. ENOENT behind the last */
};

struct keeper_request {
	uint32_t tag; /* echoed */
	uint32_t op;
	int32_t pid;
	uint32_t at;
	char name[PARKING_NAME_BYTES_MAX + 8]; /* terminated */
};

struct keeper_reply {
	uint32_t tag;
	int32_t error; /* 0 or a positive errno */
	int32_t status;
	uint32_t unused;
	uint64_t time_ns;
	char name[PARKING_NAME_BYTES_MAX + 8];
};

_Static_assert(sizeof(struct keeper_request) == 88, "no padding");
_Static_assert(sizeof(struct keeper_reply) == 96, "no padding");

/*
 * How an orphan ended: -ENOENT when it did not, was never ours or is forgotten. What a pidfd
 * reported as ended is found: the keeper reaps before it answers.
 */
int keeper_ask(int keeper_fd, int32_t pid, int *ret_status, uint64_t *ret_time_ns);
/* Parks a copy of `fd` under `name` (at most 64 bytes); the caller keeps its own. */
int keeper_put(int keeper_fd, const char *name, int fd);
/* A copy of what is parked, close-on-exec; it stays parked. */
int keeper_get(int keeper_fd, const char *name, int *ret_fd);
int keeper_drop(int keeper_fd, const char *name);
/* The names parked, by place, so that a sweep finds them. ret_name: PARKING_NAME_BYTES_MAX + 1. */
int keeper_name(int keeper_fd, uint32_t at, char *ret_name);
