/* The machine's own account, on trees that look like the cgroup tree. */
#include <criterion/criterion.h>
#include <dsec/dsec.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "sdk/cli/residue.h"

static char root[64]; /* of this test's tree: each test is a process of its own */

static void folder_make(const char *path, const char *processes)
{
	char whole[PATH_MAX];
	FILE *file;

	(void)snprintf(whole, sizeof(whole), "%s/%s", root, path);
	cr_assert_eq(mkdir(whole, 0755), 0);
	(void)snprintf(whole, sizeof(whole), "%s/%s/cgroup.procs", root, path);
	file = fopen(whole, "w");
	cr_assert_not_null(file);
	cr_assert_geq(fputs(processes, file), 0);
	cr_assert_eq(fclose(file), 0);
}

static void slot_sign(const char *path, struct dsec_id id)
{
	char whole[PATH_MAX], text[33];

	(void)snprintf(whole, sizeof(whole), "%s/%s", root, path);
	(void)snprintf(text, sizeof(text), "%016llx%016llx", (unsigned long long)id.hi,
		       (unsigned long long)id.lo);
	cr_assert_eq(setxattr(whole, "trusted.dsec.sandbox", text, 32, 0), 0, "%s",
		     strerror(errno));
}

static int entry_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void tree_remove(void)
{
	(void)nftw(root, entry_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* Two slots with sandboxes, one free, one leaf. */
static void tree_make(void)
{
	if (geteuid() != 0)
		cr_skip_test("needs root: attributes that only root may set");
	/* Not every file system takes such attributes; memory's does. */
	strcpy(root, "/dev/shm/dsec-residue-XXXXXX");
	cr_assert_not_null(mkdtemp(root));
	folder_make("dsec-main", "");
	folder_make("dsec-main/0", "");
	folder_make("dsec-main/0/b7", "101\n");
	folder_make("dsec-main/0/b7/e0", "102\n103\n");
	folder_make("dsec-main/0/b8", "");
	folder_make("dsec-main/1", "");
	folder_make("dsec-main/1/b9", "104\n");
	slot_sign("dsec-main/0/b7", (struct dsec_id){ 1, 7 });
	slot_sign("dsec-main/0/b8", (struct dsec_id){ 1, 8 });
	slot_sign("dsec-main/1/b9", (struct dsec_id){ UINT64_MAX, 9 });
}

static struct residue look(bool running, const struct dsec_id *ids, size_t count)
{
	struct residue_live live = { ids, count };
	struct residue residue = { 0 };

	cr_assert_eq(residue_read_cgroups(root, "main", running, &live, &residue), 0);
	return residue;
}

Test(cli_residue, processes_of_live_sandboxes_are_accounted_for, .init = tree_make,
     .fini = tree_remove)
{
	struct dsec_id ids[] = { { UINT64_MAX, 9 }, { 5, 5 }, { 1, 7 } };
	struct residue residue = look(true, ids, 3);

	cr_assert_eq(residue.sandboxes, 2);
	cr_assert_eq(residue.processes, 4);
	cr_assert_eq(residue.slots, 3);
	cr_assert_eq(residue_left(&residue), 0, "%s", residue.first);
}

Test(cli_residue, processes_of_a_sandbox_that_is_no_more_are_left_over, .init = tree_make,
     .fini = tree_remove)
{
	struct dsec_id ids[] = { { UINT64_MAX, 9 } };
	struct residue residue = look(true, ids, 1);

	cr_assert_eq(residue.sandboxes, 1);
	cr_assert_eq(residue.left_processes, 3);
	cr_assert_eq(residue.left_cgroups, 0, "slots stay");
	cr_assert_not_null(strstr(residue.first, "process 101 in "));
	cr_assert_not_null(strstr(residue.first, "dsec-main/0/b7"));
}

Test(cli_residue, processes_outside_every_slot_are_left_over, .init = tree_make,
     .fini = tree_remove)
{
	struct dsec_id ids[] = { { UINT64_MAX, 9 }, { 1, 7 } };
	struct residue residue;

	folder_make("dsec-main/2", "105\n");
	residue = look(true, ids, 2);
	cr_assert_eq(residue.left_processes, 1);
	cr_assert_eq(residue.sandboxes, 2);
}

Test(cli_residue, without_an_engine_all_of_it_is_left_over, .init = tree_make, .fini = tree_remove)
{
	struct dsec_id ids[] = { { 1, 7 } };
	struct residue residue = look(false, ids, 1);

	cr_assert_eq(residue.left_processes, 4);
	cr_assert_eq(residue.left_cgroups, 7);
	cr_assert_eq(residue.sandboxes, 0);
	cr_assert_eq(residue_left(&residue), 11);
}

/* A process in namespaces of its own, two of them, until `lifeline` is closed. */
static pid_t apart_start(int *ret_lifeline)
{
	int ready[2], lifeline[2];
	char byte;
	pid_t pid;

	cr_assert_eq(pipe2(ready, O_CLOEXEC), 0);
	cr_assert_eq(pipe2(lifeline, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		(void)close(lifeline[1]);
		if (unshare(CLONE_NEWUTS | CLONE_NEWIPC) < 0 || write(ready[1], "1", 1) != 1)
			_exit(1);
		_exit(read(lifeline[0], &byte, 1) == 0 ? 0 : 1);
	}
	(void)close(ready[1]);
	(void)close(lifeline[0]);
	cr_assert_eq(read(ready[0], &byte, 1), 1);
	*ret_lifeline = lifeline[1];
	return pid;
}

Test(cli_residue, namespaces_are_of_whoever_is_in_them_and_count_once, .init = tree_make,
     .fini = tree_remove)
{
	struct dsec_id ids[] = { { UINT64_MAX, 9 }, { 1, 7 } };
	char text[64] = "", path[64];
	struct residue residue;
	int lifeline;
	pid_t pid;

	pid = apart_start(&lifeline);
	(void)snprintf(text, sizeof(text), "%d\n%d\n", pid, getpid());
	folder_make("dsec-main/0/b7/e1", text);
	residue = look(true, ids, 2);
	cr_assert_eq(namespaces_count(&residue.namespaces, NULL), 2, "our own are nobody's");
	cr_assert_eq(namespaces_count(&residue.left_namespaces, &residue.namespaces), 0);
	residue_done(&residue);
	/* Where nobody accounts for it. */
	residue = look(true, ids, 1);
	cr_assert_eq(namespaces_count(&residue.namespaces, NULL), 0);
	(void)snprintf(path, sizeof(path), "/proc/%d/ns/uts", pid);
	cr_assert_gt(readlink(path, text, sizeof(text)), 0);
	namespaces_add_mount(&residue.left_namespaces, text); /* the same, kept by a mount */
	namespaces_add_mount(&residue.left_namespaces, "/");
	cr_assert_eq(namespaces_count(&residue.left_namespaces, &residue.namespaces), 2);
	namespaces_add_mount(&residue.left_namespaces, "net:[1]");
	cr_assert_eq(namespaces_count(&residue.left_namespaces, NULL), 3);
	residue_done(&residue);
	(void)close(lifeline);
	cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

static void name_note(void *state, const char *instance)
{
	strcat(state, instance);
	strcat(state, " ");
}

Test(cli_residue, instances_are_found_by_their_cgroups, .init = tree_make, .fini = tree_remove)
{
	struct residue_live none = { NULL, 0 };
	struct residue residue = { 0 };
	char names[256] = "";

	folder_make("other", "1\n");
	cr_assert_eq(residue_instances(root, name_note, names), 0);
	cr_assert_str_eq(names, "main ");
	cr_assert_eq(residue_read_cgroups(root, "absent", false, &none, &residue), -ENOENT);
}

Test(cli_residue, an_instance_runs_while_its_lock_is_held)
{
	char path[PATH_MAX], name[64];
	int fd;

	if (geteuid() != 0)
		cr_skip_test("needs root: locks lie below /run");
	(void)snprintf(name, sizeof(name), "residue-%d", getpid());
	cr_assert_eq(residue_instance_runs(name), 0, "there is no lock");
	(void)mkdir("/run/dsec", 0755); /* may be there */
	(void)snprintf(path, sizeof(path), "/run/dsec/%s", name);
	cr_assert_eq(mkdir(path, 0755), 0);
	(void)snprintf(path, sizeof(path), "/run/dsec/%s/lock", name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	cr_assert_geq(fd, 0);
	cr_assert_eq(residue_instance_runs(name), 0, "nobody holds it");
	cr_assert_eq(flock(fd, LOCK_EX), 0);
	cr_assert_eq(residue_instance_runs(name), 1);
	(void)close(fd);
	(void)unlink(path);
	*strrchr(path, '/') = '\0';
	(void)rmdir(path);
}

Test(cli_residue, the_cgroup_mount_of_this_machine_is_found)
{
	char path[PATH_MAX], file[PATH_MAX + 32];
	int r = residue_mount_find(path);

	if (r == -ENOENT)
		cr_skip_test("no cgroup2 is mounted here");
	cr_assert_eq(r, 0);
	(void)snprintf(file, sizeof(file), "%s/cgroup.procs", path);
	cr_assert_eq(access(file, F_OK), 0, "%s", file);
}

/* In a mount namespace of this test's own. */
Test(cli_residue, a_mount_below_an_instance_that_nobody_runs_is_left_over)
{
	struct residue residue = { 0 };
	char path[PATH_MAX], name[64];

	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0)
		cr_skip_test("needs a mount namespace");
	cr_assert_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	(void)snprintf(name, sizeof(name), "residue-%d", getpid());
	(void)mkdir("/run/dsec", 0755); /* may be there */
	(void)snprintf(path, sizeof(path), "/run/dsec/%s", name);
	cr_assert_eq(mkdir(path, 0755), 0);
	cr_assert_eq(residue_read_mounts(name, &residue), 0);
	cr_assert_eq(residue.left_mounts, 0);
	cr_assert_eq(mount("none", path, "tmpfs", 0, NULL), 0);
	cr_assert_eq(residue_read_mounts(name, &residue), 0);
	cr_assert_eq(residue.left_mounts, 1);
	cr_assert_not_null(strstr(residue.first, path));
	cr_assert_eq(residue_read_mounts("another", &residue), 0);
	cr_assert_eq(residue.left_mounts, 1);
	cr_assert_eq(umount(path), 0);
	(void)rmdir(path);
}
