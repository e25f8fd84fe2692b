/*
 * The walls of a policy: what a worker puts up of it around each sandbox, without BPF. The engine
 * compiles a policy once into a sheet, a sealed memfd that goes with each request that needs it,
 * so that a worker keeps no state and a new one needs nothing. See docs/walls.md.
 *
 *	struct walls_head | mount_count walls_mounts | filter_count sock_filters | text
 */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>
#include <stdint.h>

struct child;
struct guard_policy;
struct guard_rule;
struct worker;

enum {
	WALLS_MOUNTS_MAX = 1024, /* one for each rule at most */
	/* BPF_MAXINSNS, less what goes before the filter of a worker that is bound. */
	WALLS_BOUND_MAX = 12,
	WALLS_FILTER_MAX = 4096 - WALLS_BOUND_MAX,
	WALLS_TEXT_BYTES_MAX = WALLS_MOUNTS_MAX * 256,
	WALLS_PROFILE_BYTES_MAX = 128,
};

struct walls_head {
	uint32_t mount_count, filter_count, text_bytes, reserved;
	char profile[WALLS_PROFILE_BYTES_MAX]; /* of AppArmor, from the next execve on; "": none */
};

struct walls_mount {
	uint32_t rule; /* from 1, as in the policy */
	uint32_t bits; /* enum guard_file_bits */
	uint32_t path; /* offset in the text: absolute, ends with NUL */
};

enum {
	WALLS_BYTES_MAX = sizeof(struct walls_head) +
			  WALLS_MOUNTS_MAX * sizeof(struct walls_mount) +
			  WALLS_FILTER_MAX * sizeof(struct sock_filter) + WALLS_TEXT_BYTES_MAX,
};

/* A sheet that was read and checked; the pointers lead into it. */
struct walls {
	const struct walls_head *head; /* NULL: no walls */
	const struct walls_mount *mounts;
	const struct sock_filter *filter;
	const char *text;
};

/* ---- the engine's side: walls.c; may block ---- */

struct walls_wish {
	bool has_lsm;	     /* as for backend_walls_new() */
	const char *profile; /* AppArmor's; NULL: none */
};

/*
 * The sheet of a policy; -1 where no wall of it is needed. Rules that are only told of, and those
 * that hold for every sandbox, are not in it.
 */
int walls_make(const struct guard_policy *policy, const struct walls_wish *wish, int *ret_fd);
/* The sheet for a spawn; for an exec, which needs none for mounts. -1: none, as for NULL. */
struct backend_walls;
/* The filter, which lives as long as the walls; 0: there is none. */
uint32_t walls_filter(const struct backend_walls *walls, const struct sock_filter **ret);
int walls_for_spawn(const struct backend_walls *walls);
int walls_for_exec(const struct backend_walls *walls);
/* How a rule stands by walls alone: enum guard_level. */
uint32_t walls_levels(const struct guard_rule *rule, bool has_lsm);

/* ---- the worker's side ---- */

/* Copy and check: -EINVAL. */
int walls_read(int sheet_fd, char *buffer, struct walls *ret);
/*
 * wall_mounts.c, in the child, with the sandbox's root at root_fd, the worker's still its own; or
 * in the worker, inside the mount namespace of sandbox_fd, else -1.
 */
long walls_mount(struct child *child, int root_fd, int sandbox_fd);
/* wall_filter.c, in the child, after its credentials: what follows is its program. */
long walls_close_in(struct child *child);
/* wall_bind.c: the worker takes the filter of its request's sheet on itself. */
long walls_bind(struct worker *w);
/* Whether a bound worker may serve this request. */
bool walls_suit(const struct worker *w);
/* What it takes on: at most WALLS_FILTER_MAX + WALLS_BOUND_MAX instructions. */
uint32_t walls_bound_write(const struct walls *walls, uint64_t secret, struct sock_filter *ret);
