/*
 * What a backend is to the engine. A backend has a part per node (mounts, launchers: used from the
 * control thread, may block) and a part per shard (used from that shard only, never blocks).
 *
 * A `box` is a backend's part of a sandbox, a `run` its part of an exec. Both are flows or calls of
 * the backend; the engine fills the callbacks and is called back from the loop only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backends/limits.h"
#include "engine/base/flow.h"

struct guard;
struct guard_policy;
struct guard_rule;

/* ---- node: control thread ---- */

struct backend_node;

struct backend_node_options {
	const char *launcher_path;
	int cgroup_fd; /* the instance's root */
	uint32_t shards, slots_per_shard;
	uint32_t uid_first; /* of the instance's uid range */
	const char *instance;
	const char *egress_range;  /* "10.200.0.0/16": sandboxes may have a way out; NULL: none */
	const char *egress6_range; /* "fd00:d5ec::/64": by IPv6, too; NULL: not */
	bool has_resolver;	   /* those with a way out may ask for names */
	const char *images_path;   /* where images lie: whose device I/O is limited */
	uint32_t cpu_burst_ms; /* CPU time at once, beyond which a program yields; 0: none does */
	uint32_t fork_bomb_s;  /* BOX_THROTTLE_BOMB after so long; 0: never */
};

int backend_node_open(const struct backend_node_options *options, struct backend_node **ret);
enum { BACKEND_PREFIXES_MAX = 4 };

/*
 * Where the boxes of a shard ask for names (box_spec.asks_names): a socket of UDP and one of TCP
 * that listens, which hear no others'. Whoever asks is known by its address: box.address4.
 */
struct backend_resolver {
	int udp_fd, listen_fd; /* the caller's */
	int tls_fd;	       /* likewise: hears connections that are forwarded by name */
	/* Addresses of boxes and their ways; IPv4 as ::ffff:a.b.c.d. */
	struct backend_prefix {
		uint8_t first[16];
		uint32_t bits;
	} own[BACKEND_PREFIXES_MAX];
	uint32_t own_count;
};

/* Once for each shard. False: there is none. */
bool backend_resolver_take(struct backend_node *node, uint32_t shard, struct backend_resolver *ret);
/*
 * A socket of TCP, non-blocking, that goes out where boxes' packets do, with the rules of their way
 * out; not to them, and not to this host. Any thread, while the node is there; takes microseconds.
 */
int backend_outbound_socket(const struct backend_node *node);
/* What a dead engine of this instance left of its way out on the host. */
int backend_egress_sweep(const char *instance);
/* Before the shards start; it needs the ids of their cgroups. Borrowed. */
void backend_node_guard(struct backend_node *node, struct guard *guard);
void backend_node_close(struct backend_node *node);
/* What an image file's table of devices names, in its order: files of contents. */
struct backend_devices {
	const int *fds; /* the caller's, and not needed once it is mounted */
	uint32_t count;
};

/*
 * The one call that stands for an image store: a detached read-only mount of an image file. 1: its
 * contents are read through the page cache, and so are in memory twice: a file system below has no
 * direct reads. -EMEDIUMTYPE: it is no regular file, or not EROFS.
 */
int backend_image_mount(const char *path, const struct backend_devices *devices, int *ret_mount_fd);
/* The shard's cgroup directory, made if absent. */
int backend_shard_cgroup(struct backend_node *node, uint32_t shard, int *ret_fd, uint64_t *ret_id);
/* Which limits cannot be enforced here: bits of enum box_limit, once a shard's cgroup was made. */
uint32_t backend_unenforced(const struct backend_node *node);
/*
 * The thread that holds back boxes which make processes too fast; after the shards' cgroups, before
 * the shards. -errno: they are not held back here, backend_unenforced() says so too, and `ret_step`
 * names what is missing. 1: it is there, and late when the machine is busy.
 */
