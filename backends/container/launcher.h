/* Starting a launcher worker. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

struct vault;

struct launcher_options {
	int program_fd; /* dsec-launcher, opened for reading or with O_PATH */
	const struct vault *vault;
	int cgroup_fd;	  /* the shard's */
	int init_fd;	  /* of init_open() */
	int helper_fd;	  /* of helper_open() */
	int proc_fd;	  /* the host's /proc */
	int router_ns_fd; /* 0: there is none */
	unsigned shard;
	uint32_t resolver; /* where sandboxes ask for names, in host byte order; 0: nowhere */
};

/*
 * A child of the caller's process that serves ret_channel and ends when that is closed or the
 * calling thread ends. It signals the process's SIGCHLD, and so do the sandboxes it makes, which
 * become children of the caller's process. All descriptors stay the caller's. Blocks until the
 * program runs: for the control thread.
 */
int launcher_start(const struct launcher_options *options, int *ret_channel, pid_t *ret_pid);
