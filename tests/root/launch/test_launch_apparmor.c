/*
 * A profile of AppArmor around a sandbox, with no other wall and no LSM program: from PID 1 on, in
 * every exec, and in nobody else. Needs a kernel that has AppArmor.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "backends/container/walls.h"
#include "bpf/guard_apparmor.h"
#include "bpf/guard_policy.h"
#include "bpf/guard_why.h"
#include "engine/base/cleanup.h"
#include "tests/root/launch/harness.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define INSTANCE     "launch-armor"

enum {
	KEEP = GUARD_FILE_WRITE | GUARD_FILE_REPLACE | GUARD_FILE_METADATA | GUARD_FILE_SUBTREE,
	HIDE = GUARD_FILE_HIDE | GUARD_FILE_SUBTREE,
	NOEXEC = GUARD_FILE_EXECUTE | GUARD_FILE_SUBTREE,
};

static const struct guard_rule rules[] = {
	{ .kind = GUARD_RULE_FILE, .bits = KEEP, .text = "/usr/bin" },
	{ .kind = GUARD_RULE_FILE, .bits = HIDE, .text = "/var/log/grader" },
	{ .kind = GUARD_RULE_FILE, .bits = NOEXEC, .text = "/tmp" },
	{ .kind = GUARD_RULE_FAMILY, .value = AF_INET6 },
	{ .kind = GUARD_RULE_PROCESS, .value = GUARD_PROCESS_PTRACE_OUTSIDE },
	{ .kind = GUARD_RULE_PROCESS, .value = GUARD_PROCESS_SIGNAL_OUTSIDE },
};
static const struct guard_policy policy = { .number = 1,
					    .rules = rules,
					    .rule_count = COUNT(rules) };
static const struct guard_policy nothing = { .number = 2 };

/* Loaded, and a sheet with its name and nothing else; -1: it could not be. */
struct armor {
	struct guard_apparmor *apparmor;
	char name[PROFILE_NAME_BYTES];
	int sheet_fd;
};

static struct armor armor_take(void)
{
	const struct profile_scope scope = { .instance = INSTANCE };
	struct guard_why why = { 0 };
	struct armor armor = { .sheet_fd = -1 };
	struct walls_wish wish = { .profile = armor.name };

	expect(guard_apparmor_open(&scope, &why, &armor.apparmor) == 0);
	expect(guard_apparmor_load(armor.apparmor, &policy) == 0);
	expect(guard_apparmor_name(armor.apparmor, &policy, armor.name) == 0);
	expect(walls_make(&nothing, &wish, &armor.sheet_fd) == 0);
	return armor;
}

static void armor_give(struct armor *armor)
{
	expect(guard_apparmor_drop(armor->apparmor, &policy) == 0);
	guard_apparmor_close(armor->apparmor);
	cleanup_close(&armor->sheet_fd);
}

static void a_profile_holds_from_pid_1_on_and_in_every_exec(struct harness *h)
{
	struct armor armor = armor_take();
	struct box box;

	h->walls_fd = armor.sheet_fd;
	box = box_start(h, 0, LAUNCH_REBUILD);
	for (int i = 0; i < 2; i++)
		expect(probe(h, &box, "walls-profile", armor.name));
	worker_kill(h, 0);
	expect(worker_start_another(h, 0));
	expect(probe(h, &box, "walls-profile", armor.name));
	/* A signal from outside ends it, as ever. */
	box_stop(&box);
	h->walls_fd = 0;
	/* And the next one there, without a policy, is as free as ever. */
	box = box_start(h, 0, 0);
	expect(probe(h, &box, "walls-open", NULL));
	box_end(h, &box);
	armor_give(&armor);
}

static void what_is_not_loaded_any_more_lets_nothing_run(struct harness *h)
{
	struct armor armor = armor_take();
	struct box box;

	h->walls_fd = armor.sheet_fd;
	box = box_start(h, 0, LAUNCH_REBUILD);
	expect(guard_apparmor_drop(armor.apparmor, &policy) == 0);

	const char *const argv[] = { "/bin/probe", "say", NULL };
	struct launch_reply reply;

	expect(harness_exec(h, &box, argv, NULL, &reply) == -1);
	expect(reply.error != 0 && reply.step == LAUNCH_STEP_WALLS);
	box_end(h, &box);
	armor_give(&armor);
}

static double round_us(struct harness *h, int sheet)
{
	enum { ROUNDS = 20 };
	struct timespec start, end;
	struct box box;

	h->walls_fd = sheet;
	clock_gettime(CLOCK_MONOTONIC, &start);
	for (unsigned i = 0; i < ROUNDS; i++) {
		box = box_start(h, 0, 0);
		box_stop(&box);
	}
	clock_gettime(CLOCK_MONOTONIC, &end);
	h->walls_fd = 0;
	return ((double)(end.tv_sec - start.tv_sec) * 1e6 +
		(double)(end.tv_nsec - start.tv_nsec) / 1e3) /
	       ROUNDS;
}

/* Figures, no judgement: the best of some rounds each, in turn. */
static void what_a_profile_costs(struct harness *h)
{
	struct armor armor = armor_take();
	double plain = 1e9, armored = 1e9;
	struct timespec start, end;
	struct box box = box_start(h, 0, LAUNCH_REBUILD);

	box_stop(&box);
	for (unsigned i = 0; i < 5; i++) {
		double without = round_us(h, 0), with = round_us(h, armor.sheet_fd);

		plain = without < plain ? without : plain;
		armored = with < armored ? with : armored;
	}
	clock_gettime(CLOCK_MONOTONIC, &start);
	expect(guard_apparmor_load(armor.apparmor, &policy) == 0);
	clock_gettime(CLOCK_MONOTONIC, &end);
	note("spawn and end: %.0f us, in a profile %.0f (%.2f x); to load one %.0f ms", plain,
	     armored, armored / plain,
	     (double)(end.tv_sec - start.tv_sec) * 1e3 +
		     (double)(end.tv_nsec - start.tv_nsec) / 1e6);
	box = box_start(h, 0, 0);
	box_end(h, &box);
	armor_give(&armor);
}

#define TEST(name)                                                                                 \
	{                                                                                          \
#name, name,                                                                       \
		{                                                                                  \
			.image = "walls"                                                           \
		}                                                                                  \
	}

static const struct harness_test tests[] = {
	TEST(a_profile_holds_from_pid_1_on_and_in_every_exec),
	TEST(what_is_not_loaded_any_more_lets_nothing_run),
	TEST(what_a_profile_costs),
};

int main(int argc, char **argv)
{
	const struct profile_scope scope = { .instance = INSTANCE };
	struct guard_apparmor *apparmor = NULL;
	char text[256] = "";
	struct guard_why why = { .text = text, .bytes = sizeof text };

	if (guard_apparmor_open(&scope, &why, &apparmor) == -EOPNOTSUPP) {
		printf("skipped: %s", text);
		return 77;
	}
	guard_apparmor_close(apparmor);
	return harness_main(argc, argv, tests, COUNT(tests));
}
