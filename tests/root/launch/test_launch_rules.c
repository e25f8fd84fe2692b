/*
 * The launcher's rules, one by one, each beside what happens without it. Attacks that need a race
 * are in tests/hostile/launch.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/launch/harness.h"
#include "tests/root/launch/insider.h"

/* result is of a call that must fail with the error; counts what does not. */
static int refused(const char *what, long result, int error)
{
	if (result < 0 && errno == error)
		return 0;
	note("%s: %s", what, result < 0 ? strerrorname_np(errno) : "allowed");
	return 1;
}

static int mounts_try(void *argument)
{
	struct mount_attr none = { 0 };

	(void)argument;
	return refused("tmpfs", mount("t", "/tmp", "tmpfs", 0, NULL), EPERM) +
	       refused("bind", mount("/etc", "/tmp", NULL, MS_BIND, NULL), EPERM) +
	       refused("remount", mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL), EPERM) +
	       refused("remount proc", mount(NULL, "/proc", NULL, MS_REMOUNT | MS_BIND, NULL),
		       EPERM) +
	       refused("proc", mount("p", "/tmp", "proc", 0, NULL), EPERM) +
	       refused("sysfs", mount("s", "/sys", "sysfs", 0, NULL), EPERM) +
	       refused("umount", umount2("/proc", MNT_DETACH), EPERM) +
	       refused("umount mask", umount2("/proc/keys", MNT_DETACH), EPERM) +
	       refused("umount root", umount2("/", MNT_DETACH), EPERM) +
	       refused("fsopen", syscall(SYS_fsopen, "tmpfs", 0), EPERM) +
	       refused("open_tree", syscall(SYS_open_tree, AT_FDCWD, "/", 1), EPERM) +
	       refused("mount_setattr",
		       syscall(SYS_mount_setattr, AT_FDCWD, "/", 0, &none, sizeof none), EPERM) +
	       refused("pivot_root", syscall(SYS_pivot_root, "/tmp", "/tmp"), EPERM) +
	       refused("hostname", sethostname("x", 1), EPERM) +
	       refused("mknod", mknod("/tmp/x", S_IFCHR | 0600, makedev(1, 1)), EPERM) +
	       refused("setting", open("/proc/sys/kernel/hostname", O_WRONLY), EACCES) +
	       refused("setting of the network", open("/proc/sys/net/ipv4/ip_forward", O_WRONLY),
		       EACCES);
}

static void a_root_with_every_capability_cannot_change_a_mount(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);

	expect(insider_fine(&box, mounts_try, NULL));
	box_end(h, &box);
}

static int nesting_try(void *argument)
{
	(void)argument;
	return refused("nested user namespace", unshare(CLONE_NEWUSER), ENOSPC);
}

static void no_user_namespace_can_be_nested(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);

	expect(insider_fine(&box, nesting_try, NULL));
	box_end(h, &box);
}

static unsigned long capabilities_now(const char *key)
{
	char text[4096], *found;

	(void)text_read_at(AT_FDCWD, "/proc/self/status", text, sizeof text);
	found = strstr(text, key);
	return found ? strtoul(found + strlen(key), NULL, 16) : 0;
}

static int capabilities_look(void *argument)
{
	const unsigned long all = 0x1ffffffffff;

	(void)argument;
	return (capabilities_now("CapEff:\t") & all) != all ||
	       (capabilities_now("CapBnd:\t") & all) != all;
}

static void without_capset_the_user_namespace_gives_all_back(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);

	expect(insider_fine(&box, capabilities_look, NULL));
	expect(probe(h, &box, "capabilities", "800405fb"));
	box_end(h, &box);
}

static int keyring_look(void *argument)
{
	(void)argument;
	return syscall(SYS_keyctl, 0 /* GET_KEYRING_ID */, -4 /* user's */, 1) < 0;
}

/* Of this process alone: whoever joins by a name joins the one that has it. */
static void keyring_name(char ret_name[48])
{
	(void)snprintf(ret_name, 48, "dsec-test-session-%d:", getpid());
}

