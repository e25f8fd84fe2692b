/* Runs one attack, in a process of its own. Called by the tests of policies. */
#include "tests/hostile/policy/attack.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

const struct attack_group *const attack_groups[ATTACK_GROUPS] = {
	&files_group, &mounts_group, &ioctls_group, &sockets_group, &processes_group, &closed_group,
};

int attack_try(const struct attack *attack, bool is_apart)
{
	const pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		(void)alarm(30); /* it ends, whatever it meets */
		/* What it mounts ends with it; a sandbox's cannot, and need not. */
		if (is_apart && unshare(CLONE_NEWNS) < 0)
			_exit(ATTACK_DIED);
		_exit(attack->run());
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status))
		return ATTACK_DIED;
	return WEXITSTATUS(status);
}
