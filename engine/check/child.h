/* Processes that a probe makes: they die with it. */
#pragma once

#include <stdint.h>

/*
 * Forks by clone3(2) with CLONE_* `flags`, into the cgroup `cgroup_fd` unless that is -1. Returns 0
 * in the child, its pid in the probe, or -errno.
 */
int probe_child_start(uint64_t flags, int cgroup_fd);
/* Waits for its end: its exit status, or -EINTR when it died by a signal. */
int probe_child_end(int pid);
/* Kills and reaps it. */
void probe_child_kill(int pid);
/* One byte to or from the other side of a pipe: 0 or -EPIPE. */
int probe_child_tell(int fd);
int probe_child_await(int fd);
