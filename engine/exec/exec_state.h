/*
 * An exec from the inside, shared by the files that make it up:
 *
 *	exec.c		the request, and the flow from pipes to the end of the program
 *	exec_time.c	how long it may take to start, run, be silent, and die
 *	exec_stream.c	its descriptors: what it writes is read, what is left is taken at the end
 *	exec_tty.c	its terminal, in place of pipes
 *	exec_reader.c	who gets that as it comes
 *	exec_result.c	how it ended, told and recorded
 *	exec_kept.c	the ended ones, which are kept for a while
 *	exec_attach.c	more readers, and lists of execs
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "backends/backend.h"
#include "engine/base/flow.h"
#include "engine/base/pipe.h"
#include "engine/base/timer.h"
#include "engine/exec/capture.h"
#include "engine/exec/exec_reader.h"
#include "engine/exec/pace.h"
#include "engine/request/inlet.h"
#include "engine/sandbox/sandbox.h"
#include "engine/request/window.h"

struct exec;
struct part;
struct request;
struct record;

enum {
	EXEC_STREAMS = 2, /* stdout, stderr: 1 and 2 on the wire */
	EXEC_DATA_BYTES_MAX = 16 << 10,
	EXEC_PIPE_BYTES = 64 << 10, /* what the kernel holds of a stream at the end of a program */
};

struct stream {
	struct pipe_op pipe;
	struct io_op op; /* in place of it, of a terminal */
	struct exec *exec;
	struct capture capture;
	uint64_t tail_wish; /* of the tail; more may be kept for readers */
	int fd;		    /* -1: closed */
	bool reading;
	bool is_held;	  /* not read, for want of a reader that goes on */
	bool is_terminal; /* does not wait, and stays open to the exec's end: see exec_tty.c */
	bool is_hung_up;  /* nobody has the other end open now */
	uint32_t drained; /* of what was left at the end */
	char *buffer;
};

/*
 * A part that listens to an exec: its own request, or an attach. `live`: it gets DATA as it comes;
 * else head and tail at the end. A live one that reads holds the program back when it stops.
 */
struct reader {
	struct part *part; /* NULL: nobody */
	struct exec *exec;
	struct reader *next, **link; /* of exec->readers, where live */
	struct window windows[EXEC_STREAMS];
	bool live, follows, replays;
};

struct exec {
	struct flow flow;
	struct shard *shard;
	struct sandbox *sandbox;
	struct exec *next, **link; /* of sandbox->execs, or of sandbox->kept */
	struct reader owner;	   /* of the request that started it */
	struct reader *readers;	   /* live */
	struct run *run;
	struct run_spec spec;
	struct run_limit *limits; /* the spec's */
	uint64_t client;	  /* whose share it is of */
	uint64_t number, begun_ns, ended_ns, output_ns, terminated_ns, killed_ns;
	struct stream streams[EXEC_STREAMS];
	int child_fds[3];
	struct inlet inlet;
	const char *input; /* of the request: written, or copied, at once */
	uint32_t input_bytes, timeout_ms, idle_timeout_ms, kill_after_ms;
	uint64_t window_bytes;
	uint64_t output_limit_bytes; /* of all streams; UINT64_MAX: none */
	struct io_op closing;	     /* its terminal */
	struct timer left;	     /* nobody has that open: until it is looked at again */
	struct pace pace;
	struct timer paced; /* its output waits for its turn */
	bool has_tty;
	bool merge, detaches, has_input, takes_input, started, run_over;
	bool stopping, quieting; /* no op begins any more; those in flight are waited for */
	bool terminated, killed; /* asked to end; not asked any more */
	bool phase_over;	 /* killed as soon as it has started */
	uint64_t phase;		 /* version: it began in that one */
	bool is_undying;	 /* over, and something of it runs on: not its flow's end */
	uint32_t reason;	 /* why it was to end, if it was */
	int status;
	struct timer limit;
	char user[USER_BYTES_MAX];
	uint8_t request_id[16];
	const char *failed_step;

	/* once it is over */
	bool over;
	struct dsec_wire_result result; /* size 0: it never came to one */
	struct status result_status;
	/* while it is kept */
	struct exec *older, *newer; /* of the shard */
	uint64_t kept_bytes;
};

/* ---- exec_limits.c ---- */

/* The request's rlimits into exec->spec. */
struct status exec_limits(struct exec *exec, const struct request *request);
/* A limit that this host does not give, by its name: run->failed_limit. */
struct status exec_limit_refusal(const struct exec *exec);

/* ---- exec.c ---- */

