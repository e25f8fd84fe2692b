/*
 * The only door to BPF and AppArmor (libbpf, libxdp, libapparmor): probe, load, attach, pin, and
 * the stream of deaths. Policy will grow behind this header. Where BPF was not built or the host
 * refuses it, the same functions return -EOPNOTSUPP and the engine goes on without; callers have no
 * #ifdef.
 *
 * All functions are called from the engine's control thread, except those that take a
 * `struct guard_exits` or a `struct guard_violations`, which belong to one shard, and those about
 * one cgroup (guard_network_set(), guard_sandbox_set(), …), which any shard calls for its own.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct guard;
struct guard_exits;
struct guard_policy;
struct guard_rule;
struct guard_violations;
struct policy_violation;

struct guard_options {
	const char *instance; /* names the pins */
	int cgroup_fd;	      /* directory of the instance's cgroup root */
	uint64_t cgroup_id;
	uint32_t cgroup_level; /* of the root below the cgroup2 mount: 1 for a child of the
				* mount; asked of the kernel where it answers, because a
				* cgroup namespace hides what is above it */
	uint32_t shards;
	const uint64_t *shard_cgroup_ids; /* children of the root, one per shard */
	int engine_pid; /* deaths of this process' children are reported; it is of the caller's
			   * pid namespace */
	/* Whether the filter of every sandbox refuses that; NULL: nothing */
	bool (*is_refused)(const struct guard_rule *rule);
	bool with_egress; /* load what egress by policy needs: it costs each start, and each call */
	uint32_t ring_bytes;	   /* per shard, a power of two and of whole pages; 0: 1 MiB */
	uint32_t spill_deaths_max; /* per shard; 0: 65,536 */
};

enum guard_capability {
	GUARD_EXIT_EVENTS = 1,	/* deaths by tp_btf/sched_process_exit */
	GUARD_NETWORK_NONE = 2, /* sandboxes of network `none` cannot open inet sockets */
	GUARD_ABSTRACT = 4,	/* … nor reach abstract unix names */
	GUARD_PINNED = 8,	/* enforcement outlives the engine */
	GUARD_VIOLATIONS = 16,	/* what is refused is counted and told */
	GUARD_SHARED = 32,	/* guard_shared_load() was done */
	GUARD_POLICIES = 64,	/* policies and sandboxes are told to the kernel's maps */
	GUARD_EGRESS = 256,	/* sandboxes with a way out go where their policies let them */
	GUARD_LSM = 128,	/* … and LSM programs enforce their rules */
	GUARD_APPARMOR = 512,	/* … and profiles are loaded for them */
};

/*
 * To be called in the mount namespace of the host, where the pins shall be found. Pins that a dead
 * engine of this instance left are replaced without a moment between.
 *
 * What is missing is told in ret_why, one line per capability with the remedy. Fails only on
 * -ENOMEM, -EINVAL or where cgroup_fd cannot be copied: a host without BPF gives a guard without
 * capabilities.
 */
int guard_open(const struct guard_options *options, char *ret_why, size_t why_bytes,
	       struct guard **ret);
/* Detach, unpin and free; streams of deaths stay open, but nothing comes any more. NULL is fine. */
void guard_close(struct guard *guard);
/* Remove what a dead engine of this instance left pinned or attached. cgroup_fd -1: it is gone. */
int guard_sweep(const char *instance, int cgroup_fd);
uint32_t guard_capabilities(const struct guard *guard);

/*
 * A sandbox's cgroup (bS, by id) may open inet sockets and use abstract names (network `private`:
 * a network namespace of its own), or may not (`none`: the default for ids never told). Say `false`
 * when the cgroup goes. -E2BIG when POLICY_SANDBOXES_MAX are private;
 * -EOPNOTSUPP without GUARD_NETWORK_NONE.
 *
 * The hooks follow the cgroup of the socket: one that was made outside the instance's cgroups and
 * given to a sandbox is not held back.
 */
int guard_network_set(struct guard *guard, uint64_t cgroup_id, bool is_private);

/*
 * The sandbox gets no inet sockets any more, nor abstract names; what it has stays within what it
 * was. Any network; told anew, it is what it is told.
 */
int guard_sockets_refuse(struct guard *guard, uint64_t cgroup_id);

