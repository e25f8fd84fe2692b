/*
 * Profiles in a kernel that has AppArmor: each kind of rule, by a program in the profile and by one
 * outside of it, with nothing else to refuse it, and in front of LSM programs with the same policy.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/apparmor.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "bpf/guard.h"
#include "bpf/guard_apparmor.h"
#include "bpf/guard_policy.h"
#include "bpf/guard_why.h"
#include "engine/base/cleanup.h"
#include "tests/root/apparmor_kernel.h"
#include "tests/root/guard/tree.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define TRIED(call)                                                                                \
	({                                                                                         \
		long tried_ = (long)(call);                                                        \
		tried_ < 0 ? errno : 0;                                                            \
	})

enum {
	PROTECT = GUARD_FILE_WRITE | GUARD_FILE_REPLACE | GUARD_FILE_METADATA | GUARD_FILE_SUBTREE,
	HIDE = GUARD_FILE_HIDE | GUARD_FILE_SUBTREE,
	NOEXEC = GUARD_FILE_EXECUTE | GUARD_FILE_SUBTREE,
	PATH_BYTES = 96,
};

/* The current folder is `folder`; its paths are the policy's. */
struct place {
	struct tree tree;
	struct guard_apparmor *apparmor;
	char folder[32], paths[4][PATH_BYTES], profile[PROFILE_NAME_BYTES];
	struct guard_rule rules[16];
	struct guard_policy policy;
	pid_t victim;
};

static struct place place;

/* ---- what is tried, in the folder ---- */

static int write_kept(void)
{
	return TRIED(open("kept/file", O_WRONLY));
}

static int empty_kept(void)
{
	return TRIED(truncate("kept/file", 0));
}

static int create_in_kept(void)
{
	return TRIED(open("kept/new", O_CREAT | O_WRONLY, 0644));
}

static int link_out_of_kept(void)
{
	return TRIED(link("kept/file", "linked"));
}

static int unlink_kept(void)
{
	return TRIED(unlink("kept/file"));
}

static int rename_kept(void)
{
	return TRIED(rename("kept/file", "away"));
}

static int rename_over_kept(void)
{
	return TRIED(rename("own", "kept/file"));
}

static int rename_its_folder(void)
{
	return TRIED(rename("kept", "away"));
}

static int change_its_mode(void)
{
	return TRIED(chmod("kept/file", 0700));
}

static int change_its_owner(void)
{
	return TRIED(chown("kept/file", 7, 7));
}

static int write_by_descriptor(void)
{
	const int fd = open("kept/file", O_RDONLY);
	char path[32];

	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return fd < 0 ? errno : TRIED(open(path, O_WRONLY));
}

static int write_by_link(void)
{
	return symlink("kept/file", "pointer") < 0 ? errno : TRIED(open("pointer", O_WRONLY));
}

static int write_hostile_name(void)
{
	return TRIED(open("a\"*{b} @{c}\n", O_WRONLY));
}

static int write_what_a_glob_would_be(void)
{
	return TRIED(open("a\"xb @{c}\n", O_CREAT | O_WRONLY, 0644));
}

static int read_hidden(void)
{
	return TRIED(open("hidden/answer", O_RDONLY));
}

static int link_hidden(void)
{
	return TRIED(link("hidden/answer", "linked"));
}

static int run_forbidden(void)
{
	char name[] = "true", *const argv[] = { name, NULL };
	int status;
	const pid_t pid = vfork();

	if (pid == 0) {
		(void)execv("noexec/true", argv);
		_exit(errno);
	}
	(void)waitpid(pid, &status, 0); /* ours */
	return WEXITSTATUS(status);
}

static int map_forbidden(void)
{
	const int fd = open("noexec/true", O_RDONLY);
	void *at = mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

	return at == MAP_FAILED ? errno : 0;
}

static int socket_refused(void)
{
	return TRIED(socket(AF_INET6, SOCK_STREAM, 0));
}

