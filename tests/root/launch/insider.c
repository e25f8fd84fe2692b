/* Enters a sandbox without its rules, for the tests' attackers and counterparts. */
#include "tests/root/launch/insider.h"

#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int inside(int pidfd, int userns_fd, insider_run *run, void *argument)
{
	const int types = CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET |
			  0x02000000 /* CLONE_NEWCGROUP */;

	if (setns(pidfd, types) < 0 || setgroups(0, NULL) < 0 ||
	    setns(userns_fd, CLONE_NEWUSER) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
		return 99;
	(void)prctl(PR_SET_DUMPABLE, 1); /* an attacker of its own making */
	return run(argument);
}

pid_t insider_start_as(const struct box *box, int userns_fd, insider_run *run, void *argument)
{
	pid_t outer, inner;
	int pidfd, status;

	fflush(stdout);
	outer = fork();
	if (outer != 0)
		return outer;
	pidfd = (int)syscall(SYS_pidfd_open, box->pid, 0);
	if (pidfd < 0 || setns(pidfd, CLONE_NEWPID) < 0)
		_exit(98);
	inner = fork();
	if (inner == 0) {
		int r = inside(pidfd, userns_fd < 0 ? pidfd : userns_fd, run, argument);

		fflush(stdout);
		_exit(r);
	}
	status = child_reap(inner);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 97);
}

pid_t insider_start(const struct box *box, insider_run *run, void *argument)
{
	return insider_start_as(box, -1, run, argument);
}

bool insider_fine(const struct box *box, insider_run *run, void *argument)
{
	int status = child_reap(insider_start(box, run, argument));

	if (status != 0)
		note("insider ended with %x", (unsigned)status);
	return status == 0;
}
