/*
 * Programs in sandboxes, and their streams: the part of dsec.h that is about them, which includes
 * it. Its contracts hold here.
 */
#pragma once

#include <dsec/dsec.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* UINT64_MAX: none. Without one for core files there are none. */
struct dsec_rlimit {
	uint32_t resource, reserved; /* enum dsec_resource; 0 */
	uint64_t soft, hard;
};

struct dsec_exec_opts {
	uint32_t size, flags; /* bits of enum dsec_exec_flag */
	const struct dsec_bytes *argv;
	const struct dsec_bytes *env; /* "NAME=value", over the sandbox's */
	uint32_t argc, env_count;
	const char *cwd, *user;	  /* NULL: the sandbox's */
	struct dsec_bytes input;  /* all of stdin; empty: /dev/null */
	uint32_t timeout_ms;	  /* of the program, with all it started; 0: the engine's default */
	uint32_t idle_timeout_ms; /* without any output; 0: none */
	uint64_t head_bytes, tail_bytes; /* kept of each stream; 0: the engine's default */
	const struct dsec_rlimit *rlimits;
	uint32_t rlimit_count;
	uint16_t rows, columns; /* of its terminal, with DSEC_EXEC_TTY; 0: unknown */
	/*
	 * When a time is over: 0: everything the program started is killed. Else its main process
	 * gets SIGTERM, and all is killed when that has ended, at the latest after so long.
	 */
	uint32_t kill_after_ms;
	uint32_t reserved;     /* 0 */
	uint64_t window_bytes; /* sent ahead of each stream with STREAM; 0: the engine's default */
	/*
	 * What it may write, all streams together and however much of that is kept: beyond, all of
	 * it is killed and the reason is DSEC_OUTPUT_LIMIT. 0: the sandbox's; UINT64_MAX: none.
	 */
	uint64_t output_limit_bytes;
	/* Only in the phase of that version, see dsec_phase(): else DSEC_CONFLICT. 0: in any. */
	uint64_t phase;
};

struct dsec_output {
	uint32_t stream;      /* 1: stdout, 2: stderr */
	uint32_t truncated;   /* 1: bytes between head and tail are gone */
	uint64_t total_bytes; /* written by the program */
	struct dsec_bytes head, tail;
};

/*
 * Body of an exec's DSEC_EV_DONE; partial output is here whatever the reason. status.code is
 * DSEC_OK whenever the program ran, however it ended: see reason. cpu_us is of the program and of
 * the children it waited for, memory_peak_bytes the most that any one of those had resident.
 */
struct dsec_result {
	uint32_t size, reason;				   /* enum dsec_reason */
	int32_t exit_code, signal;			   /* by reason */
	uint64_t exec, cpu_us, wall_us, memory_peak_bytes; /* UINT64_MAX: not measured here */
	const struct dsec_output *outputs;
	uint32_t output_count;
	uint32_t tainted; /* bits 1 << enum dsec_anomaly: what taints its sandbox; 0: clean */
	/* DSEC_OOM: the sandbox's limit, and memory_peak_bytes is the sandbox's peak. Else 0. */
	uint64_t memory_limit_bytes;
	uint64_t flags; /* bits of enum dsec_result_flag */
	uint64_t phase; /* version of the phase it began in */
	/*
	 * How many processes the engine killed to end it: 0 where it ended by itself, or when it
	 * was told to; UINT32_MAX: nobody counted, as where its sandbox went.
	 */
	uint32_t processes_killed, reserved;
};

