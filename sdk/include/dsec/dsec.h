/*
 * dsec.h: sandboxes on one engine, from C11 or C++.
 *
 * What is here: connections, queues, create, destroy, exec with captured output or streams,
 * attach, files, functions and their calls, list, stats, events, policies and the engine's
 * account of itself.
 * Pause, fork and jobs are not.
 *
 * Contracts that hold for every function:
 *
 *  1. 0 or more is success, -Exxx (errno) is failure and says that nothing was sent. dsec_error()
 *     has the reason in words.
 *  2. An int64_t result is a ticket: the name of a request under way. Exactly one event with
 *     DSEC_LAST follows it, whatever happens: success, refusal, deadline, cancellation, a lost
 *     connection. Its status says which. An engine that restarts is an event and no error: see
 *     "when the engine goes", below.
 *  3. Structs that the caller fills begin with `size`, set to sizeof; zero in any field means its
 *     default. A tail that this library does not know must be zero, else -E2BIG; an unknown flag
 *     bit is -EINVAL, never ignored. Structs that the library fills grow at their ends: read
 *     only fields that lie within their `size`.
 *  4. Every function may be called from any thread, and threads may share everything. The library
 *     starts no thread, installs no signal handler and calls nothing back: events are fetched.
 *  5. Inputs are copied before a call returns. Text is bytes: pointer and length, or a C string.
 *  6. In a child made by fork() every function that takes a connection or a queue returns
 *     -EOWNERDEAD; the *_free() do nothing there, and dsec_close() only closes what keeps the
 *     engine believing that the parent lives: a child that goes on for long should call it.
 *  7. Quantities carry their unit in their name. Times are relative, and counted by the engine.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <dsec/types.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct dsec;	   /* a connection */
struct dsec_queue; /* where events arrive: one per event loop, or one shared by many threads */

/* 128 bits: node 64, shard 12, sequence 52. Never reused. Prints as 26 characters. Zero: none. */
struct dsec_id {
	uint64_t hi, lo;
};

struct dsec_bytes {
	const void *data;
	size_t bytes;
};

struct dsec_label {
	struct dsec_bytes key, value;
};

/* ---- events ---- */

struct dsec_status {
	uint32_t code, blame; /* enum dsec_code, enum dsec_blame */
	int32_t error;	      /* errno of the failed step, positive; 0: none */
	uint32_t retry_after_ms;
	char step[32];	 /* the step that failed: "container.rootfs"; "" if none did */
	char detail[80]; /* for people; nobody parses it */
};

/* dsec_event.flags: terminal; from the record; of a sandbox with egress-unpoliced */
enum { DSEC_LAST = 1, DSEC_REPLAYED = 2, DSEC_UNPOLICED = 16 };

struct dsec_event {
	uint32_t size;
	uint16_t kind, flags; /* enum dsec_kind; DSEC_LAST, ... */
	int64_t ticket;
	uint64_t tag; /* as given in dsec_call */
	struct dsec_id subject;
	uint64_t exec;		/* its number within its sandbox, from 1 */
	uint32_t stream, index; /* index: which of several: create's count, rows */
	uint64_t offset, bytes; /* of data, for DSEC_EV_DATA */
	const void *data;
	const void *body; /* typed by the request and the kind, below; NULL: none */
	struct dsec_status status;
};

/* dsec_call.flags */
enum dsec_call_flag {
	DSEC_CALL_ONCE = 1, /* a refusal is told at once, also where there is time to ask again */
};

/*
 * How a call is made. NULL, or a NULL queue: the events are fetched with dsec_wait(). timeout_ms
 * 0: the engine's ceiling. request_id: the idempotency key (UUIDv7: its first 48 bits are
 * milliseconds of the engine's clock); zero: the library makes one. Under one id of a tenant what
 * changes something (a create, destroy, change, exec, call, signal, resize, port, function that is
 * registered or removed, image that is imported or removed, file that is written, made, removed or
 * renamed) happens once: the same again has the first one's result, with DSEC_REPLAYED; another
 * request is DSEC_CONFLICT, and so is the same while it is under way, with a time; an id older
 * than what the engine remembers is DSEC_UNKNOWN.
 *
 * What the engine refuses for want of room (DSEC_REFUSED) has not happened. With a timeout the
 * library asks again, under the same id, after the engine's retry_after_ms and up to half as long
 * again by chance, as long as that is within the timeout; then, and without a timeout, the refusal
 * is the result. A create of which some were made is not asked again: its events say which. Nor is
 * what has a stream of input. A request that is cancelled meanwhile is DSEC_CANCELLED at once.
 */
