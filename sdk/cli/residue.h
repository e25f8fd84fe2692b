/*
 * What an instance of the engine has on this machine, read from the cgroup tree and /proc alone:
 * the engine is not asked. Needs root: whose cgroup it is stands in an attribute that only root
 * reads.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dsec/dsec.h>

#include "sdk/cli/namespaces.h"

enum { RESIDUE_TEXT_BYTES = 256, RESIDUE_NAME_BYTES = 64 };

/* Sandboxes that account for what is found; sorted or not. */
struct residue_live {
	const struct dsec_id *ids;
	size_t count;
};

struct residue {
	/* of sandboxes that are alive */
	uint64_t sandboxes, processes;
	struct namespaces namespaces; /* that they are in */
	/* kept by a running engine for the next sandbox */
	uint64_t slots;
	/* nobody's */
	uint64_t left_processes, left_cgroups, left_mounts;
	struct namespaces left_namespaces; /* held by those; some may be of sandboxes, too */
	char first[RESIDUE_TEXT_BYTES];	   /* what was found first of them */
};

/* Where cgroup2 is mounted, by /proc/self/mountinfo; ret_path has PATH_MAX bytes. -ENOENT. */
int residue_mount_find(char *ret_path);

/*
 * Adds what lies in the cgroup `root`/dsec-`instance`. With `running` an engine keeps its slots'
 * cgroups; without, every cgroup there is left over. -ENOENT: there is none of that name.
 */
int residue_read_cgroups(const char *root, const char *instance, bool running,
			 const struct residue_live *live, struct residue *residue);

/*
 * Adds mounts that lie in our own mount namespace below /run/dsec/NAME, where a running engine has
 * some, for names that nobody is the engine of. instance: of this name alone; NULL: of all.
 */
int residue_read_mounts(const char *instance, struct residue *residue);

/* Is somebody the engine of this instance now: 1, 0, or -errno. */
int residue_instance_runs(const char *instance);

/* Calls found() for the name of each instance that has a cgroup below root. */
int residue_instances(const char *root, void (*found)(void *state, const char *instance),
		      void *state);

void residue_done(struct residue *residue);

/* Without namespaces: what holds one counts. */
uint64_t residue_left(const struct residue *residue);