int backend_governor_start(struct backend_node *node, const char **ret_step);
/* Whether who computes long yields, once it was started: 0, or why not: -errno. */
int backend_governor_yields(const struct backend_node *node);
/* When the shards have stopped, before their threads end. */
void backend_governor_stop(struct backend_node *node);
/* A launcher worker for a shard: its channel, and its pid to reap. */
int backend_launcher_start(struct backend_node *node, uint32_t shard, int *ret_fd, pid_t *ret_pid);

/*
 * What of a policy stands without BPF (docs/walls.md), made once per version; shards only read it.
 * It is freed when no box has it any more. has_lsm: LSM programs hold the policy's rules and tell
 * who breaks them, which they could not behind a wall: only what is hidden is covered all the
 * same. profile: of AppArmor, that programs get at exec; "": none.
 */
struct backend_walls;
int backend_walls_new(const struct guard_policy *policy, bool has_lsm, const char *profile,
		      struct backend_walls **ret);
void backend_walls_free(struct backend_walls *walls);
/* How a rule is enforced by walls on this host: enum guard_level; 0: not by them. Any thread. */
uint32_t backend_rule_levels(const struct guard_rule *rule, bool has_lsm);
/* Whether every sandbox is refused this, whatever its policy, before LSMs are asked. */
bool backend_rule_stands(const struct guard_rule *rule);

/* ---- shard ---- */

struct backend;
struct box;
struct run;

/* A run's processes are frozen for a moment, again and again, while they make others too fast. */
enum box_throttle_kind {
	BOX_THROTTLE_BEGINS,
	BOX_THROTTLE_THAWED,
	BOX_THROTTLE_ENDS,
	BOX_THROTTLE_BOMB, /* it is at its limit of processes and does little but fail to fork */
};

struct box_throttle {
	enum box_throttle_kind kind;
	uint32_t leaf;	    /* BOMB: run->leaf */
	uint64_t frozen_us; /* THAWED: for so long */
	uint64_t since_ns;  /* BOMB: it has been one; by the clock of the loop */
};

struct backend_options {
	struct backend_node *node;
	struct flow_host *host;
	uint32_t shard;
	uint32_t boxes_max, runs_max;
	uint32_t launchers;
	uint32_t slot_uses_max;
	uint64_t disk_bytes, inodes; /* what slots are prepared with in advance */
	uint32_t processes_max;	     /* RLIMIT_NPROC of a uid range, at least */
	void *owner;
	/* A worker was lost: the owner gets a new one and hands it to backend_launcher_add(). */
	void (*launcher_lost)(void *owner);
	/* One more than `launchers` is of use; it comes by launcher_add(), or never. */
	void (*launcher_wanted)(void *owner);
	/* It does not answer any more: the owner kills the process; then it is lost. */
	void (*launcher_stuck)(void *owner, int pid);
	/* Nothing runs in a box's cgroup any more, and nobody else has it yet. May be NULL. */
	void (*box_emptied)(void *owner, uint64_t cgroup_id);
};

/* What the backend holds, for `dsec check`. */
struct backend_gauges {
	uint64_t slots_made, slots_clean, slots_rebuilding, launchers, launchers_lost;
	uint64_t slots_quarantined; /* somebody may be left in them: nobody gets them */
	uint64_t built, reused;	    /* boxes built in all; of them on an untouched root */
	uint64_t strays;	    /* children of lost workers that were reaped */
	/* Network namespaces there are; of them being torn down; taken again; not taken again. */
	uint64_t networks, networks_ending, networks_reused, networks_discarded;
};

enum box_network {
	BOX_NETWORK_NONE,
	BOX_NETWORK_PRIVATE, /* a namespace of its own */
	BOX_NETWORK_EGRESS,  /* ... with a way out, see is_policed */
	/* One of all boxes of its group on this shard, apart in it. Needs guard_shared_load(). */
	BOX_NETWORK_SHARED,
};

