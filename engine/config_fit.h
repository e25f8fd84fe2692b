/*
 * Does a configuration fit a machine: arithmetic on limits that were read before, so that a test
 * can ask it about machines it does not have.
 */
#pragma once

#include <stdint.h>

struct config;

/* What the host allows; UINT64_MAX where it does not say. */
struct machine {
	uint64_t descriptors;	  /* of one process */
	uint64_t pids;		  /* kernel.pid_max */
	uint64_t threads;	  /* kernel.threads-max */
	uint64_t user_namespaces; /* user.max_user_namespaces */
	uint64_t slot_namespaces; /* the least of user.max_{pid,ipc,uts,cgroup}_namespaces */
	uint64_t mount_namespaces;
	uint64_t network_namespaces;
	uint64_t memory_bytes; /* MemAvailable */
};

enum {
	MACHINE_PIDS_RESERVED = 1024,	    /* for whatever else runs on the node */
	MACHINE_NAMESPACES_RESERVED = 64,   /* the same */
	MACHINE_MEMORY_RESERVED = 64 << 20, /* the engine's own */
	SANDBOX_IDLE_BYTES = 200 << 10,
};

/* 0, or -ENOSYS when `release` (as uname -r says it) is older than Linux 6.12. */
int machine_kernel_check(const char *release);

/* Descriptors that an engine so configured may hold open at once. */
uint64_t config_descriptors(const struct config *config);

/*
 * Reduces what was not given until it fits, a warning line each; -ERANGE after an error line when
 * what was given does not fit, or nothing would be left.
 */
int config_fit(struct config *config, const struct machine *machine);
