/*
 * The ends of processes that lost their engine: the newest ORPHANS_MAX, oldest forgotten first.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { ORPHANS_MAX = 65536 };

struct orphan {
	int32_t pid;
	int32_t status;	  /* as waitpid(2) gives it */
	uint64_t time_ns; /* CLOCK_MONOTONIC, when it was reaped */
};

struct orphans {
	struct orphan *ring;
	uint64_t count; /* recorded since the start */
};

int orphans_init(struct orphans *orphans); /* -ENOMEM */
void orphans_done(struct orphans *orphans);
void orphans_add(struct orphans *orphans, const struct orphan *orphan);
/* The newest of that pid (numbers are used again), or NULL. */
const struct orphan *orphans_find(const struct orphans *orphans, int32_t pid);
