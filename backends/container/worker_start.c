/*
 * Brings a worker from execve to its first request. Called once by main(). The order matters: what
 * a child must not inherit goes before anything can make a child, and the filter comes last, since
 * it refuses what the steps before it do.
 */
#include "backends/container/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "backends/container/filter.h"
#include "backends/container/kernel.h"
#include "backends/container/root.h"
#include "backends/container/spawn.h"
#include "engine/base/cleanup.h"

enum {
	KEYRING_JOIN = 1, /* KEYCTL_JOIN_SESSION_KEYRING */
	FILES_SOFT = 1024,
	FILES_HARD_MAX = 65536,
};

static void must(long r, const char *what)
{
	if (r < 0)
		worker_die(what, r);
}

static void parent_follow(pid_t engine)
{
	must(kernel_prctl(PR_SET_PDEATHSIG, SIGKILL), "cannot follow the engine");
	if (getppid() != engine)
		worker_die("the engine is gone", -ESRCH);
	(void)setsid(); /* fails where it leads a session already */
}

static void signals_reset(void)
{
	const struct sigaction standard = { .sa_handler = SIG_DFL };
	sigset_t none;

	for (int i = 1; i <= SIGRTMAX; i++)
		(void)sigaction(i, &standard, NULL); /* fails for SIGKILL, SIGSTOP and libc's own */
	sigemptyset(&none);
	must(sigprocmask(SIG_SETMASK, &none, NULL) < 0 ? -errno : 0, "cannot unblock signals");
}

/* 0 and 1 are /dev/null, 2 stays the engine's log, the rest is launch.h's; none outlives exec. */
static void descriptors_settle(void)
{
	auto_close int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);

	must(null_fd < 0 ? -errno : 0, "cannot open /dev/null");
	must(kernel_dup3(null_fd, 0, 0), "cannot settle descriptors");
	must(kernel_dup3(null_fd, 1, 0), "cannot settle descriptors");
	must(kernel_close_range(LAUNCH_FD_COUNT, ~0u, 0), "cannot settle descriptors");
	(void)take_fd(&null_fd); /* closed with the rest */
	for (int fd = 0; fd < LAUNCH_FD_COUNT; fd++)
		must(fcntl(fd, F_SETFD, fd < 3 ? 0 : FD_CLOEXEC) < 0 ? -errno : 0,
		     "a descriptor is missing");
}

static void limits_set(void)
{
	/* Not 0: with that a program that the host pipes cores to is started all the same. */
	const struct rlimit none = { WORKER_CORE_NONE, WORKER_CORE_NONE };
	struct rlimit files, cores;

	/* Who started the engine without cores and without the right to raise them has 0. */
	if (getrlimit(RLIMIT_CORE, &cores) == 0 && cores.rlim_max >= WORKER_CORE_NONE)
		must(setrlimit(RLIMIT_CORE, &none) < 0 ? -errno : 0, "cannot forbid core files");
	must(getrlimit(RLIMIT_NOFILE, &files) < 0 ? -errno : 0, "cannot limit files");
	if (files.rlim_max > FILES_HARD_MAX)
		files.rlim_max = FILES_HARD_MAX;
	files.rlim_cur = files.rlim_max < FILES_SOFT ? files.rlim_max : FILES_SOFT;
	must(setrlimit(RLIMIT_NOFILE, &files) < 0 ? -errno : 0, "cannot limit files");
}

/* Out of memory, sandboxes go before anything of the host's. */
static void memory_offer(void)
{
	static const char score[] = "500";
	long fd = kernel_openat(LAUNCH_FD_PROC, "self/oom_score_adj", O_WRONLY | O_CLOEXEC, 0);

	must(fd, "cannot open oom_score_adj");
	must(kernel_write((int)fd, score, sizeof score - 1), "cannot write oom_score_adj");
	(void)kernel_close((int)fd); /* written */
}

/* What of proc is covered, where this kernel has it: the node's memory, keys, timers, hardware. */
static void masks_find(struct worker *w)
{
	static const char *const names[] = {
		"acpi", "asound",      "kcore",		"keys",	      "key-users",
		"scsi", "sched_debug", "latency_stats", "timer_list", "timer_stats",
	};
	_Static_assert(sizeof names / sizeof *names <= WORKER_MASKS_MAX, "more masks than places");

	for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
		struct proc_mask *mask = &w->masks[w->mask_count];
		struct stat found;
		long r = kernel_fstatat(LAUNCH_FD_PROC, names[i], &found, AT_SYMLINK_NOFOLLOW);

		if (r == -ENOENT)
			continue;
		must(r, "cannot look into proc");
		mask->name = names[i];
		mask->cover = S_ISDIR(found.st_mode) ? "/" ROOT_FOLDER : "/" ROOT_FILE;
		must(kernel_fstatat(AT_FDCWD, mask->cover, &found, 0), "a cover is missing");
		mask->device = found.st_dev;
		mask->inode = found.st_ino;
		w->mask_count++;
	}
}

static int namespace_open(const char *path)
{
	long fd = kernel_openat(LAUNCH_FD_PROC, path, O_RDONLY | O_CLOEXEC, 0);

	must(fd, "cannot open a namespace of its own");
	return (int)fd;
}

static void namespaces_enter(struct worker *w, const char *resolver)
{
	char text[64];
	const struct root_options root = {
		.mode = "0555",
		.attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
			      MOUNT_ATTR_NOEXEC,
		.covers = true,
		.resolver = text,
	};

	(void)snprintf(text, sizeof text, "nameserver %.32s\n", resolver);
	must(kernel_setns(LAUNCH_FD_NETWORK, CLONE_NEWNET, 0), "cannot enter the network");
	must(root_replace(&root, 0), "cannot make its root");
	w->own_mount_fd = namespace_open("self/ns/mnt");
	w->own_pid_fd = namespace_open("self/ns/pid");
	w->own_ipc_fd = namespace_open("self/ns/ipc");
}

/* Nobody moves a worker before its first reply. */
static void cpus_find(struct worker *w)
{
	long r = KERNEL_CALL(SYS_sched_getaffinity, 0, sizeof w->cpus, (long)w->cpus);

	w->cpus_bytes = r < 0 ? 0 : (uint32_t)r;
}

void worker_start(struct worker *w, int shard, pid_t engine, const char *resolver)
{
	char name[16];
	int r;

	parent_follow(engine);
	(void)snprintf(name, sizeof name, "dsec-launch-%d", shard);
	(void)kernel_prctl(PR_SET_NAME, (unsigned long)name); /* only for ps */
	must(setgroups(0, NULL) < 0 ? -errno : 0, "cannot leave its groups");
	must(KERNEL_CALL(SYS_keyctl, KEYRING_JOIN), "cannot leave the session's keyring");
	signals_reset();
	descriptors_settle();
	limits_set();
	memory_offer();
	cpus_find(w);
	(void)umask(022);
	namespaces_enter(w, resolver);
	masks_find(w);
	must(stacks_open(w), "cannot map stacks");
	if (getrandom(&w->secret, sizeof w->secret, 0) != sizeof w->secret)
		worker_die("no randomness", -EIO);
	r = filter_install(w->secret);
	must(r, "cannot install the filter");
}