struct dsec_call {
	uint32_t size, timeout_ms;
	struct dsec_queue *queue;
	uint64_t tag;
	uint8_t request_id[16];
	uint64_t flags; /* enum dsec_call_flag */
};

/* ---- connections ---- */

struct dsec_open_opts {
	uint32_t size;
	uint32_t channels;   /* 0, 1: one; UINT32_MAX: one per shard, for load generators */
	const char *address; /* NULL: as below */
	const char *token;   /* shown to the engine; NULL: none */
	const char *images; /* directory of images, for an engine of one's own; NULL: its default */
	uint64_t arena_bytes;  /* shared memory for payloads and results; 0: the engine's default */
	uint32_t requests_max; /* entries of a submission ring; 0: the engine's default */
	uint32_t spin_us; /* before sleeping, with more than one CPU; 0: 5; UINT32_MAX: never */
	/* How long to try when the engine went; 0: 30 s; UINT32_MAX: never. Not for private: */
	uint32_t reconnect_ms;
	uint32_t connect_ms; /* how long an engine may take to answer dsec_open(); 0: 30 s */
	/*
	 * Of a gateway: the tenant it acts for, by name, or "*": it sees all and makes nothing.
	 * NULL: whose the socket, the token or the uid is. See docs/tenants.md.
	 */
	const char *tenant;
};

/*
 * Addresses:
 *
 *	unix:/path, /path	shared memory, set up over the socket
 *	stream+unix:/path	everything over the socket
 *	ssh:[user@]host[:/path]	an engine on another host: ssh runs `dsec proxy [/path]` there,
 *				and everything goes over its standard input and output. ssh is
 *				looked for in PATH, asks for no password and reads its own
 *				configuration; without a path that host's default counts
 *	private:		a new engine that belongs to this connection: started now, it
 *				destroys all it holds when the connection closes, however that
 *				happens. Needs root. Its program is $DSEC_DSECD, or
 *				../engine/dsecd from where this program lies, or /usr/sbin/dsecd
 *
 * NULL: $DSEC_ADDRESS, and without it unix:/run/dsec.sock. opts may be NULL.
 * -ECONNREFUSED, -ENOENT: no engine there; of ssh, dsec_error() has the last line it wrote.
 * -EOPNOTSUPP: tls:, which is not there yet. -EPROTO: no engine, or its version and this one have
 * nothing in common. -EACCES: the engine refused the token, or to let us act for that tenant;
 * -ENXIO: to a gateway: there is no tenant of that name. -EBUSY: as many clients as may be.
 */
int dsec_open(const struct dsec_open_opts *opts, struct dsec **ret);

/*
 * When the engine goes: threads that wait, and whoever polls what dsec_queue_fd() returned,
 * connect anew, for reconnect_ms; nobody waits longer for it than their own call's timeout.
 * Requests without their DSEC_LAST are sent again, oldest first, under the same request ids, with
 * what is left of their time. So nothing runs twice, and
 *
 *	the connection was cut, the engine is the same: the result comes as if nothing had happened,
 *		or with DSEC_REPLAYED from the record: then with as much of the output as is kept,
 *		and a CREATED with DSEC_ABSENT for those that are not there (any more). Streams go
 *		on where they were, with a DSEC_EV_GAP for what is gone. While it is still under
 *		way it is asked for until the call's timeout, or without one for reconnect_ms.
 *		Sandboxes with DSEC_DISCONNECT_DESTROY went with the connection.
 *	another engine: what changes something and may have run ends with DSEC_UNKNOWN, the
 *		sandboxes of the one before are DSEC_ABSENT. Other requests, and a destroy by ids,
 *		are answered by the new one.
 *
 * What was told is not told again: no CREATED, STARTED or row comes twice. Events that were not
 * fetched yet stay. Each queue gets one event of kind DSEC_EV_RECONNECTED, whose ticket is -1 and
 * which belongs to no request, before any event that came over the new connection; dsec_wait() just
 * waits on. Meanwhile new requests are -EAGAIN with a queue, and wait for room without. A request
 * that is cancelled meanwhile ends with DSEC_LOST at once.
 *
 * DSEC_LOST ends all that is outstanding when reconnecting takes too long or is refused (a version,
 * a token), and when the engine sends what makes no sense, which is never tried again. From then on
 * the handle is good for closing only.
 */

