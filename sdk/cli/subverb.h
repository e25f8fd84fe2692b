/* Verbs that have verbs of their own: `dsec image ls`, `dsec policy show NAME`, `dsec file mv`. */
#pragma once

#include <stddef.h>

#include "sdk/cli/session.h"

struct subverb {
	const char *name, *wants; /* wants: its arguments, in words */
	int least, most;	  /* of them */
	/* With an open session; the exit status. */
	int (*run)(struct session *session, const struct subverb *sub, char **arguments, int count);
	uint32_t code; /* what its run tells subverbs apart by */
};

struct subverbs {
	const char *verb;
	const struct subverb *items;
	size_t count;
	/* Whether the options go with it: 0, or the exit status after it was told. May be NULL. */
	int (*refuse)(struct session *session, const struct subverb *sub);
};

/* All of the verb, from its first argument to the end of its session: the exit status. */
int subverb_run(const struct options *options, const struct subverbs *subverbs);