/* Who is in one namespace of network `shared`: those who trust each other so far. */
struct box_group {
	uint64_t job; /* of the tenant's; what is no job is one, too */
	uint32_t tenant;
	bool leads_out; /* it has a way out: is_policed */
};

struct box_spec {
	uint64_t id_hi, id_lo; /* of the sandbox: it stands on what the backend makes for it */
	uint64_t whose;	       /* boxes and runs of different ones take turns at the workers */
	uint32_t image;	       /* K: from 1, never of another image */
	enum box_network network;
	struct box_group network_group; /* BOX_NETWORK_SHARED */
	/* It leads where its policy says; else: SHARED: nowhere; EGRESS: anywhere. */
	bool is_policed;
	bool asks_names; /* is_policed: its resolv.conf names the engine's resolver */
	bool fresh_root;
	const struct backend_walls *walls; /* NULL: none; they outlive the box */
	uint32_t policy;		   /* that the guard has loaded, by number; 0: none */
	struct box_limits limits;
	uint64_t disk_bytes, inodes; /* 0: the default */
	const char *hostname;	     /* lives until the box is built */
};

enum { BOX_RULES_MAX = 1024 }; /* of a policy */

struct box {
	struct flow flow;
	struct backend *backend;
	struct box_spec spec;
	bool reused; /* its root was proven untouched */
	/* built(): bit per rule of its walls, from 0, whose path its image lacks. */
	uint64_t rules_absent[BOX_RULES_MAX / 64];
	uint64_t cgroup_id; /* in built(): what BPF programs know it by; 0: nothing */
	uint32_t address4;  /* likewise: what it sends from, in network order; 0: no way out */
	void *owner;
	/* error: -errno, and then nothing of it is left; box->failed_step says where */
	void (*built)(struct box *box, int error);
	/* What makes processes too fast, or not any more, or cannot. May be NULL. */
	void (*throttled)(struct box *box, const struct box_throttle *what);
	void (*died)(struct box *box, int status); /* PID 1 ended unasked; unwind it now */
	void (*gone)(struct box *box);		   /* unwound: nothing of it is left */
	const char *failed_step;
};

/* setrlimit(2) of one program. UINT64_MAX: none. */
struct run_limit {
	uint32_t resource, reserved; /* as Linux counts them; 0 */
	uint64_t soft, hard;	     /* soft is not above hard */
};

enum { RUN_LIMITS_MAX = 16 };

struct run_spec {
	uint64_t whose;	     /* as of a box */
	const char *strings; /* argv, env, cwd: packed, each ends with NUL; lives until started() */
	uint32_t string_bytes, argument_count, environment_count;
	const char *user;
	bool wants_home; /* HOME is added: what the sandbox's password file says of the user */
	/* The program is the file helper (backends/guest/protocol.h): it has no strings. */
	bool is_helper;
	bool counts;  /* run->box_cpu_us is wanted */
	int stdin_fd; /* -1: /dev/null */
	int stdout_fd, stderr_fd;
	/* A terminal instead of the three: see run.tty_fd. 0 rows or columns: unknown. */
	bool has_tty;
	uint16_t rows, columns;
	const struct run_limit *limits; /* lives until started() */
	uint32_t limit_count;
};