/*
 * Ends the connection; NULL is fine. Outstanding requests finish in the engine. Sandboxes with
 * DSEC_DISCONNECT_DESTROY go, all others stay. No other thread may be in a call on d or its queues,
 * and they are gone afterwards; events stay valid until freed. With a private engine it waits, at
 * most 10 s, until that is gone; over ssh until what was sent has arrived, as long.
 */
void dsec_close(struct dsec *d);

struct dsec_caps {
	uint32_t size, shards;
	uint64_t features, epoch; /* bits of enum dsec_feature; epoch: of this engine process */
	struct dsec_id node;
	uint32_t sandboxes_max, execs_max, requests_max, clients_max;
	uint32_t argument_bytes_max, output_bytes_max;
	uint64_t backends;   /* bit 1: container */
	uint64_t unenforced; /* bits of enum dsec_limit */
	char version[32], kernel[64];
	uint32_t transport, channels; /* of this connection */
	char tenant[32]; /* whose it is: sandboxes_max, execs_max and clients_max are its own */
};

/*
 * What the engine is and can do; asked once per engine, then remembered. *ret lives as long as d,
 * and says what it said even if another engine has come since.
 */
int dsec_capabilities(struct dsec *d, const struct dsec_caps **ret);

/* ---- queues and events ---- */

int dsec_queue_new(struct dsec *d, struct dsec_queue **ret);

/*
 * A descriptor to wait on: readable while events wait here, or while something arrived that
 * dsec_queue_poll() has yet to sort. Poll until it returns 0, then wait again. It belongs to the
 * queue: do not read, write or close it. May be readable in vain.
 */
int dsec_queue_fd(struct dsec_queue *q);

/*
 * Takes up to max events; waits up to timeout_ms for the first one (-1: for ever). The number of
 * events; 0: none came, or dsec_queue_wake(). Events of a ticket come in order, and while a thread
 * has unfreed events of a ticket no other thread gets any of it; there is no order between
 * tickets. DSEC_EV_RECONNECTED comes before all others. After the connection was lost for good:
 * what is left, then -ENOTCONN. The caller frees each.
 */
int dsec_queue_poll(struct dsec_queue *q, struct dsec_event **ret, int max, int timeout_ms);

/* Frees an event, its data and its body. NULL is fine. */
void dsec_event_free(struct dsec_event *e);

/* Makes one dsec_queue_poll(), a waiting one or else the next, return 0. Async-signal-safe. */
void dsec_queue_wake(struct dsec_queue *q);

/*
 * Cancels what is outstanding here, waits for it to end (at most 10 s; what takes longer is left to
 * the engine), drops all events and frees q. No other thread may be in a call on q. NULL is fine.
 */
void dsec_queue_free(struct dsec_queue *q);

/*
 * Takes the next event of a ticket that has no queue, in order; the last one has DSEC_LAST, after
 * which the ticket is gone: -ENOENT. -ETIMEDOUT: none within timeout_ms (-1: for ever), and the
 * request goes on. -EINVAL: the ticket has a queue. One thread at a time per ticket.
 */
int dsec_wait(struct dsec *d, int64_t ticket, int timeout_ms, struct dsec_event **ret);

/*
 * Asks to end a request; its DSEC_LAST still comes: with DSEC_CANCELLED, and then undone, or with
 * the result that was faster. A program started by an exec runs on: destroy the sandbox, or give
 * the exec a timeout. -ENOENT: no such ticket under way.
 */
int dsec_cancel(struct dsec *d, int64_t ticket);

