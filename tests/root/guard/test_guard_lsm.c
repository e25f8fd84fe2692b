/*
 * Claims about what LSM programs refuse to a sandbox that has a policy, tried by real processes on
 * a file system of the test's own. What the maps hold is test_guard_policy.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <criterion/criterion.h>

#include "bpf/guard.h"
#include "bpf/guard_lsm.h"
#include "bpf/guard_policy.h"
#include "bpf/policy.h"
#include "engine/base/cleanup.h"
#include "tests/root/guard/tree.h"

enum { PROTECT = GUARD_FILE_WRITE | GUARD_FILE_REPLACE | GUARD_FILE_METADATA };

static const struct guard_rule rules[] = {
	{ .kind = GUARD_RULE_FILE,
	  .bits = PROTECT | GUARD_FILE_SUBTREE,
	  .text = "/usr/bin",
	  .label = "files.protect /usr/bin" },
	{ .kind = GUARD_RULE_FILE,
	  .bits = GUARD_FILE_HIDE | GUARD_FILE_SUBTREE,
	  .text = "/log",
	  .label = "files.hide /log" },
	{ .kind = GUARD_RULE_IOCTL, .value = 0x541b, .label = "ioctls.deny 0x541b" },
	{ .kind = GUARD_RULE_FAMILY, .value = AF_NETLINK, .label = "sockets.families netlink" },
	{ .kind = GUARD_RULE_FILE,
	  .bits = GUARD_FILE_WRITE,
	  .is_audit = true,
	  .text = "/watched",
	  .label = "files.readonly /watched" },
	{ .kind = GUARD_RULE_PROCESS,
	  .value = GUARD_PROCESS_SETSCHEDULER,
	  .label = "processes.setscheduler deny" },
};

static const struct guard_policy policy = {
	.number = 7, .rule_count = 6, .rules = rules, .name = "test"
};

static struct tree tree;
static struct guard *guard;
static char place[] = "/tmp/dsec-policy-XXXXXX";

static void setup(void)
{
	struct guard_options options;
	char why[4096];

	tree_make(&tree);
	options = tree_options(&tree);
	cr_assert_eq(guard_open(&options, why, sizeof(why), &guard), 0);
	cr_assert(guard_capabilities(guard) & GUARD_POLICIES, "%s", why);
	printf("%s", why);
	cr_assert_eq(unshare(CLONE_NEWNS), 0);
	cr_assert_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	cr_assert(mkdtemp(place));
	cr_assert_eq(mount("test", place, "tmpfs", 0, NULL), 0);
	cr_assert_eq(chdir(place), 0);
	cr_assert(mkdir("usr", 0755) == 0 && mkdir("usr/bin", 0755) == 0 &&
		  mkdir("log", 0755) == 0 && mkdir("alias", 0755) == 0);
	close(open("usr/bin/sh", O_CREAT | O_WRONLY | O_CLOEXEC, 0755));
	close(open("log/answer", O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	cr_assert_eq(mount("usr/bin", "alias", NULL, MS_BIND, NULL), 0);
}

static void teardown(void)
{
	(void)!chdir("/");
	(void)umount2(place, MNT_DETACH);
	(void)rmdir(place);
	guard_close(guard);
	tree_remove(&tree);
}

TestSuite(lsm, .init = setup, .fini = teardown, .timeout = 240);

static struct guard_sandbox sandbox_set(void)
{
	struct guard_sandbox sandbox = { .sandbox = 1, .policy = policy.number };
	struct stat st;

	cr_assert_eq(stat(place, &st), 0);
	sandbox.root_device = st.st_dev;
	cr_assert_eq(guard_policy_load(guard, &policy), 0);
	cr_assert_eq(guard_sandbox_set(guard, tree.ids[TREE_SLOT0], &sandbox), 0);
	return sandbox;
}

static int open_try(const char *path, int flags)
{
	auto_close int fd = open(path, flags | O_CLOEXEC, 0644);

	return fd < 0 ? errno : 0;
}

#define NOTED(call) ((call) < 0 ? errno : 0)

/* A mark for each attack that did not get its errno. */
static int attacks_try(const void *with)
{
	const int denied = *(const int *)with ? EPERM : 0, hidden = denied ? ENOENT : 0;
	struct stat st;
	int socket_fd, bytes, pair[2];

	if (open_try("usr/bin/sh", O_RDONLY) != 0)
		return 1;
	if (open_try("usr/bin/sh", O_WRONLY) != denied)
		return 2;
	if (open_try("alias/sh", O_WRONLY) != denied)
		return 3;
	if (open_try("usr/bin/fresh", O_WRONLY | O_CREAT) != denied)
		return 4;
	if (NOTED(chmod("usr/bin/sh", 0755)) != denied || NOTED(truncate("alias/sh", 0)) != denied)
		return 5;
	if (NOTED(link("usr/bin/sh", "second")) != denied)
		return 6;
	if (open_try("log/answer", O_RDONLY) != hidden || NOTED(stat("log/answer", &st)) != hidden)
		return 7;
	if (pipe2(pair, O_CLOEXEC) < 0 || NOTED(ioctl(pair[0], 0x541b, &bytes)) != denied)
		return 8;
	socket_fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0);
	if (NOTED(socket_fd) != denied)
		return 9;
	if (denied && NOTED(rename("usr", "moved")) != denied)
		return 10;
	if (denied && NOTED(mount("none", "usr", "tmpfs", 0, NULL)) != denied)
		return 11;
	return 0;
}

