/*
 * Probes of cgroup v2: where it is, what it controls, and what the launcher does with it. Called by
 * check.c, each in a process of its own, which may make one cgroup of a name no instance has.
 */
#include "engine/check/check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/keeper/cgroup_root.h"
#include "engine/check/child.h"
#include "engine/check/file.h"

/* Makes and opens the probe's cgroup; check.c removes it. */
static int cgroup_make(const struct check_context *context, char *ret_mount,
		       struct check_result *result)
{
	auto_close int mount_fd = -1;
	int r, fd;

	r = cgroup_mount_find(ret_mount);
	if (r < 0) {
		check_missing(result, "cgroup2 is not mounted for writing");
		return r;
	}
	mount_fd = open(ret_mount, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (mount_fd < 0 ||
	    (mkdirat(mount_fd, context->cgroup_name, 0755) < 0 && errno != EEXIST)) {
		r = -errno;
		check_missing(result, "mkdir in %.100s: %s", ret_mount, strerrordesc_np(-r));
		return r;
	}
	fd = openat(mount_fd, context->cgroup_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		check_failed(result, "opening a cgroup");
	return fd < 0 ? -EIO : fd;
}

static int control_write(int cgroup_fd, const char *name, const char *text)
{
	auto_close int fd = openat(cgroup_fd, name, O_WRONLY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

/* Does a line of a control file read so: 1, 0, -errno. */
static int control_has(int cgroup_fd, const char *name, const char *line)
{
	auto_close int fd = openat(cgroup_fd, name, O_RDONLY | O_CLOEXEC);
	char text[256] = "\n";
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, text + 1, sizeof(text) - 2);
	if (n < 0)
		return -errno;
	text[n + 1] = '\0';
	return strstr(text, line) != NULL;
}

static void cgroup_probe(const struct check_context *context, struct check_result *result)
{
	char mount[PATH_MAX];
	auto_close int fd = cgroup_make(context, mount, result);

	if (fd >= 0)
		check_ok(result, "writable at %.100s", mount);
}

static void controllers_probe(const struct check_context *context, struct check_result *result)
{
	static const char *const wanted[] = { "memory", "pids", "cpu" };
	char mount[PATH_MAX], path[PATH_MAX + 32], have[256] = " ", lacking[64] = "";
	size_t bytes = 0;

	(void)context;
	if (cgroup_mount_find(mount) < 0) {
		check_missing(result, "cgroup2 is not mounted for writing");
		return;
	}
	snprintf(path, sizeof(path), "%s/cgroup.controllers", mount);
	if (file_text(path, have + 1, sizeof(have) - 2) < 0) {
		check_missing(result, "%.100s cannot be read", path);
		return;
	}
	strcat(have, " ");
	for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
		char word[16];

		snprintf(word, sizeof(word), " %s ", wanted[i]);
		if (!strstr(have, word))
			bytes += (size_t)snprintf(lacking + bytes, sizeof(lacking) - bytes, " %s",
						  wanted[i]);
	}
	if (bytes)
		check_degraded(result, "not on v2 (bound to v1, or off):%s", lacking);
	else
		check_ok(result, "memory, pids and cpu");
}

static void into_probe(const struct check_context *context, struct check_result *result)
{
	char mount[PATH_MAX], line[32];
	auto_close int fd = cgroup_make(context, mount, result);
	int pid;

	if (fd < 0)
		return;
	pid = probe_child_start(0, fd);
	if (pid == 0) {
		pause();
		_exit(0);
	}
	if (pid < 0) {
		check_missing(result, "clone3: %s", strerrordesc_np(-pid));
		return;
	}
	snprintf(line, sizeof(line), "\n%d\n", pid);
	if (control_has(fd, "cgroup.procs", line) == 1)
		check_ok(result, "a child was born in a cgroup");
	else
		check_missing(result, "the child is not where it was to be born");
	probe_child_kill(pid);
}

static void kill_probe(const struct check_context *context, struct check_result *result)
{
	char mount[PATH_MAX];
	auto_close int fd = cgroup_make(context, mount, result);
	int pid, r;

	if (fd < 0)
		return;
	pid = probe_child_start(0, fd);
	if (pid == 0) {
		pause();
		_exit(0);
	}
	r = pid < 0 ? pid : control_write(fd, "cgroup.kill", "1");
	if (r < 0) {
		check_missing(result, "cgroup.kill: %s", strerrordesc_np(-r));
		probe_child_kill(pid);
	} else if (probe_child_end(pid) != -EINTR) {
		check_missing(result, "the child did not die");
	} else {
		check_ok(result, "everything in a cgroup died at once");
	}
}

static void freeze_probe(const struct check_context *context, struct check_result *result)
{
	char mount[PATH_MAX];
	auto_close int fd = cgroup_make(context, mount, result);
	int pid, r, frozen = 0;

	if (fd < 0)
		return;
	pid = probe_child_start(0, fd);
	if (pid == 0) {
		pause();
		_exit(0);
	}
	r = pid < 0 ? pid : control_write(fd, "cgroup.freeze", "1");
	/* It freezes when it next leaves the kernel; no longer than the probe's limit. */
	while (r >= 0 && frozen == 0)
		frozen = control_has(fd, "cgroup.events", "\nfrozen 1\n");
	if (r < 0 || frozen < 0)
		check_missing(result, "cgroup.freeze: %s", strerrordesc_np(r < 0 ? -r : -frozen));
	else
		check_ok(result, "a cgroup was frozen");
	(void)control_write(fd, "cgroup.freeze", "0"); /* SIGKILL thaws too */
	probe_child_kill(pid);
}

const struct check_probe check_cgroup_probes[] = {
	{ "cgroup2", true, 0, cgroup_probe, "no sandbox can be kept together or killed",
	  "mount -t cgroup2 none /sys/fs/cgroup; do not run inside a container" },
	{ "controllers", false, 0, controllers_probe,
	  "limits of memory, processes or CPU are not enforced",
	  "boot with systemd.unified_cgroup_hierarchy=1 or cgroup_no_v1=all" },
	{ "clone-into-cgroup", true, 0, into_probe, "no sandbox can be created",
	  "use a stock kernel" },
	{ "cgroup-kill", true, 0, kill_probe, "commands cannot be ended with their descendants",
	  "use a stock kernel" },
	{ "cgroup-freeze", false, 0, freeze_probe, "sandboxes cannot be paused",
	  "use a stock kernel" },
	{ 0 },
};
