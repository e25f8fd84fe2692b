/*
 * The floor: what the kernel takes for a sandbox, without an engine. Each worker has one slot and
 * goes through the launcher's calls in a loop; it talks to nobody. See README.md for what is and is
 * not in it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

/* Where a worker keeps what it is made with, as a launcher does; above them all is closed. */
enum floor_fd {
	FLOOR_FD_VAULT = 4,
	FLOOR_FD_CGROUP = 5, /* the folder of all slots' */
	FLOOR_FD_INIT = 6,
	FLOOR_FD_VAULT_ROOT = 7, /* the root of the vault, for the engine's part */
	FLOOR_FD_PROC = 8,
	FLOOR_FD_OWN_MOUNT = 9,
	FLOOR_FD_OWN_PID = 10,
	FLOOR_FD_COUNT = 11,
};

enum { FLOOR_MASKS_MAX = 16, FLOOR_STACK_BYTES = 32 * 1024, FLOOR_PATH_BYTES = 64 };

struct floor_mask {
	const char *name, *cover; /* in proc; in the root of our own mount namespace */
	dev_t device;
	ino_t inode;
};

struct floor {
	/* given */
	const char *image, *init, *program; /* init: PID 1's file; program: in the image */
	uint32_t worker, uid_base;
	/* made by floor_slot_make() */
	char slot_path[FLOOR_PATH_BYTES], group[FLOOR_PATH_BYTES], leaf[FLOOR_PATH_BYTES];
	struct floor_mask masks[FLOOR_MASKS_MAX];
	uint32_t mask_count;
	struct timespec upper_ctime;
	uint64_t free_inodes, free_blocks;
	/* of the loop */
	uint64_t sandboxes; /* so far */
	char *stack;
	uint32_t child_tid; /* a futex: the kernel clears it when the child's program runs */
	long child_error;
	const char *failed; /* which call failed, for people */
};

/* ---- slot.c: once, before the loop; each 0 or -errno with floor->failed ---- */

/* Vault, user namespace, root, cgroup, and this process in a mount namespace of its own. */
int floor_slot_make(struct floor *floor, int cgroup_fd);
/* The slot as the launcher prepares it again: its cgroup; in the vault, its root made anew. */
long floor_group_renew(struct floor *floor);
long floor_slot_renew(struct floor *floor);
int floor_userns_make(struct floor *floor); /* userns.c: a descriptor of it */

/* ---- launch.c: the loops; each 0 or -errno with floor->failed ---- */

struct floor_sandbox {
	int pid;
};

/* is_fresh: the root is made anew first. */
long floor_spawn(struct floor *floor, bool is_fresh, struct floor_sandbox *ret);
/* The program in it, with both outputs read to their ends, and its exit status checked. */
long floor_exec(struct floor *floor, const struct floor_sandbox *sandbox);
/* Killed, reaped, and its root proven untouched. */
long floor_destroy(struct floor *floor, const struct floor_sandbox *sandbox);
