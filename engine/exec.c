/*
 * Execs: one flow from pipes to the end of the program, for a part of an exec request. Called by
 * request.c; called back by the backend. The program's streams are read into our own memory first;
 * the result leaves when the main process was reaped and what it had written was drained.
 */
#include "engine/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/capture.h"
#include "engine/exec_state.h"
#include "engine/exec_strings.h"
#include "engine/records.h"
#include "engine/request.h"
#include "engine/sandbox.h"
#include "engine/shard.h"

enum { READ_BYTES = 16 << 10, DRAIN_BYTES_MAX = 1 << 20 };

static struct exec *exec_of(struct flow *f)
{
	return container_of(f, struct exec, flow);
}

/* ---- step "pipes" ---- */

static void fds_close(int *fds, int count)
{
	for (int i = 0; i < count; i++) {
		cleanup_close(&fds[i]);
		fds[i] = -1;
	}
}

static int make_pipes(struct flow *f)
{
	struct exec *exec = exec_of(f);
	int pair[2];

	for (int i = 0; i < (exec->merge ? 1 : 2); i++) {
		if (pipe2(pair, O_CLOEXEC) < 0)
			goto failed;
		exec->streams[i].fd = pair[0];
		exec->child_fds[i + 1] = pair[1];
		exec->streams[i].buffer = malloc(READ_BYTES);
		if (!exec->streams[i].buffer)
			goto failed;
	}
	if (exec->input_left) {
		if (pipe2(pair, O_CLOEXEC) < 0)
			goto failed;
		exec->child_fds[0] = pair[0];
		exec->input_fd = pair[1];
	}
	return FLOW_NEXT;
failed:;
	int error = errno ? -errno : -ENOMEM;

	fds_close(exec->child_fds, 3);
	fds_close(&exec->streams[0].fd, 1);
	fds_close(&exec->streams[1].fd, 1);
	return error;
}

static int close_pipes(struct flow *f)
{
	struct exec *exec = exec_of(f);

	fds_close(exec->child_fds, 3);
	fds_close(&exec->input_fd, 1);
	fds_close(&exec->streams[0].fd, 1);
	fds_close(&exec->streams[1].fd, 1);
	return FLOW_NEXT;
}

/* ---- step "start" ---- */

static void run_ended(struct run *run, int status);
static void stream_read(struct stream *stream);
static void input_write(struct exec *exec);

static void run_started(struct run *run, int error)
{
	struct exec *exec = run->owner;

	/* The child has its own; only ours may keep the streams open. */
	fds_close(exec->child_fds, 3);
	exec->started = error == 0;
	exec->failed_step = run->failed_step;
	if (exec->started && exec->part) {
		struct emission e = { .kind = DSEC_EV_STARTED,
				      .subject = exec->sandbox->id,
				      .exec = exec->number };

		part_emit(exec->part, &e);
	}
	flow_resume(&exec->flow, error);
}

static int start_run(struct flow *f)
{
	struct exec *exec = exec_of(f);
	const struct backend_class *class = exec->sandbox->box->backend->class;
	int r;

	exec->run->owner = exec;
	exec->run->started = run_started;
	exec->run->ended = run_ended;
	exec->spec.stdin_fd = exec->child_fds[0];
	exec->spec.stdout_fd = exec->child_fds[1];
	exec->spec.stderr_fd = exec->merge ? exec->child_fds[1] : exec->child_fds[2];
	exec->begun_ns = io_now_ns(f->host->io);
	r = class->run_start(exec->run, &exec->spec);
	if (r < 0)
		exec->failed_step = exec->run->failed_step;
	return r < 0 ? r : FLOW_WAIT;
}

/* Only where the exec fails after it started: else the program has ended by then. */
static int end_run(struct flow *f)
{
	struct exec *exec = exec_of(f);

	if (exec->run_over)
		return FLOW_NEXT;
	exec->killed = true;
	exec->reason = DSEC_KILLED;
	exec->sandbox->box->backend->class->run_kill(exec->run);
	return FLOW_WAIT;
}

/* ---- step "run": until the main process was reaped ---- */

static void limit_reached(struct timer *timer)
{
	struct exec *exec = container_of(timer, struct exec, limit);

	exec->reason = DSEC_TIMEOUT;
	exec->killed = true;
	exec->sandbox->box->backend->class->run_kill(exec->run);
}

static int wait_run(struct flow *f)
{
	struct exec *exec = exec_of(f);

	for (int i = 0; i < 2; i++)
		if (exec->streams[i].fd >= 0)
			stream_read(&exec->streams[i]);
	if (exec->input_fd >= 0)
		input_write(exec);
	exec->limit.expired = limit_reached;
	if (exec->run_over)
		return FLOW_NEXT;
	/* The pool of execs is smaller than the heap: there is room. */
	(void)timer_set(&exec->sandbox->shard->timers, &exec->limit,
			exec->begun_ns + exec->timeout_ms * 1000000ull);
	return FLOW_WAIT;
}

