/*
 * The vault: a mount namespace without processes in which everything hangs that outlives a request
 * of a launcher (launch.h draws it), and the network namespace of sandboxes without a network. Made
 * once by the engine; workers get both by descriptor. What hangs in it goes with its last
 * descriptor.
 */
#pragma once

#include <sys/types.h>

struct vault {
	int mount_ns_fd;
	int root_fd;	   /* O_PATH of its root: for *at calls from outside */
	int network_ns_fd; /* lo is down, /proc/net masked */
};

/*
 * Both open nothing on failure. vault_open() forks and waits for its child: control thread only.
 * The caller is root of the host's user namespace.
 */
int vault_open(struct vault *ret);
void vault_close(struct vault *vault);

/* The programs of PID 1 and of the file helper: sealed memfds of mode 0111. */
int init_open(int *ret_memfd);
int helper_open(int *ret_memfd);
