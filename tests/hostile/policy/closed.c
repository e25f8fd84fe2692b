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

static int another_root(void)
{
	return TRIED(syscall(SYS_pivot_root, "srv", "srv"));
}

static const struct attack attacks[] = {
	ATTACK(any_ring, EPERM, 0, ENOSYS, ENOSYS, POLICY_HOOK_IO_URING),
	ATTACK(a_polled_ring, EPERM, 0, ENOSYS, ENOSYS, POLICY_HOOK_IO_URING),
	ATTACK(any_mount, EPERM, 0, EPERM, EPERM, POLICY_HOOK_MOUNT),
	ATTACK(any_bind, EPERM, 0, EPERM, EPERM, POLICY_HOOK_MOUNT),
	ATTACK(any_change_of_a_mount, EPERM, 0, EPERM, EPERM, POLICY_HOOK_MOUNT),
	ATTACK(any_unmount, EPERM, 0, EPERM, EPERM, POLICY_HOOK_MOUNT),
	ATTACK(any_moved_tree, EPERM, 0, EPERM, EPERM, POLICY_HOOK_MOUNT),
	ATTACK(another_root, EPERM, 0, EPERM, EPERM, POLICY_HOOK_MOUNT),
};

const struct attack_group closed_group = { "closed", attacks, COUNT(attacks) };
