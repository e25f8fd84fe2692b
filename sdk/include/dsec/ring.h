/*
 * The wire between a client and an engine: messages, and how they lie in shared memory.
 *
 * A message is an entry of fixed size plus payload bytes. Requests travel client to engine, events
 * engine to client. The same messages go two ways:
 *
 *	ring	in a memfd the engine made: per channel a submission ring, a completion ring and a
 *		ring of result buffers; payloads lie in an arena that the client owns
 *	stream	inline over the handshake socket: entry, then payload_bytes / bytes of payload
 *
 * Everything is little endian, 64-bit, 8-byte aligned, without pointers or padding. The engine
 * copies an entry once, checks the copy and uses the copy; sizes and masks are its own and are
 * never read back. Reserved fields must be zero and are checked. An unknown op ends with
 * UNSUPPORTED, an unknown flag with INVALID; neither disconnects.
 *
 * Handshake over a SOCK_STREAM unix socket (three steps, so that no client can hold a writable
 * handle on the memory that it could punch or shrink):
 *
 *	client  -> hello {+ token bytes}
 *	engine  -> welcome {+ memfd, then one eventfd per channel by SCM_RIGHTS: ring transport}
 *	client  -> mapped (one dsec_ring_step), after it mapped the memfd
 *	engine  -> go (one dsec_ring_step), after F_SEAL_FUTURE_WRITE | F_SEAL_SEAL were verified
 *
 * With the stream transport welcome is the last step. Afterwards the socket is the lifeline and, in
 * need_wakeup mode 2, carries one byte per wake-up from the engine to the client.
 */
#pragma once

#include <stdint.h>

#include <dsec/types.h>