/*
 * Runs a program in a sandbox, entered from outside. Events: DSEC_EV_STARTED, DSEC_EV_DONE.
 * Without DSEC_EXEC_CAPTURE the same head and tail come as DSEC_EV_DATA between them, and not in
 * the result.
 *
 * With DSEC_EXEC_STREAM all output comes as it is written: DSEC_EV_DATA with stream and offset, and
 * DSEC_EV_GAP with offset and bytes (no data) for what is gone, which happens only when it was not
 * read for a while with nobody attached. A program whose reader does not free events waits for it;
 * without a reader, after a cancel or when the connection is away, it does not.
 *
 * With DSEC_EXEC_DETACH DSEC_EV_DONE comes when the program runs, with reason DSEC_RUNNING; the
 * default timeout is then the longest there is. dsec_attach() has the rest.
 *
 * With DSEC_EXEC_TTY the program has a terminal of its own, of `rows` and `columns`, as stdin,
 * stdout and stderr, and leads its session: all output is stream 1. With DSEC_EXEC_INPUT_STREAM
 * what dsec_input() gives is typed, so that Ctrl-C (byte 3) is a SIGINT; the end of the stream is
 * typed as Ctrl-D (byte 4, twice in the middle of a line), the end of file where the program reads
 * lines and did not choose another character. When the program has ended its terminal is hung up,
 * and whoever else has it does not hold the result up. A sandbox has 64 terminals at a time;
 * DSEC_NOT_STARTED at step "tty": it holds all of them, or put something else where they are.
 *
 * `rlimits` are the program's alone. DSEC_DENIED at step "limit.NAME": it is above what this host
 * gives.
 *
 * An exec that is over is kept for a while, see dsecd(8): how it ended, and head and tail.
 */
int64_t dsec_exec(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		  const struct dsec_exec_opts *opts);

struct dsec_at {
	uint32_t stream, reserved; /* 1: stdout, 2: stderr; reserved: 0 */
	uint64_t offset;	   /* UINT64_MAX: from now on */
};

struct dsec_attach_opts {
	uint32_t size, flags;	  /* bits of enum dsec_attach_flag */
	uint64_t exec;		  /* its number within the sandbox */
	const struct dsec_at *at; /* streams that are not named: from their beginning */
	uint32_t at_count, reserved;
	uint64_t window_bytes; /* as in dsec_exec_opts */
};

/*
 * Reads along with an exec, as often as wanted: one that runs, or one that is over and kept.
 * Events: DSEC_EV_STARTED, then as of an exec with DSEC_EXEC_STREAM, from the offsets on. What was
 * written meanwhile and is no longer kept is a DSEC_EV_GAP. With several readers the program waits
 * for the foremost of them only. dsec_input() takes this ticket as well as the exec's own.
 * DSEC_ABSENT: error ESTALE, it was and is no longer kept; ENOENT, it never was; 0, no sandbox.
 */
int64_t dsec_attach(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		    const struct dsec_attach_opts *opts);

/*
 * Bytes for a stream that a request under way takes, as an exec with DSEC_EXEC_INPUT_STREAM its
 * stdin. `offset`: of the first byte in that stream; no bytes: its end. At most 1 MiB. The event is
 * DSEC_EV_DONE, when they were taken: all, or none; while the reader does not read it waits. What
 * came before is not taken again, so one that ended with DSEC_LOST may be repeated. A gap, or what
 * came before in part, is DSEC_INVALID; DSEC_FAILED with EPIPE: nobody reads that stream any more.
 * -ENOENT: no such ticket under way.
 *
 * What comes as streams is sent by credit: freeing a DSEC_EV_DATA lets more of its stream come. Who
 * keeps events stops that stream, and no other.
 */
int64_t dsec_input(struct dsec *d, const struct dsec_call *call, int64_t ticket, uint64_t offset,
		   struct dsec_bytes data);

/*
 * A signal to the main process of a running exec, or with a bit of enum dsec_signal_flag to more of
 * it; DSEC_EV_DONE when it was sent. SIGKILL with DSEC_SIGNAL_ALL ends the exec and all that it
 * started. An exec that has ended is DSEC_CONFLICT, one that never was DSEC_ABSENT.
 */
int64_t dsec_signal(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		    uint64_t exec, int signal);

/* The size of an exec's terminal: rows << 16 | columns. DSEC_CONFLICT: it has none. */
int64_t dsec_resize(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		    uint64_t exec, uint32_t rows_columns);

/* Body of a DSEC_EV_ROW of execs: those that run, and those that are over and kept. */
struct dsec_exec_row {
	uint32_t size, reason; /* enum dsec_reason: DSEC_RUNNING, or why it ended */
	struct dsec_id sandbox;
	uint64_t exec;
	uint64_t age_ms, wall_us; /* since its start; until its end */
	int32_t exit_code, signal;
	uint64_t stdout_bytes, stderr_bytes; /* written so far */
	const struct dsec_bytes *argv, *env; /* env: all of it, with what the engine added */
	uint32_t argc, env_count;
	struct dsec_bytes cwd, user;  /* empty: the user's home, root */
	uint32_t truncated, reserved; /* truncated 1: argv, env or cwd did not fit a row */
};

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