static int socket_packet(void)
{
	return TRIED(socket(AF_PACKET, SOCK_RAW, 0));
}

static int socket_allowed(void)
{
	return TRIED(socket(AF_INET, SOCK_STREAM, 0));
}

static int socket_pair(void)
{
	return TRIED(socketpair(AF_UNIX, SOCK_STREAM, 0, (int[2]){ 0 }));
}

static int trace_outside(void)
{
	if (ptrace(PTRACE_SEIZE, place.victim, NULL, NULL) < 0)
		return errno;
	return 0; /* ends with this child */
}

static int signal_outside(void)
{
	return TRIED(kill(place.victim, SIGUSR2));
}

static pid_t own_child(void)
{
	const pid_t pid = fork();

	if (pid == 0)
		for (;;)
			(void)pause();
	return pid;
}

static int trace_inside(void)
{
	const pid_t pid = own_child();
	const int r = TRIED(ptrace(PTRACE_SEIZE, pid, NULL, NULL));

	(void)kill(pid, SIGKILL); /* ours */
	return r;
}

static int signal_inside(void)
{
	return TRIED(kill(own_child(), SIGKILL));
}

static int mount_something(void)
{
	return TRIED(mount("armor", "mounted", "tmpfs", 0, NULL));
}

static int bind_kept(void)
{
	return TRIED(mount("kept", "mounted", NULL, MS_BIND, NULL));
}

static int move_a_mount(void)
{
	const int fd = (int)syscall(SYS_open_tree, AT_FDCWD, "kept", 1 | O_CLOEXEC);

	return fd < 0 ?
		       errno :
		       TRIED(syscall(SYS_move_mount, fd, "", AT_FDCWD, "mounted", 4 /* from "" */));
}

static int unmount_something(void)
{
	return TRIED(umount2(".", MNT_DETACH));
}

/* ---- leaving it ---- */

static int leave_at_once(void)
{
	return TRIED(aa_change_profile("unconfined"));
}

static int leave_at_exec(void)
{
	return TRIED(aa_change_onexec("unconfined"));
}

static int stack_upon_it(void)
{
	return TRIED(aa_stack_profile("unconfined"));
}

/* ---- what programs do and is theirs ---- */

static int reopen(int fd, int flags)
{
	char path[32];

	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return fd < 0 ? errno : TRIED(open(path, flags));
}

static int reopen_a_memfd(void)
{
	return reopen(memfd_create("own", 0), O_RDONLY);
}

static int reopen_without_a_name(void)
{
	return reopen(open(".", O_TMPFILE | O_RDWR, 0600), O_RDWR);
}

