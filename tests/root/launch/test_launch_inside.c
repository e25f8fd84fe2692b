/*
 * What a sandbox looks like from inside: each claim is checked by a program that runs in one,
 * entered by the worker as every exec is.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/root/launch/harness.h"

/* CHOWN DAC_OVERRIDE FOWNER FSETID KILL SET[GU]ID SET[PF]CAP NET_BIND_SERVICE SYS_CHROOT */
#define ROOT_CAPABILITIES "800405fb"

static void look(struct harness *h, const char *what, const char *argument)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);

	expect(probe(h, &box, what, argument));
	box_end(h, &box);
}

static void root_has_its_capabilities_and_no_more(struct harness *h)
{
	look(h, "capabilities", ROOT_CAPABILITIES);
}

static void another_user_has_no_capabilities(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	const char *const argv[] = { "/bin/probe", "capabilities", "0", NULL };
	const struct exec_options options = { .user = "1000" };

	if (!expect(harness_exec(h, &box, argv, &options, NULL) == 0))
		note("%s", h->output);
	box_end(h, &box);
}

static void the_mounts_are_these_with_these_flags(struct harness *h)
{
	look(h, "mounts", NULL);
}

static void proc_is_masked(struct harness *h)
{
	look(h, "masks", NULL);
}

static void mode_none_reaches_nothing_and_sees_no_sockets(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);

	expect(probe(h, &box, "network-masks", NULL));
	expect(probe(h, &box, "loopback", "down"));
	box_end(h, &box);
}

static void mode_private_has_loopback_and_low_ports_only(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD | LAUNCH_PRIVATE);

	expect(probe(h, &box, "network-masks", NULL));
	expect(probe(h, &box, "loopback", "up"));
	box_end(h, &box);
}

static void devices_are_the_images_and_no_others(struct harness *h)
{
	look(h, "devices", NULL);
}

static void terminals_are_the_sandboxs_own(struct harness *h)
{
	look(h, "terminal", NULL);
}

static void limits_and_signals_are_fresh(struct harness *h)
{
	look(h, "limits", NULL);
}

static void no_descriptor_leaks_in(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	char command[128];

	expect(probe(h, &box, "descriptors", NULL));
	/* PID 1's cannot be seen from inside. */
	(void)snprintf(command, sizeof command,
		       "test \"$(readlink /proc/%d/fd/* | sort -u)\" = /dev/null && "
		       "test $(ls /proc/%d/fd | wc -l) = 3",
		       box.pid, box.pid);
	expect(system(command) == 0);
	box_end(h, &box);
}

static void chroot_leads_nowhere(struct harness *h)
{
	look(h, "escape", NULL);
}

static void names_are_the_sandboxs_own(struct harness *h)
{
	look(h, "names", "sandbox");
}

static void orphans_are_reaped_by_init(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	struct launch_reply reply;

	expect(probe(h, &box, "orphans", "200"));
	for (unsigned i = 0; i < 2000; i++) {
		reply = harness_op(h, LAUNCH_STAT, 0);
		if (reply.processes == 1)
			break;
		sleep_ms(1);
	}
	expect(reply.error == 0 && reply.processes == 1);
	box_end(h, &box);
}

static void dangerous_calls_are_refused(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);

	expect(probe(h, &box, "calls", NULL));
	expect(probe(h, &box, "sockets", NULL));
	expect(probe(h, &box, "ioctls", NULL));
	expect(probe(h, &box, "personality", NULL));
	expect(probe(h, &box, "foreign", NULL));
	box_end(h, &box);
}

static void outside_the_same_calls_reach_the_kernel(struct harness *h)
{
	(void)h;
	expect(system(PROBE_PATH " plain-calls") == 0);
	/* Where it has none, that the 32-bit entry is closed inside says nothing. */
	expect(system(PROBE_PATH " foreign outside") == 0);
}

static void the_filters_cost_is_small(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);

	expect(system(PROBE_PATH " call-cost") == 0);
	expect(probe(h, &box, "call-cost", NULL));
	note("inside: %s", h->output);
	box_end(h, &box);
}

static void pid_1_cannot_be_opened_traced_or_signalled(struct harness *h)
{
	look(h, "init", NULL);
}

static const struct harness_test tests[] = {
	{ "root_has_its_capabilities_and_no_more", root_has_its_capabilities_and_no_more, {} },
	{ "another_user_has_no_capabilities", another_user_has_no_capabilities, {} },
	{ "the_mounts_are_these_with_these_flags", the_mounts_are_these_with_these_flags, {} },
	{ "proc_is_masked", proc_is_masked, {} },
	{ "mode_none_reaches_nothing_and_sees_no_sockets",
	  mode_none_reaches_nothing_and_sees_no_sockets,
	  {} },
	{ "mode_private_has_loopback_and_low_ports_only",
	  mode_private_has_loopback_and_low_ports_only,
	  {} },
	{ "devices_are_the_images_and_no_others", devices_are_the_images_and_no_others, {} },
	{ "terminals_are_the_sandboxs_own", terminals_are_the_sandboxs_own, {} },
	{ "limits_and_signals_are_fresh", limits_and_signals_are_fresh, {} },
	{ "no_descriptor_leaks_in", no_descriptor_leaks_in, {} },
	{ "chroot_leads_nowhere", chroot_leads_nowhere, {} },
	{ "names_are_the_sandboxs_own", names_are_the_sandboxs_own, {} },
	{ "orphans_are_reaped_by_init", orphans_are_reaped_by_init, {} },
	{ "dangerous_calls_are_refused", dangerous_calls_are_refused, {} },
	{ "outside_the_same_calls_reach_the_kernel", outside_the_same_calls_reach_the_kernel, {} },
	{ "the_filters_cost_is_small", the_filters_cost_is_small, {} },
	{ "pid_1_cannot_be_opened_traced_or_signalled",
	  pid_1_cannot_be_opened_traced_or_signalled,
	  {} },
};

int main(int argc, char **argv)
{
	return harness_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
