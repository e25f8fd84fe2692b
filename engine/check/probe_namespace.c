/*
 * Probes of namespaces: each kind, user namespaces as slots use them, and namespaces kept by a bind
 * mount. Called by check.c, each in a process of its own.
 */
#include "engine/check/check.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/check/child.h"
#include "engine/check/file.h"
#include "engine/check/userns.h"

static void namespaces_probe(const struct check_context *context, struct check_result *result)
{
	static const struct {
		uint64_t flag;
		const char *name;
	} kinds[] = {
		{ CLONE_NEWNS, "mnt" },	 { CLONE_NEWPID, "pid" }, { CLONE_NEWIPC, "ipc" },
		{ CLONE_NEWUTS, "uts" }, { CLONE_NEWNET, "net" }, { CLONE_NEWCGROUP, "cgroup" },
	};

	(void)context;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		int pid = probe_child_start(kinds[i].flag, -1);

		if (pid == 0)
			_exit(0);
		if (pid < 0) {
			check_missing(result, "%s: %s", kinds[i].name, strerrordesc_np(-pid));
			return;
		}
		(void)probe_child_end(pid); /* it did nothing */
	}
	check_ok(result, "mnt, pid, ipc, uts, net and cgroup");
}

static void userns_probe(const struct check_context *context, struct check_result *result)
{
	const char *step;
	struct userns ns;
	int r;

	(void)context;
	r = userns_start(&ns, NULL, &step);
	if (r == 0) {
		step = "becoming root inside";
		r = userns_end(&ns);
	}
	if (r == 0)
		check_ok(result, "65536 uids mapped");
	else
		check_missing(result, "%s: %s", step, strerrordesc_np(r < 0 ? -r : r));
}

/*
 * Inside the new namespace: the file is its own counter there, never the host's. 0, or what failed.
 */
static int nesting_forbid(void)
{
	int r = file_write("/proc/sys/user/max_user_namespaces", "0");

	if (r < 0)
		return -r;
	if (!unshare(CLONE_NEWUSER))
		return ENOTUNIQ;
	return errno == ENOSPC ? 0 : errno;
}

static void nesting_probe(const struct check_context *context, struct check_result *result)
{
	const char *step;
	struct userns ns;
	int r;

	(void)context;
	r = userns_start(&ns, nesting_forbid, &step);
	if (r == 0) {
		step = "max_user_namespaces inside";
		r = userns_end(&ns);
	}
	if (r == 0)
		check_ok(result, "0 in max_user_namespaces inside forbids nesting");
	else
		check_missing(result, "%s: %s", step, strerrordesc_np(r < 0 ? -r : r));
}

/* A child in a uts namespace that has a name by the time this returns its pid. */
static int uts_child(void)
{
	int ready[2], pid, r;

	if (pipe2(ready, O_CLOEXEC) < 0)
		return -errno;
	pid = probe_child_start(CLONE_NEWUTS | CLONE_NEWNS, -1);
	if (pid < 0)
		return pid;
	if (pid == 0) {
		if (sethostname("dsec-check", 10) < 0 || probe_child_tell(ready[1]) < 0)
			_exit(1);
		pause();
		_exit(0);
	}
	(void)close(ready[1]); /* the child's */
	r = probe_child_await(ready[0]);
	(void)close(ready[0]); /* was read */
	if (r == 0)
		return pid;
	probe_child_kill(pid);
	return r;
}

/* Binds a child's namespace to a file of ours, lets the child end, and enters it by the file. */
static int namespace_keep(int pid, const char **ret_step)
{
	auto_close int tree = -1, file = -1, kept = -1;
	char path[48], name[32] = "";

	snprintf(path, sizeof(path), "/proc/%d/ns/uts", pid);
	*ret_step = "open_tree of a namespace";
	tree = open_tree(AT_FDCWD, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	if (tree < 0)
		return -errno;
	*ret_step = "tmpfs";
	if (mount("dsec-check", "/tmp", "tmpfs", 0, NULL) < 0)
		return -errno;
	file = open("/tmp/ns", O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
	if (file < 0)
		return -errno;
	*ret_step = "move_mount of a namespace";
	if (move_mount(tree, "", AT_FDCWD, "/tmp/ns", MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return -errno;
	probe_child_kill(pid);
	*ret_step = "entering a kept namespace";
	kept = open("/tmp/ns", O_RDONLY | O_CLOEXEC);
	if (kept < 0 || setns(kept, CLONE_NEWUTS) < 0)
		return -errno;
	if (gethostname(name, sizeof(name)) < 0 || strcmp(name, "dsec-check") != 0)
		return -ESTALE;
	return 0;
}

static void nsfs_probe(const struct check_context *context, struct check_result *result)
{
	const char *step = "mount namespace";
	int pid, r;

	(void)context;
	/* Private before anything is mounted: nothing reaches the host. */
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		check_failed(result, step);
		return;
	}
	step = "uts namespace";
	pid = uts_child();
	r = pid < 0 ? pid : namespace_keep(pid, &step);
	if (r == 0)
		check_ok(result, "a namespace outlived its process in another mount namespace");
	else
		check_missing(result, "%s: %s", step, strerrordesc_np(-r));
}

const struct check_probe check_namespace_probes[] = {
	{ "namespaces", true, 0, namespaces_probe, "no sandbox can be created",
	  "use a stock kernel; raise user.max_*_namespaces" },
	{ "user-namespaces", true, 0, userns_probe, "no sandbox can be created",
	  "sysctl -w user.max_user_namespaces=65536 kernel.unprivileged_userns_clone=1 "
	  "kernel.apparmor_restrict_unprivileged_userns=0, whichever exist" },
	{ "userns-nesting", true, 0, nesting_probe,
	  "sandboxes could make user namespaces of their own, and mount in them",
	  "use a stock kernel" },
	{ "nsfs-bind", true, 0, nsfs_probe, "namespaces of slots cannot be kept",
	  "use a stock kernel" },
	{ 0 },
};
