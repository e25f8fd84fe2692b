/*
 * The residue checker against an engine made of one process: what it must see is made by hand, with
 * no engine's account to believe.
 */
#include "loadgen/residue.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the fake engine is told, one byte each; it answers with one. */
enum order {
	ORDER_CHILD = 'c',     /* a child in the slot's cgroup */
	ORDER_KILL = 'k',      /* kill it, and do not wait for it */
	ORDER_REAP = 'r',      /* wait for it */
	ORDER_NAMESPACE = 'n', /* a child in namespaces of its own */
	ORDER_HOLD = 'h',      /* keep a descriptor of a new namespace */
	ORDER_DROP = 'd',      /* close it */
	ORDER_STRANGER = 's',  /* a child that runs another program */
	ORDER_MOUNT = 'm',     /* one more mount in the vault */
};

struct fake {
	char instance[64], cgroup[PATH_MAX], slot[PATH_MAX + 16], address[64];
	int orders; /* our end */
	pid_t engine;
	struct residue *residue;
};

static void cgroup_mount(char *ret)
{
	FILE *file = fopen("/proc/self/mountinfo", "re");
	char line[1024];

	ret[0] = '\0';
	while (file && fgets(line, sizeof(line), file)) {
		if (strstr(line, " - cgroup2 ") && sscanf(line, "%*s %*s %*s %*s %900s", ret) == 1)
			break;
	}
	cr_assert(file && ret[0], "no cgroup2");
	fclose(file);
}

static pid_t child_in(uint64_t flags, int cgroup_fd)
{
	struct clone_args args = { .flags = flags,
				   .exit_signal = SIGCHLD,
				   .cgroup = (uint64_t)cgroup_fd };
	pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));

	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return pid;
}

static int namespace_new(void)
{
	int fd = -1, mine = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);

	if (mine >= 0 && !unshare(CLONE_NEWUTS))
		fd = open("/proc/self/ns/uts", O_RDONLY | O_CLOEXEC);
	if (mine < 0 || setns(mine, CLONE_NEWUTS))
		_exit(9);
	close(mine);
	return fd;
}

/* A mount namespace held by descriptor, like an engine's vault, in which a mount is added. */
static int vault_mount(int *vault, int own)
{
	int r;

	if (*vault < 0) {
		if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
			return -1;
		*vault = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC);
		return setns(own, CLONE_NEWNS);
	}
	if (setns(*vault, CLONE_NEWNS))
		return -1;
	r = mount("none", "/mnt", "tmpfs", 0, "size=4k");
	return setns(own, CLONE_NEWNS) ? -1 : r;
}

static int order_obey(enum order order, int cgroup_fd, pid_t *child, int *held)
{
	switch (order) {
	case ORDER_CHILD:
		return *child = child_in(CLONE_INTO_CGROUP, cgroup_fd);
	case ORDER_KILL:
		return kill(*child, SIGKILL);
	case ORDER_REAP:
		return waitpid(*child, NULL, 0);
	case ORDER_NAMESPACE:
		return *child = child_in(CLONE_NEWIPC | CLONE_NEWPID, 0);
	case ORDER_HOLD:
		return *held = namespace_new();
	case ORDER_DROP:
		return close(*held);
	case ORDER_STRANGER:
		*child = fork();
		if (*child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			execl("/bin/sleep", "sleep", "60", NULL);
			_exit(9);
		}
		return *child;
	case ORDER_MOUNT:
		break;
	}
	return -1;
}

static void fake_serve(int orders, int cgroup_fd)
{
	int own = open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC), vault = -1, held = -1, r;
	pid_t child = -1;
	char order;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Ready only with a vault: what comes later counts as left behind. */
	if (vault_mount(&vault, own) || write(orders, "+", 1) != 1)
		_exit(8);
	while (read(orders, &order, 1) == 1) {
		if (order == ORDER_MOUNT)
			r = vault_mount(&vault, own);
		else
			r = order_obey((enum order)order, cgroup_fd, &child, &held);
		if (r < 0)
			_exit(7);
		if (write(orders, "+", 1) != 1)
			break;
	}
	_exit(0);
}

