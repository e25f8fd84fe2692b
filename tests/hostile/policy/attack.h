/*
 * Attacks on the rules of a policy, one function each: 0 where it worked, else the errno. Paths are
 * relative: the current folder is the root of the sandbox. The policy is POLICY_TEXT.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * bin/busybox is protected, etc/passwd read-only, usr/bin/answer and srv hidden; nothing in tmp may
 * be run. All else in the folder is the sandbox's own.
 */
#define POLICY_TEXT                                                                                \
	"name: attacked\n"                                                                         \
	"files:\n"                                                                                 \
	"  protect: [/bin]\n"                                                                      \
	"  readonly: [/etc]\n"                                                                     \
	"  hide: [/usr/bin, /srv]\n"                                                               \
	"  noexec: [/tmp]\n"                                                                       \
	"ioctls:\n"                                                                                \
	"  deny: [xfs-dangerous, ext4-dangerous, fs-freeze, fs-trim, immutable, tty-injection]\n"  \
	"sockets:\n"                                                                               \
	"  families: [unix, inet, inet6]\n"                                                        \
	"  unix: { deny: [\"@dsec-forbidden\", /run/forbidden] }\n"                                \
	"processes: { ptrace: inside, signal: inside, bpf: deny, perf: deny, userfaultfd: deny,\n" \
	"             keyctl: deny, userns: deny, setscheduler: deny, core-sched: deny }\n"

/* What is refused to none but who has no io_uring or mounts, either: in a policy of its own. */
#define POLICY_CLOSED_TEXT                                                                         \
	"name: closed\n"                                                                           \
	"processes: { io_uring: deny, mount: deny }\n"

enum {
	/* Some of many calls were refused, and some were not. */
	ATTACK_MIXED = 254,
	ATTACK_DIED = 255,
};

struct attack {
	const char *name;
	int (*run)(void);
	uint8_t denied; /* by LSM programs */
	uint8_t open;	/* to root on the machine itself, without a policy */
	uint8_t walls;	/* by mounts and seccomp, in a sandbox; or `plain` */
	uint8_t plain;	/* in a sandbox without a policy */
	/* Of its violation; hook 0: there is none, the kernel refuses first, or nothing does. */
	uint8_t hook;	  /* enum policy_hook */
	const char *rule; /* its label: of several, one; NULL: none, it could not be decided */
	const char *text; /* path without its first slash, or name; NULL: it has none */
};

/* Labels of the two policies' rules. */
#define RULE_BIN	 "files.protect /bin"
#define RULE_ETC	 "files.readonly /etc"
#define RULE_HIDDEN	 "files.hide /usr/bin"
#define RULE_SRV	 "files.hide /srv"
#define RULE_TMP	 "files.noexec /tmp"
#define RULE_XFS	 "ioctls.deny xfs-dangerous"
#define RULE_NETLINK	 "sockets.families netlink"
#define RULE_ABSTRACT	 "sockets.unix.deny @dsec-forbidden"
#define RULE_SOCKET	 "sockets.unix.deny /run/forbidden"
#define RULE_PTRACE	 "processes.ptrace inside"
#define RULE_SIGNAL	 "processes.signal inside"
#define RULE_BPF	 "processes.bpf deny"
#define RULE_PERF	 "processes.perf deny"
#define RULE_USERFAULTFD "processes.userfaultfd deny"
#define RULE_KEYCTL	 "processes.keyctl deny"
#define RULE_USERNS	 "processes.userns deny"
#define RULE_SCHEDULER	 "processes.setscheduler deny"
#define RULE_CORE_SCHED	 "processes.core-sched deny"
#define RULE_IO_URING	 "processes.io_uring deny"
#define RULE_MOUNT	 "processes.mount deny"

#define ATTACK(function, denied, open, walls, plain, hook, rule, text)                             \
	{                                                                                          \
#function, function, denied, open, walls, plain, POLICY_HOOK_##hook, RULE_##rule,  \
			text                                                                       \
	}
#define UNDECIDED(function, denied, open, walls, plain, hook)                                      \
	{                                                                                          \
#function, function, denied, open, walls, plain, POLICY_HOOK_##hook, NULL, NULL    \
	}
#define QUIET(function, denied, open, walls, plain)                                                \
	{                                                                                          \
#function, function, denied, open, walls, plain, 0, NULL, NULL                     \
	}

#define KEPT   "bin/busybox"
#define ANSWER "usr/bin/answer"

struct attack_group {
	const char *name;
	const struct attack *attacks;
	unsigned count;
};

enum { ATTACK_GROUPS = 6 };

extern const struct attack_group *const attack_groups[ATTACK_GROUPS];
extern const struct attack_group files_group, mounts_group, ioctls_group, sockets_group,
	processes_group, closed_group;

/* One in a child of its own, and in a mount namespace of its own where is_apart. */
int attack_try(const struct attack *attack, bool is_apart);

/* routes.c: calls by other entries than the usual one; 0 or the errno. */
struct io_uring_sqe;
enum { RING_INLINE, RING_WORKER, RING_POLLED };
int ring_try(struct io_uring_sqe *entry, int how);
/* By int 0x80: numbers as in that table. Text is copied to where 32 bits reach. */
int call_32(long number, const char *text, long second, long third);
int call_32_plain(long number, long first, long second, long third);

#define TRIED(call)                                                                                \
	({                                                                                         \
		long tried_ = (long)(call);                                                        \
		tried_ < 0 ? errno : 0;                                                            \
	})
