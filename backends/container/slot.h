/*
 * Slots: what may outlive a sandbox because it holds nothing of it. A slot is a uid range with its
 * user namespace, a cgroup with leaves, and an overlay that is reused only while it is provably
 * untouched.
 *
 *	empty --build--> clean --take--> taken --give--> clean	(untouched)
 *	                                       \-------> dirty --rebuild--> clean
 *
 * Where somebody may be left in one it is quarantined: nobody gets it until it was swept.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "backends/container/launch.h"

enum slot_state {
	SLOT_EMPTY,
	SLOT_CLEAN,
	SLOT_TAKEN,
	SLOT_DIRTY,
	SLOT_REBUILDING,
	SLOT_QUARANTINED,
	SLOT_STATES
};

enum { LEAVES_MAX = 64, SLOT_PATH_BYTES = 32 };

struct container;

struct slot {
	struct slot *next, *previous; /* in the list of its state */
	uint32_t number;	      /* in the vault */
	enum slot_state state;
	uint32_t image, uses;
	uint64_t sandboxes; /* that its cgroup had */
	uint64_t disk_bytes, inodes;
	uint64_t cgroup_id;
	uint64_t built_ns;	  /* CLOCK_REALTIME when the baseline was taken */
	struct box_limits limits; /* that the cgroup has */
	bool limits_unknown;	  /* a spawn failed: perhaps some of them */
	uint32_t processes_max;	  /* RLIMIT_NPROC of its user namespace; 0: there is none */
	struct launch_baseline baseline;
	uint64_t leaves_made;	  /* bit per leaf that exists in the cgroup tree */
	enum box_network network; /* what the guard was told */
	uint32_t shared_uses;	  /* its addresses follow from it, see box_told.c */
	bool has_policy;	  /* the guard was told that a policy holds for it */
	bool has_egress;	  /* ... and where its way out may lead */
	bool young;		  /* taken before its baseline's clock tick was over */
	bool forgotten;		  /* its image goes: it is not made anew */
	bool suspect;		  /* something went wrong in it */
	bool unswept;		  /* somebody may be left in it */
	bool has_churn;		  /* the governor was told of its cgroup */
	struct container *holder; /* TAKEN: the box that has it */
	void *user;		  /* the backend's, of a rebuild */
};

struct slot_wish {
	uint32_t image;
	uint64_t disk_bytes, inodes;
	uint32_t processes_max;
	bool fresh_root;
};

struct slots {
	struct slot *all;
	struct slot lists[SLOT_STATES]; /* heads of rings */
	uint32_t count, counts[SLOT_STATES];
	uint32_t uses_max;
	bool fine_ctime; /* see slot.c */
	int vault_fd;	 /* O_PATH of the vault's root; borrowed */
};

/* Slots first .. first + count - 1 of the vault. */
int slots_init(struct slots *slots, int vault_fd, uint32_t first, uint32_t count);
void slots_done(struct slots *slots);
/* By its number in the vault; NULL: it is not one of these. */
struct slot *slots_find(const struct slots *slots, uint32_t number);
/* A slot for this wish, TAKEN; *ret_rebuild: its root must be (re)made. NULL: none is free. */
struct slot *slot_take(struct slots *slots, const struct slot_wish *wish, bool *ret_rebuild);
/* The reply of a build: the slot has a root for `wish` from now on. */
void slot_built(const struct slots *slots, struct slot *slot, const struct slot_wish *wish,
		const struct launch_reply *reply);
/* Where its upper is, from the vault's root. */
void slot_path(const struct slot *slot, char ret[static SLOT_PATH_BYTES]);
/*
 * Nothing runs in it any more; `up_fd`: of its upper, or -errno, and then it is not proven. It
 * becomes clean if its root is provably untouched, else dirty; returns whether it is clean.
 */
bool slot_give(struct slots *slots, struct slot *slot, int up_fd);
void slot_move(struct slots *slots, struct slot *slot, enum slot_state state);
struct slot *slot_first(struct slots *slots, enum slot_state state); /* or NULL */
/* The comparison slot_give() makes. */
bool slot_untouched(const struct slot *slot, int up_fd);
