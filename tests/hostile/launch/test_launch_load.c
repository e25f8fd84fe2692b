/* Sandboxes that use more than they should: they pay, their neighbour and the worker do not. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/launch/harness.h"
#include "tests/root/launch/insider.h"
#include "tests/slowness.h"

static unsigned now_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
	return (unsigned)(now.tv_sec * 1000 + now.tv_nsec / 1000000);
}

/* Forks without end; its children too. */
static int bomb(void *argument)
{
	(void)argument;
	(void)signal(SIGCHLD, SIG_IGN); /* reaped by nobody */
	for (;;)
		(void)fork();
	return 0;
}

static void a_fork_bomb_stays_in_its_range_and_is_swept(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD), other = box_start(h, 1, LAUNCH_REBUILD);
	pid_t attacker = insider_start(&box, bomb, NULL);
	struct launch_reply reply;
	unsigned start_ms;

	sleep_ms(500);
	expect(probe(h, &other, "exit", "0"));
	expect(probe(h, &other, "forks", "128"));
	start_ms = now_ms();
	box_stop(&box); /* with PID 1 goes everybody */
	expect(now_ms() - start_ms < held_up_ms());
	(void)child_reap(attacker);
	box.pid = 0;
	reply = harness_op(h, LAUNCH_SWEEP, 0);
	expect(reply.error == 0);
	expect(probe(h, &other, "exit", "0"));
	box_end(h, &other);
}

static void a_bomb_in_a_leaf_is_killed_with_it(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	const char *const argv[] = { "probe", "tree", "60", NULL };
	const struct exec_options options = { .leaf = 1, .leave_alone = true };
	struct launch_request kill_leaf = harness_request(h, LAUNCH_KILL, 0);
	struct launch_reply exec, reply;

	kill_leaf.leaf = 1;
	for (unsigned round = 0; round < 10; round++) {
		unsigned start_ms = now_ms();

		expect(harness_exec(h, &box, argv, &options, &exec) == 0);
		expect(harness_send(h, 0, &kill_leaf, NULL));
		(void)child_reap(exec.pid);
		reply = harness_receive(h, 0);
		expect(reply.error == 0);
		expect(now_ms() - start_ms < held_up_ms());
	}
	expect(harness_op(h, LAUNCH_STAT, 0).processes == 1);
	box_end(h, &box);
}

static void an_exec_at_the_process_limit_fails_typed_and_kill_works(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	const char *const argv[] = { "probe", "tree", "20", NULL }, *const one[] = { "probe",
										     "exit", "0",
										     NULL };
	const struct exec_options options = { .leaf = 1, .leave_alone = true };
	struct launch_request kill_leaf = harness_request(h, LAUNCH_KILL, 0);
	struct launch_reply exec, reply;

	kill_leaf.leaf = 1;
	expect(harness_exec(h, &box, argv, &options, &exec) == 0);
	for (unsigned i = 0; i < 2000 && harness_op(h, LAUNCH_STAT, 0).processes < 30; i++)
		sleep_ms(1);
	(void)harness_exec(h, &box, one, NULL, &reply);
	expect(reply.error == EAGAIN && reply.step == LAUNCH_STEP_ARGV0);
	expect(harness_send(h, 0, &kill_leaf, NULL));
	(void)child_reap(exec.pid);
	expect(harness_receive(h, 0).error == 0);
	expect(probe(h, &box, "exit", "0"));
	box_end(h, &box);
}

#define TEST(name, ...)                                                                            \
	{                                                                                          \
#name, name,                                                                       \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}

static const struct harness_test tests[] = {
	TEST(a_fork_bomb_stays_in_its_range_and_is_swept, .processes_max = 128),
	TEST(a_bomb_in_a_leaf_is_killed_with_it, .processes_max = 256),
	TEST(an_exec_at_the_process_limit_fails_typed_and_kill_works, .processes_max = 30),
};

int main(int argc, char **argv)
{
	return harness_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