struct run {
	struct box *box;
	void *owner;
	int pid;
	uint32_t leaf; /* in started(): N of its cgroup eN; UINT32_MAX: none yet */
	/*
	 * error 0: the program runs. Else -errno, failed_step names what failed and
	 * `program_failed` that it was the program itself or what it needs; nothing runs.
	 */
	void (*started)(struct run *run, int error);
	/* The main process was reaped (wait status) and, after run_kill(), its leaf is empty. */
	void (*ended)(struct run *run, int status);
	const char *failed_step;
	int tty_fd;	       /* with has_tty, in started(): the master, for the owner to take */
	uint64_t box_cpu_us;   /* with counts, in started(): what the box had used, as in usage */
	uint32_t failed_limit; /* where the step is "limit": the resource, above what is here */
	bool program_failed;   /* the error is the guest's: argv0, cwd, user, tty */
	uint64_t cpu_us, peak_bytes; /* ended: of the main process and what it waited for */
	bool box_died;		     /* ended: PID 1 had died by then, and takes everything along */
	/* ended: by the memory limit, as was everything else in the box but PID 1 */
	bool oom;
	uint64_t box_peak_bytes; /* with oom: of the box; UINT64_MAX: unknown */
	/* ended: how many lived when its leaf was killed; UINT32_MAX: unknown. 0: it was not. */
	uint32_t processes_killed;
};

/* Something asked of a run that has started. Copied; `done` follows, also after run_free(). */
struct run_ask {
	int signal;		/* to every process of its leaf; 0: none, the size below instead */
	int tty_fd;		/* a master; duplicated */
	uint16_t rows, columns; /* for it; 0: it is hung up */
	void *owner;
	/* -ESRCH: nobody lives there; -EAGAIN: new processes kept coming, not all got it */
	void (*done)(void *owner, int error);
};

/*
 * The end of a run whose box may be used again: of its caller until done(). What it left running is
 * killed, and what the box used is counted as box_usage has it.
 */
struct run_end {
	bool prove; /* is the box as it was before the run? Else it is not looked at */
	/* done: */
	bool clean;	 /* proven: files, processes, IPC, PID 1 */
	bool oom;	 /* its memory limit killed somebody during the run */
	uint64_t cpu_us; /* of the box, since it was built; UINT64_MAX: unknown */
	void *owner;
	void (*done)(struct run_end *end);
};

struct box_usage {
	uint64_t cpu_us, memory_bytes, memory_peak_bytes, disk_bytes,
		inodes; /* UINT64_MAX: unknown */
	uint64_t io_read_bytes, io_written_bytes;
	uint64_t network_received_bytes, network_sent_bytes; /* by its way out */
	uint32_t processes;
	uint64_t oom_kills; /* processes that its memory limit ended */
	void *owner;
	void (*done)(struct box_usage *usage, int error);
};

/* The end of all in a box but its PID 1; its runs have ended. Of its caller until done(). */
struct box_clear {
	/* -EBUSY: something does not die; -ESRCH: the box has died. */
	void (*done)(struct box_clear *clear, int error);
};

/*
 * Other walls around a box that is up. Its mounts get those of the new sheet, runs that begin from
 * done() on its filter. Nothing is taken down.
 */
struct box_narrow {
	const struct backend_walls *walls; /* they outlive the box */
	uint32_t policy;    /* as in box_spec: in force from done() on, when that is told 0 */
	uint32_t version;   /* of its phase */
	bool takes_network; /* from now on nobody in it makes an inet socket */
	void (*done)(struct box_narrow *narrow, int error);
};

/* A box that is held still while what it wrote is read: of its caller until it is thawed. */
struct box_freeze {
	int upper_fd;	  /* done: the directory of what it wrote, done()'s to close; or -1 */
	uint32_t id_base; /* the first host uid and gid of its range of 65,536 */
	/* -ETIMEDOUT: something in it does not stop; -ESRCH, -EPIPE: it died, or may have. */
	void (*done)(struct box_freeze *freeze, int error);
};

/* About a port on the loopback of a box: of its caller until done(). */
struct box_port {
	struct box *box;
	uint32_t port;
	bool connect; /* else only look whether something listens */
	int fd;	      /* done: the connection, done()'s; it may be about to be made. -1: none */
	bool is_ipv6; /* done: on ::1 */
	void *owner;
	/* -ECONNREFUSED: nothing listens, on 127.0.0.1 or ::1. */
	void (*done)(struct box_port *port, int error);
};