#ifdef __cplusplus
#define DSEC__ASSERT(condition) static_assert(condition, #condition)
extern "C" {
#else
#define DSEC__ASSERT(condition) _Static_assert(condition, #condition)
#endif

#define DSEC_RING_MAGIC 0x474e495243455344ull /* "DSECRING" */
#define DSEC_RING_MAJOR 1u
#define DSEC_RING_MINOR 0u

/* 128 bits: node 64 | shard 12 | sequence 52. Never reused. */
struct dsec_wire_id {
	uint64_t hi, lo;
};

#define DSEC_ID_SHARD_SHIFT 52

/* ---- handshake ---- */

struct dsec_ring_hello {
	uint64_t magic;
	uint16_t major, minor_min, minor_max, transport;
	uint64_t features;     /* what the client would like; the engine answers with what is on */
	uint64_t arena_bytes;  /* asked; 0: the default. Clamped and echoed */
	uint32_t requests_max; /* submission entries per channel; 0: the default */
	uint32_t channels;     /* 0 or 1: one, on a home shard; UINT32_MAX: one per shard */
	uint32_t token_bytes;  /* follow this struct; at most DSEC_TOKEN_BYTES_MAX */
	/* Of a gateway: the tenant it acts for, filled up with zero. "": itself; "*": all */
	char tenant[32];
	uint32_t reserved[13];
};

enum { DSEC_TOKEN_BYTES_MAX = 4096, DSEC_CHANNELS_MAX = 252 };

struct dsec_ring_welcome {
	uint64_t magic;
	uint16_t major, minor;
	uint32_t code;	       /* enum dsec_code; not OK: the connection is closed after it */
	uint64_t features;     /* bits of enum dsec_feature */
	uint64_t epoch;	       /* of this engine process: changes when it restarts */
	uint64_t clock_ms;     /* the engine's clock, for the age in request ids (UUIDv7) */
	uint64_t memory_bytes; /* of the memfd */
	uint64_t arena_at, arena_bytes;
	uint32_t channels, shards;
	uint32_t request_bytes, event_bytes; /* strides of the rings */
	uint32_t op_count;
	uint32_t buffer_bytes_min;	    /* smallest result buffer the engine accepts */
	uint32_t channel_at, channel_bytes; /* channel k lies at channel_at + k * channel_bytes */
	uint32_t submission_entries, completion_entries, buffer_entries; /* powers of two */
	/* offsets from a channel's start */
	uint32_t submission_at, completion_at, buffer_at;
	uint32_t stream_payload_max; /* largest payload of one message */
	uint32_t home_shard;	     /* of channel 0, counted from 1; 0: not told */
	uint32_t reserved[16];
	char text[64]; /* why it was refused, for people */
};

struct dsec_ring_step {
	uint64_t magic;
	uint32_t step; /* 1: mapped, 2: go */
	uint32_t reserved;
};

/* ---- a channel in memory ---- */

/*
 * How the client sleeps, in need_wakeup. The client stores a mode, fences, looks at the completion
 * ring once more and sleeps. The engine, after it published its tail and fenced, exchanges the word
 * with DSEC_AWAKE and wakes by what it took out: so a wake-up is sent once, and a futex whose wake
 * came before its wait finds the word changed and does not sleep.
 */
enum dsec_sleep { DSEC_AWAKE = 0, DSEC_SLEEP_FUTEX = 1, DSEC_SLEEP_FD = 2 };

/*
 * Heads and tails are free-running 32-bit counters, masked on use, one cache line each with a line
 * between. The producer stores its tail with release, the consumer loads it with acquire.
 */
struct dsec_ring_channel {
	uint32_t submission_tail; /* client */
	uint32_t pad0[31];
	uint32_t submission_head; /* engine */
	uint32_t engine_awake;	  /* engine: 0 = ring the doorbell (eventfd) after submitting */
	uint32_t pad1[30];
	uint32_t completion_tail; /* engine */
	uint32_t pad2[31];
	uint32_t completion_head; /* client */
	uint32_t need_wakeup;	  /* client: enum dsec_sleep; a futex word in mode 1 */
	uint32_t pad3[30];
	uint32_t buffer_tail; /* client */
	uint32_t pad4[31];
	uint32_t buffer_head; /* engine */
	uint32_t pad5[31];
};

/* A result buffer the client gives the engine: a piece of the arena. */
struct dsec_ring_buffer {
	uint64_t at; /* from arena_at */
	uint32_t bytes;
	uint32_t reserved;
};

/* ---- messages ---- */

enum dsec_op {
	DSEC_OP_NOP = 0,
	DSEC_OP_CANCEL = 1, /* number[0]: ticket */
	DSEC_OP_CAPABILITIES = 2,
	DSEC_OP_CREATE = 3,  /* payload dsec_wire_create */
	DSEC_OP_DESTROY = 4, /* payload dsec_wire_select, or subject */
	DSEC_OP_EXEC = 5,    /* payload dsec_wire_exec */
	DSEC_OP_LIST = 6,    /* payload dsec_wire_list; of execs: subject, too */
	DSEC_OP_STATS = 7,   /* payload dsec_wire_select, or subject */
	DSEC_OP_IMAGE = 8,   /* payload dsec_wire_image */
	DSEC_OP_CHECK = 9,   /* what the engine holds: one row */
	/*
	 * Bytes for a stream that another request of this channel takes. number[0]: its ticket;
	 * offset: of the first byte; payload: the bytes, none of them is the end of the stream.
	 * DONE when they were taken, all or none. Bytes that came before are not taken again.
	 */
	DSEC_OP_INPUT = 10,
	DSEC_OP_ATTACH = 11, /* subject, exec; payload dsec_wire_attach */
	/*
	 * For the exec of that number. number[0]: the signal; number[1]: enum dsec_signal_flag.
	 * CONFLICT: the exec has ended; ABSENT: there never was one of that number.
	 */
	DSEC_OP_SIGNAL = 12,
	DSEC_OP_RESIZE = 13, /* the same; number[0]: rows, number[1]: columns of its terminal */
	/*
	 * number[0]: ticket of a request that sends streams; number[1]: stream; number[2]: how many
	 * bytes of it the client has consumed since its beginning. The engine sends DATA while that
	 * is less than a window behind. May come twice.
	 */
	DSEC_OP_CREDIT = 14,
	DSEC_OP_FILE = 15,   /* payload dsec_wire_file; takes INPUT, sends stream 1 */
	DSEC_OP_CHANGE = 16, /* payload dsec_wire_change */
	DSEC_OP_PORT = 17,
	DSEC_OP_INSPECT = 18,	/* subject */
	DSEC_OP_SUBSCRIBE = 19, /* payload dsec_wire_subscribe; sends by credit, see there */
	DSEC_OP_FUNCTION = 20,	/* payload dsec_wire_function; remove: subject */
	DSEC_OP_INVOKE = 21,	/* subject: a function; payload dsec_wire_invoke */
	DSEC_OP_POLICY = 22,	/* payload dsec_wire_policy */
	DSEC_OP_PHASE = 23,	/* subject; payload dsec_wire_phase */
	DSEC_OP_FETCHED = 24,	/* payload dsec_wire_fetched */
	DSEC_OP_FORK = 25,	/* subject; payload dsec_wire_fork; events as of CREATE */
	DSEC_OP_COUNT,
	DSEC_OP_REGION = 0x100, /* reserved: sealed memfd by reference; refused */
	DSEC_OP_STDIO = 0x101,	/* reserved: pipes of the client as an exec's stdio; refused */
};

struct dsec_ring_request {
	uint64_t ticket; /* the client's; every event carries it; unique while in flight */
	/*
	 * Idempotency key, a UUIDv7 by the engine's clock; zero: none. What changes something
	 * happens once under it: the same again has the first one's result, REPLAYED; anything else
	 * is a CONFLICT; older than what is remembered, UNKNOWN. The record is with shard
	 * request_id[15] % shards, which makes the sandbox of a create: a hop less where that is
	 * the subject's, or channel 0's (home_shard) without one.
	 */
	uint8_t request_id[16];
	struct dsec_wire_id subject;
	uint16_t op, flags;
	uint32_t timeout_ms; /* relative; 0: the engine's default ceiling */
	uint64_t exec;
	uint64_t offset;
	uint64_t payload_at; /* ring: from arena_at; stream: 0 */
	uint32_t payload_bytes;
	uint32_t reserved0;
	uint64_t number[4]; /* operands of ops without a payload */
	uint64_t reserved1[2];
};

enum dsec_request_flag { DSEC_REQUEST_FLAGS_KNOWN = 0 };

struct dsec_ring_event {
	uint64_t ticket;
	uint16_t kind, flags; /* enum dsec_kind, enum dsec_event_flag */
	uint16_t code, blame; /* enum dsec_code, enum dsec_blame */
	struct dsec_wire_id subject;
	uint64_t exec;
	uint64_t offset;	/* of DATA in its stream */
	int32_t error;		/* errno of the failed step, positive; 0: none */
	uint16_t stream, index; /* index: which of N (create count, rows) modulo 65536 */
	uint32_t bytes;		/* of payload */
	uint32_t buffer;	/* ring: the number of the buffer (as posted, modulo 2^32) used */
};

/*
 * With DSEC_EVENT_STATUS the payload ends with a dsec_wire_status (failed step, detail, retry
 * hint): it is there on every event whose code is not OK.
 */
enum dsec_event_flag {
	DSEC_EVENT_LAST = 1,
	DSEC_EVENT_REPLAYED = 2,
	DSEC_EVENT_STATUS = 4,
	DSEC_EVENT_TAIL = 8,	  /* captured output: this DATA belongs to the tail */
	DSEC_EVENT_UNPOLICED = 16 /* CREATED, STARTED, an exec's DONE: egress without a policy */
};

DSEC__ASSERT(sizeof(struct dsec_ring_hello) == 128);
DSEC__ASSERT(sizeof(struct dsec_ring_welcome) == 256);
DSEC__ASSERT(sizeof(struct dsec_ring_step) == 16);
DSEC__ASSERT(sizeof(struct dsec_ring_channel) == 6 * 128);
DSEC__ASSERT(sizeof(struct dsec_ring_buffer) == 16);
DSEC__ASSERT(sizeof(struct dsec_ring_request) == 128);
DSEC__ASSERT(sizeof(struct dsec_ring_event) == 64);

/* ---- payloads ---- */

/* Bytes inside the same payload, from its first byte. {0, 0}: absent. */
struct dsec_wire_ref {
	uint32_t at, bytes;
};

/* A list: `count` items packed from `at` on, each {uint32_t bytes; data}. */
struct dsec_wire_items {
	uint32_t at, bytes, count, reserved;
};

struct dsec_wire_status {
	uint32_t code, blame;
	int32_t error;
	uint32_t retry_after_ms;
	char step[32];	 /* "container.spawn" */
	char detail[80]; /* for people; nobody parses it */
};

enum { DSEC_CREATE_FLAGS_KNOWN = 15 }; /* of enum dsec_create_flag */

struct dsec_wire_create {
	uint32_t size, count;
	uint32_t flags;
	uint32_t network; /* enum dsec_network */
	struct dsec_wire_ref image, policy, backend, hostname, user;
	struct dsec_wire_items env, labels; /* labels: key, value, key, value … */
	struct dsec_wire_id job;
	uint64_t memory_bytes, disk_bytes, inodes;
	uint32_t pids_max, cpu_weight, cpu_max_permille;
	uint32_t ttl_s, idle_ttl_s, on_disconnect;
	uint64_t swap_bytes;		/* without it none of limited memory is swapped out */
	uint64_t io_bytes_per_s;	/* read and written, each, of the disk below the images */
	uint32_t io_weight, on_timeout; /* enum dsec_on_timeout */
	uint64_t output_limit_bytes;	/* of each exec that has none of its own; 0: none */
	/* Processes and threads made in a second; 0: the default. DSEC_PROCESSES_UNLIMITED */
	uint32_t processes_per_s, reserved0;
	uint64_t reserved[2];
};

/* Body of CREATED: the settings in force. */
struct dsec_wire_created {
	uint32_t size, backend; /* 1: container */
	uint32_t network, flags;
	uint64_t memory_bytes, disk_bytes, inodes;
	uint32_t pids_max, ttl_s, idle_ttl_s, on_disconnect;
	uint32_t unenforced; /* bits of enum dsec_limit that this host cannot enforce */
	uint32_t reused;     /* 1: on a root file system proven untouched */
	uint64_t swap_bytes, io_bytes_per_s;
	uint32_t cpu_weight, cpu_max_permille, io_weight, on_timeout;
	uint64_t output_limit_bytes;
	uint32_t policy;		     /* its version's number */
	uint32_t rules_unenforced;	     /* of it, those that nothing enforces on this host */
	uint32_t processes_per_s;	     /* 0: as many as it likes */
	uint16_t network_why, network_scope; /* enum dsec_network_why, _scope */
};

struct dsec_wire_select {
	uint32_t size, count; /* of ids, packed dsec_wire_id at ids.at */
	struct dsec_wire_ref ids;
	struct dsec_wire_items labels; /* all must match */
	struct dsec_wire_id job;
	uint64_t reserved[4];
};

/* A ROW with the subject for each that was changed. */
struct dsec_wire_change {
	struct dsec_wire_select select; /* its size is this struct's */
	uint32_t set;			/* enum dsec_change_field */
	uint32_t ttl_s, idle_ttl_s, on_timeout;
	struct dsec_wire_items labels; /* key, value, key, value … in place of those of the key */
	struct dsec_wire_items removed; /* keys; those that are not there are fine */
	uint64_t reserved[4];
};

enum { DSEC_EXEC_FLAGS_KNOWN = 127 }; /* of enum dsec_exec_flag */
enum { DSEC_SIGNAL_FLAGS_KNOWN = 0x300, DSEC_SIGNAL_MAX = 64, DSEC_RESOURCES = 16 };

struct dsec_wire_rlimit {
	uint32_t resource, reserved; /* enum dsec_resource */
	uint64_t soft, hard;	     /* UINT64_MAX: none */
};

/*
 * Streams: with DSEC_EXEC_STREAM DATA comes as it is written, with offsets, and DSEC_EV_GAP where
 * bytes were lost: its offset, and in its payload a uint64_t: how many. All of it comes before the
 * LAST. Without it DATA are head and tail, at the end. INPUT and CREDIT name this request, or an
 * attach to it.
 */

struct dsec_wire_exec {
	uint32_t size, flags;
	struct dsec_wire_items argv, env;
	struct dsec_wire_ref cwd, user, input;
	uint64_t head_bytes, tail_bytes; /* kept per stream; 0: the default; clamped */
	uint32_t timeout_ms;		 /* of the program; 0: the default */
	uint32_t idle_timeout_ms;	 /* without output; 0: none */
	struct dsec_wire_ref rlimits;	 /* of struct dsec_wire_rlimit */
	uint16_t rows, columns;		 /* with DSEC_EXEC_TTY; 0: unknown */
	uint32_t kill_after_ms;		 /* from SIGTERM to SIGKILL; 0: SIGKILL at once */
	uint64_t window_bytes;		 /* of each stream; 0: the default; clamped */
	uint64_t resume[2];		 /* sent again: what of stdout and stderr came before */
	/* Of all streams together; 0: the sandbox's; UINT64_MAX: none. */
	uint64_t output_limit_bytes;
	uint64_t phase; /* its version: CONFLICT in any other; 0: whatever it is */
};

enum { DSEC_WINDOW_BYTES_DEFAULT = 64 << 10, DSEC_WINDOW_BYTES_MAX = 256 << 10 };

/*
 * Body of ATTACH: the streams of an exec that runs, or is over and kept, from these offsets on;
 * UINT64_MAX: from now on. STARTED, DATA and GAP, then its LAST with a dsec_wire_result: of the
 * end, or with DSEC_ATTACH_SO_FAR of what there is now (reason DSEC_RUNNING while it runs).
 * ABSENT with error ESTALE: it was, and is forgotten; ENOENT: it never was; 0: no such sandbox.
 */
struct dsec_wire_attach {
	uint32_t size, flags; /* enum dsec_attach_flag */
	uint64_t window_bytes;
	uint64_t at[2]; /* stdout, stderr */
	uint64_t reserved[4];
};

struct dsec_wire_output {
	uint32_t stream, truncated;
	uint64_t total_bytes, head_bytes, tail_bytes;
};

/*
 * Body of an exec's LAST. cpu_us is of the main process and of the children it waited for,
 * memory_peak_bytes the most that any of those had resident; UINT64_MAX: not measured on this host.
 * The captured bytes came before it as DATA.
 */
struct dsec_wire_result {
	uint32_t size, reason; /* enum dsec_reason */
	int32_t exit_code, signal;
	uint64_t exec, cpu_us, wall_us, memory_peak_bytes;
	struct dsec_wire_output outputs[2];
	uint64_t memory_limit_bytes; /* DSEC_OOM: the sandbox's; its peak is memory_peak_bytes */
	uint64_t flags;		     /* bits of enum dsec_result_flag */
	uint32_t tainted;	     /* bits 1 << enum dsec_anomaly: its sandbox's; 0: clean */
	uint32_t processes_killed;   /* with it, by the engine; UINT32_MAX: nobody counted */
	uint64_t phase;		     /* its version */
};

struct dsec_wire_file {
	uint32_t size, verb; /* enum dsec_file_verb */
	uint32_t flags;	     /* enum dsec_file_flag, those that the verb knows */
	uint32_t mode;	     /* with DSEC_FILE_MODE */
	uint32_t limit;	     /* list: of rows; 0: the engine's */
	uint32_t reserved0;
	/* to: rename's new name; list: only names after this one. input: write's whole content */
	struct dsec_wire_ref path, to, user, input;
	uint64_t offset;    /* read: from there */
	uint64_t bytes_max; /* of content; 0: all */
	uint64_t reserved[6];
};

/* Body of a file operation's ROW: an entry, or with a reason what was left out of an archive. */
struct dsec_wire_file_row {
	uint32_t size, type;	/* enum dsec_file_type */
	uint32_t reason, error; /* enum dsec_file_reason; errno */
	uint32_t mode, uid, gid;
	uint32_t change; /* watch: bits of enum dsec_file_change */
	uint64_t links, bytes, disk_bytes;
	int64_t mtime_ns; /* since 1970 */
	struct dsec_wire_ref name, target;
	uint64_t reserved[4];
};

/* Body of a file operation's DONE. */
struct dsec_wire_file_result {
	uint32_t size, more; /* more: of a list there are more names */
	uint64_t bytes;	     /* of content */
	uint64_t entries;    /* of an archive, a list, a removal */
	uint64_t left_out;   /* of an archive */
	uint64_t reserved[4];
};

enum { DSEC_PORT_FLAGS_KNOWN = 1, DSEC_ADDRESS_BYTES_MAX = 64 }; /* of enum dsec_port_flag */

struct dsec_wire_port {
	uint32_t size, flags;
	uint32_t port, wait_ms; /* wait_ms 0: do not wait for a listener */
	uint64_t reserved[4];
};

/* Body of PORT's DONE. Whoever connects to the address sends the token and a newline first. */
struct dsec_wire_forward {
	uint32_t size, flags;
	uint32_t port, family;		      /* 4, 6: what listens; 0: nobody looked */
	char address[DSEC_ADDRESS_BYTES_MAX]; /* "127.0.0.1:4711", of the engine's host */
	char token[64];
	uint64_t reserved[4];
};

/* An import is fed by INPUT, as any stream. A job's report (JSON) comes as DATA before its LAST. */
struct dsec_wire_image {
	uint32_t size, verb;  /* enum dsec_image_verb */
	uint32_t kind, flags; /* import: enum dsec_image_kind; enum dsec_image_flag */
	struct dsec_wire_ref name;
	struct dsec_wire_ref tag; /* import: of an archive's images this one; empty: the only one */
	/* compose: parts, the lowest first; push: a target; pull: a source; pack: rules */
	struct dsec_wire_items items;
	struct dsec_wire_id sandbox; /* pack */
	uint64_t reserved[1];
};

/*
 * Body of an image's ROW and of an import's DONE. UINT64_MAX: unknown, of a file that no import
 * made. inspect sends the image's record, JSON, as DATA before its row.
 */
struct dsec_wire_image_row {
	uint32_t size, users;
	uint64_t bytes, content_bytes, files, age_ms;
	uint32_t layers, dropped_nodes, dropped_xattrs, reserved0;
	struct dsec_wire_ref name, digest, created, source;
	uint64_t new_bytes, shared_bytes;    /* import, compose, …: stored now, or there before */
	uint64_t segment_bytes, local_bytes; /* of its contents: all, and on this node */
};

/* Body of a job's PROGRESS. */
struct dsec_wire_progress {
	uint32_t size, layers, layers_total, reserved0;
	uint64_t bytes, files, read_bytes;
	uint64_t reserved[2];
};

struct dsec_wire_list {
	uint32_t size, limit;
	struct dsec_wire_ref
		cursor; /* a dsec_wire_id: only rows with a greater id. In order of id */
	struct dsec_wire_items labels;
	uint32_t what; /* enum dsec_list_what. Execs: of the subject; cursor.lo: their number */
	uint32_t reserved0;
	uint64_t reserved[3];
};

/* Body of a list's ROW. */
struct dsec_wire_row {
	uint32_t size, state; /* enum dsec_state */
	struct dsec_wire_id id;
	uint64_t age_ms, idle_ms, ttl_ms; /* ttl_ms: left; UINT64_MAX: none */
	uint32_t execs_running, network;
	uint64_t execs_total;
	struct dsec_wire_ref image;
	struct dsec_wire_items labels;
	struct dsec_wire_ref tenant; /* for who sees all: whose it is */
	uint32_t tainted, reserved0; /* as in dsec_wire_result */
	uint64_t phase_version;
	struct dsec_wire_ref phase;  /* its name; empty: of the beginning */
	struct dsec_wire_id fork_of; /* 0: it is none; `image` is that of the first of them */
};

/* Body of a ROW of execs. */
struct dsec_wire_exec_row {
	uint32_t size, reason; /* enum dsec_reason: DSEC_RUNNING, or why it ended */
	struct dsec_wire_id id;
	uint64_t exec;
	uint64_t age_ms, wall_us; /* since its start; until its end */
	int32_t exit_code, signal;
	uint64_t stdout_bytes, stderr_bytes; /* written so far */
	uint32_t truncated;		     /* 1: argv, env, or cwd are cut to fit a row */
	uint32_t reserved0;
	struct dsec_wire_ref cwd, user;
	struct dsec_wire_items argv, env;
	uint64_t reserved[4];
};

/* Body of a stats' ROW. Values are read when asked. UINT64_MAX: not measured on this host. */
struct dsec_wire_stats {
	uint32_t size, processes;
	struct dsec_wire_id id;
	uint64_t cpu_us, memory_bytes, memory_peak_bytes, disk_bytes, inodes;
	uint64_t io_read_bytes, io_written_bytes; /* of disks, as far as this sandbox's alone */
	uint64_t execs_running, execs_total;
	uint64_t network_received_bytes, network_sent_bytes; /* by its way out */
	/* How often, and for how long in all, it was frozen because it made processes too fast. */
	uint64_t throttles, throttled_us;
	uint64_t egress_connections, egress_refused, egress_dropped, egress_capped;
};

/*
 * Body of INSPECT's DONE. Values are read when asked; UINT64_MAX: not measured on this host. Of one
 * that ended: id, state, cause, ended_ms.
 */
struct dsec_wire_inspect {
	uint32_t size, state; /* enum dsec_state */
	struct dsec_wire_id id;
	uint32_t cause, processes; /* enum dsec_cause */
	uint64_t age_ms, idle_ms, ttl_ms;
	uint64_t ended_ms; /* ago */
	uint64_t execs_running, execs_total;
	uint64_t cpu_us, memory_bytes, memory_peak_bytes, disk_bytes, inodes, oom_kills;
	struct dsec_wire_created settings;
	struct dsec_wire_ref image, hostname, user;
	struct dsec_wire_items labels;
	struct dsec_wire_ref policy; /* its name */
	uint32_t tainted, reserved0; /* as in dsec_wire_result */
	uint64_t phase_version;
	struct dsec_wire_ref phase;
	struct dsec_egress egress;
	struct dsec_wire_id fork_of; /* as in dsec_wire_row */
};

/* Body of CAPABILITIES' DONE. */
struct dsec_wire_caps {
	uint32_t size, shards;
	uint64_t features, epoch;
	struct dsec_wire_id node;
	uint32_t sandboxes_max, execs_max, requests_max, clients_max;
	uint32_t argument_bytes_max, output_bytes_max;
	uint64_t backends; /* bit per backend */
	uint64_t unenforced;
	char version[32], kernel[64];
	char tenant[32]; /* whose connection this is; the three limits above are its own */
	uint64_t reserved[4];
};

/*
 * Body of CHECK's DONE: the engine's own account of what it holds. One of several tenants is told
 * of its own; what is not one tenant's is UINT64_MAX then.
 */
struct dsec_wire_check {
	uint32_t size, clients;
	uint64_t sandboxes, execs, slots, slots_free, slots_rebuilding, launchers;
	uint64_t callbacks, callbacks_over_1ms, callback_max_ns;
	uint64_t created_total, reused_total, destroyed_total, refused_total, failed_total;
	uint64_t launchers_lost;
	uint64_t networks, networks_ending, networks_reused, networks_discarded;
	uint64_t forwards, inbounds, tokens_refused;
	uint64_t quarantined, slots_quarantined; /* sandboxes and slots that do not end */
	/* As struct dsec_holdings says. */
	uint64_t execs_undying, execs_kept, files, port_waits, imports, sinks;
	uint64_t subscriptions;
	uint64_t reserved[3];
};
#include <dsec/ring_functions.h>
#include <dsec/ring_policy.h>

/* Alignment would be padding on one side only if a struct were not a multiple of 8. */
DSEC__ASSERT(sizeof(struct dsec_wire_status) == 128);
DSEC__ASSERT(sizeof(struct dsec_wire_create) % 8 == 0);
DSEC__ASSERT(sizeof(struct dsec_wire_exec) % 8 == 0);
DSEC__ASSERT(sizeof(struct dsec_wire_attach) % 8 == 0);
DSEC__ASSERT(sizeof(struct dsec_wire_exec_row) % 8 == 0);
DSEC__ASSERT(sizeof(struct dsec_wire_row) % 8 == 0);
DSEC__ASSERT(sizeof(struct dsec_wire_image_row) % 8 == 0);
DSEC__ASSERT(sizeof(struct dsec_wire_file) % 8 == 0);
DSEC__ASSERT(sizeof(struct dsec_wire_file_row) % 8 == 0);
DSEC__ASSERT(sizeof(struct dsec_wire_change) == 160);
DSEC__ASSERT(sizeof(struct dsec_wire_inspect) == 896);

enum { DSEC_PAYLOAD_BYTES_MAX = 1 << 20, DSEC_BUFFER_BYTES_MIN = 4096 };

#ifdef __cplusplus
}
#endif

#include <dsec/ring_events.h>
