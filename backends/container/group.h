/* Control groups by their ids, which are never used again. For the governor. */
#pragma once

#include <stdint.h>

/* Its directory; `cgroup_fd` is any of that file system. -ESTALE, -ENOENT: it has gone. */
int group_open(int cgroup_fd, uint64_t id);
/* A control file of it. -errno. */
int group_file_open(int group_fd, const char *name, int flags);
