/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What a policy says of files and ioctls, for all LSM hooks that a file can be reached by. Attached
 * once by guard_lsm.c.
 *
 * A file is known by its dentries up to the root of its file system, never by the text of a path:
 * binds, chroots, links in /proc, work of io_uring, an overlay over the overlay end at the same
 * ones. Only the file system of the sandbox's root has rules.
 *
 * Must hold: what cannot be decided (too deep, moved while it was looked at) is refused. No memory
 * is shared between tasks: programs may be preempted.
 */
#include "vmlinux.h"
#include <bpf/bpf_tracing.h>

#include "bpf/lsm.bpf.h"
#include "bpf/policy_path_hash.h"

char program_license[] SEC("license") = "Dual BSD/GPL";

/* As in guard_policy.h. */
enum {
	WRITE = 1,
	REPLACE = 2,
	METADATA = 4,
	EXECUTE = 8,
	HIDE = 16,
	SUBTREE = 32,
	CONNECT = POLICY_PATH_CONNECT,
	ANCESTOR = POLICY_PATH_ANCESTOR,
	/* What may not be taken out of its place. */
	HERE = WRITE | REPLACE | METADATA | EXECUTE | HIDE | CONNECT | ANCESTOR,
	BELOW = WRITE | REPLACE | METADATA | HIDE,
	UNDECIDED = 1 << 31,
};

enum {
	FMODE_WRITING = 2,
	OPENED_TO_WRITE = 03,
	OPENED_TO_EMPTY = 01000,    /* O_TRUNC */
	OPENED_TO_EXECUTE = 040,    /* __FMODE_EXEC, in f_flags */
	PROTECTION_EXECUTE = 4,	    /* PROT_EXEC */
	FMODE_OF_BACKING = 1 << 24, /* FMODE_BACKING, from Linux 6.12 on */
};

struct backing_file___user {
	struct path user_path;
} __attribute__((preserve_access_index));

extern void *bpf_rdonly_cast(const void *object, __u32 btf_id) __ksym __weak;

#define DENTRY(at)                                                                                 \
	((struct dentry *)bpf_rdonly_cast((void *)(at), bpf_core_type_id_kernel(struct dentry)))

struct walk {
	__u64 at;   /* the dentry */
	__u64 hash; /* of what is above the last one; then of all up to `at` */
	__u64 factor;
	__u32 policy;
	__u32 is_done;
	__u32 is_above; /* `at` is above the file */
	__u32 here, below;
};

static __always_inline __u64 dentry_hash(struct dentry *dentry)
{
	__u64 words[POLICY_HASHED_BYTES / 8] = {};
	__u32 length = dentry->d_name.len;
	__u32 bytes = length < POLICY_HASHED_BYTES ? length : POLICY_HASHED_BYTES;

	(void)bpf_probe_read_kernel(words, bytes, dentry->d_name.name);
	return policy_name_hash(words, length);
}

static long walk_add(__u32 index, void *context)
{
	struct walk *walk = context;
	struct dentry *dentry = DENTRY(walk->at);
	__u64 parent = (__u64)dentry->d_parent;

	if (parent == walk->at) {
		walk->is_done = 1;
		return 1;
	}
	walk->hash += dentry_hash(dentry) * walk->factor;
	walk->factor *= POLICY_HASH_FACTOR;
	walk->at = parent;
	return 0;
}

static long walk_look(__u32 index, void *context)
{
	struct walk *walk = context;
	struct dentry *dentry = DENTRY(walk->at);
	const struct policy_path_key key = { .policy = walk->policy, .hash = walk->hash };
	struct policy_path *path = bpf_map_lookup_elem(&paths, &key);
	__u64 parent = (__u64)dentry->d_parent;

	if (path && walk->is_above)
		walk->below |= path->bits_below;
	else if (path)
		walk->here |= path->bits;
	if (parent == walk->at) {
		walk->is_done = 1;
		return 1;
	}
	walk->is_above = 1;
	walk->hash = (walk->hash - dentry_hash(dentry)) * POLICY_HASH_INVERSE;
	walk->at = parent;
	return 0;
}

