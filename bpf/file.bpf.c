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
#include "bpf/creation.bpf.h"
#include "bpf/file_tell.bpf.h"
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
	MAGIC_OF_PROC = 0x9fa0,
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
	__u32 is_above;	   /* `at` is above the file */
	__u32 here, below; /* what is asked of the file, and of what is above it */
	__u32 met, met_rule, audited_rule;
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

	if (path) {
		const __u32 asked = walk->is_above ? walk->below : walk->here;
		const __u32 bits = walk->is_above ? path->bits_below : path->bits;
		const __u32 audited = walk->is_above ? path->audited_below : path->audited;

		if (bits & asked)
			walk->met_rule = path->rule;
		walk->met |= bits & asked;
		if (audited & asked)
			walk->audited_rule = path->rule;
	}
	if (parent == walk->at) {
		walk->is_done = 1;
		return 1;
	}
	walk->is_above = 1;
	walk->hash = (walk->hash - dentry_hash(dentry)) * POLICY_HASH_INVERSE;
	walk->at = parent;
	return 0;
}

/* What is asked of a dentry: bits here, and of what is above it. */
struct asked {
	__u32 here, below;
	__u32 hook;
	__u64 argument;
};

/* What was met of it. */
struct found {
	__u32 bits, rule, audited_rule;
};

static __noinline int dentry_find(__u64 at, __u32 policy, const struct asked *asked,
				  struct found *ret)
{
	struct walk walk = { .at = at, .policy = policy, .factor = 1 };

	if (!ret || !asked)
		return 0;
	walk.here = asked->here;
	walk.below = asked->below;
	(void)bpf_loop(POLICY_DEPTH_MAX, walk_add, &walk, 0);
	if (walk.is_done) {
		walk.hash += POLICY_HASH_SEED * walk.factor;
		walk.at = at;
		walk.is_done = 0;
		(void)bpf_loop(POLICY_DEPTH_MAX, walk_look, &walk, 0);
	}
	ret->bits = walk.met;
	ret->rule = walk.met_rule;
	ret->audited_rule = walk.audited_rule;
	/* Too deep, or moved between the two walks. */
	if (!walk.is_done || walk.hash != POLICY_HASH_SEED)
		ret->bits |= UNDECIDED;
	return 0;
}

static __always_inline int file_judge(const struct subject *subject, struct dentry *dentry,
				      const struct found *found, const struct asked *asked)
{
	struct verdict verdict = { found->rule, asked->hook, ERROR_PERMISSION, asked->argument };
	struct violation v;

	if (!found->bits) {
		verdict.rule = found->audited_rule;
		verdict.error = 0;
	} else if (found->bits & HIDE) {
		verdict.error = ERROR_NO_ENTRY;
	} else if (found->bits == EXECUTE) {
		verdict.error = ERROR_ACCESS;
		verdict.hook = POLICY_HOOK_EXECUTE;
	} else if (asked->hook == POLICY_HOOK_CREATE && is_bytecode(dentry)) {
		verdict.hook = POLICY_HOOK_BYTECODE;
	}
	v = violation_of(subject, &verdict);
	(void)file_tell(&v, (__u64)dentry, asked->argument); /* refused all the same */
	if (!found->bits)
		return 0;
	if (found->bits & HIDE)
		return -ERROR_NO_ENTRY;
	return found->bits == EXECUTE ? -ERROR_ACCESS : -ERROR_PERMISSION;
}

/* 0, or what the call gets. */
static __always_inline int dentry_check(struct dentry *dentry, const struct asked *asked)
{
	struct subject subject;
	struct found found = {};

	if (!subject_find(&subject))
		return 0;
	if (!subject.policy)
		return -ERROR_PERMISSION;
	if (!(subject.policy->content & POLICY_HAS_FILES))
		return 0;
	if (BPF_CORE_READ(dentry, d_sb, s_dev) != subject.sandbox->device)
		return 0;
	(void)dentry_find((__u64)dentry, subject.sandbox->policy, asked, &found);
	return found.bits || found.audited_rule ? file_judge(&subject, dentry, &found, asked) : 0;
}

static __always_inline int at_edge(struct dentry *dentry, __u32 here, __u32 below, __u32 hook)
{
	const struct asked asked = { here, below, hook, 0 };

	return dentry_check(dentry, &asked);
}

static __always_inline int both(struct dentry *dentry, __u32 bits, __u32 hook)
{
	return at_edge(dentry, bits, bits, hook);
}

