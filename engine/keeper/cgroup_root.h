/*
 * The directory in the cgroup2 tree below which everything of an instance runs.
 */
#pragma once

/*
 * Where cgroup2 is mounted for writing, from /proc/self/mountinfo. -ENOENT when it is not.
 * ret_path is PATH_MAX bytes.
 */
int cgroup_mount_find(char *ret_path);

/*
 * Makes `name` directly under the mount, or takes the one that is there, and lets the controllers
 * memory, pids and cpu through where the host has them on v2. Returns an O_DIRECTORY descriptor.
 */
int cgroup_root_open(const char *name);

/*
 * Removes `name` with every cgroup below it that has no process. -EBUSY when processes are left,
 * after one line each; 0 when nothing is there.
 */
int cgroup_root_remove(const char *name);

/* Does `name` exist under the mount: 1, 0 or -errno. */
int cgroup_root_exists(const char *name);
