/*
 * The engine process: control thread, shards, launchers. Started and restarted by the keeper.
 */
#pragma once

#include "engine/config.h"

/* What the keeper holds for engines and hands to each. */
struct engine_handover {
	int listen_fds[TENANTS_MAX]; /* the engine's socket, then each tenant's own; -1: none */
	int cgroup_fd;		     /* the instance's cgroup root, O_DIRECTORY */
	int keeper_fd; /* SOCK_SEQPACKET to the keeper: descriptors can be parked there later */
	unsigned int uid_first; /* of the instance's locked range */
};

/*
 * Runs until SIGTERM/SIGINT, the end of file of config->lifeline_fd or a fatal error of ours.
 * Returns the exit status: 0 after a clean shutdown that left nothing, 1 otherwise, 75 when a
 * restart could help. Sweeps what a dead engine left before it serves anybody.
 */
int engine_run(const struct config *config, const struct engine_handover *handover);

/*
 * Ends and removes what an engine of this instance left that did not end by itself, when no other
 * engine follows it. 0 or -errno, logged; bounded in time.
 */
int engine_sweep(const struct config *config, const struct engine_handover *handover);
/* The same, and what the instance keeps over its end: nobody starts it again. */
int engine_uninstall(const struct config *config, const struct engine_handover *handover);
