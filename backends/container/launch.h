/*
 * What a shard and its launcher workers say to each other, over a SOCK_SEQPACKET pair: one request
 * is one packet, answered by one reply, in order. Both sides are ours, but a worker shares memory
 * for a moment with a child inside a sandbox, so the engine checks replies as it checks a client's.
 *
 * A worker is stateless: everything that outlives a request hangs in the vault (a mount namespace
 * that only the engine and its workers hold) or in the cgroup tree, so any worker can serve any
 * slot and a killed worker costs the one request it was busy with.
 *
 *	vault	/img/K		image K, one EROFS mount shared by all slots
 *		/slots/S/user	user namespace of slot S (nsfs)
 *		/slots/S/lower	its clone of the image, idmapped to its range of ids
 *		/slots/S/up	its tmpfs: u and w, upper and work directory
 *		/slots/S/up/root  the overlay, with a devpts of its own on dev/pts: it hangs there
 *				so that one unmount, and one wait for it, takes all three
 *		/nets/N		network namespace N, of one sandbox at a time or of a group (nsfs)
 *	cgroups	<shard>/bS	slot S: PID 1 lives here
 *		<shard>/bS/eL	leaf L: one exec and its descendants
 *
 * Descriptors a worker is started with:
 */
#pragma once

#include <stdint.h>

#include "backends/limits.h"

enum launch_fd {
	LAUNCH_FD_CHANNEL = 3, /* the socket to the shard */
	LAUNCH_FD_VAULT = 4,   /* the vault's mount namespace (nsfs) */
	LAUNCH_FD_CGROUP = 5,  /* the shard's cgroup directory */
	LAUNCH_FD_INIT = 6,    /* sealed memfd of PID 1, mode 0111 */
	LAUNCH_FD_NETWORK = 7, /* the network namespace without interfaces: mode `none` */
	LAUNCH_FD_PROC = 8,    /* the host's /proc, for uid maps and namespace files */
	LAUNCH_FD_HELPER = 9,  /* sealed memfd of the file helper, mode 0111 */
	LAUNCH_FD_ROUTER = 10, /* the network namespace between sandboxes and the host, if any */
	LAUNCH_FD_COUNT = 11,
};

enum launch_op {
	LAUNCH_ATTACH = 1, /* descriptor: a detached mount; becomes /img/<image> */
	LAUNCH_DETACH,	   /* /img/<image> goes */
	LAUNCH_BUILD,	   /* make or remake slot's user namespace, tmpfs, overlay, cgroup */
	LAUNCH_SPAWN,	   /* build if LAUNCH_REBUILD is set, then PID 1 */
	LAUNCH_EXEC,	   /* a program in the sandbox whose PID 1 is `pid`; descriptors 0, 1, 2 */
	LAUNCH_KILL,	   /* kill everything in leaf, wait until it is empty, remove it */
	LAUNCH_SWEEP, /* after a lost worker: kill what is in the slot's cgroup, drop the slot */
	LAUNCH_DROP,  /* the slot's mounts, namespaces and cgroups go */
	LAUNCH_STAT,  /* cpu, memory and process count of the slot's cgroup */
	LAUNCH_NETWORK_MAKE,  /* /nets/<network>, where there is none */
	LAUNCH_NETWORK_PROVE, /* is it as nobody has ever used it: LAUNCH_CLEAN, LAUNCH_BUSY */
	LAUNCH_NETWORK_DROP,  /* it goes; replies with a witness of its end, see network.c */
	LAUNCH_PORT_LOOK,     /* ECONNREFUSED: nothing listens on `port` of its loopback */
	LAUNCH_PORT_CONNECT,  /* replies with a socket that is connected, or about to be */
	LAUNCH_SIGNAL,	      /* `signal` to every process of leaf */
	LAUNCH_RESIZE,	      /* descriptor: the master of a terminal; gets `rows` and `columns` */
	LAUNCH_FINISH, /* the main process of leaf has ended: kill what it left, count, prove */
	LAUNCH_NARROW, /* the mounts of a sheet around the sandbox whose PID 1 is `pid` */
	/* Nobody in the slot runs until it is thawed; replies with its upper directory, to read. */
	LAUNCH_FREEZE,
	LAUNCH_THAW, /* fine where nobody is frozen, or there is no such slot */
	/*
	 * The worker takes the filter of a sheet on itself, for good: what it starts has it without
	 * being given it. From then on it takes LAUNCH_SPAWN and _EXEC with that filter only.
	 */
	LAUNCH_BIND,
	LAUNCH_OP_COUNT,
};