/* Where the mount is on: a mask that is taken away shows what it hid. */
static __always_inline struct dentry *mount_point(const struct vfsmount *of)
{
	const __u64 offset = bpf_core_field_offset(struct mount, mnt);
	struct mount *mount = (struct mount *)((__u64)of - offset);

	return BPF_CORE_READ(mount, mnt_mountpoint);
}

/* The kernel's memory, which every sandbox has a cover over: nothing is refused, and it is told. */
static __always_inline void kernel_memory_tell(struct dentry *dentry, __u64 flags)
{
	static const char memory[] = "kcore";
	const struct verdict looked = { POLICY_RULE_PLATFORM, POLICY_HOOK_OPEN, 0, flags };
	char name[8] = {};
	struct subject subject;
	struct violation v;

	if (bpf_probe_read_kernel_str(name, sizeof(name), BPF_CORE_READ(dentry, d_name.name)) < 0 ||
	    bpf_strncmp(name, sizeof(memory), memory) || !subject_find(&subject))
		return;
	v = violation_of(&subject, &looked);
	(void)file_tell(&v, (__u64)dentry, flags);
}

/* A cover over what is hidden shows nothing; who opens it has looked for that all the same. */
static __always_inline int cover_check(const struct path *path, __u64 flags)
{
	const struct asked asked = { HIDE, HIDE, POLICY_HOOK_OPEN, flags };
	struct vfsmount *of = path->mnt;
	struct dentry *under;

	if (path->dentry != of->mnt_root)
		return 0;
	under = mount_point(of);
	if (BPF_CORE_READ(under, d_sb, s_magic) == MAGIC_OF_PROC) {
		kernel_memory_tell(under, flags);
		return 0;
	}
	return dentry_check(under, &asked);
}

SEC("lsm/file_open")
int BPF_PROG(dsec_file_open, struct file *file)
{
	struct asked asked = { HIDE, HIDE, POLICY_HOOK_OPEN, file->f_flags };
	int r;

	/* The mode has neither bit for O_ACCMODE, and O_TRUNC would copy the file up first. */
	if (file->f_mode & FMODE_WRITING || file->f_flags & (OPENED_TO_WRITE | OPENED_TO_EMPTY))
		asked.here |= WRITE;
	if (file->f_flags & OPENED_TO_EXECUTE)
		asked.here |= EXECUTE;
	asked.below = asked.here;
	r = dentry_check(file->f_path.dentry, &asked);
	return r ? r : cover_check(&file->f_path, file->f_flags);
}

SEC("lsm/file_truncate")
int BPF_PROG(dsec_file_trunc, struct file *file)
{
	return both(file->f_path.dentry, WRITE | HIDE, POLICY_HOOK_TRUNCATE);
}

SEC("lsm/mmap_file")
int BPF_PROG(dsec_mmap, struct file *file, unsigned long asked, unsigned long protection)
{
	if (!file || !((asked | protection) & PROTECTION_EXECUTE))
		return 0;
	return both(file->f_path.dentry, EXECUTE, POLICY_HOOK_EXECUTE);
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
	return both(mapped_dentry(file), EXECUTE, POLICY_HOOK_EXECUTE);
}

SEC("lsm/path_unlink")
int BPF_PROG(dsec_unlink, const struct path *folder, struct dentry *dentry)
{
	return both(dentry, WRITE | REPLACE | HIDE | ANCESTOR, POLICY_HOOK_REMOVE);
}

SEC("lsm/path_rmdir")
int BPF_PROG(dsec_rmdir, const struct path *folder, struct dentry *dentry)
{
	return both(dentry, WRITE | REPLACE | HIDE | ANCESTOR, POLICY_HOOK_REMOVE);
}

static __always_inline int creation_check(struct dentry *dentry)
{
	const int r = both(dentry, WRITE | HIDE, POLICY_HOOK_CREATE);

	if (!r)
		creation_count(dentry);
	return r;
}

SEC("lsm/path_mkdir")
int BPF_PROG(dsec_mkdir, const struct path *folder, struct dentry *dentry)
{
	return creation_check(dentry);
}

SEC("lsm/path_mknod")
int BPF_PROG(dsec_mknod, const struct path *folder, struct dentry *dentry)
{
	return creation_check(dentry);
}

SEC("lsm/path_symlink")
int BPF_PROG(dsec_symlink, const struct path *folder, struct dentry *dentry)
{
	return creation_check(dentry);
}

