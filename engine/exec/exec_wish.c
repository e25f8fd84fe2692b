/*
 * Wishes of exec requests. Called by exec.c. Every field has a range, and one outside of it is an
 * error that names the field: nothing is clamped but how much output is kept.
 */
#include "engine/exec/exec_wish.h"

#include <errno.h>
#include <string.h>

#include "backends/image.h"
#include "engine/config.h"
#include "engine/exec/exec_state.h"
#include "engine/exec/exec_strings.h"
#include "engine/image/image.h"
#include "engine/request/request.h"

_Static_assert((int)IMAGE_USER_BYTES_MAX == (int)USER_BYTES_MAX, "an image's user fits");

static struct status wish_invalid(const char *field, int error)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = -error,
				.table = "exec",
				.step = field };
}

static uint64_t kept(uint64_t asked)
{
	if (!asked)
		return EXEC_OUTPUT_BYTES_DEFAULT / 2;
	return asked < EXEC_OUTPUT_BYTES_MAX / 2 ? asked : EXEC_OUTPUT_BYTES_MAX / 2;
}

static struct status wish_flags(const struct dsec_wire_exec *wish)
{
	uint32_t flags = wish->flags;

	if (flags & ~(uint32_t)DSEC_EXEC_FLAGS_KNOWN)
		return wish_invalid("flags", -EINVAL);
	if (!(flags & DSEC_EXEC_TTY) && (wish->rows || wish->columns))
		return wish_invalid("rows", -EINVAL);
	/* Nobody is there for what comes. */
	if ((flags & DSEC_EXEC_DETACH) && (flags & (DSEC_EXEC_STREAM | DSEC_EXEC_CAPTURE)))
		return wish_invalid("flags", -EINVAL);
	if (flags & (DSEC_EXEC_INPUT_STREAM | DSEC_EXEC_TTY) && wish->input.bytes)
		return wish_invalid("input", -EINVAL);
	return STATUS_OK;
}

/* A detached one has nobody who waits for it: only the ceiling ends it, unless asked. */
static struct status wish_times(struct exec *exec, const struct dsec_wire_exec *wish)
{
	if (wish->timeout_ms > EXEC_TIMEOUT_MS_MAX)
		return wish_invalid("timeout", -ERANGE);
	if (wish->idle_timeout_ms > EXEC_TIMEOUT_MS_MAX)
		return wish_invalid("idle_timeout", -ERANGE);
	if (wish->kill_after_ms > EXEC_KILL_AFTER_MS_MAX)
		return wish_invalid("kill_after", -ERANGE);
	exec->timeout_ms = wish->timeout_ms;
	if (!exec->timeout_ms)
		exec->timeout_ms = exec->detaches ? EXEC_TIMEOUT_MS_MAX : EXEC_TIMEOUT_MS_DEFAULT;
	exec->idle_timeout_ms = wish->idle_timeout_ms;
	exec->kill_after_ms = wish->kill_after_ms;
	return STATUS_OK;
}

static struct status wish_output(struct exec *exec, const struct dsec_wire_exec *wish)
{
	uint64_t limit = wish->output_limit_bytes;

	if (limit > OUTPUT_LIMIT_BYTES_MAX && limit != UINT64_MAX)
		return wish_invalid("output_limit", -ERANGE);
	if (!limit)
		limit = exec->sandbox->output_limit_bytes;
	exec->output_limit_bytes = limit ? limit : UINT64_MAX;
	return STATUS_OK;
}

static struct status wish_input(struct exec *exec, const struct wire *w,
				const struct dsec_wire_exec *wish)
{
	const char *bytes;

	if (wish->input.bytes > EXEC_INPUT_BYTES_MAX || wire_bytes(w, wish->input, &bytes) < 0)
		return wish_invalid("input", -E2BIG);
	exec->takes_input = wish->flags & DSEC_EXEC_INPUT_STREAM;
	exec->has_input = exec->takes_input || wish->input.bytes;
	exec->input = bytes;
	exec->input_bytes = wish->input.bytes;
	return STATUS_OK;
}

struct status exec_wish(struct exec *exec, const struct request *request)
{
	const struct dsec_wire_exec *wish = &request->body.exec;
	const struct wire *w = &request->payload;
	const struct exec_strings_of strings = {
		.image = exec->sandbox->image,
		.env = { exec->sandbox->env.bytes, exec->sandbox->env.byte_count },
		.env_count = exec->sandbox->env.count,
		.payload = w,
		.wish = wish,
		.user = exec->user,
	};
	struct status s = wish_flags(wish);
	int r;

	if (s.code)
		return s;
	exec->has_tty = wish->flags & DSEC_EXEC_TTY;
	exec->merge = exec->has_tty || wish->flags & DSEC_EXEC_MERGE;
	exec->detaches = wish->flags & DSEC_EXEC_DETACH;
	exec->window_bytes = wish->window_bytes;
	s = wish_output(exec, wish);
	if (s.code)
		return s;
	s = wish_times(exec, wish);
	if (s.code)
		return s;
	r = wire_user(w, wish->user, exec->user, sizeof exec->user);
	if (r < 0) {
		s = wish_invalid("user", r);
		s.detail = WIRE_USER_RULE;
		return s;
	}
	s = wish_input(exec, w, wish);
	if (s.code)
		return s;
	for (int i = 0; i < EXEC_STREAMS; i++) {
		exec->streams[i].tail_wish = kept(wish->tail_bytes);
		capture_init(&exec->streams[i].capture, kept(wish->head_bytes),
			     exec->streams[i].tail_wish);
	}
	if (!*exec->user)
		memcpy(exec->user, exec->sandbox->user, sizeof exec->user);
	if (!*exec->user && exec->sandbox->image->record)
		memcpy(exec->user, exec->sandbox->image->record->user, sizeof exec->user);
	s = exec_strings(&strings, &exec->spec);
	exec->spec.has_tty = exec->has_tty;
	exec->spec.rows = wish->rows;
	exec->spec.columns = wish->columns;
	return s.code ? s : exec_limits(exec, request);
}
