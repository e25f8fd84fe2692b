/* Who is in a control group: for the governor's thread. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { MEMBERS_MAX = 8192 }; /* that are seen; more stay as they are */

struct members {
	uint32_t count;
	pid_t all[MEMBERS_MAX];
};

/* Of "cgroup.threads" or "cgroup.procs"; one that cannot be read is empty, and so is its group. */
void members_read(struct members *members, int group_fd, const char *name);
/* Whether whoever has the number now is in that group: a path that ends as the kernel tells it. */
bool members_have(const char *group_path, pid_t tid);
