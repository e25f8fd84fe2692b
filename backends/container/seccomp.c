/*
 * The filter of every sandbox: installed by a worker for itself and inherited by each, where it
 * costs nothing to install. Called once, before the first request. Must hold: the calls that make a
 * sandbox pass only with the secret in their unused sixth argument, and no process but the worker
 * can learn it; what the kernel ignores of an argument is ignored here too.
 */
#include "backends/container/filter.h"

#include <errno.h>
#include <linux/sched.h>
#include <stddef.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "bpf/guard_policy.h"

/* Newer than the headers or the library of Debian 12. */
#ifndef PR_SCHED_CORE
#define PR_SCHED_CORE 62
#endif
enum {
	CALL_OPEN_TREE_ATTR = 467,
	CALL_LISTNS = 470, /* Linux 6.19: names every namespace of the machine */
};

#define LOW 0xffffffffu

static const struct refusal refused[] = {
	/* No keyring is the sandbox's own. */
	{ SCMP_SYS(keyctl), ENOSYS },
	{ SCMP_SYS(add_key), ENOSYS },
	{ SCMP_SYS(request_key), ENOSYS },
	/* Ways round this filter. */
	{ SCMP_SYS(io_uring_setup), ENOSYS },
	{ SCMP_SYS(io_uring_enter), ENOSYS },
	{ SCMP_SYS(io_uring_register), ENOSYS },
	/* The kernel's own machinery. */
	{ SCMP_SYS(bpf), EPERM },
	{ SCMP_SYS(perf_event_open), EPERM },
	{ SCMP_SYS(userfaultfd), EPERM },
	{ SCMP_SYS(kexec_load), EPERM },
	{ SCMP_SYS(kexec_file_load), EPERM },
	{ SCMP_SYS(init_module), EPERM },
	{ SCMP_SYS(finit_module), EPERM },
	{ SCMP_SYS(delete_module), EPERM },
	{ SCMP_SYS(syslog), EPERM },
	{ SCMP_SYS(modify_ldt), EPERM },
	{ SCMP_SYS(iopl), EPERM },
	{ SCMP_SYS(ioperm), EPERM },
	{ SCMP_SYS(fanotify_init), EPERM },
	{ SCMP_SYS(lookup_dcookie), EPERM },
	/* Files by handle, quotas, swap, accounting: of the whole machine. */
	{ SCMP_SYS(open_by_handle_at), EPERM },
	{ SCMP_SYS(name_to_handle_at), EPERM },
	{ SCMP_SYS(quotactl), EPERM },
	{ SCMP_SYS(quotactl_fd), EPERM },
	{ SCMP_SYS(swapon), EPERM },
	{ SCMP_SYS(swapoff), EPERM },
	{ SCMP_SYS(acct), EPERM },
	{ SCMP_SYS(reboot), EPERM },
	/* Its clock. */
	{ SCMP_SYS(settimeofday), EPERM },
	{ SCMP_SYS(clock_settime), EPERM },
	{ SCMP_SYS(clock_adjtime), EPERM },
	{ SCMP_SYS(adjtimex), EPERM },
	/* Where memory lies. */
	{ SCMP_SYS(mbind), EPERM },
	{ SCMP_SYS(set_mempolicy), EPERM },
	{ SCMP_SYS(set_mempolicy_home_node), EPERM },
	{ SCMP_SYS(migrate_pages), EPERM },
	{ SCMP_SYS(move_pages), EPERM },
	{ CALL_LISTNS, EPERM },
	/* One looping caller would slow every mount and unmount of the machine down. */
	{ SCMP_SYS(sync), 0 },
	{ SCMP_SYS(syncfs), 0 },
};

static const int with_secret[] = {
	SCMP_SYS(mount),	 SCMP_SYS(umount2),	  SCMP_SYS(pivot_root),
	SCMP_SYS(open_tree),	 SCMP_SYS(move_mount),	  SCMP_SYS(fsopen),
	SCMP_SYS(fsconfig),	 SCMP_SYS(fsmount),	  SCMP_SYS(fspick),
	SCMP_SYS(setns),	 SCMP_SYS(mount_setattr), SCMP_SYS(sethostname),
	SCMP_SYS(setdomainname), CALL_OPEN_TREE_ATTR,
};