static int link_what_had_no_name(void)
{
	const int fd = open(".", O_TMPFILE | O_RDWR, 0600);
	char path[32];

	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return TRIED(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
}

static int reopen_what_was_unlinked(void)
{
	const int fd = open("own", O_RDWR);

	return unlink("own") < 0 ? errno : reopen(fd, O_RDWR);
}

static int reopen_a_pipe(void)
{
	int ends[2];

	return pipe(ends) < 0 ? errno : reopen(ends[1], O_WRONLY);
}

static int run_a_memfd(void)
{
	static char bytes[1 << 16];
	const int fd = memfd_create("program", MFD_CLOEXEC), from = open("/bin/true", O_RDONLY);
	char name[] = "true", *const argv[] = { name, NULL }, *const envp[] = { NULL };
	ssize_t count;
	int status;

	while ((count = read(from, bytes, sizeof bytes)) > 0)
		if (write(fd, bytes, (size_t)count) != count)
			return EIO;
	if (fork() == 0) {
		(void)fexecve(fd, argv, envp);
		_exit(errno);
	}
	(void)wait(&status); /* ours */
	return WEXITSTATUS(status);
}

static int write_its_own(void)
{
	return rename("own", "owned") < 0 ? errno : TRIED(open("owned", O_RDWR | O_TRUNC));
}

static int chroot_and_read(void)
{
	return chroot(".") < 0 ? errno : TRIED(open("/own", O_RDWR));
}

struct trial {
	const char *name;
	int (*run)(void);
	int inside; /* the errno; outside it is 0 */
};

#define TRIAL(function, inside)                                                                    \
	{                                                                                          \
#function, function, inside                                                        \
	}

static const struct trial trials[] = {
	TRIAL(write_kept, EACCES),
	TRIAL(empty_kept, EACCES),
	TRIAL(create_in_kept, EACCES),
	TRIAL(link_out_of_kept, EACCES),
	TRIAL(unlink_kept, EACCES),
	TRIAL(rename_kept, EACCES),
	TRIAL(rename_over_kept, EACCES),
	TRIAL(rename_its_folder, EACCES),
	TRIAL(change_its_mode, EACCES),
	TRIAL(change_its_owner, EACCES),
	TRIAL(write_by_descriptor, EACCES),
	TRIAL(write_by_link, EACCES),
	TRIAL(write_hostile_name, EACCES),
	TRIAL(write_what_a_glob_would_be, 0),
	TRIAL(read_hidden, EACCES),
	TRIAL(link_hidden, EACCES),
	TRIAL(run_forbidden, EACCES),
	TRIAL(map_forbidden, EACCES),
	TRIAL(socket_refused, EACCES),
	TRIAL(socket_packet, EACCES),
	TRIAL(socket_allowed, 0),
	TRIAL(socket_pair, 0),
	TRIAL(trace_outside, EACCES),
	TRIAL(signal_outside, EACCES),
	TRIAL(trace_inside, 0),
	TRIAL(signal_inside, 0),
	TRIAL(mount_something, EACCES),
	TRIAL(bind_kept, EACCES),
	TRIAL(move_a_mount, EACCES),
	TRIAL(unmount_something, EACCES),
	TRIAL(reopen_a_memfd, 0),
	TRIAL(reopen_without_a_name, 0),
	TRIAL(link_what_had_no_name, 0),
	TRIAL(reopen_what_was_unlinked, 0),
	TRIAL(reopen_a_pipe, 0),
	TRIAL(run_a_memfd, 0),
	TRIAL(write_its_own, 0),
	TRIAL(chroot_and_read, 0),
};

static const struct trial ways_out[] = {
	TRIAL(leave_at_once, EACCES),
	TRIAL(leave_at_exec, EACCES),
	TRIAL(stack_upon_it, EACCES),
};

/* ---- the place ---- */

/* Children do not come back to the framework. */
enum { NO_PLACE = 200, NO_PROFILE };

static void must(bool holds)
{
	if (!holds)
		_exit(NO_PLACE);
}

static void file_make(const char *path, const char *text)
{
	auto_close int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0755);

	must(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

/* In a mount namespace of this child's own. */
static void files_make(void)
{
	must(unshare(CLONE_NEWNS) == 0);
	must(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	must(mount("armor", place.folder, "tmpfs", 0, NULL) == 0 && chdir(place.folder) == 0);
	must(mkdir("kept", 0755) == 0 && mkdir("hidden", 0755) == 0 && mkdir("noexec", 0755) == 0 &&
	     mkdir("mounted", 0755) == 0);
	file_make("kept/file", "kept");
	file_make("hidden/answer", "42");
	file_make("own", "own");
	file_make("noexec/true", "#!/bin/true\n");
	file_make("a\"*{b} @{c}\n", "hostile");
}

static void rule_add(struct guard_rule rule, const char *path)
{
	char *text = place.paths[place.policy.rule_count % COUNT(place.paths)];

	if (path) {
		(void)snprintf(text, PATH_BYTES, "%s/%s", place.folder, path);
		rule.kind = GUARD_RULE_FILE;
		rule.text = text;
	}
	rule.label = "rule";
	place.rules[place.policy.rule_count++] = rule;
}

static void policy_make(void)
{
	static const uint32_t processes[] = { GUARD_PROCESS_PTRACE_OUTSIDE,
					      GUARD_PROCESS_SIGNAL_OUTSIDE, GUARD_PROCESS_MOUNT };

	place.policy = (struct guard_policy){ .number = 7, .rules = place.rules, .name = "armor" };
	rule_add((struct guard_rule){ .bits = PROTECT }, "kept");
	rule_add((struct guard_rule){ .bits = HIDE }, "hidden");
	rule_add((struct guard_rule){ .bits = NOEXEC }, "noexec");
	rule_add((struct guard_rule){ .bits = PROTECT }, "a\"*{b} @{c}\n");
	rule_add((struct guard_rule){ .kind = GUARD_RULE_FAMILY, .value = AF_INET6 }, NULL);
	rule_add((struct guard_rule){ .kind = GUARD_RULE_FAMILY, .value = AF_PACKET }, NULL);
	for (unsigned i = 0; i < COUNT(processes); i++)
		rule_add((struct guard_rule){ .kind = GUARD_RULE_PROCESS, .value = processes[i] },
			 NULL);
}

static void setup(void)
{
	const struct profile_scope scope = { .instance = place.tree.instance };
	char text[256];
	struct guard_why why = { .text = text, .bytes = sizeof text };
	int r;

	tree_make(&place.tree);
	r = guard_apparmor_open(&scope, &why, &place.apparmor);

	if (r == -EOPNOTSUPP) {
		tree_remove(&place.tree); /* a skip ends the test without teardown() */
		cr_skip_test("%.*s", (int)why.used, text);
	}
	cr_assert_eq(r, 0);
	(void)strcpy(place.folder, "/tmp/dsec-armor-XXXXXX");
	cr_assert(mkdtemp(place.folder));
	policy_make();
	place.victim = tree_fork(&place.tree, TREE_SLOT1, 0);
	if (place.victim == 0) {
		(void)signal(SIGUSR2, SIG_IGN); /* valid */
		for (;;)
			(void)pause();
	}
	cr_assert_eq(guard_apparmor_load(place.apparmor, &place.policy), 0);
	cr_assert_eq(guard_apparmor_name(place.apparmor, &place.policy, place.profile), 0);
}

static void teardown(void)
{
	(void)guard_apparmor_sweep(place.tree.instance); /* or the guest says so */
	guard_apparmor_close(place.apparmor);
	tree_remove(&place.tree); /* and the victim with it */
	(void)rmdir(place.folder);
}

TestSuite(apparmor, .init = setup, .fini = teardown, .timeout = 240);

struct attempt {
	const struct trial *trial;
	bool is_inside;
};

static int attempt_run(const void *with)
{
	const struct attempt *attempt = with;
	auto_close int group = openat(place.tree.fds[TREE_SLOT0], "cgroup.procs", O_WRONLY);

	files_make(); /* which a policy may forbid in there */
	if (attempt->is_inside &&
	    (write(group, "0", 1) != 1 || aa_change_profile(place.profile) < 0))
		return NO_PROFILE;
	return attempt->trial->run();
}

/* WHOEVER: of who is asked first. */
enum manner { INSIDE, OUTSIDE_TOO, WHOEVER };

static void expect_trials(const struct trial *of, unsigned count, enum manner manner)
{
	for (unsigned i = 0; i < count; i++) {
		struct attempt attempt = { &of[i], true };
		int r = tree_run(&place.tree, TREE_STRANGER, attempt_run, &attempt);

		cr_expect(r == of[i].inside || (manner == WHOEVER && of[i].inside &&
						(r == EPERM || r == ENOENT)),
			  "%s: %d", of[i].name, r);
		attempt.is_inside = false;
		r = manner == OUTSIDE_TOO ?
			    tree_run(&place.tree, TREE_STRANGER, attempt_run, &attempt) :
			    0;
		cr_expect_eq(r, 0, "%s, outside: %d", of[i].name, r);
	}
}

Test(apparmor, each_kind_of_rule_is_held_inside_and_nobody_outside_feels_it)
{
	expect_trials(trials, COUNT(trials), OUTSIDE_TOO);
}

Test(apparmor, nobody_inside_leaves_it)
{
	expect_trials(ways_out, COUNT(ways_out), INSIDE);
}

/* Where LSM programs have the same policy: behind it the same answers, before it theirs. */
Test(apparmor, it_holds_in_front_of_lsm_programs_and_behind_them)
{
	struct guard_options options = tree_options(&place.tree);
	struct guard_sandbox sandbox = { .sandbox = 1, .policy = 7 };
	const struct trial socket_trial = TRIAL(socket_refused, EACCES);
	const struct attempt attempt = { &socket_trial, true };
	struct guard *guard;
	struct stat st;
	char why[4096];

	cr_assert_eq(guard_open(&options, why, sizeof why, &guard), 0);
	if (!(guard_capabilities(guard) & GUARD_LSM)) {
		guard_close(guard);
		teardown(); /* as above */
		cr_skip_test("this kernel takes no LSM programs");
	}
	cr_expect(guard_capabilities(guard) & GUARD_APPARMOR, "%s", why);
	cr_assert_eq(guard_policy_load(guard, &place.policy), 0);
	cr_assert_eq(stat("/", &st), 0);
	sandbox.root_device = st.st_dev;
	cr_expect_eq(guard_network_set(guard, place.tree.ids[TREE_SLOT0], true), 0);
	cr_expect_eq(guard_sandbox_set(guard, place.tree.ids[TREE_SLOT0], &sandbox), 0);
	expect_trials(trials, COUNT(trials), apparmor_is_asked_first() ? INSIDE : WHOEVER);
	/* Who is first refuses; the other one is a level only where what it does is told. */
	cr_expect_eq(tree_run(&place.tree, TREE_STRANGER, attempt_run, &attempt),
		     apparmor_is_asked_first() ? EACCES : EPERM);
	cr_expect_eq(!(guard_rule_levels(guard, &place.policy, 0) & GUARD_LEVEL_APPARMOR),
		     apparmor_is_asked_first());
	cr_expect_eq(guard_policy_drop(guard, &place.policy), 0);
	guard_close(guard);
}

Test(apparmor, a_profile_goes_with_its_policy_and_with_the_last_of_its_instance)
{
	char too[48];
	const struct profile_scope other = { .instance = too };
	struct guard_why why = { 0 };
	struct guard_apparmor *second = NULL;
	char name[PROFILE_NAME_BYTES];

	(void)snprintf(too, sizeof too, "%.20s-too", place.tree.instance);
	cr_expect(apparmor_profiles(place.profile));
	cr_expect_eq(guard_apparmor_load(place.apparmor, &place.policy), 0);
	cr_expect_eq(guard_apparmor_drop(place.apparmor, &place.policy), 0);
	cr_expect(!apparmor_profiles(place.profile));
	cr_expect_eq(guard_apparmor_drop(place.apparmor, &place.policy), 0);

	cr_assert_eq(guard_apparmor_open(&other, &why, &second), 0);
	cr_assert_eq(guard_apparmor_load(second, &place.policy), 0);
	cr_assert_eq(guard_apparmor_name(second, &place.policy, name), 0);
	cr_assert_eq(guard_apparmor_load(place.apparmor, &place.policy), 0);
	cr_expect_eq(guard_sweep(place.tree.instance, -1), 0);
	cr_expect(!apparmor_profiles(place.profile) && apparmor_profiles(name));
	cr_expect_eq(guard_apparmor_sweep(too), 0);
	cr_expect(!apparmor_profiles(name));
	guard_apparmor_close(second);
}