enum launch_flag {
	LAUNCH_REBUILD = 1,   /* the slot's root is dirty, of another image, or absent */
	LAUNCH_PRIVATE = 2,   /* LAUNCH_SPAWN: in /nets/<network>, not in the workers' namespace */
	LAUNCH_LEAF_USED = 4, /* the leaf existed: check that nothing is left in it */
	LAUNCH_IPV6 = 8,      /* reply of a LAUNCH_PORT_*: on ::1 */
	LAUNCH_REUSED = 16,   /* reply: the root was not rebuilt */
	LAUNCH_ANEW = 32,     /* LAUNCH_REBUILD: its user namespace is of no use either */
	LAUNCH_CLEAN = 64,    /* reply: proven */
	LAUNCH_BUSY = 128,    /* reply: sockets are left, which may yet go */
	LAUNCH_OOM = 256,     /* memory is limited: count what the limit killed */
	/* LAUNCH_SPAWN: in a new cgroup, whose peak is its own; all limits are to be written. */
	LAUNCH_NEW_GROUP = 8192,
	LAUNCH_SCHED_IDLE = 512, /* LAUNCH_EXEC: under SCHED_IDLE, and it stays so */
	LAUNCH_HELPER = 1024,	 /* LAUNCH_EXEC: the program is the file helper */
	/*
	 * LAUNCH_EXEC: 0, 1 and 2 are a new terminal of the slot's devpts, the child's controlling
	 * one. No descriptors come along; the reply carries the master, and a failure none.
	 */
	LAUNCH_TTY = 2048,
	LAUNCH_HOME = 16384, /* LAUNCH_EXEC: HOME is the user's, after the other variables */
	LAUNCH_EGRESS =
		4096, /* LAUNCH_NETWORK_MAKE, _DROP, LAUNCH_STAT: with a way to the router */
	LAUNCH_COUNT = 32768, /* LAUNCH_EXEC: reply with cpu_us, as before the program */
	LAUNCH_PROVE = 65536, /* LAUNCH_FINISH: is PID 1's sandbox as before: LAUNCH_CLEAN */
	/*
	 * LAUNCH_FINISH: an earlier one may have killed: the leaf goes whoever is in it. Its reply:
	 * it went.
	 */
	LAUNCH_LEAF_GONE = 131072,
	LAUNCH_CROWDED = 262144, /* reply of LAUNCH_EXEC: the sandbox is full of processes */
	/* LAUNCH_SPAWN, _EXEC, _NARROW, _BIND: the last descriptor is a policy's sheet. */
	LAUNCH_WALLS = 524288,
	/*
	 * LAUNCH_NETWORK_MAKE: for many sandboxes, each by addresses of its own. LAUNCH_PORT_*: of
	 * the one that has `shared_address`.
	 */
	LAUNCH_SHARED = 1048576,
	LAUNCH_RESOLVER = 2097152, /* LAUNCH_SPAWN: its resolv.conf names the engine's */
	/* LAUNCH_SPAWN, _EXEC: the worker was moved: what it starts may run where it could once. */
	LAUNCH_WIDE = 4194304,
};

/*
 * A request that fails leaves nothing of its own, and whatever it was to change is as before, but:
 * a build that fails takes the whole slot with it; a spawn that fails after its build leaves the
 * slot built; a kill that fails may be asked again and leaves a leaf that must not be used.
 * LAUNCH_SWEEP, LAUNCH_DROP, LAUNCH_DETACH, LAUNCH_THAW and LAUNCH_NETWORK_DROP are fine where
 * there is nothing, and may be asked again after a failure; LAUNCH_DROP is refused with EBUSY
 * while somebody lives in the slot.
 *
 * Where a request failed. Names: launch_step_name(). */