/* What is forbidden at the dentry: here and because of what is above. */
struct found {
	__u32 here, below;
};

static __noinline int dentry_find(__u64 at, __u32 policy, struct found *ret)
{
	struct walk walk = { .at = at, .policy = policy, .factor = 1 };

	if (!ret)
		return 0;
	(void)bpf_loop(POLICY_DEPTH_MAX, walk_add, &walk, 0);
	if (walk.is_done) {
		walk.hash += POLICY_HASH_SEED * walk.factor;
		walk.at = at;
		walk.is_done = 0;
		(void)bpf_loop(POLICY_DEPTH_MAX, walk_look, &walk, 0);
	}
	ret->here = walk.here;
	ret->below = walk.below;
	/* Too deep, or moved between the two walks. */
	if (!walk.is_done || walk.hash != POLICY_HASH_SEED)
		ret->here |= UNDECIDED;
	return 0;
}

/* 0, or what the call gets: `here` and `below` are what it must not meet there. */
static __always_inline int dentry_check(struct dentry *dentry, __u32 here, __u32 below)
{
	struct subject subject;
	struct found found = {};
	__u32 met;

	if (!subject_find(&subject))
		return 0;
	if (!subject.policy)
		return -ERROR_PERMISSION;
	if (!(subject.policy->content & POLICY_HAS_FILES))
		return 0;
	if (BPF_CORE_READ(dentry, d_sb, s_dev) != subject.sandbox->device)
		return 0;
	(void)dentry_find((__u64)dentry, subject.sandbox->policy, &found);
	if (found.here & UNDECIDED)
		return -ERROR_PERMISSION;
	met = (found.here & here) | (found.below & below);
	if (!met)
		return 0;
	if (met & HIDE)
		return -ERROR_NO_ENTRY;
	return met == EXECUTE ? -ERROR_ACCESS : -ERROR_PERMISSION;
}

static __always_inline int both(struct dentry *dentry, __u32 bits)
{
	return dentry_check(dentry, bits, bits);
}

SEC("lsm/file_open")
int BPF_PROG(dsec_file_open, struct file *file)
{
	__u32 bits = HIDE;

	/* The mode has neither bit for O_ACCMODE, and O_TRUNC would copy the file up first. */
	if (file->f_mode & FMODE_WRITING || file->f_flags & (OPENED_TO_WRITE | OPENED_TO_EMPTY))
		bits |= WRITE;
	if (file->f_flags & OPENED_TO_EXECUTE)
		bits |= EXECUTE;
	return both(file->f_path.dentry, bits);
}

SEC("lsm/file_truncate")
int BPF_PROG(dsec_file_trunc, struct file *file)
{
	return both(file->f_path.dentry, WRITE | HIDE);
}

SEC("lsm/mmap_file")
int BPF_PROG(dsec_mmap, struct file *file, unsigned long asked, unsigned long protection)
{
	if (!file || !((asked | protection) & PROTECTION_EXECUTE))
		return 0;
	return both(file->f_path.dentry, EXECUTE);
}

/* What an overlay maps is the file below; whose it is stands behind it. */
static __always_inline struct dentry *mapped_dentry(struct file *file)
{
	if (BPF_CORE_READ(file, f_mode) & FMODE_OF_BACKING)
		return BPF_CORE_READ((struct backing_file___user *)file, user_path.dentry);
	return BPF_CORE_READ(file, f_path.dentry);
}

SEC("lsm/file_mprotect")
int BPF_PROG(dsec_mprotect, struct vm_area_struct *area, unsigned long asked,
	     unsigned long protection)
{
	struct file *file = area->vm_file;

	if (!file || !((asked | protection) & PROTECTION_EXECUTE))
		return 0;
	return both(mapped_dentry(file), EXECUTE);
}

SEC("lsm/path_unlink")
int BPF_PROG(dsec_unlink, const struct path *folder, struct dentry *dentry)
{
	return both(dentry, WRITE | REPLACE | HIDE | ANCESTOR);
}

