/*
 * The numbers that the API (dsec.h) and the wire (ring.h) share. Enums only grow: a value is never
 * reused, and whoever meets one it does not know treats it as its comment says.
 */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How a request ended. Unknown values: as DSEC_FAILED. */
enum dsec_code {
	DSEC_OK = 0,
	DSEC_REFUSED = 1, /* a limit; nothing was done; retry_after_ms says when to ask again */
	DSEC_INVALID = 2, /* the request makes no sense */
	DSEC_DENIED = 3,  /* not allowed */
	DSEC_ABSENT = 4,  /* no such sandbox, image, exec */
	DSEC_CONFLICT =
		5, /* the request id is in use with another request, or a state forbids it */
	DSEC_UNSUPPORTED = 6, /* this engine or this host cannot */
	DSEC_DEADLINE = 7,    /* the request's timeout passed; what was half done is undone */
	DSEC_CANCELLED = 8,   /* as asked; what was half done is undone */
	DSEC_FAILED = 9,      /* a step failed; status.step and status.error say which and how */
	DSEC_UNKNOWN = 10,    /* may have run; never run again */
	DSEC_LOST = 11, /* the connection went for good; the same request id may be sent again */
};

/* Whose fault. A trainer masks what the platform did, scores the guest, raises on the caller. */
enum dsec_blame {
	DSEC_BLAME_NONE = 0,
	DSEC_BLAME_CALLER = 1,
	DSEC_BLAME_GUEST = 2,
	DSEC_BLAME_PLATFORM = 3,
};

/* Why a program ended. */
enum dsec_reason {
	DSEC_RUNNING = 0,
	DSEC_EXIT = 1,
	DSEC_SIGNAL = 2,
	DSEC_TIMEOUT = 3,
	DSEC_IDLE_TIMEOUT = 4,
	DSEC_OOM = 5,
	DSEC_KILLED = 6,      /* with its sandbox, or by a request */
	DSEC_NOT_STARTED = 7, /* exit_code is 126 or 127; status.step says argv0, cwd, user, ... */
	DSEC_END_UNKNOWN = 8,
	DSEC_OUTPUT_LIMIT = 9, /* it wrote more than it may: see output_limit_bytes */
	DSEC_PHASE_OVER = 10,  /* with its phase: see DSEC_PHASE_KILL_OLD */
	DSEC_FORK_BOMB = 11,   /* at its limit of processes it did little but fail to fork */
};

/* What an event is. Unknown values are skipped, unless they carry DSEC_LAST. */
enum dsec_kind {
	DSEC_EV_DONE = 0,
	DSEC_EV_CREATED = 1,
	DSEC_EV_STARTED = 2,
	DSEC_EV_DATA = 3,
	DSEC_EV_GAP = 4,
	DSEC_EV_ROW = 5,
	DSEC_EV_PROGRESS = 6,
	DSEC_EV_STATE = 7,
	DSEC_EV_ANOMALY = 8,
	DSEC_EV_RECONNECTED = 9, /* libdsec's own: it never travels */
};

/* Life of a sandbox. */
enum dsec_state {
	DSEC_STATE_CREATING = 1,
	DSEC_STATE_RUNNING = 2,
	DSEC_STATE_DESTROYING = 3,
	DSEC_STATE_QUARANTINED = 4, /* it was to go, and its processes do not die: tried again */
	DSEC_STATE_ENDED = 5,	    /* only when inspected: gone, and still remembered */
};

/* Why a sandbox ended, or is about to. Unknown values: as DSEC_CAUSE_NONE. */
enum dsec_cause {
	DSEC_CAUSE_NONE = 0,
	DSEC_CAUSE_DESTROYED = 1, /* as asked */
	DSEC_CAUSE_TTL = 2,
	DSEC_CAUSE_IDLE_TTL = 3,
	DSEC_CAUSE_DISCONNECTED = 4, /* with its connection */
	DSEC_CAUSE_DIED = 5,	     /* its PID 1 was killed */
	DSEC_CAUSE_OOM = 6,	     /* its PID 1 was killed for memory */
	DSEC_CAUSE_STOPPED = 7,	     /* with the engine */
	DSEC_CAUSE_CANCELLED = 8,    /* its create was, see DESTROY_IF_CANCELLED */
	DSEC_CAUSE_FAILED = 9,	     /* it could not be built; only in events */
};

