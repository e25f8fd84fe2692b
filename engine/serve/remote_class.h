/*
 * Between what all remotes have in common (remote.c: the order of reads, their bound of time, how
 * they end) and what each kind knows (where a flight is: one read under way).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "engine/base/timer.h"
#include "engine/serve/remote.h"

struct remote_class {
	const char *scheme; /* what an address begins with */
	bool keeps_scheme;  /* it is part of what the kind is given */
	int (*check)(const char *where, const char **ret_why);
	int (*open)(const char *where, struct shard *shard, struct remote **ret);
	/*
	 * Begins: read->flight is set, or the read has ended. -EAGAIN: no flight is free, and
	 * remote_next() is called when one is. Else it ends with the error.
	 */
	int (*start)(struct remote *remote, struct remote_read *read);
	/* Nobody waits for it any more: its buffer is gone when this returns. */
	void (*drop)(struct remote *remote, struct remote_read *read);
	/* NULL: it holds nothing of a blob. */
	void (*doubt)(struct remote *remote, const uint8_t *blob);
	void (*close)(struct remote *remote);
};

/* In the order in which they end for want of time: `asked` holds those in flight, then the rest. */
struct remote_reads {
	struct remote_read *first, *last;
};

struct remote {
	const struct remote_class *class;
	struct shard *shard;
	struct remote_reads asked, ended;
	struct remote_read *waiting; /* the first of `asked` that is not in flight */
	struct timer timer;
};

extern const struct remote_class remote_3fs, remote_directory, remote_http;

void remote_init(struct remote *remote, const struct remote_class *class, struct shard *shard);
/* A flight has its result: done() follows, from the loop. */
void remote_end(struct remote *remote, struct remote_read *read, int result);
/* A flight is free: reads that wait for one begin. From the loop. */
void remote_next(struct remote *remote);