/* A second name would have none of the rules of the first. */
SEC("lsm/path_link")
int BPF_PROG(dsec_link, struct dentry *old, const struct path *folder, struct dentry *fresh)
{
	int r = at_edge(old, HERE, BELOW, POLICY_HOOK_LINK);

	return r ? r : both(fresh, WRITE | REPLACE | HIDE, POLICY_HOOK_LINK);
}

/* In an exchange, both go away from their places. */
SEC("lsm/path_rename")
int BPF_PROG(dsec_rename, const struct path *old_folder, struct dentry *old,
	     const struct path *folder, struct dentry *fresh)
{
	int r = at_edge(old, HERE, BELOW, POLICY_HOOK_RENAME);

	return r ? r : at_edge(fresh, HERE, BELOW, POLICY_HOOK_RENAME);
}

SEC("lsm/path_truncate")
int BPF_PROG(dsec_truncate, const struct path *path)
{
	return both(path->dentry, WRITE | HIDE, POLICY_HOOK_TRUNCATE);
}

SEC("lsm/path_chmod")
int BPF_PROG(dsec_chmod, const struct path *path)
{
	return both(path->dentry, METADATA | HIDE, POLICY_HOOK_METADATA);
}

SEC("lsm/path_chown")
int BPF_PROG(dsec_chown, const struct path *path)
{
	return both(path->dentry, METADATA | HIDE, POLICY_HOOK_METADATA);
}

SEC("lsm/path_chroot")
int BPF_PROG(dsec_chroot, const struct path *path)
{
	return both(path->dentry, HIDE, POLICY_HOOK_STAT);
}

SEC("lsm/inode_setattr")
int BPF_PROG(dsec_setattr, struct mnt_idmap *map, struct dentry *dentry)
{
	return both(dentry, METADATA | HIDE, POLICY_HOOK_METADATA);
}

SEC("lsm/inode_setxattr")
int BPF_PROG(dsec_setxattr, struct mnt_idmap *map, struct dentry *dentry)
{
	return both(dentry, METADATA | HIDE, POLICY_HOOK_METADATA);
}

SEC("lsm/inode_removexattr")
int BPF_PROG(dsec_rmxattr, struct mnt_idmap *map, struct dentry *dentry)
{
	return both(dentry, METADATA | HIDE, POLICY_HOOK_METADATA);
}

SEC("lsm/inode_set_acl")
int BPF_PROG(dsec_set_acl, struct mnt_idmap *map, struct dentry *dentry)
{
	return both(dentry, METADATA | HIDE, POLICY_HOOK_METADATA);
}

SEC("lsm/inode_remove_acl")
int BPF_PROG(dsec_rm_acl, struct mnt_idmap *map, struct dentry *dentry)
{
	return both(dentry, METADATA | HIDE, POLICY_HOOK_METADATA);
}

SEC("lsm/inode_file_setattr")
int BPF_PROG(dsec_fsetattr, struct dentry *dentry)
{
	return both(dentry, METADATA | HIDE, POLICY_HOOK_METADATA);
}

SEC("lsm/inode_getattr")
int BPF_PROG(dsec_getattr, const struct path *path)
{
	return both(path->dentry, HIDE, POLICY_HOOK_STAT);
}

SEC("lsm/inode_readlink")
int BPF_PROG(dsec_readlink, struct dentry *dentry)
{
	return both(dentry, HIDE, POLICY_HOOK_STAT);
}

SEC("lsm/inode_getxattr")
int BPF_PROG(dsec_getxattr, struct dentry *dentry)
{
	return both(dentry, HIDE, POLICY_HOOK_STAT);
}

SEC("lsm/inode_listxattr")
int BPF_PROG(dsec_lsxattr, struct dentry *dentry)
{
	return both(dentry, HIDE, POLICY_HOOK_STAT);
}

/* Over the root of a mount, or a change of it: as over what it is on, of whatever file system. */
SEC("lsm/sb_mount")
int BPF_PROG(dsec_mount, const char *source, const struct path *path)
{
	struct vfsmount *of = path->mnt;
	int r = at_edge(path->dentry, HERE, BELOW, POLICY_HOOK_MOUNT);

	if (r || path->dentry != BPF_CORE_READ(of, mnt_root))
		return r;
	return at_edge(mount_point(of), HERE & ~ANCESTOR, BELOW, POLICY_HOOK_MOUNT);
}

