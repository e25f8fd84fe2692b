/*
 * What a sandbox uses, read by its backend for all who ask at that time.
 */
#pragma once

struct box_usage;
struct part;
struct sandbox;

/* `read` gets what was read or -errno, then the sandbox may go. */
typedef void usage_read_fn(struct part *part, struct sandbox *sandbox,
			   const struct box_usage *usage, int error);

/* 0: `read` follows. -EBUSY: it ends just now; -ENOMEM. */
int usage_read(struct sandbox *sandbox, struct part *part, usage_read_fn *read);