enum launch_step {
	LAUNCH_STEP_NONE,
	LAUNCH_STEP_REQUEST,
	LAUNCH_STEP_USERNS,
	LAUNCH_STEP_CGROUP,
	LAUNCH_STEP_UPPER,
	LAUNCH_STEP_LOWER,
	LAUNCH_STEP_OVERLAY,
	LAUNCH_STEP_DEVPTS,
	LAUNCH_STEP_NETNS,
	LAUNCH_STEP_ROOT,
	LAUNCH_STEP_CLONE,
	LAUNCH_STEP_PROC,
	LAUNCH_STEP_MASK,
	LAUNCH_STEP_HOSTNAME,
	LAUNCH_STEP_NAMESPACES,
	LAUNCH_STEP_STDIO,
	LAUNCH_STEP_SESSION,
	LAUNCH_STEP_CREDENTIALS,
	LAUNCH_STEP_USER,  /* the user was not found */
	LAUNCH_STEP_CWD,   /* the working directory */
	LAUNCH_STEP_ARGV0, /* the program */
	LAUNCH_STEP_WAIT,  /* the child did not reach its program in time and was killed */
	LAUNCH_STEP_KILL,
	LAUNCH_STEP_PORT,
	LAUNCH_STEP_EGRESS,
	LAUNCH_STEP_TTY,    /* EDQUOT, ENODEV: the sandbox filled or hid its /dev/pts */
	LAUNCH_STEP_LIMIT,  /* reply.limit is above its hard limit: EPERM */
	LAUNCH_STEP_SIGNAL, /* EAGAIN: new processes kept coming */
	LAUNCH_STEP_PROOF,
	LAUNCH_STEP_WALLS,    /* a policy's mounts, filter, profile */
	LAUNCH_STEP_RESOLVER, /* /etc/resolv.conf */
	LAUNCH_STEP_FREEZE,   /* ETIMEDOUT: somebody does not stop; all were thawed */
	LAUNCH_STEP_COUNT,
};

const char *launch_step_name(uint32_t step); /* "userns"; "unknown" out of range */

enum {
	LAUNCH_PAYLOAD_BYTES_MAX = 160 * 1024,
	LAUNCH_USER_BYTES_MAX = 64,
	LAUNCH_HOSTNAME_BYTES_MAX = 64,
	LAUNCH_ARGUMENTS_MAX = 4096, /* argv and env together */
	LAUNCH_LIMITS_MAX = 16,	     /* as many as there are resources */
	/* Terminals of a slot at once. All slots share kernel.pty.max, so each has but a few. */
	LAUNCH_PTYS_MAX = 64,
	LAUNCH_RULES_MAX = 1024, /* of a policy */
};

/*
 * The slot's cgroup carries the id of its sandbox, 32 hexadecimal digits, in this attribute:
 * cgroups are pooled and cannot be renamed. It stays until the next sandbox of the slot.
 */
#define LAUNCH_SANDBOX_XATTR "trusted.dsec.sandbox"

/* A resource limit of one program: setrlimit(2). UINT64_MAX: none. */
struct launch_limit {
	uint32_t resource, reserved;
	uint64_t soft, hard;
};

