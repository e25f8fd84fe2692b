/*
 * Every limit of the engine has its name here, and every option of `dsecd`. Filled by main.c from
 * the command line, checked against the machine by config_check() before anything starts, then
 * read-only. Figures in comments are defaults.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
	SHARDS_MAX = 256,
	LAUNCHERS_PER_SHARD_MAX = 8,
	CREWS_PER_SHARD_MAX = 4,  /* backends/container/crews.h */
	CREW_LAUNCHERS_MAX = 3,	  /* of each, beside those */
	SHARD_SANDBOXES_MIN = 64, /* fewer are not worth another shard */
	INSTANCE_BYTES_MAX = 32,
	IMAGES_MAX = 256,
	UID_RANGE = 65536,	    /* host uids per slot */
	UID_RANGE_FIRST = 1000000,  /* first uid the engine may use */
	SLOTS_PER_INSTANCE = 16384, /* most slots of an instance */
	SLOTS_SMALL = 256,	    /* of one that needs no more: many such fit on a machine */
	SLOTS_SPARE = 96,	    /* per shard, beyond sandboxes_max: being rebuilt, for calls */
	EXEC_OUTPUT_BYTES_MAX = 4 << 20, /* head + tail of one stream */
	EXEC_OUTPUT_BYTES_DEFAULT = 64 << 10,
	EXEC_ARGUMENT_BYTES_MAX = 128 << 10,
	EXEC_ENV_COUNT_MAX = 512,	  /* of an exec, and of its sandbox */
	EXEC_INPUT_BYTES_MAX = 768 << 10, /* fits the default arena with all else */
	EXEC_TIMEOUT_MS_DEFAULT = 600 * 1000,
	EXEC_TIMEOUT_MS_MAX = 24 * 3600 * 1000,
	FILES_PER_SANDBOX_MAX = 16, /* operations on files under way */
	FILES_PER_SHARD_MAX = 128,  /* no more than execs fit */
	FILE_TIMEOUT_MS_MAX = 3600 * 1000,
	EXEC_KILL_AFTER_MS_MAX = 600 * 1000,
	/* Execs that are over are kept so long, so many and so large; the oldest goes first. */
	EXEC_KEPT_S = 600,
	EXECS_KEPT_PER_SANDBOX = 64,
	EXECS_KEPT_PER_SHARD = 16384,
	EXEC_KEPT_BYTES_PER_SHARD = 32 << 20,
	CLIENT_ARENA_BYTES_MAX = 4 << 20, /* it is the engine's memory: clients_max times this */
	CREATE_COUNT_MAX = 32768,
	IMAGE_FILES_MAX = 4 << 20,
	IMAGE_LAYERS_MAX = 512,
	IMPORT_S_MAX = 2 * 3600,
	NETWORKS_ENDING = 32,	  /* network namespaces being torn down, per shard */
	NAMES_DESCRIPTORS = 1347, /* per shard, where sandboxes may ask for names */
	IMAGE_DEVICES_MAX = 1024, /* segments of an image */
	SERVED_MAX = 1024,	  /* segments that are served at once, of the node */
	TTL_S_MAX = 30 * 24 * 3600,
	CREATE_LIMIT_S = 60,  /* a sandbox that is not built by then is quarantined */
	DESTROY_LIMIT_S = 10, /* one that is not gone by then is, too */
	QUARANTINE_RETRY_S = 5,
	ENDS_AT_ONCE = 4,	  /* sandboxes of a shard that end because one client wants it */
	EXEC_START_LIMIT_S = 60,  /* whoever waits for a program to start is told by then */
	EXEC_KILL_LIMIT_S = 5,	  /* whoever waits for a killed exec is told by then */
	SUBSCRIPTIONS_MAX = 1024, /* to events, of the node */
	SUBSCRIPTIONS_CLIENT_MAX = 32, /* half of what a channel has in flight */
	TENANTS_MAX = 64,
	TENANT_NAME_MAX = 24,
	TENANT_UIDS_MAX = 16,
	/* Requests remembered by their ids: 30 MiB a shard when full; at 10,000 a second, 13 s. */
	RECORDS_PER_SHARD = 131072,
	RECORDS_BYTES_PER_SHARD = 48 << 20, /* of their results */
};

/* The network of a create that names none. */
enum config_network {
	CONFIG_NETWORK_ANY, /* shared, and none where this host cannot */
	CONFIG_NETWORK_NONE,
	CONFIG_NETWORK_SHARED, /* or it does not start */
};

/* Of each there is an engine's own; a tenant has what it is given, or a part of what is left. */
enum tenant_limit {
	TENANT_SANDBOXES,
	TENANT_CREATES, /* a second */
	TENANT_EXECS,
	TENANT_CLIENTS,
	TENANT_RECORDS, /* per shard */
	TENANT_LIMITS,
};

/* The first is "default": whoever comes by the engine's own socket and is nobody else. */
struct tenant_config {
	const char *name;	 /* [a-z0-9-]{1,24} */
	const char *socket_path; /* NULL: the engine's own */
	const char *token_path;	 /* NULL: it has no token */
	uint32_t socket_mode;	 /* 0600 */
	uint32_t uids[TENANT_UIDS_MAX], uid_count;
	bool is_gateway;		/* may act for the others */
	bool is_builder;		/* may make images of sandboxes */
	uint32_t limits[TENANT_LIMITS]; /* 0: not given */
	char *owned;			/* what the above point into */
};

/* What may be asked for as the most that an exec writes. */
#define OUTPUT_LIMIT_BYTES_MAX (1ull << 46)