/*
 * ---- requests ----
 *
 * They return a ticket (0 or more), or
 *
 *	-EINVAL		a field has an impossible value
 *	-E2BIG		a struct has a tail unknown here
 *	-EMSGSIZE	it never fits into the shared memory (dsec_open_opts.arena_bytes)
 *	-EAGAIN		it does not fit now, or the engine is away: fetch events, or wait a moment
 *			where none are due, and ask again. Only for calls with a queue; others wait
 *			for room, up to timeout_ms
 *	-ENOTCONN	the connection was lost for good
 */

struct dsec_create_opts {
	uint32_t size, count; /* count 0: 1 */
	const char *image;
	const char *policy, *backend, *hostname, *user; /* NULL: the default */
	struct dsec_id job;
	const struct dsec_label *labels;
	const struct dsec_bytes *env; /* "NAME=value", for every exec */
	uint32_t label_count, env_count;
	uint32_t flags;	  /* bits of enum dsec_create_flag */
	uint32_t network; /* enum dsec_network */
	uint64_t memory_bytes, disk_bytes, inodes;
	uint32_t pids_max, cpu_weight, cpu_max_permille; /* 1000 per mille: one CPU */
	uint32_t ttl_s, idle_ttl_s;			 /* destroyed after; 0: never */
	uint32_t on_disconnect;				 /* enum dsec_disconnect */
	uint64_t swap_bytes;		/* 0: none of limited memory is swapped out */
	uint64_t io_bytes_per_s;	/* read and written, each, of the disk below the images */
	uint32_t io_weight, on_timeout; /* enum dsec_on_timeout */
	uint64_t output_limit_bytes;	/* of each exec that has none of its own; 0: none */
	/*
	 * Processes and threads that it may make, and end, in a second: beyond that it is frozen
	 * for moments. 0: the default; DSEC_PROCESSES_UNLIMITED.
	 */
	uint32_t processes_per_s;
};

/* Body of DSEC_EV_CREATED: the settings in force. */
struct dsec_created {
	uint32_t size, backend; /* backend 1: container */
	uint32_t network, flags;
	uint64_t memory_bytes, disk_bytes, inodes;
	uint32_t pids_max, ttl_s, idle_ttl_s, on_disconnect;
	uint32_t unenforced; /* bits of enum dsec_limit: of the limits above */
	uint32_t reused;     /* 1: on a root file system proven untouched */
	uint64_t swap_bytes, io_bytes_per_s;
	uint32_t cpu_weight, cpu_max_permille, io_weight, on_timeout;
	uint64_t output_limit_bytes;
	uint32_t policy; /* its version's number, as dsec_policy() tells it */
	/* Those of it that nothing enforces: not on this host, or its image lacks their path. */
	uint32_t rules_unenforced;
	uint32_t processes_per_s;	     /* 0: as many as it likes */
	uint16_t network_why, network_scope; /* enum dsec_network_why, _scope */
};

/*
 * Events: `count` times DSEC_EV_CREATED, each with its subject or with the status that says why it
 * is not there, then DSEC_EV_DONE.
 */
int64_t dsec_create(struct dsec *d, const struct dsec_call *call,
		    const struct dsec_create_opts *opts);

/* Sandboxes: those named, or all that have every label (and the job). */
struct dsec_select {
	uint32_t size, count;
	const struct dsec_id *ids;
	struct dsec_id job;
	const struct dsec_label *labels;
	uint32_t label_count, reserved; /* reserved: 0 */
};

/*
 * Any state, idempotent; a sandbox that is gone already is success. DSEC_EV_DONE when nothing of
 * them runs. A selection that names nothing at all is -EINVAL, not everything.
 */
int64_t dsec_destroy(struct dsec *d, const struct dsec_call *call,
		     const struct dsec_select *select);

#include <dsec/exec.h> /* programs and their streams */

/*
 * Files of a sandbox, by paths from its root. All is done by an unprivileged process inside, with
 * the user's rights: links are followed there, those of proc never, and what is no regular file is
 * neither read nor written (EMEDIUMTYPE). Names are bytes, none of them 0; a path has at most
 * 32 KiB. What a file system said is in the status: error ENOENT, EISDIR, ELOOP, ENOSPC ..., step
 * "file.open", "file.write" and so on.
 */