SEC("lsm/path_rmdir")
int BPF_PROG(dsec_rmdir, const struct path *folder, struct dentry *dentry)
{
	return both(dentry, WRITE | REPLACE | HIDE | ANCESTOR);
}

SEC("lsm/path_mkdir")
int BPF_PROG(dsec_mkdir, const struct path *folder, struct dentry *dentry)
{
	return both(dentry, WRITE | HIDE);
}

SEC("lsm/path_mknod")
int BPF_PROG(dsec_mknod, const struct path *folder, struct dentry *dentry)
{
	return both(dentry, WRITE | HIDE);
}

SEC("lsm/path_symlink")
int BPF_PROG(dsec_symlink, const struct path *folder, struct dentry *dentry)
{
	return both(dentry, WRITE | HIDE);
}

/* A second name would have none of the rules of the first. */
SEC("lsm/path_link")
int BPF_PROG(dsec_link, struct dentry *old, const struct path *folder, struct dentry *fresh)
{
	int r = dentry_check(old, HERE, BELOW);

	return r ? r : both(fresh, WRITE | REPLACE | HIDE);
}

/* In an exchange, both go away from their places. */
SEC("lsm/path_rename")
int BPF_PROG(dsec_rename, const struct path *old_folder, struct dentry *old,
	     const struct path *folder, struct dentry *fresh)
{
	int r = dentry_check(old, HERE, BELOW);

	return r ? r : dentry_check(fresh, HERE, BELOW);
}

SEC("lsm/path_truncate")
int BPF_PROG(dsec_truncate, const struct path *path)
{
	return both(path->dentry, WRITE | HIDE);
}

SEC("lsm/path_chmod")
int BPF_PROG(dsec_chmod, const struct path *path)
{
	return both(path->dentry, METADATA | HIDE);
}

SEC("lsm/path_chown")
int BPF_PROG(dsec_chown, const struct path *path)
{
	return both(path->dentry, METADATA | HIDE);
}

SEC("lsm/path_chroot")
int BPF_PROG(dsec_chroot, const struct path *path)
{
	return both(path->dentry, HIDE);
}

SEC("lsm/inode_setattr")
int BPF_PROG(dsec_setattr, struct mnt_idmap *map, struct dentry *dentry)
{
	return both(dentry, METADATA | HIDE);
}

SEC("lsm/inode_setxattr")
int BPF_PROG(dsec_setxattr, struct mnt_idmap *map, struct dentry *dentry)
{
	return both(dentry, METADATA | HIDE);
}

SEC("lsm/inode_removexattr")
int BPF_PROG(dsec_rmxattr, struct mnt_idmap *map, struct dentry *dentry)
{
	return both(dentry, METADATA | HIDE);
}

SEC("lsm/inode_set_acl")
int BPF_PROG(dsec_set_acl, struct mnt_idmap *map, struct dentry *dentry)
{
	return both(dentry, METADATA | HIDE);
}

SEC("lsm/inode_remove_acl")
int BPF_PROG(dsec_rm_acl, struct mnt_idmap *map, struct dentry *dentry)
{
	return both(dentry, METADATA | HIDE);
}

SEC("lsm/inode_file_setattr")
int BPF_PROG(dsec_fsetattr, struct dentry *dentry)
{
	return both(dentry, METADATA | HIDE);
}

SEC("lsm/inode_getattr")
int BPF_PROG(dsec_getattr, const struct path *path)
{
	return both(path->dentry, HIDE);
}

SEC("lsm/inode_readlink")
int BPF_PROG(dsec_readlink, struct dentry *dentry)
{
	return both(dentry, HIDE);
}

SEC("lsm/inode_getxattr")
int BPF_PROG(dsec_getxattr, struct dentry *dentry)
{
	return both(dentry, HIDE);
}

SEC("lsm/inode_listxattr")
int BPF_PROG(dsec_lsxattr, struct dentry *dentry)
{
	return both(dentry, HIDE);
}

/* Where the mount is on: a mask that is taken away shows what it hid. */
static __always_inline struct dentry *mount_point(const struct vfsmount *of)
{
	const __u64 offset = bpf_core_field_offset(struct mount, mnt);
	struct mount *mount = (struct mount *)((__u64)of - offset);

	return BPF_CORE_READ(mount, mnt_mountpoint);
}