/*
 * What happened, in a DSEC_EV_STATE; subscriptions choose by bits 1 << topic. Those of a sandbox
 * itself have the number of its new state. From 32 on: integrity.
 */
enum dsec_topic {
	DSEC_TOPIC_CREATING = 1,
	DSEC_TOPIC_RUNNING = 2,
	DSEC_TOPIC_DESTROYING = 3,
	DSEC_TOPIC_QUARANTINED = 4,
	DSEC_TOPIC_ENDED = 5,
	DSEC_TOPIC_EXEC_STARTED = 8,
	DSEC_TOPIC_EXEC_ENDED = 9,	/* also of one that could not start */
	DSEC_TOPIC_PHASE = 10,		/* of a sandbox: it is in another phase */
	DSEC_TOPIC_THROTTLED = 11,	/* it makes processes too fast, and is frozen for moments */
	DSEC_TOPIC_UNTHROTTLED = 12,	/* it does not any more */
	DSEC_TOPIC_IMAGE_IMPORTED = 16, /* of images, and of no sandbox: from here to 18 */
	DSEC_TOPIC_IMAGE_REPLACED = 17, /* imported under a name that another had */
	DSEC_TOPIC_IMAGE_REMOVED = 18,
	DSEC_TOPIC_VIOLATION = 32, /* a rule was broken, or tried to be */
	DSEC_TOPIC_ANOMALY = 33,   /* what an anomaly rule makes of violations */
};

/* What violations and storms come to; see docs/anomalies.md. Masks have bits 1 << these. */
enum dsec_anomaly {
	DSEC_ANOMALY_PROTECTED_WRITE = 0,
	DSEC_ANOMALY_DANGEROUS_IOCTL = 1,
	DSEC_ANOMALY_PORT_SCAN = 2,
	DSEC_ANOMALY_HUNTING = 3,
	DSEC_ANOMALY_OUTSIDE_PTRACE = 4,
	DSEC_ANOMALY_OUTSIDE_SIGNAL = 5,
	DSEC_ANOMALY_SOCKET_PROBING = 6,
	DSEC_ANOMALY_OFFLINE_SOCKETS = 7,
	DSEC_ANOMALY_VERIFY_TAMPER = 8,
	DSEC_ANOMALY_STORM = 9,
	DSEC_ANOMALY_DNS_TUNNEL = 10,
	DSEC_ANOMALY_BYTES_PER_DESTINATION = 11,
	DSEC_ANOMALY_VCS_DIRECT = 12,
	DSEC_ANOMALY_PROXY_OWN_REPOSITORY = 13,
	DSEC_ANOMALIES = 14,
};

