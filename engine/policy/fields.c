/*
 * The fields of a policy's document, and the names that their values have. Read by document.c and
 * compile.c. Families and ioctls are named for the kernel's UAPI; the groups are those that other
 * file systems' tools do not need.
 */
#include "engine/policy/fields.h"

#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>

#include "bpf/guard_policy.h"

#define WORDS(table)                                                                               \
	{                                                                                          \
		table, sizeof table / sizeof table[0]                                              \
	}

/* ---- values ---- */

static const struct policy_word inside_words[] = { { "inside", WORD_INSIDE },
						   { "deny", WORD_DENY } };
static const struct policy_word signal_words[] = { { "inside", WORD_INSIDE } };
static const struct policy_word deny_words[] = { { "allow", WORD_ALLOW }, { "deny", WORD_DENY } };
static const struct policy_word enforce_words[] = {
	{ "where-possible", ENFORCE_WHERE_POSSIBLE },
	{ "required", ENFORCE_REQUIRED },
	{ "audit", ENFORCE_AUDIT },
};
static const struct policy_word severity_words[] = { { "off", ANOMALY_OFF },
						     { "note", ANOMALY_NOTE },
						     { "taint", ANOMALY_TAINT } };
/* In order of what they let through. */
static const struct policy_word network_words[] = { { "none", 0 },
						    { "private", 1 },
						    { "shared", 2 } };

/* Numbers of Linux 6.18, some of which this libc does not name. */
static const struct policy_word family_words[] = {
	{ "unix", 1 },	    { "inet", 2 },	{ "ax25", 3 },	     { "ipx", 4 },
	{ "appletalk", 5 }, { "netrom", 6 },	{ "bridge", 7 },     { "atmpvc", 8 },
	{ "x25", 9 },	    { "inet6", 10 },	{ "rose", 11 },	     { "decnet", 12 },
	{ "netbeui", 13 },  { "security", 14 }, { "key", 15 },	     { "netlink", 16 },
	{ "packet", 17 },   { "ash", 18 },	{ "econet", 19 },    { "atmsvc", 20 },
	{ "rds", 21 },	    { "sna", 22 },	{ "irda", 23 },	     { "pppox", 24 },
	{ "wanpipe", 25 },  { "llc", 26 },	{ "ib", 27 },	     { "mpls", 28 },
	{ "can", 29 },	    { "tipc", 30 },	{ "bluetooth", 31 }, { "iucv", 32 },
	{ "rxrpc", 33 },    { "isdn", 34 },	{ "phonet", 35 },    { "ieee802154", 36 },
	{ "caif", 37 },	    { "alg", 38 },	{ "nfc", 39 },	     { "vsock", 40 },
	{ "kcm", 41 },	    { "qipcrtr", 42 },	{ "smc", 43 },	     { "xdp", 44 },
	{ "mctp", 45 },
};

enum {
	GROUP_XFS,
	GROUP_FREEZE,
	GROUP_TRIM,
	GROUP_IMMUTABLE,
	GROUP_TTY_INJECTION,
	GROUP_EXT4,
	GROUP_TTY,
	GROUP_FILE,
	GROUP_SOCKET,
};

static const struct policy_word ioctl_words[] = {
	{ "xfs-dangerous", GROUP_XFS },
	{ "fs-freeze", GROUP_FREEZE },
	{ "fs-trim", GROUP_TRIM },
	{ "immutable", GROUP_IMMUTABLE },
	{ "tty-injection", GROUP_TTY_INJECTION },
	{ "ext4-dangerous", GROUP_EXT4 },
	{ "tty", GROUP_TTY },
	{ "file", GROUP_FILE },
	{ "socket", GROUP_SOCKET },
};

