/*
 * Claims about the guard's life: where it pins, what outlives a killed engine, what a sweep and a
 * close leave behind (nothing), and what it says where the host refuses. Mounts are changed only in
 * mount namespaces of child processes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/capability.h>

#include <criterion/criterion.h>

#include "bpf/guard.h"
#include "engine/base/cleanup.h"
#include "tests/root/guard/tree.h"

enum {
	ALL = GUARD_EXIT_EVENTS | GUARD_NETWORK_NONE | GUARD_ABSTRACT | GUARD_PINNED |
	      GUARD_VIOLATIONS | GUARD_SHARED | GUARD_POLICIES | GUARD_EGRESS
};

static struct tree tree;

static void setup(void)
{
	tree_make(&tree);
}

static void teardown(void)
{
	char path[64];

	cr_expect_eq(guard_sweep(tree.instance, tree.fds[TREE_ROOT]), 0);
	snprintf(path, sizeof(path), "/run/dsec/%s", tree.instance);
	cr_expect(access(path, F_OK) < 0, "%s stays", path);
	(void)rmdir("/run/dsec"); /* others may use it; a sweep leaves it */
	tree_remove(&tree);
}

TestSuite(life, .init = setup, .fini = teardown, .timeout = 240);

static int inet_try(const void *unused)
{
	auto_close int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)unused;
	return fd < 0 ? errno : 0;
}

static int abstract_try(const void *unused)
{
	const struct sockaddr_un address = { .sun_family = AF_UNIX, .sun_path = "\0dsec-none" };
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)unused;
	return connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0 ? errno : 0;
}

/* In a child process, as an engine would: the capabilities, or -errno. */
static int engine_start(struct guard **ret, char *why, size_t why_bytes)
{
	struct guard_options options = tree_options(&tree);
	int r = guard_open(&options, why, why_bytes, ret);

	if (r == 0)
		(void)guard_shared_load(*ret, NULL, 0); /* the capabilities tell */
	/* Of kernels, not of engines. */
	return r < 0 ? r :
		       (int)(guard_capabilities(*ret) & ~(uint32_t)(GUARD_LSM | GUARD_APPARMOR));
}

/* A path of this instance's pins, "" when there are none. */
static void pins_find(const char *name, char *ret, size_t bytes)
{
	snprintf(ret, bytes, "/sys/fs/bpf/dsec-%s%s", tree.instance, name);
	if (access(ret, F_OK) == 0)
		return;
	snprintf(ret, bytes, "/run/dsec/%s/bpf/dsec-%s%s", tree.instance, tree.instance, name);
	if (access(ret, F_OK) < 0)
		ret[0] = '\0';
}

static bool pins_exist(void)
{
	char path[256];

	pins_find("", path, sizeof(path));
	return path[0];
}

