/*
 * What a policy binds a program by, from its start: a filter on top of the one that every sandbox
 * has, and a profile of AppArmor. Called by children of a worker after their credentials, since a
 * filter needs no_new_privs then; what they do after it, it has to let pass. System calls only.
 */
#include <errno.h>
#include <linux/seccomp.h>
#include <string.h>

#include "backends/container/kernel.h"
#include "backends/container/spawn.h"
#include "backends/container/worker.h"

#define CHILD_TRY(call) LAUNCH_TRY(&child->attempt, LAUNCH_STEP_WALLS, call)

/* By the host's proc, which no sandbox can cover; the kernel takes it of the caller alone. */
static long profile_set(struct child *child, const char *profile)
{
	static const char verb[] = "exec ";
	const size_t bytes = strlen(profile);
	long r, fd = CHILD_TRY(kernel_openat(LAUNCH_FD_PROC, "thread-self/attr/apparmor/exec",
					     O_WRONLY | O_CLOEXEC, 0));

	if (fd < 0)
		return fd;
	memcpy(child->home, verb, sizeof verb - 1);
	memcpy(child->home + sizeof verb - 1, profile, bytes);
	r = CHILD_TRY(kernel_write((int)fd, child->home, sizeof verb - 1 + bytes));
	(void)kernel_close((int)fd); /* taken at once */
	return r;
}

long walls_close_in(struct child *child)
{
	const struct walls *walls = &child->worker->order.walls;
	struct sock_fprog program;
	long r = 0;

	if (!walls->head)
		return 0;
	if (walls->head->profile[0])
		r = profile_set(child, walls->head->profile);
	/* A bound worker's child has it by birth. */
	if (r < 0 || !walls->head->filter_count || child->worker->bound_count)
		return r;
	program = (struct sock_fprog){ .len = (unsigned short)walls->head->filter_count,
				       .filter = (struct sock_filter *)walls->filter };
	return CHILD_TRY(KERNEL_CALL(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, (long)&program));
}