struct launch_request {
	uint64_t tag; /* echoed */
	uint32_t op, flags;
	uint32_t slot;		/* number in the vault, unique in the engine */
	uint32_t image;		/* K */
	uint32_t leaf;		/* L */
	uint32_t limit_ms;	/* for what a child does before its program runs */
	uint32_t uid_base;	/* first host uid and gid of the slot's range of 65,536 */
	uint32_t processes_max; /* RLIMIT_NPROC of the user namespace; 0: none */
	int32_t pid; /* LAUNCH_EXEC, _PROVE, _NARROW: PID 1, alive or unreaped until the reply */
	uint32_t limits_changed;  /* LAUNCH_SPAWN: bits of enum box_limit to write; others stay */
	struct box_limits limits; /* written where the controller exists */
	uint32_t io_major, io_minor;	 /* whose bytes are limited */
	uint64_t disk_bytes, inodes;	 /* of the upper tmpfs */
	uint64_t sandbox_hi, sandbox_lo; /* LAUNCH_SPAWN: whose; see LAUNCH_SANDBOX_XATTR */
	uint32_t argument_count;	 /* strings of argv in the payload, each ends with NUL */
	uint32_t environment_count;	 /* strings of env after them */
	uint32_t payload_bytes;		 /* after this struct in the same packet */
	uint32_t descriptor_count;	 /* by SCM_RIGHTS in the same packet */
	uint32_t network;		 /* N, unique in the engine */
	uint32_t port;
	uint32_t limit_count; /* launch_limits at the start of the payload */
	int32_t signal; /* LAUNCH_SIGNAL, 0: only thaw. LAUNCH_RESIZE: SIGHUP hangs up instead */
	uint16_t rows, columns;	 /* LAUNCH_RESIZE, LAUNCH_TTY; 0: unknown, as there */
	uint32_t egress_address; /* LAUNCH_EGRESS: the first of its four, in host byte order */
	uint32_t shared_address; /* LAUNCH_SHARED: the number of struct guard_shared */
	uint32_t reserved;
	uint8_t egress_address6[16]; /* LAUNCH_EGRESS: the same of IPv6; zero: it has none */
	/*
	 * "" is root and asks no password file: its home is /root, or / without one. "1000:100"
	 * asks it for a home only, which is / where it has none. "1000" and a name are looked up
	 * in the sandbox's own /etc/passwd; a number that has no entry gets that number as its
	 * group, a name without one is an error.
	 */
	char user[LAUNCH_USER_BYTES_MAX];
	char hostname[LAUNCH_HOSTNAME_BYTES_MAX]; /* LAUNCH_SPAWN */
	/* payload: limits, argv, env, the working directory as one more string ("" = home) */
};

/* How an untouched upper looks: compared by slot_untouched(). */
struct launch_baseline {
	uint64_t ctime_ns; /* of upper's root, CLOCK_REALTIME */
	uint64_t free_inodes, free_blocks;
	uint32_t mode, uid; /* of upper's root; its gid is the same */
};

struct launch_reply {
	uint64_t tag;
	int32_t error;	/* 0 or a positive errno */
	uint32_t step;	/* enum launch_step */
	int32_t pid;	/* LAUNCH_SPAWN, LAUNCH_EXEC: the new child of the engine, also on error */
			/* when one exists that must be reaped; 0: none */
	uint32_t flags; /* LAUNCH_REUSED */
	uint32_t leaf_left; /* processes left in a LAUNCH_LEAF_USED leaf: error EBUSY */
	/* LAUNCH_SIGNAL: how many got it; LAUNCH_KILL: had to die, UINT32_MAX: not counted */
	uint32_t processes;
	uint32_t descriptor_count;	 /* 0 or 1, by SCM_RIGHTS in the same packet */
	uint32_t limit;			 /* with LAUNCH_STEP_LIMIT: the resource */
	struct launch_baseline baseline; /* LAUNCH_BUILD, LAUNCH_SPAWN when rebuilt */
	uint64_t cgroup_id;		 /* of bS: LAUNCH_BUILD, LAUNCH_SPAWN */
	uint64_t root_device;		 /* LAUNCH_SPAWN: st_dev of the sandbox's root */
	/*
	 * LAUNCH_STAT, of the slot's cgroup since it was made; LAUNCH_SPAWN, LAUNCH_COUNT: cpu_us,
	 * before the sandbox or the program; LAUNCH_FINISH: cpu_us. UINT64_MAX: not measured here.
	 */
	uint64_t cpu_us, memory_bytes, memory_peak_bytes;
	uint64_t disk_bytes, inodes; /* used in the upper */
	/* LAUNCH_OOM, LAUNCH_STAT, LAUNCH_FINISH: how many its memory limit killed so far */
	uint64_t oom_kills;
	uint64_t io_read_bytes, io_written_bytes;	     /* LAUNCH_STAT */
	uint64_t network_received_bytes, network_sent_bytes; /* with LAUNCH_EGRESS; else 0 */
	/* LAUNCH_SPAWN, _NARROW: bit per rule of the sheet, from 0, whose path is not there. */
	uint64_t rules_absent[LAUNCH_RULES_MAX / 64];
};

_Static_assert(sizeof(struct launch_request) == 200 + 128, "no padding");
_Static_assert(sizeof(struct launch_reply) == 168 + 128, "no padding");