/* Its place among those that run is free again. */
void exec_place_give(struct tenancy *tenancy, uint64_t client);
/* The one that a request of this id started. */
struct exec *exec_of_request(const struct sandbox *sandbox, const uint8_t id[16]);
/* One that runs, or is kept; NULL. */
struct exec *exec_find(const struct sandbox *sandbox, uint64_t number);
/* Nothing more is taken for it, and what waits is told. Any number of times. */
void exec_input_stop(struct exec *exec);
/* An op of an exec that is to end has: see step "quiet". */
void exec_op_settled(struct exec *exec);

/* ---- exec_time.c ---- */

/* Everything of it is killed, for this reason if there was none before. Once. */
void exec_kill(struct exec *exec, uint32_t reason);
/* Everything of it is killed, now or when it has started. */
void exec_end_with_phase(struct exec *exec);
/* PID 1 of its sandbox is being killed, which takes it along. */
void exec_end_with_box(struct exec *exec);
/* From the wish to start it. */
void exec_time_start(struct exec *exec);
/* From the program's start to its end. */
void exec_time_begin(struct exec *exec);
void exec_time_end(struct exec *exec);

/* ---- exec_stream.c ---- */

/* Reads what comes, as far as readers let it; nothing happens where it is read already. */
void exec_stream_read(struct stream *stream);
/*
 * It is over: no read waits for bytes any more, and what a pipe still has is taken. True: a read is
 * in flight, and exec_op_settled() follows.
 */
bool exec_stream_stop(struct stream *stream);
/* Whatever is in the pipe now, without waiting; then its end goes to the shard's sinks. */
void exec_stream_finish(struct stream *stream);
/* It wrote more than it may: nothing more is read before its end. */
bool exec_output_is_over(const struct exec *exec);
/* A program that writes would have to wait for a reader. */
bool exec_is_held_back(const struct exec *exec);

/* ---- exec_tty.c ---- */

/* The master of its new terminal, taken: read as stream 1, and typed to. */
void exec_tty_open(struct exec *exec, int master_fd);
/* Reading found nothing: reads again when there is something. */
void exec_tty_await(struct stream *stream);
/* Nobody has it open, which may be for good, or until somebody opens it again. */
void exec_tty_left(struct stream *stream);
/* What can be read now; -1: nothing. */
ssize_t exec_tty_read(struct stream *stream, size_t bytes);
/* Hung up for good. True: it was, or there is none; else the flow goes on when it is. */
bool exec_tty_close(struct exec *exec);

/* ---- exec_reader.c ---- */

/* From these offsets on; it may end, and be freed, before this returns. */
void reader_begin(struct exec *exec, struct reader *reader, const uint64_t at[EXEC_STREAMS],
		  uint64_t window_bytes);
/* For all live readers: bytes came, or the exec is over. */
void readers_pump(struct exec *exec);
/* So many bytes of a stream may be read without running away from the first of its readers. */
uint64_t readers_room(const struct exec *exec, const struct stream *stream);
/* The reader's part ends with what is known of the exec, and with a gap for what was not sent. */
void reader_finish(struct reader *reader);
void reader_tell_started(struct reader *reader);

/* ---- exec_result.c ---- */

/* The exec is over: its readers and the record are told. error: of its flow. */
void exec_conclude(struct exec *exec, int error);
/* It does not start, or was killed and does not die: it is over for all who wait, and stays. */
void exec_overdue(struct exec *exec);
/* It does now, or never came to be. */
void exec_died(struct exec *exec);
/* A part ends with the result. */
void exec_answer(const struct exec *exec, struct part *part, uint16_t flags);
/* For a part that does not wait for the end: it runs. */
void exec_answer_running(const struct exec *exec, struct part *part);
/* The same, after head and tail. */
void exec_answer_captured(const struct exec *exec, struct part *part, uint16_t flags);
/* The same request again: as if it had never been away, where that is known. */
void exec_replay(struct part *part);
/* It never began: recorded under its id. */
void exec_record_failure(const struct part *part, const struct status *status);

/* ---- exec_attach.c ---- */

/* Of no exec of this sandbox, or none any more: by error, ENOENT or ESTALE. */
struct status exec_absent(const struct sandbox *sandbox, uint64_t number);

/* Another reader from these offsets on; not OK: there is none, and the part has not ended. */
struct status exec_attach(struct exec *exec, struct part *part, const uint64_t at[EXEC_STREAMS],
			  uint64_t window_bytes);

/* ---- exec_kept.c ---- */

/* Over and unwound: kept, or freed with a sandbox that goes. */
void exec_keep(struct exec *exec);
/* Whoever reads it still is told the end. */
void exec_free(struct exec *exec);