/* How much went to one place by a policy's way out. */
struct dsec_flow {
	uint8_t address[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint16_t port;
	uint8_t protocol; /* IPPROTO_TCP, _UDP */
	uint8_t reserved;
	uint32_t rule; /* of its policy, that allows it */
	uint64_t bytes;
};

/* What went out by it so far. All 0: there is no such way out. */
struct dsec_egress {
	uint64_t sent_bytes;
	uint64_t connections; /* begun: TCP's, and places that UDP was sent to anew */
	uint64_t refused;     /* calls */
	uint64_t dropped;     /* packets that no call was refused for */
	uint64_t capped;      /* calls and packets that only the policy's caps kept back */
	uint32_t flow_count, reserved;
	struct dsec_flow flows[16]; /* most bytes first */
};

enum dsec_subscribe_flag {
	DSEC_SUBSCRIBE_SO_FAR = 1, /* what happened until now, without waiting for more */
};

/* Of a DSEC_EV_GAP of a subscription. */
enum dsec_missed_flag {
	/* The count is of all that happened: what of it was selected nobody knows any more. */
	DSEC_MISSED_UNSELECTED = 1,
	DSEC_MISSED_RESET = 2, /* another engine: its events begin here, the old one's are gone */
};

/* dsec_change(): which fields; unknown bits are refused. */
enum dsec_change_field {
	DSEC_CHANGE_TTL = 1,
	DSEC_CHANGE_IDLE_TTL = 2,
	DSEC_CHANGE_ON_TIMEOUT = 4,
	DSEC_CHANGE_LABELS = 8,
};

enum dsec_create_flag {
	DSEC_CREATE_ALLOW_DEGRADED =
		1,		    /* limits this host cannot enforce are echoed, not refused */
	DSEC_CREATE_FRESH_ROOT = 2, /* never a reused root file system, however clean */
	DSEC_CREATE_DESTROY_IF_CANCELLED = 4,
	DSEC_CREATE_SCHED_IDLE = 8, /* runs only where nobody else wants the CPU */
};

/* What becomes of a sandbox whose ttl or idle_ttl passed. */
enum dsec_on_timeout {
	DSEC_ON_TIMEOUT_DEFAULT = 0, /* destroy */
	DSEC_ON_TIMEOUT_DESTROY = 1,
	DSEC_ON_TIMEOUT_PAUSE = 2, /* no engine can yet: DSEC_UNSUPPORTED */
};

enum dsec_network {
	/* `shared`; less where the policy, the operator or the host has less */
	DSEC_NETWORK_DEFAULT = 0,
	DSEC_NETWORK_NONE = 1,	  /* unix sockets only */
	DSEC_NETWORK_PRIVATE = 2, /* a network namespace of its own, with loopback */
	/* ... and a way out that no policy watches, for set-up work; marked wherever it shows */
	DSEC_NETWORK_EGRESS_UNPOLICED = 3,
	/*
	 * A network namespace of many sandboxes, see enum dsec_network_scope: each has loopback,
	 * with every port its own, and reaches nobody else. Its abstract unix names are refused.
	 */
	DSEC_NETWORK_SHARED = 4,
};

/* Whose sandboxes of network `shared` are in one namespace: `dsecd --shared-scope` says. */
enum dsec_network_scope {
	DSEC_NETWORK_SCOPE_SANDBOX = 0, /* network `private`; and `none`, which has nothing */
	DSEC_NETWORK_SCOPE_JOB = 1,	/* the default: the tenant's of one label `job` */
	DSEC_NETWORK_SCOPE_TENANT = 2,	/* all of the tenant's */
	DSEC_NETWORK_SCOPE_NODE = 3,	/* all of the engine's */
};

/* Why a sandbox has the network that it has. */
enum dsec_network_why {
	DSEC_NETWORK_WHY_ASKED = 0,    /* its create named it */
	DSEC_NETWORK_WHY_DEFAULT = 1,  /* its create named none */
	DSEC_NETWORK_WHY_OPERATOR = 2, /* the same, and `dsecd --network` was given */
	DSEC_NETWORK_WHY_POLICY = 3,   /* the same, and its policy has less; or its phase took it */
	/* Without either it would be `shared`, and is `none`, since on this host */
	DSEC_NETWORK_WHY_NO_PROGRAMS = 4, /* ... the programs that `shared` needs do not load */
	DSEC_NETWORK_WHY_NO_ABSTRACT = 5, /* ... nothing can refuse abstract unix names */
};

/* Bits of an exec's result. */
enum dsec_result_flag {
	DSEC_RESULT_UNPOLICED = 1, /* its sandbox had DSEC_NETWORK_EGRESS_UNPOLICED */
};

enum dsec_port_flag {
	DSEC_PORT_REVOKE = 1, /* the token opens nothing any more */
};

/* What becomes of a sandbox when the connection that created it ends. */
enum dsec_disconnect {
	DSEC_DISCONNECT_KEEP = 0,
	DSEC_DISCONNECT_DESTROY = 1,
	DSEC_DISCONNECT_PAUSE = 2, /* no engine can yet: DSEC_UNSUPPORTED */
};

enum dsec_exec_flag {
	DSEC_EXEC_CAPTURE = 1, /* head and tail of stdout and stderr come in the result */
	DSEC_EXEC_MERGE = 2,   /* stderr into stdout's pipe */
	/* Output comes as it is written, as DSEC_EV_DATA; with CAPTURE in the result, too. */
	DSEC_EXEC_STREAM = 4,
	DSEC_EXEC_INPUT_STREAM = 8, /* stdin is what dsec_input() says */
	/* The request ends when the program has started; neither STREAM nor CAPTURE. */
	DSEC_EXEC_DETACH = 16,
	DSEC_EXEC_TTY = 32, /* a terminal of its own: stdin, stdout and stderr, and job control */
	/* argv follows the image's entrypoint; without any, the image's command does. */
	DSEC_EXEC_IMAGE_COMMAND = 64,
};

/* Whom a signal is for, besides the main process alone. */
enum dsec_signal_flag {
	DSEC_SIGNAL_ALL = 1 << 8, /* every process of the exec, whatever session it is in */
	/* SIGHUP only: its terminal is hung up, as when a line is cut. */
	DSEC_SIGNAL_TERMINAL = 1 << 9,
};

/* Resource limits of a program: the numbers of Linux, see setrlimit(2). */
enum dsec_resource {
	DSEC_RESOURCE_CPU = 0,
	DSEC_RESOURCE_FSIZE = 1,
	DSEC_RESOURCE_DATA = 2,
	DSEC_RESOURCE_STACK = 3,
	DSEC_RESOURCE_CORE = 4,
	DSEC_RESOURCE_RSS = 5,
	DSEC_RESOURCE_NPROC = 6,
	DSEC_RESOURCE_NOFILE = 7,
	DSEC_RESOURCE_MEMLOCK = 8,
	DSEC_RESOURCE_AS = 9,
	DSEC_RESOURCE_LOCKS = 10,
	DSEC_RESOURCE_SIGPENDING = 11,
	DSEC_RESOURCE_MSGQUEUE = 12,
	DSEC_RESOURCE_NICE = 13,
	DSEC_RESOURCE_RTPRIO = 14,
	DSEC_RESOURCE_RTTIME = 15,
};

/* Their names, as setrlimit(2) has them, by number: the initializer of an array of strings. */
#define DSEC_RESOURCE_NAMES                                                                        \
	{                                                                                          \
		"cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile", "memlock",      \
			"as", "locks", "sigpending", "msgqueue", "nice", "rtprio", "rttime"        \
	}

/* What is done with a file. */
enum dsec_file_verb {
	DSEC_FILE_READ = 1,
	DSEC_FILE_WRITE = 2,
	DSEC_FILE_STAT = 3,
	DSEC_FILE_LIST = 4,
	DSEC_FILE_MKDIR = 5,
	DSEC_FILE_REMOVE = 6,
	DSEC_FILE_RENAME = 7,
	DSEC_FILE_WATCH = 8,
};

enum dsec_file_flag {
	DSEC_FILE_TAR = 1,	  /* read, write: the file or the tree at path, as a tar archive */
	DSEC_FILE_APPEND = 2,	  /* write: to the end of what is there */
	DSEC_FILE_MODE = 4,	  /* write, mkdir: `mode` is given */
	DSEC_FILE_EXCLUSIVE = 8,  /* write, rename: EEXIST where there is something already */
	DSEC_FILE_PARENTS = 16,	  /* mkdir, tar in: make what is missing of the path */
	DSEC_FILE_RECURSIVE = 32, /* remove: with all that is under it */
	DSEC_FILE_NO_FOLLOW = 64, /* a link at the end of the path is not followed */
	DSEC_FILE_NO_LINKS = 128, /* a link anywhere in the path: ELOOP */
	DSEC_FILE_OWNERS = 256,	  /* tar in: user and group as in the archive */
	DSEC_FILE_INPUT = 512,	  /* write: the content follows by dsec_input() */
};

/* What an entry of a folder is. Unknown values: as OTHER. */
enum dsec_file_type {
	DSEC_FILE_TYPE_OTHER = 0,
	DSEC_FILE_TYPE_FILE = 1,
	DSEC_FILE_TYPE_FOLDER = 2,
	DSEC_FILE_TYPE_LINK = 3,
	DSEC_FILE_TYPE_FIFO = 4,
	DSEC_FILE_TYPE_SOCKET = 5,
	DSEC_FILE_TYPE_CHARACTER = 6,
	DSEC_FILE_TYPE_BLOCK = 7,
};

/* Bits: what happened to a name in a folder that is watched. 0: it is watched from here on. */
enum dsec_file_change {
	DSEC_FILE_CHANGE_CREATED = 1, /* or moved here */
	DSEC_FILE_CHANGE_REMOVED = 2, /* or moved away */
	DSEC_FILE_CHANGE_CONTENT = 4,
	DSEC_FILE_CHANGE_CLOSED = 8, /* by somebody who could write */
	DSEC_FILE_CHANGE_ATTRIBUTES = 16,
	DSEC_FILE_CHANGE_LOST = 32, /* there were more than could be told */
	DSEC_FILE_CHANGE_GONE = 64, /* the folder itself: nothing follows */
};

/* Why an entry of an archive was left out; BITS: it was not, but lost setuid, setgid or sticky. */
enum dsec_file_reason {
	DSEC_FILE_REASON_NONE = 0, /* the row says what there is */
	/* Its name, or a hard link's target, leads out of the folder. */
	DSEC_FILE_REASON_OUTSIDE = 1,
	DSEC_FILE_REASON_LINK = 2,    /* a link lies on its way */
	DSEC_FILE_REASON_SPECIAL = 3, /* no file, folder or link */
	DSEC_FILE_REASON_BITS = 4,
	DSEC_FILE_REASON_SIZE = 5,   /* larger than bytes_max */
	DSEC_FILE_REASON_DEEP = 6,   /* the path is too long */
	DSEC_FILE_REASON_FAILED = 7, /* the row's error says why */
	/* It is there, without some of its extended attributes: the row's error says why. */
	DSEC_FILE_REASON_ATTRIBUTES = 8,
};

/* processes_per_s of a create: as many as it likes. */
#define DSEC_PROCESSES_UNLIMITED UINT32_MAX

/*
 * Bits of `unenforced`: limits that this host cannot enforce. In a sandbox's settings: of those
 * that it has, asked for or by default.
 */
enum dsec_limit {
	DSEC_LIMIT_MEMORY = 1,
	DSEC_LIMIT_PIDS = 2,
	DSEC_LIMIT_CPU = 4, /* weight and max */
	DSEC_LIMIT_SWAP = 8,
	DSEC_LIMIT_IO = 16, /* bytes per second */
	DSEC_LIMIT_IO_WEIGHT = 32,
	DSEC_LIMIT_PROCESSES = 64, /* made in a second */
};
enum dsec_attach_flag {
	DSEC_ATTACH_SO_FAR = 1, /* what there is now, without waiting for more */
};

enum dsec_list_what { DSEC_LIST_SANDBOXES = 0, DSEC_LIST_EXECS = 1 };

/* What is done with functions. */
enum dsec_function_verb {
	DSEC_FUNCTION_REGISTER = 1,
	DSEC_FUNCTION_LIST = 2,
	DSEC_FUNCTION_REMOVE = 3,
};

enum dsec_function_flag {
	DSEC_FUNCTION_ALLOW_DEGRADED = 1, /* as DSEC_CREATE_ALLOW_DEGRADED */
	DSEC_FUNCTION_IMAGE_COMMAND = 2,  /* as DSEC_EXEC_IMAGE_COMMAND */
};

/* What calls of a function share: nothing, or a set of namespaces that is proven clean. */
enum dsec_isolation { DSEC_ISOLATION_FRESH = 0, DSEC_ISOLATION_DOMAIN = 1 };

/* What became of a call. Unknown values: as DSEC_VERDICT_IE. */
enum dsec_verdict {
	DSEC_VERDICT_OK = 1,  /* it exited with 0 */
	DSEC_VERDICT_TLE = 2, /* time: of the CPU, or of the clock */
	DSEC_VERDICT_MLE = 3, /* memory */
	DSEC_VERDICT_RE = 4,  /* another exit, or a signal */
	DSEC_VERDICT_OLE = 5, /* output */
	DSEC_VERDICT_IE = 6,  /* not the call's fault: see the event's status */
};

/* What is done with images. */
enum dsec_image_verb {
	DSEC_IMAGE_IMPORT = 1,
	DSEC_IMAGE_LIST = 2,
	DSEC_IMAGE_INSPECT = 3,
	DSEC_IMAGE_REMOVE = 4,
	DSEC_IMAGE_COMPOSE = 5,
	DSEC_IMAGE_GC = 6,
	DSEC_IMAGE_VERIFY = 7,
	DSEC_IMAGE_PUSH = 8,
	DSEC_IMAGE_PULL = 9,
	DSEC_IMAGE_PACK = 10,
	DSEC_IMAGE_HOTSET = 11,
};

enum dsec_image_flag {
	/* import: it lies over others; whiteouts stay, no /dev is added. pack: the layer alone */
	DSEC_IMAGE_LAYER = 1,
	DSEC_IMAGE_DRY_RUN = 2, /* gc: only says what would go */
	DSEC_IMAGE_ZSTD = 4,	/* push: contents are packed */
	DSEC_IMAGE_LAZY = 8,	/* pull: contents come when read; verify: they may be missing */
	/* pack: of all layers one is made, so that rules and canaries are of all that there is */
	DSEC_IMAGE_FLATTEN = 16,
	/* pack: all that runs in it ends first, with DSEC_KILLED, instead of standing still */
	DSEC_IMAGE_KILL = 32,
};

/* What the stream of an import is a tar of; plain, gzip or zstd. */
enum dsec_image_kind {
	DSEC_IMAGE_AUTO = 0,	/* told by the first name in it */
	DSEC_IMAGE_TREE = 1,	/* a root file system */
	DSEC_IMAGE_ARCHIVE = 2, /* a docker archive or an OCI layout */
};

/* What is done with policies. */
enum dsec_policy_verb {
	DSEC_POLICY_CHECK = 1,
	DSEC_POLICY_LOAD = 2,
	DSEC_POLICY_SHOW = 3,
	DSEC_POLICY_LIST = 4,
	DSEC_POLICY_REMOVE = 5,
	DSEC_POLICY_SERVICES = 6,
};

enum { DSEC_POLICY_DOCUMENT_BYTES_MAX = 64 << 10, DSEC_POLICY_NAME_BYTES_MAX = 63 };

/* What a row about policies is of. */
enum dsec_policy_what {
	DSEC_POLICY_ITSELF = 1,
	DSEC_POLICY_RULE = 2,
	DSEC_POLICY_PHASE = 3,
	DSEC_POLICY_SERVICE = 4, /* one place of a named service */
};

/* A set: how a host enforces a rule. */
enum dsec_policy_level {
	DSEC_POLICY_BPF_LSM = 1,
	DSEC_POLICY_APPARMOR = 2,
	DSEC_POLICY_LANDLOCK = 4,
	DSEC_POLICY_SECCOMP = 8,
	DSEC_POLICY_MOUNT = 16,
	DSEC_POLICY_CGROUP_BPF = 32,
	DSEC_POLICY_XDP = 64,
	DSEC_POLICY_NAMESPACE = 128,
};

enum dsec_policy_flag {
	DSEC_POLICY_READY_MADE = 1, /* everybody's, and never changed */
	DSEC_POLICY_REQUIRED = 2,   /* a rule: a create fails where nothing can enforce it */
	DSEC_POLICY_AUDIT = 4,	    /* a rule: told, not refused */
	/* It has places of services as they were; loaded again it has those of now */
	DSEC_POLICY_SERVICES_OLD = 8,
};

/* How a sandbox goes to another phase. */
enum dsec_phase_flag {
	DSEC_PHASE_KILL_OLD = 1,       /* all that runs is killed first, but for its PID 1 */
	DSEC_PHASE_CUT_FLOWS = 2,      /* its connections are cut, of whatever runs on */
	DSEC_PHASE_ALLOW_DEGRADED = 4, /* also where nothing enforces a rule that is required */
};

enum { DSEC_PHASE_NAME_BYTES_MAX = 63 };

enum dsec_transport { DSEC_TRANSPORT_RING = 1, DSEC_TRANSPORT_STREAM = 2 };

enum dsec_feature {
	DSEC_FEATURE_RING = 1,
	DSEC_FEATURE_STREAM = 2,
	DSEC_FEATURE_CONTAINER = 4,
	DSEC_FEATURE_NETWORK_PRIVATE = 8,
	DSEC_FEATURE_EXIT_EVENTS = 16, /* deaths come by BPF, not by waiting */
	DSEC_FEATURE_ABSTRACT_GUARD = 32,
};

#ifdef __cplusplus
}
#endif
