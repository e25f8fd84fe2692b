/*
 * One instance of the engine on this machine: its name's lock, its uid range, its cgroup root, its
 * sockets. Several live side by side because each of these follows the name.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

#include "engine/config.h"

struct instance_socket {
	char path[108];
	int fd;	      /* -1: not held */
	dev_t device; /* with the inode: is the socket's file still ours */
	ino_t inode;
};

struct instance {
	char name[32];			 /* "main" */
	char cgroup_name[40];		 /* "dsec-main" */
	int lock_fd, uids_fd, cgroup_fd; /* -1: not held */
	unsigned int uid_first;
	struct instance_socket sockets[TENANTS_MAX]; /* the engine's, then those of tenants */
};

/* Where the locks live: "/run/dsec"; tests give a place of their own. */
struct instance_places {
	const char *run;
};

/*
 * Takes everything, or nothing: -EBUSY when another dsecd runs this instance or listens on its
 * socket, -ENOSPC when no uid range is free, each after one line. The locks are shared with
 * forked children: they are free again when keeper and engine are both gone.
 */
int instance_open(struct instance *instance, const struct config *config,
		  const struct instance_places *places);

/*
 * Removes sockets, cgroup root and locks. -EBUSY when processes are left in the cgroup root, which
 * then stays, and with it the uid range's owner.
 */
int instance_close(struct instance *instance, const struct instance_places *places);