/* Listens itself, as a keeper does, so that the address leads to it. */
static void fake_start(struct fake *fake, int cgroup_fd)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX };
	int pair[2];
	char ready;

	cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	strcpy(name.sun_path, fake->address);
	fake->engine = fork();
	if (fake->engine == 0) {
		int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

		close(pair[0]);
		if (bind(listener, (struct sockaddr *)&name, sizeof(name)) || listen(listener, 8))
			_exit(9);
		fake_serve(pair[1], cgroup_fd);
	}
	close(pair[1]);
	fake->orders = pair[0];
	cr_assert_eq(read(fake->orders, &ready, 1), 1);
}

static void tell(struct fake *fake, enum order order)
{
	char byte = (char)order;

	cr_assert_eq(write(fake->orders, &byte, 1), 1);
	cr_assert_eq(read(fake->orders, &byte, 1), 1, "the fake engine failed at %c", order);
}

static struct fake fake_begin(void)
{
	struct fake fake = { 0 };
	char shard[PATH_MAX + 8];
	int cgroup_fd;

	snprintf(fake.instance, sizeof(fake.instance), "residue-test-%d", getpid());
	cgroup_mount(fake.cgroup);
	snprintf(fake.cgroup + strlen(fake.cgroup), 128, "/dsec-%s", fake.instance);
	snprintf(shard, sizeof(shard), "%s/s0", fake.cgroup);
	snprintf(fake.slot, sizeof(fake.slot), "%s/b7", shard);
	snprintf(fake.address, sizeof(fake.address), "/tmp/dsec-residue-test-%d.sock", getpid());
	cr_assert_eq(mkdir(fake.cgroup, 0755), 0);
	cr_assert_eq(mkdir(shard, 0755), 0);
	cr_assert_eq(mkdir(fake.slot, 0755), 0);
	cgroup_fd = open(fake.slot, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_geq(cgroup_fd, 0);
	fake_start(&fake, cgroup_fd);
	close(cgroup_fd);
	cr_assert_eq(residue_open(fake.address, fake.instance, &fake.residue), 0);
	return fake;
}

static void fake_end(struct fake *fake)
{
	char *slash;

	residue_close(fake->residue);
	close(fake->orders);
	cr_assert_eq(waitpid(fake->engine, NULL, 0), fake->engine);
	unlink(fake->address);
	/* Its children die with it; their cgroups empty a moment later. */
	for (int i = 0; i < 200 && rmdir(fake->slot) && errno == EBUSY; i++)
		usleep(10000);
	slash = strrchr(fake->slot, '/');
	*slash = '\0';
	cr_assert_eq(rmdir(fake->slot), 0);
	cr_assert_eq(rmdir(fake->cgroup), 0);
}

static struct residue_report look(struct fake *fake)
{
	struct residue_report report;