/* By number alone: the upper half says the direction and the size, and nobody checks it. */
static const uint16_t ioctls[] = {
	0x5412, /* TIOCSTI */
	0x5423, /* TIOCSETD: line disciplines of modems and networks */
	0x541c, /* TIOCLINUX */
	0x586c, /* XFS_IOC_FSSETDM_BY_HANDLE */
	0x586b, /* XFS_IOC_ATTRLIST_BY_HANDLE */
	0x586d, /* XFS_IOC_SWAPEXT */
	0x5872, /* XFS_IOC_ERROR_INJECTION */
	0x5877, /* FIFREEZE */
	0x5878, /* FITHAW */
	0x5879, /* FITRIM */
	0x587d, /* GOINGDOWN, of XFS, ext4 and f2fs */
	0x5881, /* XFS_IOC_EXCHANGE_RANGE */
	0x5882, /* XFS_IOC_START_COMMIT */
	0x5883, /* XFS_IOC_COMMIT_RANGE */
	0x660f, /* EXT4_IOC_MOVE_EXT */
	0x6613, /* FS_IOC_SET_ENCRYPTION_POLICY */
	0x6614, /* FS_IOC_GET_ENCRYPTION_PWSALT */
	0x6615, /* FS_IOC_GET_ENCRYPTION_POLICY */
	0x6616, /* FS_IOC_GET_ENCRYPTION_POLICY_EX */
	0x6617, /* FS_IOC_ADD_ENCRYPTION_KEY */
	0x6618, /* FS_IOC_REMOVE_ENCRYPTION_KEY */
	0x6619, /* FS_IOC_REMOVE_ENCRYPTION_KEY_ALL_USERS */
	0x661a, /* FS_IOC_GET_ENCRYPTION_KEY_STATUS */
	0x661b, /* FS_IOC_GET_ENCRYPTION_NONCE */
	0x9404, /* BTRFS_IOC_TRANS and friends */
	0x9409, /* FICLONE */
	0x940d, /* FICLONERANGE */
	0x9436, /* FIDEDUPERANGE */
};

/* Flags of unshare(2); clone(2) has all but the last, whose bit is part of its exit signal. */
static const uint32_t namespaces[] = {
	CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
	CLONE_NEWUSER, CLONE_NEWPID,	CLONE_NEWNET, CLONE_NEWTIME,
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* A call this kernel or library has no number for cannot be made, and needs no rule. */
int filter_rule(scmp_filter_ctx filter, struct refusal refusal, unsigned count,
		const struct scmp_arg_cmp *arguments)
{
	if (refusal.call < 0)
		return 0;
	return seccomp_rule_add_array(filter, SCMP_ACT_ERRNO((unsigned)refusal.error), refusal.call,
				      count, arguments);
}

static int rules_plain(scmp_filter_ctx filter)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < COUNT(refused); i++)
		r = filter_rule(filter, refused[i], 0, NULL);
	return r;
}

static int rules_secret(scmp_filter_ctx filter, uint64_t secret)
{
	const struct scmp_arg_cmp wrong = { 5, SCMP_CMP_NE, secret, 0 };
	int r = 0;

	for (unsigned i = 0; r == 0 && i < COUNT(with_secret); i++)
		r = filter_rule(filter, (struct refusal){ with_secret[i], EPERM }, 1, &wrong);
	/* libc falls back to clone(2), whose flags a filter can see. */
	if (r == 0)
		r = filter_rule(filter, (struct refusal){ SCMP_SYS(clone3), ENOSYS }, 1, &wrong);
	for (unsigned i = 0; r == 0 && i < COUNT(namespaces); i++) {
		const struct scmp_arg_cmp asked = filter_masked(0, namespaces[i], namespaces[i]);

		r = filter_rule(filter, (struct refusal){ SCMP_SYS(unshare), EPERM }, 2,
				(struct scmp_arg_cmp[]){ asked, wrong });
		if (r == 0 && namespaces[i] != CLONE_NEWTIME)
			r = filter_rule(filter, (struct refusal){ SCMP_SYS(clone), EPERM }, 1,
					&asked);
	}
	return r;
}

static bool family_is_refused(uint32_t family)
{
	return family != AF_UNIX && family != AF_INET && family != AF_INET6 && family != AF_NETLINK;
}

static int rules_socket(scmp_filter_ctx filter, uint64_t secret)
{
	const struct refusal family = { SCMP_SYS(socket), EAFNOSUPPORT };
	const struct refusal type = { SCMP_SYS(socket), EPERM };
	const struct scmp_arg_cmp beyond = { 0, SCMP_CMP_GE, AF_MAX, 0 };
	int r = filter_rule(filter, family, 1, &beyond);

	for (uint32_t i = 0; r == 0 && i < AF_MAX; i++) {
		const struct scmp_arg_cmp asked = filter_masked(0, LOW, i);

		if (!family_is_refused(i))
			continue;
		r = filter_rule(filter, family, 1, &asked);
	}
	/* Of netlink, routing alone: getifaddrs() needs it. sock_diag, which names every socket,
	 * is the worker's. */
	if (r == 0)
		r = filter_rule(filter, family, 3,
				(struct scmp_arg_cmp[]){ filter_masked(0, LOW, AF_NETLINK),
							 { 2, SCMP_CMP_NE, 0, 0 },
							 { 5, SCMP_CMP_NE, secret, 0 } });
	for (unsigned i = 0; r == 0 && i < 4; i++)
		r = filter_rule(filter, type, 2,
				(struct scmp_arg_cmp[]){
					filter_masked(0, LOW, i & 1 ? AF_INET6 : AF_INET),
					filter_masked(1, 0xf, i & 2 ? SOCK_PACKET : SOCK_RAW) });
	if (r == 0)
		r = filter_rule(filter, (struct refusal){ SCMP_SYS(socketpair), EAFNOSUPPORT }, 1,
				&(struct scmp_arg_cmp){ 0, SCMP_CMP_NE, AF_UNIX, 0 });
	return r;
}

