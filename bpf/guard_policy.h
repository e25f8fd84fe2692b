/*
 * A compiled policy: rules in the order of their document. engine/policy makes it, guard.c puts it
 * into maps, backends enforce of it what BPF cannot on this host. Plain data, read-only once made:
 * strings belong to whoever made it and live as long as it does.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
	GUARD_POLICY_NAME_MAX = 63,
	GUARD_POLICY_RULES_MAX = 1024,
	GUARD_RULE_TEXT_MAX = 255, /* of a path, a name */
};

enum guard_rule_kind {
	GUARD_RULE_FILE = 1, /* text: absolute path; bits: enum guard_file_bits */
	GUARD_RULE_IOCTL,    /* value: type << 8 | number; bits: enum guard_ioctl_bits */
	GUARD_RULE_FAMILY,   /* value: AF_…; refused */
	GUARD_RULE_UNIX,     /* text: path of a socket, or "@name" in the abstract; refused */
	GUARD_RULE_PROCESS,  /* value: enum guard_process; refused */
	/* text: "192.0.2.0/24 tcp/443"; bits: enum guard_destination_bits */
	GUARD_RULE_DESTINATION,
	GUARD_RULE_NAME, /* text: "api.example tcp/443"; bits: GUARD_DESTINATION_ALLOW */
	GUARD_RULE_CAP,	 /* value: enum guard_cap; what it comes to is in guard_policy.caps */
};

enum guard_cap {
	GUARD_CAP_CONNECTIONS = 1,
	GUARD_CAP_BYTES,
	GUARD_CAP_CONNECTIONS_PER_S,
	GUARD_CAP_BYTES_PER_S,
};

/* Of an ioctl's rule; 0: it is refused. */
enum guard_ioctl_bits {
	GUARD_IOCTL_ALLOW = 1,	/* it may be, where others may not */
	GUARD_IOCTL_OTHERS = 2, /* all that no rule names are refused; value: GUARD_IOCTL_NONE */
};

enum { GUARD_IOCTL_NONE = 1 << 16 };

enum guard_file_bits {
	GUARD_FILE_WRITE = 1,	 /* no opening for writing, truncation, creation below */
	GUARD_FILE_REPLACE = 2,	 /* no rename, unlink, link, mount over */
	GUARD_FILE_METADATA = 4, /* no mode, owner, times, xattrs */
	GUARD_FILE_EXECUTE = 8,
	GUARD_FILE_HIDE = 16,	 /* ENOENT, and nothing else */
	GUARD_FILE_SUBTREE = 32, /* and all that is below */
};

enum guard_destination_bits { GUARD_DESTINATION_ALLOW = 1, GUARD_DESTINATION_DENY = 2 };

enum guard_process {
	GUARD_PROCESS_PTRACE_OUTSIDE = 1,
	GUARD_PROCESS_SIGNAL_OUTSIDE,
	GUARD_PROCESS_PTRACE, /* inside, too */
	GUARD_PROCESS_BPF,
	GUARD_PROCESS_PERF,
	GUARD_PROCESS_USERFAULTFD,
	GUARD_PROCESS_KEYCTL,
	GUARD_PROCESS_USERNS,
	GUARD_PROCESS_IO_URING,
	GUARD_PROCESS_SETSCHEDULER,
	GUARD_PROCESS_CORE_SCHED,
	GUARD_PROCESS_MOUNT,
};

/* A set: how a rule is enforced on this host. 0: not at all. */
enum guard_level {
	GUARD_LEVEL_BPF_LSM = 1,
	GUARD_LEVEL_APPARMOR = 2,
	GUARD_LEVEL_LANDLOCK = 4,
	GUARD_LEVEL_SECCOMP = 8,
	GUARD_LEVEL_MOUNT = 16,
	GUARD_LEVEL_CGROUP_BPF = 32,
	GUARD_LEVEL_XDP = 64,
	GUARD_LEVEL_NAMESPACE = 128,
};

struct guard_rule {
	uint16_t kind;	  /* enum guard_rule_kind */
	bool is_audit;	  /* told, not refused */
	bool is_required; /* nothing enforces it: the create fails */
	uint32_t bits, value;
	const char *text;  /* NULL where the kind has none */
	const char *label; /* as in the document: "files.protect /usr/bin" */
};

enum { GUARD_PORT_RANGES_MAX = 8 };

struct guard_ports {
	uint16_t first, last; /* both included; of ICMP: its types */
	uint8_t protocol;     /* IPPROTO_TCP, _UDP, _ICMP, _ICMPV6 */
	uint16_t rule;	      /* that allows them */
	bool is_tls;	      /* of names alone: by the forwarder, to who names its host by TLS */
};

/*
 * What a policy allows to an address, or a range of them. Where several hold, the one with the most
 * prefix bits does, alone: what matches none of its ports is refused. Where none holds nothing is
 * allowed, and to metadata services never.
 */
struct guard_destination {
	uint8_t address[16]; /* IPv6, or IPv4 as ::ffff:a.b.c.d */
	uint8_t prefix_bits; /* of these 128 */
	uint8_t port_count;  /* 0: refused by `rule` */
	uint32_t rule;
	struct guard_ports ports[GUARD_PORT_RANGES_MAX];
};

/*
 * What a policy allows to the addresses that a name turns out to have, beside what it allows to
 * these anyway; what an address is denied no name gives. Of several that hold a name the closest
 * one says all: the name itself, else the longest.
 */
struct guard_name {
	const char *text;	     /* "api.example"; ".mirror.example": it and all below it */
	struct guard_destination to; /* ports and rules; no address */
};

/* How much a sandbox may send to all destinations. 0: as much as it likes. */
struct guard_caps {
	uint64_t connections, bytes; /* in its life */
	uint64_t connections_per_s, bytes_per_s;
};

struct guard_policy {
	uint32_t number; /* from 1; never used again while the engine lives */
	uint32_t rule_count;
	const struct guard_rule *rules; /* rule n of events and counters is rules[n - 1] */
	char name[GUARD_POLICY_NAME_MAX + 1];
	bool has_egress; /* its sandboxes may have a way out, to what follows alone */
	uint32_t destination_count;
	const struct guard_destination *destinations;
	uint32_t name_count;
	const struct guard_name *names;
	struct guard_caps caps;
};
