/*
 * Tries to leave the scheduling policy it was given, in every way there is, and says what came of
 * it: one line "NAME errno policy" each. With "bomb" it makes processes for ever, up to its limit.
 * Runs in a sandbox, as its root.
 */
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#endif

/* As in <linux/sched/types.h>, which collides with <sched.h>. */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static void say(const char *name, long r)
{
	printf("%s %d %d\n", name, r < 0 ? errno : 0, sched_getscheduler(0));
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int policy, priority;
	} policies[] = { { "other", SCHED_OTHER, 0 },
			 { "batch", SCHED_BATCH, 0 },
			 { "fifo", SCHED_FIFO, 1 },
			 { "rr", SCHED_RR, 1 } };
	struct attributes deadline = { sizeof deadline, 6, 0, 0, 0, 1000000, 10000000, 10000000 };
	struct attributes other = { .size = sizeof other };

	while (argc == 2 && strcmp(argv[1], "bomb") == 0)
		if (fork() == 0)
			(void)setsid(); /* a share of the CPU, however busy the machine is */
	for (unsigned i = 0; i < sizeof policies / sizeof *policies; i++) {
		const struct sched_param priority = { policies[i].priority };

		say(policies[i].name, sched_setscheduler(0, policies[i].policy, &priority));
	}
	say("deadline", syscall(SYS_sched_setattr, 0, &deadline, 0));
	say("attributes", syscall(SYS_sched_setattr, 0, &other, 0));
	say("nice", setpriority(PRIO_PROCESS, 0, -20));
	say("core", prctl(PR_SCHED_CORE, 1, 0, 0, 0)); /* create a cookie */
	return 0;
}