/*
 * Allowed are 0, ~0 (a question) and ADDR_NO_RANDOMIZE, which leaves the other 31 bits all clear or
 * all set. Where they are not all the same, some bit is set and the next one (round the end) clear.
 */
static int rules_personality(scmp_filter_ctx filter)
{
	const struct refusal refusal = { SCMP_SYS(personality), EPERM };
	const struct scmp_arg_cmp all_but =
		filter_masked(0, LOW, LOW & ~(uint32_t)ADDR_NO_RANDOMIZE);
	int r = filter_rule(filter, refusal, 1, &all_but);

	for (unsigned i = 0; r == 0 && i < 32; i++) {
		const uint32_t bit = 1u << i;
		uint32_t next = bit << 1 | bit >> 31;
		struct scmp_arg_cmp odd;

		if (bit == ADDR_NO_RANDOMIZE)
			continue;
		if (next == ADDR_NO_RANDOMIZE)
			next <<= 1;
		odd = filter_masked(0, bit | next, bit);
		r = filter_rule(filter, refusal, 1, &odd);
	}
	return r;
}

/*
 * The size of cores stays as the worker set it, and whoever asks is told that it was done: at any
 * other, 0 among them, a crash starts the program of the host that cores are piped to.
 */
static int rules_core(scmp_filter_ctx filter, uint64_t secret)
{
	const struct scmp_arg_cmp core = filter_masked(0, LOW, RLIMIT_CORE);
	int r = filter_rule(filter, (struct refusal){ SCMP_SYS(setrlimit), 0 }, 1, &core);

	if (r < 0)
		return r;
	return filter_rule(filter, (struct refusal){ SCMP_SYS(prlimit64), 0 }, 3,
			   (struct scmp_arg_cmp[]){ filter_masked(1, LOW, RLIMIT_CORE),
						    { 2, SCMP_CMP_NE, 0, 0 },
						    { 5, SCMP_CMP_NE, secret, 0 } });
}

static int rules_values(scmp_filter_ctx filter, uint64_t secret)
{
	const struct scmp_arg_cmp sched_core = filter_masked(0, LOW, PR_SCHED_CORE);
	int r = filter_rule(filter, (struct refusal){ SCMP_SYS(prctl), EPERM }, 1, &sched_core);

	if (r == 0)
		r = rules_core(filter, secret);
	for (unsigned i = 0; r == 0 && i < COUNT(ioctls); i++) {
		const struct scmp_arg_cmp asked = filter_masked(1, 0xffff, ioctls[i]);

		r = filter_rule(filter, (struct refusal){ SCMP_SYS(ioctl), EPERM }, 1, &asked);
	}
	return r;
}

int filter_attributes(scmp_filter_ctx filter)
{
	/* The other ways into this kernel (32-bit, x32) would need rules of their own. */
	int r = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));

	if (r == 0) /* a child sets it for itself, after its credentials */
		r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_NNP, 0);
	if (r == 0)
		r = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	return r;
}

int filter_install(uint64_t secret)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	int r = filter ? filter_attributes(filter) : -ENOMEM;

	if (r == 0)
		r = rules_plain(filter);
	if (r == 0)
		r = rules_secret(filter, secret);
	if (r == 0)
		r = rules_socket(filter, secret);
	if (r == 0)
		r = rules_personality(filter);
	if (r == 0)
		r = rules_values(filter, secret);
	if (r == 0)
		r = seccomp_load(filter);
	seccomp_release(filter);
	return r;
}

bool filter_refuses(const struct guard_rule *rule)
{
	if (rule->kind == GUARD_RULE_FAMILY)
		return family_is_refused(rule->value);
	if (rule->kind == GUARD_RULE_IOCTL) {
		for (unsigned i = 0; i < COUNT(ioctls); i++)
			if (ioctls[i] == (rule->value & 0xffff))
				return true;
		return false;
	}
	if (rule->kind != GUARD_RULE_PROCESS)
		return false;
	switch (rule->value) {
	case GUARD_PROCESS_BPF:
	case GUARD_PROCESS_PERF:
	case GUARD_PROCESS_USERFAULTFD:
	case GUARD_PROCESS_KEYCTL:
	case GUARD_PROCESS_USERNS:
	case GUARD_PROCESS_IO_URING:
	case GUARD_PROCESS_CORE_SCHED:
	case GUARD_PROCESS_MOUNT:
		return true;
	default:
		return false;
	}
}