/* Credentials that refer to the session keyring of that name. */
static unsigned keyring_uses(void)
{
	char text[65536], name[48], *line;
	unsigned id, uses = 0;

	keyring_name(name);
	(void)text_read_at(AT_FDCWD, "/proc/keys", text, sizeof text);
	line = strstr(text, name);
	while (line && line > text && line[-1] != '\n')
		line--;
	if (!line || sscanf(line, "%x %*s %u", &id, &uses) != 2)
		return 0;
	return uses;
}

static bool keyring_uses_become(unsigned wanted)
{
	for (unsigned i = 0; i < 2000 && keyring_uses() != wanted; i++)
		sleep_ms(1);
	return keyring_uses() == wanted;
}

/* Credentials of processes that ended are freed late: it was the same for half a second. */
static unsigned keyring_uses_settled(void)
{
	unsigned uses = keyring_uses();

	for (unsigned i = 0, same = 0; i < 1000 && same < 50; i++) {
		unsigned now;

		sleep_ms(10);
		now = keyring_uses();
		same = now == uses ? same + 1 : 0;
		uses = now;
	}
	return uses;
}

/*
 * What a worker without the rule would be: one use more than *ret_before. Again where what ended
 * long ago gave up its own meanwhile: nobody tells when that is.
 */
static pid_t careless_count(unsigned *ret_before)
{
	for (int i = 0; i < 5; i++) {
		const unsigned before = *ret_before = keyring_uses_settled();
		const pid_t careless = fork();

		if (careless == 0) {
			(void)setgroups(0, NULL);
			for (;;)
				pause();
		}
		if (keyring_uses_become(before + 1))
			return careless;
		(void)kill(careless, SIGKILL); /* not reaped yet */
		(void)child_reap(careless);
	}
	return -1;
}

static void a_worker_leaves_the_engines_session_keyring(struct harness *h)
{
	char name[48];
	unsigned before;
	pid_t careless;

	keyring_name(name);
	name[strlen(name) - 1] = 0; /* the colon follows it in the list */
	expect(syscall(SYS_keyctl, 1 /* JOIN_SESSION_KEYRING */, name) >= 0);
	careless = careless_count(&before);
	expect(careless > 0 && before > 0);
	(void)kill(careless, SIGKILL); /* not reaped yet */
	(void)child_reap(careless);
	expect(keyring_uses_become(before));
	h->worker_count = 2;
	expect(worker_start_another(h, 1));
	expect(harness_ask(h, 1, &(struct launch_request){ .op = LAUNCH_OP_COUNT }, NULL).error ==
	       EINVAL);
	/* Its loader and libraries, opened before main(), keep two. Its own would be a third. */
	if (!expect(keyring_uses_become(before + 2)))
		note("%u before, %u now", before, keyring_uses());
	(void)syscall(SYS_keyctl, 1 /* JOIN_SESSION_KEYRING */, NULL);
}

static void keyrings_are_out_of_reach(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);

	expect(insider_fine(&box, keyring_look, NULL)); /* without the filter they are not */
	expect(probe(h, &box, "calls", NULL));
	box_end(h, &box);
}

/* An init memfd of another mode, for workers from now on. */
static void init_mode_set(struct harness *h, mode_t mode)
{
	char bytes[16384], path[64];
	auto_close int source = -1;
	ssize_t count;
	int fd;

	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", h->init_fd);
	source = open(path, O_RDONLY | O_CLOEXEC);
	fd = memfd_create("init", MFD_CLOEXEC | 0x10 /* MFD_EXEC */);
	count = read(source, bytes, sizeof bytes);
	expect(fd >= 0 && count > 0 && write(fd, bytes, (size_t)count) == count);
	expect(fchmod(fd, mode) == 0);
	(void)close(h->init_fd); /* replaced */
	h->init_fd = fd;
	worker_kill(h, 0);
	expect(worker_start_another(h, 0));
}

static void pid_1_from_an_open_memfd_can_be_locked_by_all(struct harness *h)
{
	struct box box;

	expect(fcntl(h->init_fd, F_GET_SEALS) ==
	       (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE));
	init_mode_set(h, 0777);
	box = box_start(h, 0, LAUNCH_REBUILD);
	expect(probe(h, &box, "init", "open"));
	box_end(h, &box);
}