static bool command_prints(const char *what, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static bool command_prints(const char *what, const char *format, ...)
{
	char command[512], output[16384] = "";
	va_list arguments;
	size_t got;
	FILE *pipe;

	va_start(arguments, format);
	vsnprintf(command, sizeof(command), format, arguments);
	va_end(arguments);
	pipe = popen(command, "r");
	cr_assert(pipe);
	got = fread(output, 1, sizeof(output) - 1, pipe);
	output[got] = '\0';
	pclose(pipe);
	return strstr(output, what);
}

/* An engine in a process of its own that dies by SIGKILL once its guard is open. */
static void engine_killed(int (*before)(void), int expected)
{
	int ready[2], capabilities = -1;
	pid_t pid;

	cr_assert_eq(pipe(ready), 0);
	fflush(NULL);
	pid = fork();
	cr_assert(pid >= 0);
	if (pid == 0) {
		struct guard *guard;
		char why[4096];

		capabilities = before ? before() : 0;
		if (capabilities == 0)
			capabilities = engine_start(&guard, why, sizeof(why));
		(void)!write(ready[1], &capabilities, sizeof(capabilities));
		pause();
		_exit(0);
	}
	cr_assert_eq(read(ready[0], &capabilities, sizeof(capabilities)), sizeof(capabilities));
	kill(pid, SIGKILL);
	cr_assert(WIFSIGNALED(child_reap(pid)));
	close(ready[0]);
	close(ready[1]);
	cr_expect_eq(capabilities, expected, "capabilities %d", capabilities);
}

static void enforced_expect(bool enforced)
{
	cr_expect_eq(tree_run(&tree, TREE_SLOT0, inet_try, NULL), enforced ? EPERM : 0);
	cr_expect_eq(tree_run(&tree, TREE_LEAF, abstract_try, NULL),
		     enforced ? EPERM : ECONNREFUSED);
}

Test(life, enforcement_outlives_a_killed_engine_until_it_is_swept)
{
	enforced_expect(false);
	engine_killed(NULL, ALL);
	cr_expect(pins_exist());
	enforced_expect(true);
	cr_expect_eq(guard_sweep(tree.instance, tree.fds[TREE_ROOT]), 0);
	enforced_expect(false);
	cr_expect_not(pins_exist());
	cr_expect_eq(guard_sweep(tree.instance, -1), 0);
}

Test(life, the_next_engine_replaces_what_a_killed_one_pinned)
{
	struct guard *guard = NULL;
	char why[4096];

	engine_killed(NULL, ALL);
	cr_assert_eq(engine_start(&guard, why, sizeof(why)), ALL, "%s", why);
	/* With the old programs still there, the new map could not allow it. */
	cr_assert_eq(guard_network_set(guard, tree.ids[TREE_SLOT0], true), 0);
	enforced_expect(false);
	cr_expect_eq(tree_run(&tree, TREE_SLOT1, inet_try, NULL), EPERM);
	guard_close(guard);
	cr_expect_not(pins_exist());
	cr_expect_eq(tree_run(&tree, TREE_SLOT1, inet_try, NULL), 0);
}

Test(life, no_socket_is_made_while_engines_are_killed_and_replaced)
{
	const struct trying *trying;
	struct guard *guard = NULL;
	char why[4096];

	engine_killed(NULL, ALL);
	trying = tree_try(&tree, TREE_LEAF, inet_try, NULL);
	cr_expect(trying_goes_on(trying));
	for (int i = 0; i < 2; i++) {
		engine_killed(NULL, ALL);
		cr_expect(trying_goes_on(trying));
	}
	cr_assert_eq(engine_start(&guard, why, sizeof(why)), ALL, "%s", why);
	cr_expect(trying_goes_on(trying));
	cr_expect_eq(trying->got, 0, "%llu of %llu", (unsigned long long)trying->got,
		     (unsigned long long)trying->times);
	/* It would have been seen. */
	cr_assert_eq(guard_network_set(guard, tree.ids[TREE_SLOT0], true), 0);
	cr_expect(trying_goes_on(trying));
	cr_expect_gt(trying->got, 0);
	guard_close(guard);
}

/* A mount namespace without any place for pins. */
static int pins_prevent(void)
{
	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	(void)umount2("/sys/fs/bpf", MNT_DETACH); /* where it is one */
	return mount("none", "/run", "tmpfs", MS_RDONLY, NULL) < 0 ? -errno : 0;
}

Test(life, without_pins_enforcement_still_outlives_a_killed_engine)
{
	engine_killed(pins_prevent, ALL & ~GUARD_PINNED);
	cr_expect_not(pins_exist());
	enforced_expect(true);
	cr_expect_eq(guard_sweep(tree.instance, tree.fds[TREE_ROOT]), 0);
	enforced_expect(false);
}

Test(life, without_pins_the_next_engine_replaces_a_killed_one)
{
	struct guard *guard = NULL;
	char why[4096];

	engine_killed(pins_prevent, ALL & ~GUARD_PINNED);
	cr_assert_eq(engine_start(&guard, why, sizeof(why)), ALL, "%s", why);
	cr_assert_eq(guard_network_set(guard, tree.ids[TREE_SLOT0], true), 0);
	enforced_expect(false);
	cr_expect_eq(tree_run(&tree, TREE_SLOT1, inet_try, NULL), EPERM);
	guard_close(guard);
	enforced_expect(false);
}

/* 0 when all is as it should be, for a process in a mount namespace of its own. */
static int without_pins_says_so(void)
{
	struct guard *guard;
	char why[4096];

	if (pins_prevent() < 0)
		return 1;
	if (engine_start(&guard, why, sizeof(why)) != (ALL & ~GUARD_PINNED))
		return 2;
	guard_close(guard);
	if (!strstr(why, "not pinned") || !strstr(why, "mount -t bpf"))
		return 3;
	return tree_run(&tree, TREE_SLOT0, inet_try, NULL) == 0 ? 0 : 4;
}

static int run_apart(int (*run)(void))
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	cr_assert(pid >= 0);
	if (pid == 0)
		_exit(run());
	return WEXITSTATUS(child_reap(pid));
}