static void run_ended(struct run *run, int status)
{
	struct exec *exec = run->owner;

	exec->run_over = true;
	exec->status = status;
	if (run->box_died && !exec->killed) {
		exec->killed = true;
		exec->reason = DSEC_KILLED;
	}
	exec->ended_ns = io_now_ns(exec->sandbox->shard->io);
	timer_clear(&exec->sandbox->shard->timers, &exec->limit);
	if (exec->flow.waiting)
		flow_resume(&exec->flow, 0);
}

/* ---- streams ---- */

static bool exec_is_quiet(const struct exec *exec)
{
	return !exec->streams[0].reading && !exec->streams[1].reading && !exec->inputting;
}

/* In step "drain" the flow waits for the ops that were asked to end. */
static void op_settled(struct exec *exec)
{
	if (exec->run_over && exec->flow.waiting && exec_is_quiet(exec))
		flow_resume(&exec->flow, 0);
}

static void stream_got(struct io_op *op, int res)
{
	struct stream *stream = container_of(op, struct stream, op);

	stream->reading = false;
	if (res > 0)
		capture_add(&stream->capture, stream->buffer, (size_t)res);
	if (stream->exec->run_over)
		op_settled(stream->exec);
	else if (res > 0 || res == -EINTR || res == -EAGAIN)
		stream_read(stream);
}

static void stream_read(struct stream *stream)
{
	stream->reading = true;
	stream->op.done = stream_got;
	io_read(stream->exec->sandbox->shard->io, &stream->op, stream->fd, stream->buffer,
		READ_BYTES);
}

static void input_wrote(struct io_op *op, int res)
{
	struct exec *exec = container_of(op, struct exec, input);

	exec->inputting = false;
	if (res > 0) {
		exec->input_bytes += res;
		exec->input_left -= (uint32_t)res;
	}
	if (res > 0 && exec->input_left && !exec->run_over) {
		input_write(exec);
		return;
	}
	fds_close(&exec->input_fd, 1); /* the program reads the end, or closed its own */
	if (exec->run_over)
		op_settled(exec);
}

static void input_write(struct exec *exec)
{
	exec->inputting = true;
	exec->input.done = input_wrote;
	io_write(exec->sandbox->shard->io, &exec->input, exec->input_fd, exec->input_bytes,
		 exec->input_left);
}

/* ---- step "drain": what the program had written is taken, then nobody reads any more ---- */

static int stop_ops(struct flow *f)
{
	struct exec *exec = exec_of(f);

	for (int i = 0; i < 2; i++)
		if (exec->streams[i].reading)
			io_cancel(f->host->io, &exec->streams[i].op);
	if (exec->inputting)
		io_cancel(f->host->io, &exec->input);
	return exec_is_quiet(exec) ? FLOW_NEXT : FLOW_WAIT;
}

/* Without waiting: others may hold the other end, and the sandbox may read along. */
static void stream_drain(struct stream *stream)
{
	size_t drained = 0;

	while (stream->fd >= 0 && drained < DRAIN_BYTES_MAX) {
		struct iovec part = { stream->buffer, READ_BYTES };
		ssize_t n = preadv2(stream->fd, &part, 1, -1, RWF_NOWAIT);

		if (n <= 0)
			return;
		capture_add(&stream->capture, stream->buffer, (size_t)n);
		drained += (size_t)n;
	}
}

static int drain(struct flow *f)
{
	struct exec *exec = exec_of(f);

	stream_drain(&exec->streams[0]);
	stream_drain(&exec->streams[1]);
	return FLOW_NEXT;
}

/* clang-format off */
static const struct flow_step exec_steps[] = {
	/* name     start       finish undo         limit_ms */
	{ "pipes",  make_pipes, NULL,  close_pipes, 0 },
	{ "start",  start_run,  NULL,  end_run,     0 },
	{ "run",    wait_run,   NULL,  stop_ops,    0 },
	{ "quiet",  stop_ops,   NULL,  NULL,        0 },
	{ "drain",  drain,      NULL,  NULL,        0 },
};
/* clang-format on */

static void exec_free(struct exec *exec)
{
	struct sandbox *sandbox = exec->sandbox;
	struct shard *shard = sandbox->shard;

	timer_clear(&shard->timers, &exec->limit);
	for (int i = 0; i < 2; i++) {
		capture_done(&exec->streams[i].capture);
		free(exec->streams[i].buffer);
	}
	*exec->link = exec->next;
	if (exec->next)
		exec->next->link = exec->link;
	if (exec->run)
		sandbox->box->backend->class->run_free(exec->run);
	free(exec->input_copy);
	free((void *)exec->spec.strings);
	free(exec->limits);
	pool_put(&shard->execs, exec);
	sandbox_exec_over(sandbox);
}

static void exec_done(struct flow *f, int error)
{
	struct exec *exec = exec_of(f);

	if (!error && f->at == f->count) {
		exec_report(exec, 0);
		exec->part = NULL;
		flow_unwind(f); /* comes back here with nothing left */
		return;
	}
	exec_report(exec, error);
	exec_free(exec);
}

/* A launcher request cannot be taken back; the start ends by itself. */
static void exec_cancel_step(struct flow *f)
{
	(void)f;
}

/* ---- the op ---- */

static struct status exec_invalid(const char *field, int error)
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