struct dsec_file_opts {
	uint32_t size, verb;  /* enum dsec_file_verb; 0: that of dsec_read() or dsec_write() */
	uint32_t flags, mode; /* bits of enum dsec_file_flag; mode: with DSEC_FILE_MODE */
	struct dsec_bytes path;
	struct dsec_bytes to;	 /* rename: the new name; list: only names after this one */
	struct dsec_bytes input; /* write: all of it; data NULL: it follows by dsec_input() */
	uint64_t offset;	 /* read: from there on */
	uint64_t bytes_max;	 /* read: so much; write: more is EFBIG; 0: all */
	const char *user;	 /* NULL: the sandbox's */
	uint32_t limit;		 /* list: of rows; 0, or more than that: 4096 */
	uint32_t reserved;	 /* 0 */
};

/* Body of a DSEC_EV_ROW: an entry; or, with a reason, what was left out of an archive. */
struct dsec_file_row {
	uint32_t size, type;	/* enum dsec_file_type */
	uint32_t reason, error; /* enum dsec_file_reason; errno, where it says why */
	uint32_t mode, uid, gid;
	uint32_t change; /* watch: bits of enum dsec_file_change, with name and type alone */
	uint64_t links, bytes, disk_bytes;
	int64_t mtime_ns; /* since 1970 */
	struct dsec_bytes name, target;
};

/* Body of a DSEC_EV_DONE. */
struct dsec_file_result {
	uint32_t size, more; /* more: 1: of a list there are more names */
	uint64_t bytes;	     /* of content */
	uint64_t entries;    /* of an archive, a list, a removal */
	uint64_t left_out;   /* of an archive; the first 100 have a row each */
};

/*
 * What a regular file holds: DSEC_EV_DATA by credit (see dsec_input()), no more than it had when it
 * was opened, then DSEC_EV_DONE. With DSEC_FILE_TAR the file or the tree at the path as a tar
 * archive (pax), named from there; what is no file, folder or link is left out and has a row. Over
 * a connection that ends in the middle it ends with DSEC_LOST.
 */
int64_t dsec_read(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		  const struct dsec_file_opts *opts);

/*
 * What a regular file is to hold. It takes its place when all is there: with the whole input, or at
 * the end of what dsec_input() brings; one that is cancelled, that fails, or whose connection ends
 * before that never appears. An old file's mode and owner stay; a new one has 0644 and the user's
 * ids; DSEC_FILE_MODE sets it. With DSEC_FILE_APPEND it is added to what is there then.
 *
 * With DSEC_FILE_TAR the path is a folder, and the input a tar archive, not compressed, for it.
 * Each file takes its place when it is whole, the archive as a whole is not undone. Nothing
 * outside the folder is touched: what leads out of it or over a link, and devices, are left out,
 * setuid, setgid and sticky bits removed; each such entry has a DSEC_EV_ROW with its name and the
 * reason.
 */
int64_t dsec_write(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		   const struct dsec_file_opts *opts);

/*
 * DSEC_FILE_STAT	a DSEC_EV_ROW
 * DSEC_FILE_LIST	a DSEC_EV_ROW per name in a folder, in the order of their bytes. A page:
 *			result.more says that there are more, and `to` where to go on
 * DSEC_FILE_MKDIR, DSEC_FILE_REMOVE (a name; a folder that is empty, or DSEC_FILE_RECURSIVE),
 * DSEC_FILE_RENAME
 * DSEC_FILE_WATCH	a DSEC_EV_ROW once a folder is watched, and one for every change in it,
 *			until it is cancelled: an hour at most. Rows not taken make later ones LOST
 *
 * then DSEC_EV_DONE. Cancelling one that changes something is DSEC_UNKNOWN, or the result.
 */
int64_t dsec_file(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		  const struct dsec_file_opts *opts);

struct dsec_port_opts {
	uint32_t size, flags; /* bits of enum dsec_port_flag */
	uint32_t port;	      /* on 127.0.0.1 or ::1 of the sandbox */
	uint32_t wait_ms; /* until something listens there, at most 10 minutes; 0: do not wait */
};