/*
 * Put a policy's rules into the maps and its profile into the kernel, or take them away: the same
 * policy, when no sandbox has it any more. -EEXIST; -E2BIG: the maps are full; -EINVAL: a rule is
 * not one, or a path has too many components; -EOPNOTSUPP without GUARD_POLICIES. Nothing of a
 * policy stays that failed.
 */
int guard_policy_load(struct guard *guard, const struct guard_policy *policy);
int guard_policy_drop(struct guard *guard, const struct guard_policy *policy);

struct guard_sandbox {
	uint64_t sandbox; /* its id, for people */
	uint32_t policy;  /* number of a loaded one; 0: none */
	uint32_t version; /* grows with each change */
	uint32_t phase;
	uint32_t shard;
	uint64_t root_device; /* st_dev of its root directory; 0: no file rules */
};

/*
 * What holds for a sandbox's cgroup from now on: one update of one map. -ENOENT: the policy was not
 * loaded; -EINVAL: its policy has file rules and it has no root_device; -EOPNOTSUPP without
 * GUARD_POLICIES. Clear it when the cgroup goes.
 */
int guard_sandbox_set(struct guard *guard, uint64_t cgroup_id, const struct guard_sandbox *sandbox);
int guard_sandbox_clear(struct guard *guard, uint64_t cgroup_id);
/* How the guard enforces rule `at`, from 0, on this host: a set of enum guard_level. */
uint32_t guard_rule_levels(const struct guard *guard, const struct guard_policy *policy,
			   uint32_t at);
/* The profile that its sandboxes' programs get at exec; "": none. */
enum { GUARD_PROFILE_NAME_BYTES = 72 };
int guard_profile_name(const struct guard *guard, const struct guard_policy *policy,
		       char ret[static GUARD_PROFILE_NAME_BYTES]);

/*
 * What a sandbox is in a network namespace that it shares: its addresses are number `address` of
 * 10.64.0.0/10 and of fd5e:ec::/64, which a route makes local there; it reaches itself and nothing
 * else. No two sandboxes that can meet have one number.
 */
struct guard_shared {
	uint32_t address;	  /* 1 to GUARD_SHARED_ADDRESSES - 1 */
	uint32_t ports_max;	  /* sockets that hold a port at a time, TCP and UDP */
	uint32_t datagrams_max;	  /* of them UDP's */
	uint32_t connections_max; /* ends of TCP connections, whoever holds them: two for each */
	bool leads_out;		  /* to where guard_egress_set() says; told before */
	bool leads_out6;	  /* by IPv6 */
};

enum {
	GUARD_SHARED_ADDRESSES = 1 << 22,
	GUARD_SHARED_BLOCK = 1 << 16, /* addresses of a namespace with a way out */
};

/*
 * The programs that keep sandboxes apart in one namespace: loaded when the first sandbox asks,
 * since they cost a start 30 ms and each call of every sandbox a look-up. Fine when it was done.
 * The first failure but -ENOMEM stays, and ret_why is told it once. Only by the control thread.
 */
int guard_shared_load(struct guard *guard, char *ret_why, size_t why_bytes);
/* Any thread. */
bool guard_shared_is_loaded(const struct guard *guard);

/*
 * Network `shared` for a sandbox's cgroup. guard_network_set() ends it, with either value.
 * -EINVAL; -E2BIG; -EOPNOTSUPP: it was not loaded.
 */
int guard_shared_set(struct guard *guard, uint64_t cgroup_id, const struct guard_shared *what);

struct guard_shared_counts {
	uint64_t refused;			/* calls */
	uint64_t dropped;			/* packets */
	uint32_t ports, datagrams, connections; /* now */
};

/* -ENOENT: it is not in network `shared`. */
int guard_shared_counts(const struct guard *guard, uint64_t cgroup_id,
			struct guard_shared_counts *ret);

/*
 * A policy's destinations alone, put into the trie or taken away (guard_policy_load() and _drop()
 * do): the same policy, when no sandbox has it any more. -E2BIG: POLICY_DESTINATIONS_MAX; -EINVAL;
 * -EOPNOTSUPP without GUARD_EGRESS. Nothing of a policy stays that failed.
 */
int guard_egress_load(struct guard *guard, const struct guard_policy *policy);
int guard_egress_drop(struct guard *guard, const struct guard_policy *policy);