const uint16_t *policy_ioctl_group(uint32_t group)
{
	/* type << 8 | number: what of a command is the same for every size and direction. */
	static const uint16_t groups[][IOCTL_GROUP_MAX] = {
		/* swapext, goingdown, exchange range, start commit, commit range */
		[GROUP_XFS] = { 'X' << 8 | 109, 'X' << 8 | 125, 'X' << 8 | 129, 'X' << 8 | 130,
				'X' << 8 | 131 },
		[GROUP_FREEZE] = { FIFREEZE & 0xffff, FITHAW & 0xffff },
		[GROUP_TRIM] = { FITRIM & 0xffff },
		[GROUP_IMMUTABLE] = { FS_IOC_SETFLAGS & 0xffff, FS_IOC_FSSETXATTR & 0xffff },
		/* TIOCSTI, TIOCLINUX, TIOCCONS, TIOCSETD */
		[GROUP_TTY_INJECTION] = { 0x5412, 0x541c, 0x541d, 0x5423 },
		/* move extents, swap boot, resize, shutdown */
		[GROUP_EXT4] = { 'f' << 8 | 15, 'f' << 8 | 17, 'f' << 8 | 16, 'X' << 8 | 125 },
		/* Modes, sizes, groups and packets of terminals, and what makes one's own. */
		[GROUP_TTY] = { TCGETS,
				TCSETS,
				TCSETSW,
				TCSETSF,
				TCGETA,
				TCSETA,
				TCSETAW,
				TCSETAF,
				TCSBRK,
				TCXONC,
				TCFLSH,
				TIOCEXCL,
				TIOCNXCL,
				TIOCSCTTY,
				TIOCGPGRP,
				TIOCSPGRP,
				TIOCOUTQ,
				TIOCGWINSZ,
				TIOCSWINSZ,
				TIOCPKT,
				TIOCNOTTY,
				TIOCGETD,
				TCSBRKP,
				TIOCGSID,
				0x542a,
				0x542b,
				0x542c,
				0x542d,
				0x5430,
				0x5431,
				TIOCSIG & 0xffff,
				TIOCGPKT & 0xffff,
				TIOCGPTLCK & 0xffff,
				TIOCGEXCL & 0xffff,
				TIOCGPTPEER & 0xffff },
		/* Of any descriptor, and what only asks. */
		[GROUP_FILE] = { FIONREAD, FIONBIO, FIONCLEX, FIOCLEX, FIOASYNC, FIOQSIZE, FIBMAP,
				 FIGETBSZ, FS_IOC_GETFLAGS & 0xffff, FS_IOC_GETVERSION & 0xffff,
				 FS_IOC_FSGETXATTR & 0xffff, FS_IOC_FIEMAP & 0xffff,
				 FS_IOC_GETFSLABEL & 0xffff },
		/* What only asks; who may set an interface is nobody inside. */
		[GROUP_SOCKET] = { FIOSETOWN, SIOCSPGRP, FIOGETOWN, SIOCGPGRP, SIOCATMARK, 0x8906,
				   0x8907, SIOCGIFNAME, SIOCGIFCONF, SIOCGIFFLAGS, SIOCGIFADDR,
				   SIOCGIFDSTADDR, SIOCGIFBRDADDR, SIOCGIFNETMASK, SIOCGIFMETRIC,
				   SIOCGIFMTU, SIOCGIFHWADDR, SIOCGIFINDEX, SIOCGIFTXQLEN },
	};

	return groups[group];
}

/* ---- fields ---- */

#define LIST(path, kind)                                                                           \
	{                                                                                          \
		path, kind, { NULL, 0 }, 0                                                         \
	}
#define WORD(path, words, rule)                                                                    \
	{                                                                                          \
		path, FIELD_IS_WORD, WORDS(words), rule                                            \
	}
#define CAP(name, kind, cap)                                                                       \
	{                                                                                          \
		"network.egress.caps." name, kind, { NULL, 0 }, cap                                \
	}