Test(life, without_pins_it_says_so_and_close_detaches)
{
	cr_expect_eq(run_apart(without_pins_says_so), 0);
}

static int host_bpffs_is_used(void)
{
	char pins[64];
	struct guard *guard;
	char why[4096];

	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return 1;
	if (mount("bpf", "/sys/fs/bpf", "bpf", 0, NULL) < 0)
		return 2;
	if (engine_start(&guard, why, sizeof(why)) != ALL)
		return 3;
	snprintf(pins, sizeof(pins), "/sys/fs/bpf/dsec-%s", tree.instance);
	if (access(pins, F_OK) < 0)
		return 4;
	guard_close(guard);
	return access(pins, F_OK) < 0 ? 0 : 5;
}

Test(life, pins_are_below_sys_fs_bpf_where_that_is_a_bpffs)
{
	cr_expect_eq(run_apart(host_bpffs_is_used), 0);
}

static int own_bpffs_is_mounted(void)
{
	char directory[64];
	struct guard *guard;
	char why[4096];

	if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return 1;
	(void)umount2("/sys/fs/bpf", MNT_DETACH); /* where it is one */
	if (engine_start(&guard, why, sizeof(why)) != ALL)
		return 2;
	snprintf(directory, sizeof(directory), "/run/dsec/%s", tree.instance);
	if (!command_prints("700", "stat -c %%a %s/bpf", directory))
		return 3;
	guard_close(guard);
	return access(directory, F_OK) < 0 ? 0 : 4;
}

Test(life, else_it_mounts_one_and_takes_it_away_again)
{
	cr_expect_eq(run_apart(own_bpffs_is_mounted), 0);
}

Test(life, bpftool_shows_maps_with_named_fields)
{
	struct guard *guard = NULL;
	char why[4096], path[256], id[64];

	cr_assert_eq(engine_start(&guard, why, sizeof(why)), ALL, "%s", why);
	cr_assert_eq(guard_network_set(guard, tree.ids[TREE_SLOT1], true), 0);
	pins_find("/networks", path, sizeof(path));
	snprintf(id, sizeof(id), "\"cgroup_id\": %llu", (unsigned long long)tree.ids[TREE_SLOT1]);
	cr_expect(command_prints(id, "bpftool map dump pinned %s", path));
	cr_expect(command_prints("\"mode\": 1", "bpftool map dump pinned %s", path));
	guard_close(guard);
}

enum { OBJECTS_MAX = 128 };

struct objects {
	char shows[OBJECTS_MAX][48]; /* arguments of bpftool */
	int count;
};

/* What this process holds, by the kernel's word. */
static void objects_list(struct objects *objects)
{
	DIR *directory = opendir("/proc/self/fdinfo");
	struct dirent *entry;

	cr_assert(directory);
	objects->count = 0;
	while ((entry = readdir(directory))) {
		char path[300], line[128], kind[8];
		unsigned int id;
		FILE *file;

		snprintf(path, sizeof(path), "/proc/self/fdinfo/%s", entry->d_name);
		file = fopen(path, "re");
		while (file && fgets(line, sizeof(line), file)) {
			if (sscanf(line, "%4[a-z]_id: %u", kind, &id) != 2 ||
			    !strstr("prog map link", kind) || objects->count == OBJECTS_MAX)
				continue;
			snprintf(objects->shows[objects->count++], sizeof(objects->shows[0]),
				 "%s show id %u", kind, id);
		}
		if (file)
			fclose(file);
	}
	closedir(directory);
}

static bool object_exists(const char *show)
{
	char command[96];

	snprintf(command, sizeof(command), "bpftool %s >/dev/null 2>&1", show);
	return system(command) == 0;
}