/* Number of no policy: nothing leads anywhere. */
#define GUARD_EGRESS_NOWHERE UINT32_MAX

/* A way out of a sandbox's network namespace. In network order; zero: it has none. */
struct guard_egress {
	uint32_t policy;      /* whose destinations hold */
	uint32_t address4;    /* all that it may send from */
	uint8_t address6[16]; /* likewise */
	uint32_t resolver4;   /* where names are asked */
	uint16_t resolver_port;
	uint16_t tls_port; /* there, too: where connections are forwarded by name */
};

/*
 * From here on what the cgroup sends out goes where its policy lets it, within the caps that
 * guard_egress_load() took. Without an entry the programs say nothing of a cgroup: set it before
 * anything runs there that has a way out, and clear it when the cgroup goes. Set again it goes on
 * counting, but for what is sent at that very moment. -EINVAL; -E2BIG; -EOPNOTSUPP without
 * GUARD_EGRESS.
 */
int guard_egress_set(struct guard *guard, uint64_t cgroup_id, const struct guard_egress *what);
/* Fine where it is not there. */
int guard_egress_clear(struct guard *guard, uint64_t cgroup_id);

struct guard_ports;

/* What of an address is allowed since a name was found to have it. */
struct guard_learned {
	uint8_t address[16]; /* IPv6, or IPv4 as ::ffff:a.b.c.d */
	uint32_t range_count;
	const struct guard_ports *ranges;
	const uint64_t *until_ns; /* of each: CLOCK_MONOTONIC */
};

/*
 * All that a cgroup may do there under that policy, beside what its destinations say; what they
 * deny is not given. No range: it is forgotten. -E2BIG: POLICY_LEARNED_MAX; -EINVAL; -EOPNOTSUPP
 * without GUARD_EGRESS. Whoever learned it forgets it when the cgroup goes.
 */
int guard_egress_learn(struct guard *guard, uint64_t cgroup_id, uint32_t policy,
		       const struct guard_learned *what);