static void skip_without_lsm(void)
{
	if (guard_capabilities(guard) & GUARD_LSM)
		return;
	teardown(); /* a skip ends the test without it */
	cr_skip_test("this kernel takes no LSM programs: run it in a guest");
}

enum { SEEN_MAX = 64, FLOOD = 5000 };

static struct policy_violation seen[SEEN_MAX];
static int seen_count;

static void take(void *context, const struct policy_violation *violation)
{
	(void)context;
	if (seen_count < SEEN_MAX)
		seen[seen_count++] = *violation;
}

static int broken_try(const void *with)
{
	const struct sched_param none = { 0 };
	cpu_set_t cpus;

	(void)with;
	if (open_try("alias/sh", O_WRONLY) != EPERM || open_try("watched", O_WRONLY) != 0)
		return 1;
	if (sched_getaffinity(0, sizeof(cpus), &cpus) < 0 ||
	    sched_setaffinity(0, sizeof(cpus), &cpus) < 0)
		return 2;
	if (NOTED(sched_setscheduler(0, SCHED_BATCH, &none)) != EPERM)
		return 3;
	if (NOTED(rename("usr", "moved")) != EPERM)
		return 4;
	for (int i = 0; i < FLOOD; i++)
		if (open_try("log/answer", O_RDONLY) != ENOENT)
			return 5;
	return 0;
}

static void told_expect(int at, uint32_t rule, int hook, int error)
{
	cr_expect_eq(seen[at].cgroup_id, tree.ids[TREE_SLOT0]);
	cr_expect_eq(seen[at].rule, rule, "%d: rule %u", at, seen[at].rule);
	cr_expect_eq(seen[at].hook, hook, "%d: hook %u", at, seen[at].hook);
	cr_expect_eq(seen[at].error, error, "%d: error %d", at, seen[at].error);
	cr_expect_eq(seen[at].verdict, error ? POLICY_DENIED : POLICY_AUDITED);
	cr_expect_eq(seen[at].policy, policy.number);
}

static void told_check(void)
{
	struct guard_violations *stream = NULL;
	struct guard_tallies tallies;

	cr_assert_eq(guard_violations_open(guard, 0, &stream), 0);
	cr_expect_eq(tree_run(&tree, TREE_LEAF, broken_try, NULL), 0);
	while (guard_violations_consume(stream, 16, take, NULL) == 16)
		;
	cr_assert_geq(seen_count, 5);
	told_expect(0, 1, POLICY_HOOK_OPEN, EPERM);
	cr_expect_eq(seen[0].text_kind, POLICY_TEXT_PATH);
	cr_assert_eq(seen[0].text_bytes, 11);
	cr_expect_eq(memcmp(seen[0].text, "sh\0bin\0usr", 11), 0);
	cr_expect_str_eq(seen[0].leaf, "e0");
	cr_expect_eq(seen[0].argument & O_ACCMODE, O_WRONLY);
	told_expect(1, 5, POLICY_HOOK_OPEN, 0);
	told_expect(2, 6, POLICY_HOOK_SCHEDULER, EPERM);
	told_expect(3, 1, POLICY_HOOK_RENAME, EPERM);
	told_expect(4, 2, POLICY_HOOK_OPEN, ENOENT);
	cr_assert_eq(guard_tallies_read(stream, tree.ids[TREE_SLOT0], &tallies), 0);
	cr_assert_eq(tallies.count, 5);
	cr_expect_eq(tallies.tallies[4].count, FLOOD);
	cr_expect_eq(tallies.others, 0);
	guard_violations_close(stream);
}

/* ---- ioctls that may be, and no others ---- */

static const struct guard_rule list_rules[] = {
	{ .kind = GUARD_RULE_IOCTL,
	  .bits = GUARD_IOCTL_OTHERS,
	  .value = GUARD_IOCTL_NONE,
	  .label = "ioctls.allow others" },
	{ .kind = GUARD_RULE_IOCTL,
	  .bits = GUARD_IOCTL_ALLOW,
	  .value = 0x541b,
	  .label = "ioctls.allow 0x541b" },
};

static const struct guard_policy list_policy = {
	.number = 8, .rule_count = 2, .rules = list_rules, .name = "list"
};

static int unlisted_try(const void *with)
{
	int bytes, pair[2];

	(void)with;
	if (pipe2(pair, O_CLOEXEC) < 0 || ioctl(pair[0], 0x541b, &bytes) < 0)
		return 1;
	return NOTED(ioctl(pair[0], 0x5413, &bytes)) == EPERM ? 0 : 2;
}

