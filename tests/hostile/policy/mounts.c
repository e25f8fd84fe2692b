/*
 * Attacks by mounts: over what is protected, of it elsewhere, and away what hides. A process of a
 * sandbox has no right to mount at all; here root on the machine itself is held by the LSM programs
 * alone. See attack.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bpf/policy.h"
#include "tests/hostile/policy/attack.h"

/* Of <sys/mount.h>, which does not go with <linux/mount.h> in Debian 12. */
extern int mount(const char *, const char *, const char *, unsigned long, const void *);
extern int umount2(const char *, int);
enum { BIND = 4096, REBIND = 4096 | 32, DETACH = 2 };

#define COUNT(array) (sizeof(array) / sizeof *(array))

static int bind_over_a_file(void)
{
	(void)close(open("home/own", O_CREAT | O_WRONLY, 0755));
	return TRIED(mount("home/own", "bin/busybox", NULL, BIND, NULL));
}

static int mount_over_a_folder(void)
{
	return TRIED(mount("none", "bin", "tmpfs", 0, NULL));
}

static int mount_over_an_ancestor(void)
{
	return TRIED(mount("none", "usr", "tmpfs", 0, NULL));
}

static int change_the_flags_there(void)
{
	return TRIED(mount(NULL, "srv", NULL, REBIND, NULL));
}

static int write_by_a_bind_elsewhere(void)
{
	(void)mkdir("home/alias", 0755);
	if (mount("bin", "home/alias", NULL, BIND, NULL) < 0)
		return errno;
	return TRIED(open("home/alias/busybox", O_WRONLY));
}

static int read_hidden_by_a_bind_elsewhere(void)
{
	(void)mkdir("home/alias", 0755);
	if (mount("usr", "home/alias", NULL, BIND, NULL) < 0)
		return errno;
	return TRIED(open("home/alias/bin/answer", O_RDONLY));
}

static int move_a_tree_over_it(void)
{
	const int tree = (int)syscall(SYS_open_tree, AT_FDCWD, "home", OPEN_TREE_CLONE);

	return TRIED(syscall(SYS_move_mount, tree, "", AT_FDCWD, "bin", MOVE_MOUNT_F_EMPTY_PATH));
}

static int move_a_new_mount_over_it(void)
{
	const int context = (int)syscall(SYS_fsopen, "tmpfs", 0);
	int tree;

	if (context < 0 || syscall(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return errno;
	tree = (int)syscall(SYS_fsmount, context, 0, 0);
	return TRIED(syscall(SYS_move_mount, tree, "", AT_FDCWD, "bin", MOVE_MOUNT_F_EMPTY_PATH));
}

static int write_in_a_detached_tree(void)
{
	const int tree = (int)syscall(SYS_open_tree, AT_FDCWD, "bin", OPEN_TREE_CLONE);

	return tree < 0 ? errno : TRIED(openat(tree, "busybox", O_WRONLY));
}

static int take_the_mask_off(void)
{
	return TRIED(umount2("srv", DETACH));
}

static int move_the_mask_away(void)
{
	(void)mkdir("home/mask", 0755);
	return TRIED(syscall(SYS_move_mount, AT_FDCWD, "srv", AT_FDCWD, "home/mask", 0));
}

/* No LSM hook is asked: the filter that every sandbox has is all that refuses it. */
static int clear_an_attribute(void)
{
	struct mount_attr attributes = { .attr_clr = MOUNT_ATTR_RDONLY };

	return TRIED(
		syscall(SYS_mount_setattr, AT_FDCWD, "srv", 0, &attributes, sizeof attributes));
}

/* An overlay over the overlay: what it opens is opened below. */
static int nested_overlay(const char *options)
{
	if (mkdir("home/nested", 0755) < 0 || mkdir("home/store", 0755) < 0 ||
	    mount("none", "home/store", "tmpfs", 0, NULL) < 0 || mkdir("home/store/up", 0755) < 0 ||
	    mkdir("home/store/work", 0755) < 0)
		return errno;
	return TRIED(mount("overlay", "home/nested", "overlay", 0, options));
}

static int read_hidden_by_a_nested_overlay(void)
{
	const int r = nested_overlay("lowerdir=usr/bin,upperdir=home/store/up,"
				     "workdir=home/store/work");

	return r ? r : TRIED(open("home/nested/answer", O_RDONLY));
}

static int copy_hidden_up_by_a_nested_overlay(void)
{
	const int r = nested_overlay("lowerdir=usr/bin,upperdir=home/store/up,"
				     "workdir=home/store/work");

	return r ? r : TRIED(open("home/nested/answer", O_RDWR));
}

/* The kernel takes no overlay for an upper. */
static int write_by_an_overlays_upper(void)
{
	return nested_overlay("lowerdir=home/store/up,upperdir=bin,workdir=home");
}

static int write_from_another_root(void)
{
	if (chroot("bin") < 0)
		return errno;
	return TRIED(open("/busybox", O_WRONLY));
}

static const struct attack attacks[] = {
	ATTACK(bind_over_a_file, EPERM, 0, EPERM, EPERM, MOUNT, BIN, KEPT),
	ATTACK(mount_over_a_folder, EPERM, 0, EPERM, EPERM, MOUNT, BIN, "bin"),
	ATTACK(mount_over_an_ancestor, EPERM, 0, EPERM, EPERM, MOUNT, HIDDEN, "usr"),
	ATTACK(change_the_flags_there, ENOENT, 0, EPERM, EPERM, MOUNT, SRV, "srv"),
	ATTACK(write_by_a_bind_elsewhere, EPERM, 0, EPERM, EPERM, OPEN, BIN, KEPT),
	ATTACK(read_hidden_by_a_bind_elsewhere, ENOENT, 0, EPERM, EPERM, OPEN, HIDDEN, ANSWER),
	ATTACK(move_a_tree_over_it, EPERM, 0, EPERM, EPERM, MOUNT, BIN, "bin"),
	ATTACK(move_a_new_mount_over_it, EPERM, 0, EPERM, EPERM, MOUNT, BIN, "bin"),
	ATTACK(write_in_a_detached_tree, EPERM, 0, EPERM, EPERM, OPEN, BIN, KEPT),
	ATTACK(take_the_mask_off, ENOENT, 0, EPERM, EPERM, MOUNT, SRV, "srv"),
	ATTACK(move_the_mask_away, ENOENT, 0, EPERM, EPERM, MOUNT, SRV, "srv"),
	QUIET(clear_an_attribute, 0, 0, EPERM, EPERM),
	ATTACK(read_hidden_by_a_nested_overlay, ENOENT, 0, EPERM, EPERM, STAT, HIDDEN, ANSWER),
	ATTACK(copy_hidden_up_by_a_nested_overlay, ENOENT, 0, EPERM, EPERM, STAT, HIDDEN, ANSWER),
	QUIET(write_by_an_overlays_upper, EINVAL, EINVAL, EPERM, EPERM),
	ATTACK(write_from_another_root, EPERM, 0, EROFS, 0, OPEN, BIN, KEPT),
};

const struct attack_group mounts_group = { "mounts", attacks, COUNT(attacks) };