/* Over the root of a mount, or a change of it: as over what it is on, of whatever file system. */
SEC("lsm/sb_mount")
int BPF_PROG(dsec_mount, const char *source, const struct path *path)
{
	struct vfsmount *of = path->mnt;
	int r = dentry_check(path->dentry, HERE, BELOW);

	if (r || path->dentry != BPF_CORE_READ(of, mnt_root))
		return r;
	return dentry_check(mount_point(of), HERE & ~ANCESTOR, BELOW);
}

SEC("lsm/sb_umount")
int BPF_PROG(dsec_umount, struct vfsmount *of)
{
	return dentry_check(mount_point(of), HERE & ~ANCESTOR, BELOW);
}

SEC("lsm/move_mount")
int BPF_PROG(dsec_move_mount, const struct path *from, const struct path *to)
{
	int r = dentry_check(mount_point(BPF_CORE_READ(from, mnt)), HERE & ~ANCESTOR, BELOW);

	return r ? r : dentry_check(to->dentry, HERE, BELOW);
}

/* By type and number: a 32-bit program's structures have other sizes. */
static __always_inline int ioctl_check(unsigned int command)
{
	struct policy_value_key key = { .value = command & 0xffff };
	const struct policy_refusal *refusal;
	struct subject subject;

	if (!subject_find(&subject))
		return 0;
	if (!subject.policy)
		return -ERROR_PERMISSION;
	if (!(subject.policy->content & POLICY_HAS_IOCTLS))
		return 0;
	key.policy = subject.sandbox->policy;
	refusal = bpf_map_lookup_elem(&ioctls, &key);
	return refusal && !refusal->is_audit ? -ERROR_PERMISSION : 0;
}

SEC("lsm/file_ioctl")
int BPF_PROG(dsec_ioctl, struct file *file, unsigned int command)
{
	return ioctl_check(command);
}

SEC("lsm/file_ioctl_compat")
int BPF_PROG(dsec_ioctl32, struct file *file, unsigned int command)
{
	return ioctl_check(command);
}

static __always_inline int unix_check(struct sock *other)
{
	struct unix_sock *peer = (struct unix_sock *)other;
	struct dentry *dentry = BPF_CORE_READ(peer, path.dentry);
	struct unix_address *address = BPF_CORE_READ(peer, addr);
	const __u32 before = bpf_core_field_offset(struct sockaddr_un, sun_path) + 1;
	__u64 words[POLICY_HASHED_BYTES / 8] = {};
	const struct policy_refusal *refusal;
	struct policy_name_key key = {};
	struct subject subject;
	__u32 length, bytes;

	if (dentry)
		return both(dentry, CONNECT | HIDE);
	if (!address || !subject_find(&subject))
		return 0;
	if (!subject.policy)
		return -ERROR_PERMISSION;
	length = (__u32)BPF_CORE_READ(address, len);
	if (!(subject.policy->content & POLICY_HAS_UNIX_NAMES) || length <= before)
		return 0;
	length -= before;
	bytes = length < POLICY_HASHED_BYTES ? length : POLICY_HASHED_BYTES;
	(void)bpf_probe_read_kernel(
		words, bytes,
		(void *)address + bpf_core_field_offset(struct unix_address, name) + before);
	key.policy = subject.sandbox->policy;
	key.hash = policy_name_hash(words, length);
	refusal = bpf_map_lookup_elem(&unix_names, &key);
	return refusal && !refusal->is_audit ? -ERROR_PERMISSION : 0;
}

SEC("lsm/unix_stream_connect")
int BPF_PROG(dsec_unix_strm, struct sock *socket, struct sock *other)
{
	return other ? unix_check(other) : 0;
}

SEC("lsm/unix_may_send")
int BPF_PROG(dsec_unix_dgrm, struct socket *socket, struct socket *other)
{
	struct sock *peer = other->sk;

	return peer ? unix_check(peer) : 0;
}
