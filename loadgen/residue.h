/*
 * What sandboxes leave behind, seen from outside: processes and zombies, cgroups, namespaces and
 * mounts. Reads /proc and the cgroup tree; asks the engine nothing. What an idle engine keeps for
 * the next sandbox (empty cgroups of free slots, at most RESIDUE_SLOT_MOUNTS mounts each) is none.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct residue;

enum { RESIDUE_SLOT_MOUNTS = 5, RESIDUE_TEXT_BYTES = 256 };

struct residue_report {
	uint64_t processes;  /* in slots' cgroups, or below the keeper and not the engine's */
	uint64_t zombies;    /* below the keeper */
	uint64_t namespaces; /* with members or descriptors, that an idle engine did not have */
	uint64_t mounts;     /* in the vault above what slots may have, or out on the machine */
	uint64_t slots, slots_populated, vault_mounts; /* for people */
	uint64_t workers_new;		/* that were started since; each has a vault of its own */
	char first[RESIDUE_TEXT_BYTES]; /* what was found first */
};

/*
 * Finds the engine of this address and its cgroup (dsec-INSTANCE) and remembers what they have now,
 * before load. -ECONNREFUSED, -ENOENT, -EOPNOTSUPP for an address that is no unix socket, -errno.
 */
int residue_open(const char *address, const char *instance, struct residue **ret);
void residue_close(struct residue *residue);

/* What is there now that was not. 0 or -errno. */
int residue_look(const struct residue *residue, struct residue_report *ret);

/* How many slots' cgroups have processes in them now. -errno. */
int64_t residue_alive(const struct residue *residue);

/* The sum of what must not be there. */
uint64_t residue_total(const struct residue_report *report);