#define ANOMALY(rule, name)                                                                        \
	[FIELD_ANOMALIES + ANOMALY_FIELDS * (rule) +                                               \
		ANOMALY_LIMIT] = LIST("anomalies." name ".limit", FIELD_IS_COUNT),                 \
		[FIELD_ANOMALIES + ANOMALY_FIELDS * (rule) + ANOMALY_WINDOW] =                     \
			LIST("anomalies." name ".window", FIELD_IS_SECONDS),                       \
		[FIELD_ANOMALIES + ANOMALY_FIELDS * (rule) + ANOMALY_SEVERITY] =                   \
			WORD("anomalies." name ".severity", severity_words, 0)
#define ENFORCE(subject) WORD("enforce." subject, enforce_words, 0)

static const struct policy_field fields[] = {
	[FIELD_NAME] = LIST("name", FIELD_IS_POLICY),
	[FIELD_EXTENDS] = LIST("extends", FIELD_IS_POLICY),
	[FIELD_FILES_PROTECT] = LIST("files.protect", FIELD_IS_PATHS),
	[FIELD_FILES_READONLY] = LIST("files.readonly", FIELD_IS_PATHS),
	[FIELD_FILES_HIDE] = LIST("files.hide", FIELD_IS_PATHS),
	[FIELD_FILES_NOEXEC] = LIST("files.noexec", FIELD_IS_PATHS),
	[FIELD_FILES_VERIFY] = LIST("files.verify", FIELD_IS_PATHS),
	[FIELD_IOCTLS_ALLOW] = { "ioctls.allow", FIELD_IS_IOCTLS, WORDS(ioctl_words), 0 },
	[FIELD_IOCTLS_DENY] = { "ioctls.deny", FIELD_IS_IOCTLS, WORDS(ioctl_words), 0 },
	[FIELD_SOCKETS_FAMILIES] = { "sockets.families", FIELD_IS_FAMILIES, WORDS(family_words),
				     0 },
	[FIELD_SOCKETS_UNIX_DENY] = LIST("sockets.unix.deny", FIELD_IS_SOCKETS),
	[FIELD_PTRACE] = WORD("processes.ptrace", inside_words, GUARD_PROCESS_PTRACE),
	[FIELD_SIGNAL] = WORD("processes.signal", signal_words, GUARD_PROCESS_SIGNAL_OUTSIDE),
	[FIELD_BPF] = WORD("processes.bpf", deny_words, GUARD_PROCESS_BPF),
	[FIELD_PERF] = WORD("processes.perf", deny_words, GUARD_PROCESS_PERF),
	[FIELD_USERFAULTFD] = WORD("processes.userfaultfd", deny_words, GUARD_PROCESS_USERFAULTFD),
	[FIELD_KEYCTL] = WORD("processes.keyctl", deny_words, GUARD_PROCESS_KEYCTL),
	[FIELD_USERNS] = WORD("processes.userns", deny_words, GUARD_PROCESS_USERNS),
	[FIELD_IO_URING] = WORD("processes.io_uring", deny_words, GUARD_PROCESS_IO_URING),
	[FIELD_SETSCHEDULER] =
		WORD("processes.setscheduler", deny_words, GUARD_PROCESS_SETSCHEDULER),
	[FIELD_CORE_SCHED] = WORD("processes.core-sched", deny_words, GUARD_PROCESS_CORE_SCHED),
	[FIELD_MOUNT] = WORD("processes.mount", deny_words, GUARD_PROCESS_MOUNT),
	[FIELD_NETWORK_MODE] = WORD("network.mode", network_words, 0),
	[FIELD_EGRESS_ALLOW] = LIST("network.egress.allow", FIELD_IS_DESTINATIONS),
	[FIELD_EGRESS_DENY] = LIST("network.egress.deny", FIELD_IS_DESTINATIONS),
	[FIELD_CAP_CONNECTIONS] = CAP("connections", FIELD_IS_COUNT, GUARD_CAP_CONNECTIONS),
	[FIELD_CAP_BYTES] = CAP("bytes", FIELD_IS_BYTES, GUARD_CAP_BYTES),
	[FIELD_CAP_CONNECTIONS_PER_S] =
		CAP("connections_per_s", FIELD_IS_COUNT, GUARD_CAP_CONNECTIONS_PER_S),
	[FIELD_CAP_BYTES_PER_S] = CAP("bytes_per_s", FIELD_IS_BYTES, GUARD_CAP_BYTES_PER_S),
	[FIELD_PHASES] = LIST("phases", FIELD_IS_PHASES),
	ANOMALY(DSEC_ANOMALY_PROTECTED_WRITE, "protected-write"),
	ANOMALY(DSEC_ANOMALY_DANGEROUS_IOCTL, "dangerous-ioctl"),
	ANOMALY(DSEC_ANOMALY_PORT_SCAN, "port-scan"),
	ANOMALY(DSEC_ANOMALY_HUNTING, "hunting"),
	ANOMALY(DSEC_ANOMALY_OUTSIDE_PTRACE, "outside-ptrace"),
	ANOMALY(DSEC_ANOMALY_OUTSIDE_SIGNAL, "outside-signal"),
	ANOMALY(DSEC_ANOMALY_SOCKET_PROBING, "socket-probing"),
	ANOMALY(DSEC_ANOMALY_OFFLINE_SOCKETS, "offline-sockets"),
	ANOMALY(DSEC_ANOMALY_VERIFY_TAMPER, "verify-tamper"),
	ANOMALY(DSEC_ANOMALY_STORM, "storm"),
	ANOMALY(DSEC_ANOMALY_DNS_TUNNEL, "dns-tunnel"),
	ANOMALY(DSEC_ANOMALY_BYTES_PER_DESTINATION, "bytes-per-destination"),
	ANOMALY(DSEC_ANOMALY_VCS_DIRECT, "vcs-direct"),
	ANOMALY(DSEC_ANOMALY_PROXY_OWN_REPOSITORY, "proxy-own-repository"),
	[FIELD_ENFORCE_FILES] = ENFORCE("files"),
	[FIELD_ENFORCE_IOCTLS] = ENFORCE("ioctls"),
	[FIELD_ENFORCE_SOCKETS] = ENFORCE("sockets"),
	[FIELD_ENFORCE_PROCESSES] = ENFORCE("processes"),
};
_Static_assert(sizeof fields / sizeof fields[0] == POLICY_FIELDS, "a row per field");