static struct status exec_prepare(struct exec *exec, const struct request *request)
{
	const struct dsec_wire_exec *wish = &request->body.exec;
	const struct wire *w = &request->payload;
	struct status s;
	int r;

	if (wish->flags & ~(uint32_t)(DSEC_EXEC_CAPTURE | DSEC_EXEC_MERGE))
		return exec_invalid("flags", -EINVAL);
	if (wish->reserved0 || wish->reserved1 ||
	    !wire_is_zero(wish->reserved, sizeof wish->reserved))
		return exec_invalid("reserved", -EINVAL);
	if (wish->timeout_ms > EXEC_TIMEOUT_MS_MAX)
		return exec_invalid("timeout", -ERANGE);
	r = wire_string(w, wish->user, exec->user, sizeof exec->user);
	if (r < 0)
		return exec_invalid("user", r);
	if (wish->input.bytes > EXEC_INPUT_BYTES_MAX ||
	    wire_bytes(w, wish->input, &exec->input_bytes) < 0)
		return exec_invalid("input", -E2BIG);
	/* Everything is copied: the request may end before the exec does. */
	if (wish->input.bytes) {
		exec->input_copy = malloc(wish->input.bytes);
		if (!exec->input_copy)
			return status_of_errno(-ENOMEM, "exec", "input");
		memcpy(exec->input_copy, exec->input_bytes, wish->input.bytes);
		exec->input_bytes = exec->input_copy;
	}
	exec->input_left = wish->input.bytes;
	exec->merge = wish->flags & DSEC_EXEC_MERGE;
	exec->timeout_ms = wish->timeout_ms ? wish->timeout_ms : EXEC_TIMEOUT_MS_DEFAULT;
	for (int i = 0; i < 2; i++)
		capture_init(&exec->streams[i].capture, kept(wish->head_bytes),
			     kept(wish->tail_bytes));
	if (!*exec->user)
		memcpy(exec->user, exec->sandbox->user, sizeof exec->user);
	s = exec_strings(exec->sandbox, request, exec->user, &exec->spec);
	return s.code ? s : exec_limits(exec, request);
}

static struct exec *exec_new(struct sandbox *sandbox, struct part *part)
{
	struct shard *shard = sandbox->shard;
	struct exec *exec = pool_take(&shard->execs);

	if (!exec)
		return NULL;
	exec->sandbox = sandbox;
	exec->part = part;
	exec->number = sandbox->exec_next++;
	exec->child_fds[0] = exec->child_fds[1] = exec->child_fds[2] = -1;
	exec->input_fd = -1;
	for (int i = 0; i < 2; i++) {
		exec->streams[i].fd = -1;
		exec->streams[i].exec = exec;
	}
	exec->next = sandbox->execs;
	exec->link = &sandbox->execs;
	if (exec->next)
		exec->next->link = &exec->next;
	sandbox->execs = exec;
	sandbox->exec_count++;
	sandbox_touch(sandbox);
	part->work = exec;
	return exec;
}

void exec_part(struct part *part)
{
	struct shard *shard = part->shard;
	struct record *record;
	int r;
	struct sandbox *sandbox = sandbox_find(shard, part->request->entry.subject);
	struct exec *exec = NULL;
	struct status s = STATUS_OK;

	r = record_begin(shard->records, &part->request->entry, &record);
	if (r < 0) {
		exec_replay(part, r, record);
		return;
	}
	if (!sandbox || sandbox->state != DSEC_STATE_RUNNING)
		s = status_absent();
	else if (!(exec = exec_new(sandbox, part)))
		s = status_of_errno(-EAGAIN, "exec", "execs_max");
	if (exec)
		s = exec_prepare(exec, part->request);
	if (exec && !s.code) {
		exec->run = sandbox->box->backend->class->run_new(sandbox->box);
		if (!exec->run)
			s = status_of_errno(-EAGAIN, "exec", "execs_max");
	}
	if (s.code) {
		if (exec)
			exec_free(exec);
		record_end(shard->records, part->request->entry.request_id, &s, NULL);
		part_end(part, &s, NULL);
		return;
	}
	memcpy(exec->request_id, part->request->entry.request_id, sizeof exec->request_id);
	shard->stats.execs++;
	flow_init(&exec->flow, &shard->host, "exec", exec_steps,
		  sizeof exec_steps / sizeof exec_steps[0]);
	exec->flow.done = exec_done;
	exec->flow.cancel = exec_cancel_step;
	flow_build(&exec->flow);
}

/* Detach: the program runs on, its request ends. */
void exec_part_cancel(struct part *part)
{
	struct exec *exec = part->work;
	struct status s = status_of_errno(-ECANCELED, "exec", "cancel");

	if (!exec || exec->part != part)
		return;
	exec->part = NULL;
	part_end(part, &s, NULL);
}

void execs_end(struct sandbox *sandbox)
{
	for (struct exec *exec = sandbox->execs; exec; exec = exec->next) {
		exec->killed = true;
		if (!exec->reason)
			exec->reason = DSEC_KILLED;
	}
}

uint32_t exec_bytes(void)
{
	return sizeof(struct exec);
}