static void list_check(const struct guard_sandbox *sandbox)
{
	struct guard_sandbox listed = *sandbox;
	struct guard_violations *stream = NULL;

	seen_count = 0;
	listed.policy = list_policy.number;
	cr_assert_eq(guard_violations_open(guard, 0, &stream), 0);
	cr_assert_eq(guard_policy_load(guard, &list_policy), 0);
	cr_assert_eq(guard_sandbox_set(guard, tree.ids[TREE_SLOT0], &listed), 0);
	cr_expect_eq(tree_run(&tree, TREE_LEAF, unlisted_try, NULL), 0);
	cr_assert_eq(guard_violations_consume(stream, 16, take, NULL), 1);
	cr_expect_eq(seen[0].rule, 1);
	cr_expect_eq(seen[0].hook, POLICY_HOOK_IOCTL_OTHER);
	cr_expect_eq(seen[0].argument, 0x5413);
	cr_assert_eq(guard_sandbox_set(guard, tree.ids[TREE_SLOT0], sandbox), 0);
	cr_expect_eq(guard_policy_drop(guard, &list_policy), 0);
	guard_violations_close(stream);
}

/* ---- files that are made too fast ---- */

enum { MADE = 100, STORM_AHEAD_S = 60 };

static int files_make(const void *with)
{
	char name[32];

	(void)with;
	for (int i = 0; i < MADE; i++) {
		(void)snprintf(name, sizeof(name), "made-%d", i);
		if (open_try(name, O_CREAT | O_WRONLY) != 0 || unlink(name) < 0)
			return 1;
	}
	return 0;
}

/* As if it had made as many as there may be at once: no machine is that fast in every test. */
static void bucket_empty(void)
{
	const int fd = guard_lsm_map_fd(guard_lsm_of(guard), GUARD_MAP_CREATIONS);
	const struct policy_cgroup slot = { .cgroup_id = tree.ids[TREE_SLOT0] };
	struct policy_creations known;
	struct timespec now;

	cr_assert_eq(bpf_map_lookup_elem(fd, &slot, &known), 0);
	cr_expect_eq(known.sandbox, 1);
	cr_expect_gt(known.full_at_ns, 0);
	cr_assert_eq(clock_gettime(CLOCK_MONOTONIC, &now), 0);
	known.full_at_ns = (uint64_t)(now.tv_sec + STORM_AHEAD_S) * 1000000000;
	cr_assert_eq(bpf_map_update_elem(fd, &slot, &known, BPF_EXIST), 0);
}

/* Once in a second, however many they are; nobody is refused anything. */
static void storm_check(void)
{
	struct guard_violations *stream = NULL;
	struct guard_tallies tallies;

	seen_count = 0;
	cr_assert_eq(guard_violations_open(guard, 0, &stream), 0);
	cr_assert_eq(guard_tallies_drop(stream, tree.ids[TREE_SLOT0]), 0);
	cr_expect_eq(tree_run(&tree, TREE_LEAF, files_make, NULL), 0);
	cr_expect_eq(guard_violations_consume(stream, 16, take, NULL), 0, "not so fast");
	bucket_empty();
	cr_expect_eq(tree_run(&tree, TREE_LEAF, files_make, NULL), 0);
	while (guard_violations_consume(stream, 16, take, NULL) == 16)
		;
	cr_assert_geq(seen_count, 1);
	cr_expect_lt(seen_count, MADE / 2);
	told_expect(0, POLICY_RULE_FILE_STORM, POLICY_HOOK_CREATE, 0);
	cr_expect_eq(memcmp(seen[0].text, "made-", 5), 0);
	cr_assert_eq(guard_tallies_read(stream, tree.ids[TREE_SLOT0], &tallies), 0);
	cr_assert_eq(tallies.count, 1);
	cr_expect_eq(tallies.tallies[0].count, (uint64_t)seen_count);
	cr_expect_eq(tree_run(&tree, TREE_SLOT1, files_make, NULL), 0);
	cr_expect_eq(guard_violations_consume(stream, 16, take, NULL), 0, "of a neighbour nothing");
	guard_violations_close(stream);
}

Test(lsm, is_the_same_by_every_route_told_with_its_path_counted_exactly_and_leaves_neighbours_alone)
{
	const int refused = 1, allowed = 0;
	struct guard_sandbox sandbox;

	skip_without_lsm();
	close(open("watched", O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	sandbox = sandbox_set();
	told_check();
	storm_check();
	list_check(&sandbox);
	cr_expect_eq(tree_run(&tree, TREE_SLOT0, attacks_try, &refused), 0);
	cr_expect_eq(tree_run(&tree, TREE_LEAF, attacks_try, &refused), 0);
	cr_expect_eq(tree_run(&tree, TREE_SLOT1, attacks_try, &allowed), 0);
	cr_assert_eq(guard_sandbox_clear(guard, tree.ids[TREE_SLOT0]), 0);
	cr_expect_eq(open_try("usr/bin/sh", O_WRONLY), 0);
}