SEC("lsm/sb_umount")
int BPF_PROG(dsec_umount, struct vfsmount *of)
{
	return at_edge(mount_point(of), HERE & ~ANCESTOR, BELOW, POLICY_HOOK_MOUNT);
}

SEC("lsm/move_mount")
int BPF_PROG(dsec_move_mount, const struct path *from, const struct path *to)
{
	int r = at_edge(mount_point(BPF_CORE_READ(from, mnt)), HERE & ~ANCESTOR, BELOW,
			POLICY_HOOK_MOUNT);

	return r ? r : at_edge(to->dentry, HERE, BELOW, POLICY_HOOK_MOUNT);
}

static __always_inline int ioctl_check(unsigned int command)
{
	const struct policy_refusal *refusal;
	struct subject subject;
	__u32 hook;

	if (!subject_find(&subject))
		return 0;
	if (!subject.policy)
		return -ERROR_PERMISSION;
	if (!(subject.policy->content & POLICY_HAS_IOCTLS))
		return 0;
	refusal = ioctl_refusal(&subject, command, &hook);
	return refusal ? refusal_judge(&subject, refusal, hook, command) : 0;
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

/* A name in the abstract, as its address has it. */
struct name {
	__u64 at;
	__u32 bytes;
};

static __noinline int name_tell(const struct violation *v, const struct name *name)
{
	struct policy_violation *record;
	__u32 bytes;

	if (!v || !name)
		return 0;
	record = violation_begin(v);
	if (record) {
		bytes = name->bytes < POLICY_TEXT_BYTES / 2 ? name->bytes : POLICY_TEXT_BYTES / 2;
		record->text_kind = POLICY_TEXT_NAME;
		record->text[0] = '@';
		(void)bpf_probe_read_kernel(record->text + 1, bytes, (void *)name->at);
		record->text_bytes = (__u16)(bytes + 1);
		record->is_cut = bytes < name->bytes;
		violation_end(record);
	}
	return 0;
}

static __always_inline int name_judge(const struct subject *subject,
				      const struct policy_refusal *refusal, const struct name *name,
				      __u32 hook)
{
	const struct verdict verdict = { refusal->rule, hook,
					 refusal->is_audit ? 0 : ERROR_PERMISSION, 0 };
	const struct violation v = violation_of(subject, &verdict);

	(void)name_tell(&v, name); /* refused all the same */
	return refusal->is_audit ? 0 : -ERROR_PERMISSION;
}

static __always_inline int unix_check(struct sock *other, __u32 hook)
{
	struct unix_sock *peer = (struct unix_sock *)other;
	struct dentry *dentry = BPF_CORE_READ(peer, path.dentry);
	struct unix_address *address = BPF_CORE_READ(peer, addr);
	const __u32 before = bpf_core_field_offset(struct sockaddr_un, sun_path) + 1;
	__u64 words[POLICY_HASHED_BYTES / 8] = {};
	const struct policy_refusal *refusal;
	struct policy_name_key key = {};
	struct subject subject;
	struct name name;
	__u32 length, bytes;

	if (dentry)
		return both(dentry, CONNECT | HIDE, hook);
	if (!address || !subject_find(&subject))
		return 0;
	if (!subject.policy)
		return -ERROR_PERMISSION;
	length = (__u32)BPF_CORE_READ(address, len);
	if (!(subject.policy->content & POLICY_HAS_UNIX_NAMES) || length <= before)
		return 0;
	length -= before;
	bytes = length < POLICY_HASHED_BYTES ? length : POLICY_HASHED_BYTES;
	name.at = (__u64)address + bpf_core_field_offset(struct unix_address, name) + before;
	name.bytes = length;
	(void)bpf_probe_read_kernel(words, bytes, (void *)name.at);
	key.policy = subject.sandbox->policy;
	key.hash = policy_name_hash(words, length);
	refusal = bpf_map_lookup_elem(&unix_names, &key);
	return refusal ? name_judge(&subject, refusal, &name, hook) : 0;
}

SEC("lsm/unix_stream_connect")
int BPF_PROG(dsec_unix_strm, struct sock *socket, struct sock *other)
{
	return other ? unix_check(other, POLICY_HOOK_UNIX_CONNECT) : 0;
}

SEC("lsm/unix_may_send")
int BPF_PROG(dsec_unix_dgrm, struct socket *socket, struct socket *other)
{
	struct sock *peer = other->sk;

	return peer ? unix_check(peer, POLICY_HOOK_UNIX_SEND) : 0;
}