/* Where the sockets of a box are. */
struct box_sockets {
	int namespace_fd; /* to close */
	uint32_t
		shared_address; /* BOX_NETWORK_SHARED: who of it, as in struct guard_shared; or 0 */
	uint64_t cgroup_id;
};

struct backend_class {
	const char *name;
	struct box *(*box_new)(struct backend *b); /* NULL: boxes_max in use */
	void (*box_free)(struct box *box);
	void (*box_build)(struct box *box); /* spec and callbacks set; built() follows */
	void (*box_unwind)(
		struct box *box); /* built; all its runs ended or ending. gone() follows */
	/* What is to go and does not: try again what can be. At any time. */
	void (*box_retry)(struct box *box);
	struct run *(*run_new)(struct box *box); /* NULL: runs_max in use */
	void (*run_free)(struct run *run);
	int (*run_start)(struct run *run, const struct run_spec *spec); /* started() follows if 0 */
	/*
	 * SIGTERM to its main process; when that has ended, every process of its leaf is killed
	 * before ended(). Once, and run_kill() may follow.
	 */
	void (*run_terminate)(struct run *run);
	void (*run_kill)(struct run *run); /* started: every process of its leaf; ended() follows */
	/* To the main process, at once; -ESRCH: it has ended. */
	int (*run_signal)(struct run *run, int signal);
	int (*run_ask)(struct run *run, const struct run_ask *ask); /* done() follows if 0 */
	/* After ended(), before run_free(). done() follows if 0; -ESRCH: the box has died. */
	int (*run_finish)(struct run *run, struct run_end *end);
	/* done() follows if 0. One at a time per box: -EBUSY. `usage` lives until then. */
	int (*box_usage)(struct box *box, struct box_usage *usage);
	/* done() follows if 0; 1: it is done; -ESRCH: the box has died. No run begins meanwhile. */
	int (*box_clear)(struct box *box, struct box_clear *clear);
	/* The same. -EOPNOTSUPP: nothing here takes a network away. */
	int (*box_narrow)(struct box *box, struct box_narrow *narrow);
	/*
	 * done() follows if 0. Where that says 0 nobody in the box runs until box_thaw(), which
	 * must come; it may die and be unwound, and gone() waits until it was thawed. No run begins
	 * meanwhile.
	 */
	int (*box_freeze)(struct box *box, struct box_freeze *freeze);
	/* done() follows if 0, with 0. -ENOMEM: ask again. */
	int (*box_thaw)(struct box *box, struct box_freeze *freeze);
	/* Its phase is of that version now, with the policy it has. At once; -ESRCH: it died. */
	int (*box_phase)(struct box *box, uint32_t version);
	/* -ENOENT: it has none. */
	int (*box_network)(const struct box *box, struct box_sockets *ret);
	/* done() follows if 0. -EOPNOTSUPP: it has no network of its own; -EAGAIN: ask again. */
	int (*port_ask)(struct box_port *port);
	void (*launcher_add)(struct backend *b, int channel_fd, int pid);
	/* `mount_fd` becomes image K on this shard's node; ready() is called with 0 or -errno. */
	int (*image_attach)(struct backend *b, uint32_t image, int mount_fd, void *owner,
			    void (*ready)(void *owner, int error));
	/* Image K goes from this shard's node. ready() follows if 0. */
	int (*image_detach)(struct backend *b, uint32_t image, void *owner,
			    void (*ready)(void *owner, int error));
	/* No box of image K is or will be here: what is pooled of it is given back. */
	void (*image_forget)(struct backend *b, uint32_t image);
	void (*gauges)(const struct backend *b, struct backend_gauges *ret);
	/* Give back what is pooled; empty() is called when nothing is left. No box may live. */
	void (*drain)(struct backend *b, void (*empty)(void *owner));
	void (*close)(struct backend *b);
};

struct backend {
	const struct backend_class *class;
};

int container_open(const struct backend_options *options, struct backend **ret);