	cr_assert_eq(residue_look(fake->residue, &report), 0);
	return report;
}

Test(residue, idle_engine_has_none)
{
	struct fake fake = fake_begin();
	struct residue_report report = look(&fake);

	cr_assert_eq(residue_total(&report), 0, "%s", report.first);
	cr_assert_eq(report.slots, 1);
	cr_assert_eq(residue_alive(fake.residue), 0);
	fake_end(&fake);
}

Test(residue, process_in_a_slot_is_seen_until_it_is_gone)
{
	struct fake fake = fake_begin();
	struct residue_report report;

	tell(&fake, ORDER_CHILD);
	report = look(&fake);
	cr_assert_eq(report.processes, 1);
	cr_assert_eq(report.slots_populated, 1);
	cr_assert_eq(residue_alive(fake.residue), 1);
	tell(&fake, ORDER_KILL);
	tell(&fake, ORDER_REAP);
	report = look(&fake);
	cr_assert_eq(residue_total(&report), 0, "%s", report.first);
	fake_end(&fake);
}

Test(residue, unreaped_process_is_seen)
{
	struct fake fake = fake_begin();
	struct residue_report report;

	tell(&fake, ORDER_CHILD);
	tell(&fake, ORDER_KILL);
	for (int i = 0; i < 200 && residue_alive(fake.residue); i++)
		usleep(10000);
	report = look(&fake);
	cr_assert_eq(report.zombies, 1);
	cr_assert_eq(report.processes, 0);
	tell(&fake, ORDER_REAP);
	report = look(&fake);
	cr_assert_eq(residue_total(&report), 0, "%s", report.first);
	fake_end(&fake);
}

Test(residue, namespace_with_a_member_is_seen)
{
	struct fake fake = fake_begin();
	struct residue_report report;

	tell(&fake, ORDER_NAMESPACE);
	report = look(&fake);
	cr_assert_eq(report.namespaces, 2, "%u, first %s", (unsigned int)report.namespaces,
		     report.first);
	tell(&fake, ORDER_KILL);
	tell(&fake, ORDER_REAP);
	report = look(&fake);
	cr_assert_eq(residue_total(&report), 0, "%s", report.first);
	fake_end(&fake);
}

Test(residue, namespace_held_by_descriptor_is_seen)
{
	struct fake fake = fake_begin();
	struct residue_report report;

	tell(&fake, ORDER_HOLD);
	report = look(&fake);
	cr_assert_eq(report.namespaces, 1);
	tell(&fake, ORDER_DROP);
	report = look(&fake);
	cr_assert_eq(residue_total(&report), 0, "%s", report.first);
	fake_end(&fake);
}

Test(residue, another_program_below_the_keeper_is_seen)
{
	struct fake fake = fake_begin();
	struct residue_report report = { 0 };

	tell(&fake, ORDER_STRANGER);
	for (int i = 0; i < 200 && !report.processes; i++) {
		usleep(10000);
		report = look(&fake);
	}
	cr_assert_eq(report.processes, 1);
	tell(&fake, ORDER_KILL);
	tell(&fake, ORDER_REAP);
	report = look(&fake);
	cr_assert_eq(residue_total(&report), 0, "%s", report.first);
	fake_end(&fake);
}

Test(residue, mounts_in_the_vault_above_what_slots_keep_are_seen)
{
	struct fake fake = fake_begin();
	struct residue_report report;

	/* One slot's worth and the image's. */
	for (int i = 0; i < RESIDUE_SLOT_MOUNTS + 1; i++)
		tell(&fake, ORDER_MOUNT);
	report = look(&fake);
	cr_assert_eq(residue_total(&report), 0, "%s", report.first);
	tell(&fake, ORDER_MOUNT);
	report = look(&fake);
	cr_assert_eq(report.mounts, 1);
	fake_end(&fake);
}

Test(residue, mount_outside_is_seen)
{
	struct fake fake = fake_begin();
	struct residue_report report;

	/* In a copy of our mounts, so that nobody else sees it. */
	cr_assert_eq(unshare(CLONE_NEWNS), 0);
	cr_assert_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	residue_close(fake.residue);
	cr_assert_eq(residue_open(fake.address, fake.instance, &fake.residue), 0);
	cr_assert_eq(mount("none", "/mnt", "devpts", 0, "newinstance"), 0);
	report = look(&fake);
	cr_assert_eq(report.mounts, 1);
	cr_assert_eq(umount("/mnt"), 0);
	report = look(&fake);
	cr_assert_eq(residue_total(&report), 0, "%s", report.first);
	fake_end(&fake);
}

Test(residue, no_engine_is_an_error)
{
	struct residue *residue = NULL;

	cr_assert_eq(residue_open("/tmp/dsec-no-such.sock", "main", &residue), -ENOENT);
	cr_assert_eq(residue_open("private:", "main", &residue), -EOPNOTSUPP);
}