/* Where a connection was to go that the programs sent to the forwarder. */
struct guard_redirect {
	uint8_t address[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint16_t port;
};

/*
 * Of the connection that came from that address and port, in network order: once. -ENOENT: no call
 * of a sandbox's was redirected there; -EOPNOTSUPP without GUARD_EGRESS.
 */
int guard_egress_redirect(struct guard *guard, uint32_t address4, uint16_t port,
			  struct guard_redirect *ret);

/* These only grow while it has a way out, whatever policy it gets meanwhile. */
struct guard_egress_counts {
	uint64_t sent_bytes;
	uint64_t connections; /* begun: TCP's, and places that UDP was sent to anew */
	uint64_t refused;     /* calls */
	uint64_t dropped;     /* packets that no call was refused for */
	uint64_t capped;      /* calls and packets that the policy allows, and its caps did not */
};

/* To one place. */
struct guard_egress_flow {
	uint8_t address[16]; /* IPv4 as ::ffff:a.b.c.d */
	uint16_t port;
	uint8_t protocol;
	uint32_t rule; /* that let it pass */
	uint64_t bytes;
};

enum { GUARD_EGRESS_FLOWS_MAX = 32 };

/* -ENOENT: it has no way out. */
int guard_egress_counts(const struct guard *guard, uint64_t cgroup_id,
			struct guard_egress_counts *ret);
/*
 * Where most of its bytes went, the most first: how many, or -errno. Each of its first
 * GUARD_EGRESS_FLOWS_MAX is there; of more, none is left out that has twice the bytes of one.
 */
int guard_egress_flows(const struct guard *guard, uint64_t cgroup_id,
		       struct guard_egress_flow ret[static GUARD_EGRESS_FLOWS_MAX]);

/*
 * One death, told once. The zombie may not be there yet: wait for the pid. `code` is what its wait
 * status will be, except where the main thread and the last other one end in the same instant, both
 * by a bare exit(2): trust the wait.
 */
struct guard_death {
	uint64_t cgroup_id; /* of the shard's child the task was in: the slot's cgroup */
	int32_t pid;	    /* in the engine's pid namespace */
	int32_t code;
	uint64_t cpu_us;     /* of the process and of those of its children that it waited for */
	uint64_t peak_bytes; /* most resident memory of the process, or of one of those */
};

/* The shard's stream; its fd becomes readable when deaths wait. -EOPNOTSUPP without capability. */
int guard_exits_open(struct guard *guard, uint32_t shard, struct guard_exits **ret);
int guard_exits_fd(const struct guard_exits *exits);
/*
 * Calls `death` for each waiting one, those that found the ring full included. At most `max`;
 * returns how many, or -errno. Call until it returns less than `max`: the descriptor tells of what
 * comes after that. -ENOBUFS, once each time it happened: deaths found ring and spill full and are
 * lost, check every child; those still waiting come with the next call.
 */
int guard_exits_consume(struct guard_exits *exits, int max,
			void (*death)(void *context, const struct guard_death *d), void *context);
void guard_exits_close(struct guard_exits *exits);

struct guard_exits_counts {
	uint64_t spilled; /* deaths that found the ring full, and came late */
	uint64_t dropped; /* deaths that found the spill full too, and never come */
};

void guard_exits_counts(const struct guard_exits *exits, struct guard_exits_counts *ret);

/*
 * The shard's stream of what its sandboxes tried and were refused (struct policy_violation of
 * bpf/policy.h); its fd becomes readable when some wait. Few of many are told, see there: the
 * tallies have them all. -EOPNOTSUPP without GUARD_VIOLATIONS.
 */
int guard_violations_open(struct guard *guard, uint32_t shard, struct guard_violations **ret);
int guard_violations_fd(const struct guard_violations *violations);
/* Calls `seen` for each waiting one, at most `max`; returns how many. */
int guard_violations_consume(struct guard_violations *violations, int max,
			     void (*seen)(void *context, const struct policy_violation *v),
			     void *context);
/* Whether some wait. Two loads. */
bool guard_violations_wait(const struct guard_violations *violations);
void guard_violations_close(struct guard_violations *violations);

enum { GUARD_TALLIES_MAX = 63 };

struct guard_tally {
	uint32_t rule, hook;  /* as in struct policy_violation */
	uint64_t count, lost; /* lost: of them to be told, and the ring was full */
	uint64_t first_ns, last_ns;
};

struct guard_tallies {
	uint32_t count;
	uint64_t others; /* violations of more rules than have a place */
	struct guard_tally tallies[GUARD_TALLIES_MAX];
};

/* Exactly what a sandbox's cgroup has broken so far; one look-up where that is nothing. */
int guard_tallies_read(struct guard_violations *violations, uint64_t cgroup_id,
		       struct guard_tallies *ret);
/* Nothing runs there any more: forgotten. */
int guard_tallies_drop(struct guard_violations *violations, uint64_t cgroup_id);

/* For `dsecd --check`: what this host's kernel accepts, found by doing it. */
enum guard_feature {
	GUARD_FEATURE_BTF,	     /* /sys/kernel/btf/vmlinux */
	GUARD_FEATURE_BPFFS,	     /* /sys/fs/bpf is one */
	GUARD_FEATURE_TP_BTF,	     /* typed tracepoints: deaths */
	GUARD_FEATURE_SOCK_CREATE,   /* cgroup hook: network `none` */
	GUARD_FEATURE_CONNECT_UNIX,  /* cgroup hook: abstract names */
	GUARD_FEATURE_SOCKET_CALLS,  /* cgroup hooks: bind, connect, sendmsg */
	GUARD_FEATURE_PACKETS,	     /* cgroup hooks: what goes out and comes in */
	GUARD_FEATURE_SOCKET_STATES, /* typed tracepoint: ends of connections */
	GUARD_FEATURE_LSM,	     /* file, ioctl and process policy */
	GUARD_FEATURE_FENTRY,
	GUARD_FEATURE_XDP, /* policy for virtual machines */
	GUARD_FEATURE_COUNT,
};

struct guard_feature_state {
	const char *name;
	int error;	    /* 0: works; else a positive errno */
	const char *remedy; /* what it is for and what to do; NULL when it works */
};

struct guard_probe {
	struct guard_feature_state features[GUARD_FEATURE_COUNT];
};

/* One of them: 0, or a positive errno. */
int guard_feature_error(enum guard_feature feature);
/* Loads one tiny program of each kind and attaches none. Fails only on -ENOMEM. */
int guard_probe(struct guard_probe *ret);
