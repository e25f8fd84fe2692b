/*
 * The requests about programs and their streams. Called by applications, without the lock, as those
 * of request.c.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/lib/connection.h"
#include "sdk/lib/error.h"
#include "sdk/lib/pack.h"
#include "sdk/lib/structs.h"

enum {
	/* Of each stream's head and tail, where the caller leaves the amount to the engine. */
	CAPTURE_BYTES_MAX = 64 << 20,
	/* The same where all of it comes here: as the engine's default. */
	CAPTURE_BYTES_DEFAULT = 32 << 10,
};

static uint32_t window_of(uint64_t wish)
{
	if (!wish)
		return DSEC_WINDOW_BYTES_DEFAULT;
	return wish < DSEC_WINDOW_BYTES_MAX ? (uint32_t)wish : DSEC_WINDOW_BYTES_MAX;
}

static int capture_new(const struct dsec_exec_opts *opts, struct submission *submission)
{
	uint64_t unsaid = opts->flags & DSEC_EXEC_STREAM ? CAPTURE_BYTES_DEFAULT :
							   CAPTURE_BYTES_MAX;
	struct capture *capture;

	if (!(opts->flags & DSEC_EXEC_CAPTURE))
		return 0;
	capture = calloc(1, sizeof(*capture));
	if (!capture)
		return dsec__fail(-ENOMEM, "exec: no memory");
	capture->head_bytes_max = opts->head_bytes ? opts->head_bytes : unsaid;
	capture->tail_bytes_max = opts->tail_bytes ? opts->tail_bytes : unsaid;
	if (capture->head_bytes_max > CAPTURE_BYTES_MAX)
		capture->head_bytes_max = CAPTURE_BYTES_MAX;
	if (capture->tail_bytes_max > CAPTURE_BYTES_MAX)
		capture->tail_bytes_max = CAPTURE_BYTES_MAX;
	submission->capture = capture;
	return 0;
}

static int exec_pack(const struct dsec_exec_opts *opts, struct submission *submission)
{
	struct dsec_wire_exec wire = {
		.size = sizeof(wire),
		.flags = opts->flags,
		.head_bytes = opts->head_bytes,
		.tail_bytes = opts->tail_bytes,
		.timeout_ms = opts->timeout_ms,
		.idle_timeout_ms = opts->idle_timeout_ms,
		.kill_after_ms = opts->kill_after_ms,
		.window_bytes = opts->window_bytes,
		.output_limit_bytes = opts->output_limit_bytes,
		.phase = opts->phase,
		.rows = opts->rows,
		.columns = opts->columns,
	};
	struct pack pack;
	int r;

	dsec__pack_begin(&pack, sizeof(wire));
	/* First, as they are aligned. The struct is the wire's. */
	wire.rlimits =
		dsec__pack_bytes(&pack, opts->rlimits, opts->rlimit_count * sizeof(*opts->rlimits));
	wire.argv = dsec__pack_items(&pack, opts->argv, opts->argc);
	wire.env = dsec__pack_items(&pack, opts->env, opts->env_count);
	wire.cwd = dsec__pack_text(&pack, opts->cwd);
	wire.user = dsec__pack_text(&pack, opts->user);
	wire.input = dsec__pack_bytes(&pack, opts->input.data, opts->input.bytes);
	r = dsec__pack_end(&pack, &wire, sizeof(wire), submission);
	if (r < 0)
		return r;
	r = capture_new(opts, submission);
	if (r < 0)
		free(submission->payload);
	return r;
}

static int exec_check(const struct dsec_exec_opts *opts)
{
	bool detaches = opts->flags & DSEC_EXEC_DETACH;

	if (opts->flags & ~(uint32_t)DSEC_EXEC_FLAGS_KNOWN)
		return dsec__fail(-EINVAL, "exec: unknown flags");
	if (detaches && (opts->flags & (DSEC_EXEC_STREAM | DSEC_EXEC_CAPTURE)))
		return dsec__fail(-EINVAL, "exec: one that detaches sends no output");
	if ((opts->flags & DSEC_EXEC_INPUT_STREAM) && opts->input.bytes)
		return dsec__fail(-EINVAL, "exec: input, and an input stream, too");
	if (opts->reserved)
		return dsec__fail(-EINVAL, "exec: reserved is not 0");
	if (opts->argc ? !opts->argv : !(opts->flags & DSEC_EXEC_IMAGE_COMMAND))
		return dsec__fail(-EINVAL, "exec: no program");
	if (opts->rlimit_count > DSEC_RESOURCES)
		return dsec__fail(-EINVAL, "exec: more rlimits than there are resources");
	if ((opts->rows || opts->columns) && !(opts->flags & DSEC_EXEC_TTY))
		return dsec__fail(-EINVAL, "exec: rows and columns are of a terminal");
	return 0;
}