static void an_unreaped_exec_keeps_pid_1_dying(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	const char *const argv[] = { "probe", "wait", NULL };
	const struct exec_options options = { .leave_alone = true };
	struct launch_reply exec;
	siginfo_t dead;

	expect(harness_exec(h, &box, argv, &options, &exec) == 0);
	(void)kill(box.pid, SIGKILL); /* not reaped yet */
	expect(waitid(P_PID, (id_t)exec.pid, &dead, WEXITED | WNOWAIT) == 0);
	sleep_ms(50);
	dead.si_pid = 0;
	expect(waitid(P_PID, (id_t)box.pid, &dead, WEXITED | WNOHANG | WNOWAIT) == 0);
	expect(dead.si_pid == 0);
	(void)child_reap(exec.pid);
	expect(child_reap_within(box.pid, 2000));
	box.pid = 0;
	box_end(h, &box);
}

static void a_killed_cgroup_is_dropped_and_never_reused(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	auto_close int kill_fd = -1;
	struct launch_request request = harness_request(h, LAUNCH_SPAWN, 0);
	struct launch_reply reply;
	siginfo_t dead = { 0 };

	box_stop(&box);
	kill_fd = openat(h->cgroup_fd, "b0/cgroup.kill", O_WRONLY | O_CLOEXEC);
	expect(write(kill_fd, "1", 1) == 1);
	reply = harness_ask(h, 0, &request, NULL);
	expect(reply.pid > 0);
	sleep_ms(20);
	(void)waitid(P_PID, (id_t)reply.pid, &dead, WEXITED | WNOHANG | WNOWAIT);
	note("on this kernel a child of a killed cgroup %s",
	     dead.si_pid ? "dies at birth" : "lives");
	(void)kill(reply.pid, SIGKILL); /* not reaped yet */
	(void)child_reap(reply.pid);
	expect(harness_op(h, LAUNCH_SWEEP, 0).error == 0);
	box = box_start(h, 0, LAUNCH_REBUILD);
	expect(probe(h, &box, "exit", "0"));
	box_end(h, &box);
}

static int watches_count(const struct harness *h)
{
	const char *found = strstr(h->output, "watches ");

	return found ? atoi(found + 8) : -1;
}

static void a_range_has_its_own_inotify_account(struct harness *h)
{
	struct box greedy = box_start(h, 0, LAUNCH_REBUILD);
	struct box other = box_start(h, 1, LAUNCH_REBUILD);
	const char *const argv[] = { "probe", "watches", "hold", NULL };
	struct exec_options options = { .leave_alone = true };
	struct launch_reply exec;
	char line[32] = "";
	int ends[2];

	expect(pipe2(ends, O_CLOEXEC) == 0);
	options.output_fd = ends[1];
	expect(harness_exec(h, &greedy, argv, &options, &exec) == 0);
	expect(read(ends[0], line, sizeof line - 1) > 0 && strstr(line, "watches "));
	expect(probe(h, &greedy, "watches", NULL) && watches_count(h) == 0);
	expect(probe(h, &other, "watches", NULL) && watches_count(h) >= 64);
	expect(inotify_init1(IN_CLOEXEC) >= 0); /* the host's root */
	(void)close(ends[0]);			/* read */
	(void)close(ends[1]);			/* the program has its own */
	(void)kill(exec.pid, SIGKILL);		/* not reaped yet */
	(void)child_reap(exec.pid);
	box_end(h, &greedy);
	box_end(h, &other);
}

static void a_user_namespace_bounds_its_processes(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD), other = box_start(h, 1, LAUNCH_REBUILD);

	expect(probe(h, &box, "forks", "64"));
	expect(probe(h, &other, "forks", "64"));
	box_end(h, &box);
	box_end(h, &other);
}

static int ids_look(void *argument)
{
	struct stat own;

	/* The image's root is ours through the idmapped layer, as what we make is. */
	return stat("/etc/secret", &own) < 0 || own.st_uid != 0 || *(const uint32_t *)argument == 0;
}