/* Body of a port's DSEC_EV_DONE. */
struct dsec_forward {
	uint32_t size, flags;
	uint32_t port, family; /* 4, 6: what listens; 0: nobody looked */
	char address[64];      /* "127.0.0.1:4711", on the engine's host */
	char token[64];
};

/*
 * A way into a sandbox of network `private`: who connects to the address sends the token and a
 * newline, within five seconds, then bytes flow both ways, with half-close. Where nothing listens
 * inside, the connection is closed. Asking again is told the same token; it dies with the sandbox,
 * or by DSEC_PORT_REVOKE. DSEC_DEADLINE: nothing listened in time; DSEC_UNSUPPORTED: its network is
 * `none`.
 */
int64_t dsec_port(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		  const struct dsec_port_opts *opts);

struct dsec_list_opts {
	uint32_t size, limit;		 /* of rows; 0: all */
	struct dsec_id after;		 /* only greater ids: the last row's, to go on */
	const struct dsec_label *labels; /* all must match */
	uint32_t label_count, what;	 /* what: enum dsec_list_what */
	struct dsec_id sandbox;		 /* execs: its own; after.lo: greater numbers */
};

/* Body of a list's DSEC_EV_ROW. */
struct dsec_row {
	uint32_t size, state; /* enum dsec_state */
	struct dsec_id id;
	uint64_t age_ms, idle_ms, ttl_ms; /* ttl_ms: what is left; UINT64_MAX: none */
	uint32_t execs_running, network;
	uint64_t execs_total;
	struct dsec_bytes image;
	const struct dsec_label *labels;
	uint32_t label_count, tainted; /* tainted: as in dsec_result */
	struct dsec_bytes tenant;      /* whose it is, where several are seen */
	struct dsec_bytes phase;       /* its name; empty: of the beginning */
	uint64_t phase_version;
	struct dsec_id fork_of; /* 0: it is none; `image` is that of the first of them */
};

/*
 * Events: a DSEC_EV_ROW per sandbox in order of id, or per exec in order of number, then
 * DSEC_EV_DONE. opts may be NULL.
 */
int64_t dsec_list(struct dsec *d, const struct dsec_call *call, const struct dsec_list_opts *opts);

/* Body of a stats' DSEC_EV_ROW. UINT64_MAX: not measured on this host. */
struct dsec_usage {
	uint32_t size, processes;
	struct dsec_id id;
	uint64_t cpu_us, memory_bytes, memory_peak_bytes, disk_bytes, inodes;
	uint64_t io_read_bytes, io_written_bytes; /* of disks */
	uint64_t execs_running, execs_total;
	uint64_t network_received_bytes, network_sent_bytes; /* by its way out */
	/* How often, and for how long in all, it was frozen because it made processes too fast. */
	uint64_t throttles, throttled_us;
	/* As in dsec_egress. */
	uint64_t egress_connections, egress_refused, egress_dropped, egress_capped;
};

/* Read now, not remembered. Events: a DSEC_EV_ROW per sandbox, then DSEC_EV_DONE. */
int64_t dsec_stats(struct dsec *d, const struct dsec_call *call, const struct dsec_select *select);

struct dsec_change_opts {
	uint32_t size, set;	    /* bits of enum dsec_change_field: only these change */
	uint32_t ttl_s, idle_ttl_s; /* from now on; 0: the engine's default. 0: none */
	uint32_t on_timeout;	    /* enum dsec_on_timeout */
	uint32_t label_count, removed_count;
	uint32_t reserved;		  /* 0 */
	const struct dsec_label *labels;  /* each in place of the one with its key; others stay */
	const struct dsec_bytes *removed; /* keys of labels that go */
};

/*
 * Changes all that are selected, or, of what one alone forbids (too many labels), the others.
 * Events: a DSEC_EV_ROW with the subject of each that was changed, then DSEC_EV_DONE; DSEC_ABSENT:
 * one that was named is not there.
 */
int64_t dsec_change(struct dsec *d, const struct dsec_call *call, const struct dsec_select *select,
		    const struct dsec_change_opts *opts);