int64_t dsec_exec(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		  const struct dsec_exec_opts *opts)
{
	struct submission submission = { .op = DSEC_OP_EXEC, .subject = sandbox };
	struct dsec_exec_opts known;
	struct dsec_call known_call;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r == 0)
		r = dsec__struct_take(&known, sizeof(known), opts, "exec");
	if (r == 0)
		r = exec_check(&known);
	if (r < 0)
		return r;
	if (known.flags & DSEC_EXEC_STREAM)
		submission.window_bytes = window_of(known.window_bytes);
	r = exec_pack(&known, &submission);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}

static int attach_pack(const struct dsec_attach_opts *opts, struct submission *submission)
{
	struct dsec_wire_attach wire = {
		.size = sizeof(wire),
		.flags = opts->flags,
		.window_bytes = opts->window_bytes,
	};
	struct pack pack;

	for (uint32_t at = 0; at < opts->at_count; at++) {
		uint32_t stream = opts->at[at].stream;

		if (stream < 1 || stream > 2 || opts->at[at].reserved)
			return dsec__fail(-EINVAL, "attach: no such stream");
		wire.at[stream - 1] = opts->at[at].offset;
	}
	dsec__pack_begin(&pack, sizeof(wire));
	return dsec__pack_end(&pack, &wire, sizeof(wire), submission);
}

int64_t dsec_attach(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		    const struct dsec_attach_opts *opts)
{
	struct submission submission = { .op = DSEC_OP_ATTACH, .subject = sandbox };
	struct dsec_attach_opts known;
	struct dsec_call known_call;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r == 0)
		r = dsec__struct_take(&known, sizeof(known), opts, "attach");
	if (r < 0)
		return r;
	if (known.flags & ~(uint32_t)DSEC_ATTACH_SO_FAR)
		return dsec__fail(-EINVAL, "attach: unknown flags");
	if (!known.exec)
		return dsec__fail(-EINVAL, "attach: no exec");
	if (known.at_count && !known.at)
		return dsec__fail(-EINVAL, "attach: at is NULL");
	submission.exec = known.exec;
	submission.window_bytes = window_of(known.window_bytes);
	r = attach_pack(&known, &submission);
	return r < 0 ? r : dsec__submit(d, &known_call, &submission);
}

int64_t dsec_input(struct dsec *d, const struct dsec_call *call, int64_t ticket, uint64_t offset,
		   struct dsec_bytes data)
{
	struct submission submission = {
		.op = DSEC_OP_INPUT,
		.numbers = { (uint64_t)ticket },
		.offset = offset,
		.payload_bytes = data.bytes,
	};
	struct dsec_call known_call;
	bool known;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r < 0)
		return r;
	if (data.bytes && !data.data)
		return dsec__fail(-EINVAL, "input: a pointer is NULL whose length is not 0");
	if (data.bytes > DSEC_PAYLOAD_BYTES_MAX)
		return dsec__fail(-EMSGSIZE, "input: larger than any may be");
	pthread_mutex_lock(&d->lock);
	known = dsec__ticket_is_under_way(d, ticket);
	pthread_mutex_unlock(&d->lock);
	if (!known)
		return dsec__fail(-ENOENT, "input: no such ticket under way");
	if (data.bytes) {
		submission.payload = malloc(data.bytes);
		if (!submission.payload)
			return dsec__fail(-ENOMEM, "input: no memory");
		memcpy(submission.payload, data.data, data.bytes);
	}
	return dsec__submit(d, &known_call, &submission);
}

int64_t dsec_signal(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		    uint64_t exec, int signal)
{
	const uint64_t flags = DSEC_SIGNAL_FLAGS_KNOWN, number = (uint64_t)signal;
	struct submission submission = { .op = DSEC_OP_SIGNAL,
					 .subject = sandbox,
					 .exec = exec,
					 .numbers = { number & ~flags, number & flags } };
	struct dsec_call known_call;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r < 0)
		return r;
	if (submission.numbers[0] < 1 || submission.numbers[0] > DSEC_SIGNAL_MAX)
		return dsec__fail(-EINVAL, "signal: there is no such signal");
	return dsec__submit(d, &known_call, &submission);
}

int64_t dsec_resize(struct dsec *d, const struct dsec_call *call, struct dsec_id sandbox,
		    uint64_t exec, uint32_t rows_columns)
{
	struct submission submission = { .op = DSEC_OP_RESIZE,
					 .subject = sandbox,
					 .exec = exec,
					 .numbers = { rows_columns >> 16, rows_columns & 0xffff } };
	struct dsec_call known_call;
	int r;

	r = dsec__call_take(d, call, &known_call);
	if (r < 0)
		return r;
	if (!submission.numbers[0] || !submission.numbers[1])
		return dsec__fail(-EINVAL, "resize: no rows, or no columns");
	return dsec__submit(d, &known_call, &submission);
}