/* Namespaces of a process, by inode. */
static ino_t namespace_of(pid_t pid, const char *type)
{
	struct stat found = { 0 };
	char path[64];

	(void)snprintf(path, sizeof path, "/proc/%d/ns/%s", pid, type);
	expect(stat(path, &found) == 0);
	return found.st_ino;
}

static void every_namespace_is_the_sandboxs_own(struct harness *h)
{
	static const char *const types[] = { "mnt", "pid", "ipc", "uts", "cgroup", "user", "net" };
	struct box box = box_start(h, 0, LAUNCH_REBUILD), other = box_start(h, 1, LAUNCH_REBUILD);
	const char *const argv[] = { "probe", "wait", NULL };
	const struct exec_options options = { .leave_alone = true };
	struct launch_reply exec;

	expect(harness_exec(h, &box, argv, &options, &exec) == 0);
	for (unsigned i = 0; i < sizeof types / sizeof *types; i++) {
		const ino_t its = namespace_of(box.pid, types[i]);
		/* Mode `none`: one network namespace, in which nothing can be reached. */
		const bool shared = strcmp(types[i], "net") == 0;

		expect(its != namespace_of(getpid(), types[i]));
		expect((its == namespace_of(other.pid, types[i])) == shared);
		expect(its == namespace_of(exec.pid, types[i]));
	}
	(void)kill(exec.pid, SIGKILL); /* not reaped yet */
	(void)child_reap(exec.pid);
	box_end(h, &box);
	box_end(h, &other);
}

static void a_slots_files_belong_to_its_range(struct harness *h)
{
	struct box box = box_start(h, 2, LAUNCH_REBUILD);
	uint32_t base = h->uid_base + 2 * 65536;
	struct stat made;

	expect(insider_fine(&box, ids_look, &base));
	expect(probe(h, &box, "write", "/etc/secret"));
	expect(fstatat(h->vault.root_fd, "slots/2/up/u/etc/secret", &made, 0) == 0);
	expect(made.st_uid == base && made.st_gid == base);
	box_end(h, &box);
}

static void a_frozen_cgroup_costs_one_bounded_request(struct harness *h)
{
	struct box box = box_start(h, 0, LAUNCH_REBUILD);
	auto_close int freeze = openat(h->cgroup_fd, "b0/cgroup.freeze", O_WRONLY | O_CLOEXEC);
	const char *const argv[] = { "probe", "exit", "0", NULL };
	struct launch_reply reply;

	expect(write(freeze, "1", 1) == 1);
	expect(harness_exec(h, &box, argv, NULL, &reply) == -1);
	expect(reply.error == ETIMEDOUT && reply.step == LAUNCH_STEP_WAIT && reply.pid > 0);
	expect(write(freeze, "0", 1) == 1);
	expect(probe(h, &box, "exit", "0"));
	box_stop(&box);

	expect(write(freeze, "1", 1) == 1);
	reply = harness_op(h, LAUNCH_SPAWN, 0);
	expect(reply.error == ETIMEDOUT && reply.step == LAUNCH_STEP_WAIT && reply.pid > 0);
	(void)child_reap(reply.pid);
	expect(write(freeze, "0", 1) == 1);
	box = box_start(h, 0, 0);
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
	TEST(a_root_with_every_capability_cannot_change_a_mount),
	TEST(no_user_namespace_can_be_nested),
	TEST(without_capset_the_user_namespace_gives_all_back),
	TEST(a_worker_leaves_the_engines_session_keyring),
	TEST(keyrings_are_out_of_reach),
	TEST(pid_1_from_an_open_memfd_can_be_locked_by_all),
	TEST(an_unreaped_exec_keeps_pid_1_dying),
	TEST(a_killed_cgroup_is_dropped_and_never_reused),
	TEST(a_range_has_its_own_inotify_account),
	TEST(a_user_namespace_bounds_its_processes, .processes_max = 64),
	TEST(every_namespace_is_the_sandboxs_own),
	TEST(a_slots_files_belong_to_its_range),
	TEST(a_frozen_cgroup_costs_one_bounded_request, .limit_ms = 100),
};

int main(int argc, char **argv)
{
	return harness_main(argc, argv, tests, sizeof tests / sizeof *tests);
}
