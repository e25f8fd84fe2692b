/*
 * Attacks on a policy that leaves neither io_uring nor mounts. See attack.h.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bpf/policy.h"
#include "tests/hostile/policy/attack.h"

extern int mount(const char *, const char *, const char *, unsigned long, const void *);
extern int umount2(const char *, int);
enum { BIND = 4096, REMOUNT = 32, DETACH = 2 };

#define COUNT(array) (sizeof(array) / sizeof *(array))

static int any_ring(void)
{
	struct io_uring_sqe entry = { .opcode = IORING_OP_NOP };

	return ring_try(&entry, RING_INLINE);
}

static int a_polled_ring(void)
{
	struct io_uring_sqe entry = { .opcode = IORING_OP_NOP };

	return ring_try(&entry, RING_POLLED);
}

static int any_mount(void)
{
	return TRIED(mount("none", "home", "tmpfs", 0, NULL));
}

static int any_bind(void)
{
	return TRIED(mount("etc", "home", NULL, BIND, NULL));
}

static int any_change_of_a_mount(void)
{
	return TRIED(mount(NULL, "srv", NULL, REMOUNT | BIND, NULL));
}

static int any_unmount(void)
{
	return TRIED(umount2("srv", DETACH));
}

static int any_moved_tree(void)
{
	const int tree = (int)syscall(SYS_open_tree, AT_FDCWD, "etc", OPEN_TREE_CLONE);

	return TRIED(syscall(SYS_move_mount, tree, "", AT_FDCWD, "home", MOVE_MOUNT_F_EMPTY_PATH));
}

static int any_reconfigured_mount(void)
{
	const int context = (int)syscall(SYS_fspick, AT_FDCWD, "srv", 0);

	if (context < 0 || syscall(SYS_fsconfig, context, FSCONFIG_SET_FLAG, "rw", NULL, 0) < 0)
		return errno;
	return TRIED(syscall(SYS_fsconfig, context, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0));
}

/* No LSM hook is asked: the filter that every sandbox has is all that refuses it. */
static int any_attribute_of_a_mount(void)
{
	struct mount_attr attributes = { .attr_clr = MOUNT_ATTR_RDONLY };

	return TRIED(
		syscall(SYS_mount_setattr, AT_FDCWD, "srv", 0, &attributes, sizeof attributes));
}

static int another_root(void)
{
	return TRIED(syscall(SYS_pivot_root, "srv", "srv"));
}

static const struct attack attacks[] = {
	ATTACK(any_ring, EPERM, 0, ENOSYS, ENOSYS, IO_URING, IO_URING, NULL),
	ATTACK(a_polled_ring, EPERM, 0, ENOSYS, ENOSYS, IO_URING, IO_URING, NULL),
	ATTACK(any_mount, EPERM, 0, EPERM, EPERM, MOUNT_CALL, MOUNT, NULL),
	ATTACK(any_bind, EPERM, 0, EPERM, EPERM, MOUNT_CALL, MOUNT, NULL),
	ATTACK(any_change_of_a_mount, EPERM, 0, EPERM, EPERM, MOUNT_CALL, MOUNT, NULL),
	ATTACK(any_unmount, EPERM, 0, EPERM, EPERM, MOUNT_CALL, MOUNT, NULL),
	ATTACK(any_moved_tree, EPERM, 0, EPERM, EPERM, MOUNT_CALL, MOUNT, NULL),
	ATTACK(any_reconfigured_mount, EPERM, 0, EPERM, EPERM, MOUNT_CALL, MOUNT, NULL),
	QUIET(any_attribute_of_a_mount, 0, 0, EPERM, EPERM),
	ATTACK(another_root, EPERM, 0, EPERM, EPERM, MOUNT_CALL, MOUNT, NULL),
};

const struct attack_group closed_group = { "closed", attacks, COUNT(attacks) };