Test(life, close_leaves_no_program_map_link_or_descriptor)
{
	struct objects objects, after;
	struct guard_exits *exits = NULL;
	struct guard *guard = NULL;
	char why[4096];

	objects_list(&objects);
	cr_assert_eq(objects.count, 0);
	cr_assert_eq(engine_start(&guard, why, sizeof(why)), ALL, "%s", why);
	cr_assert_eq(guard_exits_open(guard, 1, &exits), 0);
	objects_list(&objects);
	/* 5 programs, 4 links, and the maps. */
	cr_assert_geq(objects.count, 20);
	for (int i = 0; i < objects.count; i++)
		cr_assert(object_exists(objects.shows[i]), "%s", objects.shows[i]);
	guard_close(guard);
	guard_exits_close(exits);
	objects_list(&after);
	cr_expect_eq(after.count, 0);
	/* The kernel frees them after a grace period. */
	for (int i = 0; i < objects.count; i++) {
		int tries = 200;

		while (object_exists(objects.shows[i]) && --tries)
			usleep(10000);
		cr_expect(tries, "%s stays", objects.shows[i]);
	}
}

static int without_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = {};
	struct guard_exits *exits;
	struct guard_probe probe;
	struct guard *guard;
	char why[4096];

	if (syscall(SYS_capset, &header, none) < 0)
		return 1;
	if (engine_start(&guard, why, sizeof(why)) != 0)
		return 2;
	if (!strstr(why, "no events of deaths") || !strstr(why, "network `none`") ||
	    !strstr(why, "abstract unix names") || !strstr(why, "CAP_BPF"))
		return 3;
	if (guard_exits_open(guard, 0, &exits) != -EOPNOTSUPP ||
	    guard_network_set(guard, 1, true) != -EOPNOTSUPP)
		return 4;
	guard_close(guard);
	if (guard_probe(&probe) != 0 || !probe.features[GUARD_FEATURE_SOCK_CREATE].error ||
	    !probe.features[GUARD_FEATURE_SOCK_CREATE].remedy)
		return 5;
	return 0;
}

Test(life, a_refusing_host_gives_a_guard_without_capabilities_and_reasons)
{
	cr_expect_eq(run_apart(without_capabilities), 0);
}

Test(life, reasons_never_leave_their_buffer)
{
	struct guard_options options = tree_options(&tree);
	struct guard *guard = NULL;
	char why[8];

	memset(why, 'x', sizeof(why));
	options.cgroup_fd = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	options.cgroup_id = 1ULL << 60;
	cr_assert_eq(guard_open(&options, why, sizeof(why) - 1, &guard), 0);
	close(options.cgroup_fd);
	cr_expect_eq(guard_capabilities(guard), 0);
	cr_expect_eq(why[sizeof(why) - 1], 'x');
	cr_expect_eq(strlen(why), sizeof(why) - 2);
	guard_close(guard);
	cr_expect_eq(guard_open(&options, NULL, 0, &guard), -EBADF);
}

Test(life, options_that_make_no_sense_are_refused)
{
	struct guard_options options = tree_options(&tree);
	struct guard_options wrong[] = { options, options, options, options, options, options };
	struct guard *guard = NULL;
	char why[64];

	wrong[0].instance = "../escape";
	wrong[1].instance = "";
	wrong[2].shards = 0;
	wrong[3].ring_bytes = 5000;
	wrong[4].cgroup_fd = -1;
	wrong[5].engine_pid = 0;
	for (unsigned int i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
		cr_expect_eq(guard_open(&wrong[i], why, sizeof(why), &guard), -EINVAL, "%u", i);
	cr_expect_null(guard);
	cr_expect_eq(guard_sweep("../escape", -1), -EINVAL);
}

Test(life, the_probe_agrees_with_what_opens)
{
	struct guard_probe probe;
	struct guard *guard = NULL;
	uint32_t capabilities;
	char why[4096];

	cr_assert_eq(guard_probe(&probe), 0);
	for (int i = 0; i < GUARD_FEATURE_COUNT; i++) {
		cr_expect(probe.features[i].name);
		cr_expect_eq(!probe.features[i].error, !probe.features[i].remedy);
	}
	cr_assert_geq(engine_start(&guard, why, sizeof(why)), 0);
	capabilities = guard_capabilities(guard);
	guard_close(guard);
	cr_expect_eq(!probe.features[GUARD_FEATURE_TP_BTF].error,
		     !!(capabilities & GUARD_EXIT_EVENTS));
	cr_expect_eq(!probe.features[GUARD_FEATURE_SOCK_CREATE].error,
		     !!(capabilities & GUARD_NETWORK_NONE));
	cr_expect_eq(!probe.features[GUARD_FEATURE_CONNECT_UNIX].error,
		     !!(capabilities & GUARD_ABSTRACT));
}