/* Body of an inspect's DSEC_EV_DONE. UINT64_MAX: not measured on this host. */
struct dsec_inspected {
	uint32_t size, state; /* enum dsec_state */
	struct dsec_id id;
	uint32_t cause, processes;	  /* enum dsec_cause */
	uint64_t age_ms, idle_ms, ttl_ms; /* ttl_ms: what is left; UINT64_MAX: none */
	uint64_t ended_ms;		  /* how long ago, with DSEC_STATE_ENDED */
	uint64_t execs_running, execs_total;
	uint64_t cpu_us, memory_bytes, memory_peak_bytes, disk_bytes, inodes;
	uint64_t oom_kills; /* processes that its memory limit ended */
	struct dsec_created settings;
	struct dsec_bytes image, hostname, user;
	const struct dsec_label *labels;
	uint32_t label_count, tainted; /* tainted: as in dsec_result */
	struct dsec_bytes policy;      /* its name */
	struct dsec_bytes phase;       /* as in dsec_row */
	uint64_t phase_version;
	struct dsec_egress egress;
	struct dsec_id fork_of; /* as in dsec_row */
};

/*
 * One sandbox as it is now: its settings in force, what it uses, what runs in it; and of one that
 * is gone, why, for ten minutes at least as long as the engine lives and no more than 4096 others
 * of its shard ended since. Then DSEC_ABSENT.
 */
int64_t dsec_inspect(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox);
/* Body of a check's DSEC_EV_DONE: the engine's own account of what it holds. */
struct dsec_holdings {
	uint32_t size, clients;
	uint64_t sandboxes, execs, slots, slots_free, slots_rebuilding, launchers;
	uint64_t callbacks, callbacks_over_1ms, callback_max_ns; /* of the shards' loops */
	uint64_t created_total, reused_total, destroyed_total, refused_total, failed_total;
	uint64_t launchers_lost;
	uint64_t networks, networks_ending, networks_reused, networks_discarded;
	uint64_t forwards, inbounds, tokens_refused; /* inbounds: connections to ports now */
	uint64_t quarantined,
		slots_quarantined; /* sandboxes and slots that do not end: tried again */
	uint64_t execs_undying;	   /* of execs: killed, their end told, and they do not die */
	uint64_t execs_kept;	   /* over, and can be asked for still */
	uint64_t files;		   /* operations on files */
	uint64_t port_waits;	   /* for somebody to listen */
	uint64_t imports;	   /* of images */
	uint64_t sinks; /* streams of background children whose exec is over, read for nobody */
	uint64_t subscriptions; /* to events */
};

int64_t dsec_check(struct dsec *d, const struct dsec_call *call);

/* A round trip to the engine, and nothing else: DSEC_EV_DONE. */
int64_t dsec_ping(struct dsec *d, const struct dsec_call *call);

/* ---- conveniences: they block ---- */

/*
 * One sandbox with default settings. A refusal is told as errno: -EBUSY refused, -EINVAL, -EACCES
 * denied, -ENOENT no such image, -EOPNOTSUPP, -ETIMEDOUT, -ECONNRESET lost, else the failed step's
 * errno or -EIO; dsec_error(d, r) has the words.
 */
int dsec_sandbox(struct dsec *d, const char *image, struct dsec_id *ret);

/*
 * Runs argv (NULL-terminated) with captured output. 0: *ret is the DSEC_EV_DONE, whose body is a
 * struct dsec_result (or NULL, see its status); the caller frees it. timeout_ms: of the program.
 */
int dsec_run(struct dsec *d, struct dsec_id sandbox, const char *const argv[], uint32_t timeout_ms,
	     struct dsec_event **ret);

/* Crockford's base32, lower case, 26 characters; upper case is read too. -EINVAL: anything else. */
int dsec_id_parse(const char *text, struct dsec_id *ret);
void dsec_id_print(struct dsec_id id, char ret_text[27]);

/*
 * Why the calling thread's last call failed, for people. result: what that call returned. d may be
 * NULL, as after dsec_open(). Valid until the thread's next call; never NULL.
 */
const char *dsec_error(struct dsec *d, int64_t result);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#include <dsec/events.h>
#include <dsec/functions.h>
#include <dsec/images.h>
#include <dsec/policies.h>