const struct policy_field *policy_field(enum policy_field_id id)
{
	return &fields[id];
}

const struct policy_word *policy_word(const struct policy_words *words, const char *name)
{
	for (size_t i = 0; i < words->count; i++)
		if (!strcmp(words->words[i].name, name))
			return &words->words[i];
	return NULL;
}

/* ---- names ---- */

enum { NEAR_BYTES_MAX = 32 };

/* How many letters differ, are missing or too many. */
static size_t distance(const char *a, const char *b)
{
	size_t row[NEAR_BYTES_MAX + 1], bytes = strlen(b);

	for (size_t k = 0; k <= bytes; k++)
		row[k] = k;
	for (size_t i = 1; a[i - 1]; i++) {
		size_t before = row[0];

		row[0] = i;
		for (size_t k = 1; k <= bytes; k++) {
			size_t kept = before + (a[i - 1] != b[k - 1]);
			size_t less = (row[k] < row[k - 1] ? row[k] : row[k - 1]) + 1;

			before = row[k];
			row[k] = kept < less ? kept : less;
		}
	}
	return row[bytes];
}

const char *policy_nearest(const char *name, const char *const *known, size_t count)
{
	const char *nearest = NULL;
	size_t least = 3;

	if (strlen(name) > NEAR_BYTES_MAX)
		return NULL;
	for (size_t i = 0; i < count; i++) {
		size_t away = strlen(known[i]) > NEAR_BYTES_MAX ? least : distance(name, known[i]);

		if (away < least && away < strlen(known[i])) {
			least = away;
			nearest = known[i];
		}
	}
	return nearest;
}

bool policy_name_is_good(const char *name)
{
	size_t bytes = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-");

	return bytes && bytes <= GUARD_POLICY_NAME_MAX && !name[bytes] && name[0] != '-' &&
	       name[bytes - 1] != '-';
}
