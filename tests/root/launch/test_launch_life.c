/* A slot's life through a worker: build, PID 1, execs, kill, statistics, drop. */
#include <errno.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/root/launch/harness.h"

static void a_program_runs_in_a_new_sandbox(struct harness *h)
{
	struct box box = box_start(h, 3, LAUNCH_REBUILD);
	const char *const argv[] = { "probe", "say", "hello", NULL };
	struct launch_reply reply;
	int status = harness_exec(h, &box, argv, NULL, &reply);

	note("%s", h->output);
	note("error %s step %s", strerror(reply.error), launch_step_name(reply.step));
	expect(status == 0);
	box_end(h, &box);
}

static const struct harness_test tests[] = {
	{ "a_program_runs_in_a_new_sandbox", a_program_runs_in_a_new_sandbox, {} },
};

int main(int argc, char **argv)
{
	return harness_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