struct config {
	char instance[INSTANCE_BYTES_MAX]; /* main; [a-z0-9-]{1,24} */
	const char *socket_path;	   /* /run/dsec.sock, /run/dsec/INSTANCE.sock for others */
	const char *token_path;		   /* NULL: clients need no token */
	const char *egress_range;	   /* NULL: sandboxes have no way out */
	const char *egress6_range;	   /* the same of IPv6 */
	const char *dns_upstream;	   /* NULL: as the host's resolv.conf says */
	uint32_t network;		   /* enum config_network: of creates that name none */
	uint32_t shared_scope;		   /* enum dsec_network_scope: JOB */
	const char *services_path;	   /* NULL: there are no named services */
	const char *images_path;	   /* /var/lib/dsec/images: NAME.erofs */
	const char *state_path;		   /* /var/lib/dsec/state: what an instance keeps */
	const char *launcher_path;	   /* beside dsecd */
	const char *import_path;	   /* the same: dsec-import */
	const char *store_path;		   /* the same: dsec-store */
	const char *fetch_path;		   /* the same: dsec-fetch */
	const char *fault;		   /* DSEC_FAULT, where built in */
	uint32_t shards;		   /* one per CPU allowed */
	uint32_t launchers;		   /* per shard: 3 */
	uint32_t sandboxes_max;		   /* of the node: 8192, less where the machine has less */
	uint32_t execs_max;		   /* running at once, of the node: 2048 */
	uint32_t client_execs_max;	   /* of one connection: 3/4 of execs_max */
	uint32_t inbounds_max;		   /* connections to ports at once, per shard: 256 */
	uint32_t clients_max;		   /* 256 */
	uint32_t creates_per_s;		   /* of the node, with a burst of as many: 0, no limit */
	uint32_t requests_max;		   /* in flight per channel that asks: 512 */
	uint32_t creates_waiting_max;	   /* admitted but not started, per shard: 4096 */
	uint32_t slot_uses_max;		   /* before an untouched root is remade anyway: 1000 */
	uint32_t ttl_default_s;		   /* 86400 */
	uint64_t disk_bytes;		   /* per sandbox, default of the upper: 1 GiB */
	uint64_t disk_inodes;		   /* 262144 */
	uint64_t image_bytes_max;	   /* contents of an imported image: 64 GiB */
	uint32_t images_full_percent;	   /* of their disk: no import beyond; 90 */
	uint32_t compose_timeout_s;	   /* of making a composition on first use: 120 */
	const char *remote_header_path;	   /* NULL: a remote is asked without credentials */
	const char *remote_ca_path;	   /* NULL: the host's */
	const char *remote_address;	   /* where contents are that are not here; NULL */
	uint64_t image_cache_bytes;	   /* of what was fetched of them: 20 GiB */
	uint32_t remote_timeout_s;	   /* of a read of a remote, whatever hangs: 30 */
	uint64_t memory_bytes;		   /* default limit where enforceable: 0, none */
	uint32_t pids_max;		   /* default: 1024 */
	uint64_t journal_bytes;		   /* of past events, of the node: 4 MiB */
	int ready_fd;			   /* "ready\n" is written when clients can connect; -1 */
	int lifeline_fd;		   /* its end of file ends the engine; -1 */
	bool pin_shards;		   /* pin shard threads to CPUs */
	uint32_t stop_timeout_s;	   /* SIGKILL this long after SIGTERM: 30 */
	uint32_t slice_us;		   /* of its tasks, on a CPU: 100; 0: the kernel's */
	uint32_t realtime_percent;	   /* of a CPU that shards use as realtime threads: 15 */
	uint32_t cpu_burst_ms;		   /* of CPU time until a program yields: 50; 0: never */
	uint32_t fork_bomb_s;		   /* of failing to fork until the end: 10; 0: never */
	uint32_t processes_per_s;	   /* default: 5000; 0: as many as it likes */
	uint32_t socket_mode;		   /* 0600 */
	uint32_t log_level;		   /* enum log_level: LOG_INFO */
	bool check_json;		   /* --check writes JSON */
	bool uninstall_all;		   /* --uninstall is about every instance */
	struct tenant_config tenants[TENANTS_MAX];
	uint32_t tenant_count; /* at least 1 */
	uint64_t given;	       /* bit per option that was given, of config.c's table */
	char *owned_socket, *owned_launcher, *owned_import, *owned_store;
	char *owned_fetch; /* what paths point to */
};

/* The defaults above for this machine. -ENOMEM. Undone by config_done(). */
int config_default(struct config *config);
/* Frees what config_default() and config_parse() made. The strings of argv are not owned. */
void config_done(struct config *config);
/* What `dsecd --help` prints, with the defaults of `config`. */
void config_help(const struct config *config, FILE *to);
/* Was this option ("sandboxes-max") given on the command line. */
bool config_is_given(const struct config *config, const char *option);

/*
 * Parse options; -EINVAL after one line on stderr that names the option. Returns 1 when a mode that
 * is not "run" was asked (see enum config_mode).
 */
enum config_mode { CONFIG_RUN, CONFIG_CHECK, CONFIG_HELP, CONFIG_UNINSTALL, CONFIG_VERSION };
int config_parse(struct config *config, int argc, char **argv, enum config_mode *ret_mode);

/*
 * Does the machine hold what was configured: descriptors, pid_max, user.max_* namespaces, threads,
 * memory. Reduces defaults that do not fit (one log line each) and fails with -ERANGE, after one
 * line that names the limit and the remedy, for options given explicitly.
 */
int config_check(struct config *config);
