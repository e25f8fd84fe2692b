/*
 * What a dead engine of this instance left: processes in its cgroups, cgroups, pins. Its mounts and
 * namespaces went with its last process and descriptor.
 */
#pragma once

/* Before anything is started. Blocks, bounded. -EBUSY when something could not be ended. */
int sweep_instance(const char *instance, int cgroup_fd);
/* The processes of its cgroups end, and nothing is waited for. */
void sweep_kill(int cgroup_fd);
/* After the end: 0 when no cgroup is left below the root, else -EBUSY. */
int sweep_check(int cgroup_fd);
