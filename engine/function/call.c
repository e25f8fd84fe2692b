/*
 * One call of a function: a flow from its set of namespaces to its verdict. Called by call_queue.c,
 * called back by the backend. Must hold: a call is answered exactly once, when nothing of it runs
 * any more; a set is given back as clean only where the backend proved it after the call's end.
 */
#include "engine/function/call.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/function/function.h"
#include "engine/image/image.h"
#include "engine/request/request.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 8u
#endif

static struct call *call_of(struct flow *f)
{
	return container_of(f, struct call, flow);
}

static const struct backend_class *class_of(const struct call *call)
{
	return call->shard->backend->class;
}

/* ---- step "set" ---- */

void call_set_built(struct call *call, int error)
{
	if (error)
		call->set = NULL;
	call->set_error = error;
	if (!call->is_starting)
		flow_resume(&call->flow, error);
}

static int take_set(struct flow *f)
{
	struct call *call = call_of(f);

	call->set = call_set_idle(call->function);
	if (call->set) {
		call->set->call = call;
		return FLOW_NEXT;
	}
	call->set_error = FLOW_WAIT;
	call->is_starting = true;
	call->set = call_set_new(call);
	call->is_starting = false;
	if (call->set_error < 0) {
		call->set = NULL;
		return call->set_error;
	}
	return call->set ? FLOW_WAIT : -EAGAIN;
}

static int give_set(struct flow *f)
{
	struct call *call = call_of(f);
	struct call_set *set = call->set;

	call->set = NULL;
	call_set_give(set, call->is_clean);
	return FLOW_NEXT;
}

/* ---- step "prepare": pipes, and a place for the program ---- */

static void fds_close(struct call *call)
{
	for (int i = 0; i < 3; i++) {
		cleanup_close(&call->child_fds[i]);
		call->child_fds[i] = -1;
	}
}

static int undo_prepare(struct flow *f)
{
	struct call *call = call_of(f);

	fds_close(call);
	call_output_close(call);
	if (call->run)
		class_of(call)->run_free(call->run);
	call->run = NULL;
	return FLOW_NEXT;
}

static int prepare(struct flow *f)
{
	struct call *call = call_of(f);
	int r;

	if (call->facts.end)
		return -ECANCELED;
	r = call_output_open(call);
	if (r >= 0) {
		call->run = class_of(call)->run_new(call->set->box);
		r = call->run ? FLOW_NEXT : -EAGAIN;
	}
	if (r < 0)
		(void)undo_prepare(f);
	return r;
}

/* ---- step "input" ---- */

/* All of it at once, and nobody can change it: a program that does not read it holds nobody up. */
static int make_input(struct flow *f)
{
	struct call *call = call_of(f);
	const int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
	auto_close int fd = -1;

	if (!call->input_bytes)
		return FLOW_NEXT;
	fd = memfd_create("input", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
	if (fd < 0)
		return -errno;
	for (uint32_t at = 0; at < call->input_bytes;) {
		ssize_t n = pwrite(fd, call->input + at, call->input_bytes - at, at);

		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		at += (uint32_t)n;
	}
	if (fcntl(fd, F_ADD_SEALS, seals) < 0)
		return -errno;
	call->child_fds[0] = take_fd(&fd);
	return FLOW_NEXT;
}

/* ---- step "start" ---- */

static void run_started(struct run *run, int error)
{
	struct call *call = run->owner;

	/* The child has its own; only ours may keep the streams open. */
	fds_close(call);
	call->facts.started = error == 0;
	call->facts.not_found = error == -ENOENT || error == -ENOTDIR;
	call->program_failed = run->program_failed;
	if (error) {
		call->failed_step = run->failed_step;
	} else if (call->spec.counts) {
		call->set->cpu_us = run->box_cpu_us;
		call->set->counted = true;
	}
	flow_resume(&call->flow, error);
}

static void run_ended(struct run *run, int status)
{
	struct call *call = run->owner;

	call->is_over = true;
	call->is_running = false;
	call->ended_ns = io_now_ns(call->shard->io);
	call->facts.status = status;
	call->facts.box_died = run->box_died;
	call->facts.oom = run->oom;
	call->peak_bytes = run->peak_bytes;
	call_clock_await(call, EXEC_KILL_LIMIT_S);
	if (call->flow.waiting)
		flow_resume(&call->flow, 0);
}

/* Queues of messages cannot be found in a set, so that in a domain none can be made. */
static void spec_write(struct call *call)
{
	const struct function *function = call->function;

	call->spec = function->spec;
	call->spec.user = function->user;
	call->spec.whose = call->invocation->part->request->client;
	call->spec.counts = !call->set->counted;
	call->spec.stdin_fd = call->child_fds[0];
	call->spec.stdout_fd = call->child_fds[1];
	call->spec.stderr_fd = call->child_fds[2];
	if (function->isolation != DSEC_ISOLATION_DOMAIN)
		return;
	call->limits[0] = (struct run_limit){ .resource = RLIMIT_MSGQUEUE };
	call->spec.limits = call->limits;
	call->spec.limit_count = 1;
}

static int start_run(struct flow *f)
{
	struct call *call = call_of(f);
	int r;

	spec_write(call);
	call->run->owner = call;
	call->run->started = run_started;
	call->run->ended = run_ended;
	call->begun_ns = io_now_ns(f->host->io);
	r = class_of(call)->run_start(call->run, &call->spec);
	return r < 0 ? r : FLOW_WAIT;
}

/* Only where the call fails after it started: else the program has ended by then. */
static int undo_run(struct flow *f)
{
	struct call *call = call_of(f);

	if (call->is_over)
		return FLOW_NEXT;
	class_of(call)->run_kill(call->run);
	return FLOW_WAIT;
}

/* ---- step "run": until the main process was reaped ---- */

static void call_kill(struct call *call)
{
	call_clock_await(call, EXEC_KILL_LIMIT_S);
	class_of(call)->run_kill(call->run);
}

static int wait_run(struct flow *f)
{
	struct call *call = call_of(f);

	call_output_read(call);
	if (call->is_over)
		return FLOW_NEXT;
	if (call->facts.end)
		call_kill(call);
	else
		call_clock_start(call);
	call->is_running = true;
	return FLOW_WAIT;
}

void call_end(struct call *call, enum call_end end)
{
	if (call->facts.end || call->is_over)
		return;
	call->facts.end = end;
	if (call->is_running)
		call_kill(call);
}

/* ---- step "finish": what it left running is killed, what it used is counted ---- */

static void run_finished(struct run_end *end)
{
	struct call *call = end->owner;
	struct call_set *set = call->set;

	call->facts.oom |= end->oom;
	call->facts.cpu_us = UINT64_MAX;
	if (end->cpu_us != UINT64_MAX && set->cpu_us != UINT64_MAX)
		call->facts.cpu_us = end->cpu_us - set->cpu_us;
	set->cpu_us = end->cpu_us;
	call->is_clean = end->clean;
	flow_resume(&call->flow, 0);
}

static int finish_run(struct flow *f)
{
	struct call *call = call_of(f);

	call->run_end = (struct run_end){
		.prove = call->function->isolation == DSEC_ISOLATION_DOMAIN,
		.owner = call,
		.done = run_finished,
	};
	if (class_of(call)->run_finish(call->run, &call->run_end) == 0)
		return FLOW_WAIT;
	call->facts.box_died = true;
	call->facts.cpu_us = call->run->cpu_us;
	return FLOW_NEXT;
}

/* ---- steps "quiet" and "drain" ---- */

void call_is_quiet(struct call *call)
{
	if (!call_output_stop(call))
		return;
	call->is_quieting = false;
	flow_resume(&call->flow, 0);
}

static int stop_output(struct flow *f)
{
	struct call *call = call_of(f);

	call->is_quieting = !call_output_stop(call);
	return call->is_quieting ? FLOW_WAIT : FLOW_NEXT;
}

static int drain_output(struct flow *f)
{
	call_output_drain(call_of(f));
	return FLOW_NEXT;
}

/* clang-format off */
static const struct flow_step call_steps[] = {
	/* name      start         finish undo          limit_ms */
	{ "set",     take_set,     NULL,  give_set,     0 },
	{ "prepare", prepare,      NULL,  undo_prepare, 0 },
	{ "input",   make_input,   NULL,  stop_output,  0 },
	{ "start",   start_run,    NULL,  undo_run,     0 },
	{ "run",     wait_run,     NULL,  NULL,         0 },
	{ "finish",  finish_run,   NULL,  NULL,         0 },
	{ "silence", stop_output,  NULL,  NULL,         0 },
	{ "drain",   drain_output, NULL,  NULL,         0 },
};
/* clang-format on */

/* ---- the answer ---- */

static struct status call_failure(const struct call *call, int error)
{
	struct status s = status_of_errno(error, "call", call->flow.failed_step);

	if (call->error)
		return status_of_errno(call->error, "call", "output");
	if (call->facts.end == CALL_END_CANCEL)
		return status_of_errno(-ECANCELED, "call", "cancel");
	if (call->facts.box_died)
		s.detail = "its PID 1 was killed";
	if (call->failed_step) {
		s.table = "container";
		s.step = call->failed_step;
	}
	if (call->program_failed) {
		s.code = DSEC_FAILED;
		s.blame = DSEC_BLAME_GUEST;
		s.table = NULL;
	}
	return s;
}

static bool call_has_result(const struct call *call, int error)
{
	return error ? call->program_failed : call->facts.end != CALL_END_CANCEL;
}

/* Its invocation may be gone afterwards. */
static void call_tell(struct call *call, const struct emission *done)
{
	struct invocation *invocation = call->invocation;

	call->invocation = NULL;
	invocation_called(invocation, done);
}

void call_overdue(struct call *call)
{
	const char *step = flow_step_name(&call->flow);
	const struct emission e = {
		.kind = DSEC_EV_DONE,
		.subject = call->function->id,
		.index = (uint16_t)call->index,
		.status = { .code = DSEC_FAILED,
			    .blame = DSEC_BLAME_PLATFORM,
			    .error = ETIMEDOUT,
			    .table = "call",
			    .step = step,
			    .detail = "it does not begin or end; what is left is tried again" },
	};

	if (!call->invocation)
		return;
	log_error("call does not end function=\"%s\" step=%s, continuing", call->function->name,
		  step);
	call->facts.end = CALL_END_CANCEL;
	if (call->set)
		call_set_spoil(call->set);
	call_tell(call, &e);
}

static void call_answer(struct call *call, int error)
{
	const struct verdict v = verdict_of(&call->facts);
	const bool has_result = call_has_result(call, error);
	struct dsec_wire_called body = {
		.size = sizeof body,
		.verdict = v.verdict,
		.reason = v.reason,
		.exit_code = v.exit_code,
		.signal = v.signal,
		.cpu_us = call->facts.started ? call->facts.cpu_us : 0,
		.wall_us = call->ended_ns ? (call->ended_ns - call->begun_ns) / 1000 : 0,
		.memory_peak_bytes = call->is_over ? call->peak_bytes : UINT64_MAX,
		.stdout_bytes = call->streams[0].count,
		.stderr_bytes = call->streams[1].count,
	};
	struct emission e = { .kind = DSEC_EV_DONE,
			      .subject = call->function->id,
			      .index = (uint16_t)call->index };

	if (!error)
		error = call->facts.box_died ? -EIO : call->error;
	if (error || call->facts.end == CALL_END_CANCEL)
		e.status = call_failure(call, error);
	if (has_result) {
		e.body = &body;
		e.bytes = sizeof body;
		call_output_emit(call);
	}
	if (call->ended_ns)
		function_took(call->function, call->ended_ns - call->begun_ns);
	call_tell(call, &e);
}

static void call_free(struct call *call)
{
	struct shard *shard = call->shard;
	struct function *function = call->function;

	call_clock_stop(call);
	pool_put(&shard->functions.calls, call);
	function->running--;
	quota_give(function->tenancy, QUOTA_CALLS, 1);
	function_settle(function);
	calls_pump(shard);
	shard_check_stopped(shard);
}

static void call_done(struct flow *f, int error)
{
	struct call *call = call_of(f);

	if (call->invocation)
		call_answer(call, error);
	if (!error && f->at == f->count)
		flow_unwind(f); /* comes back here with nothing left */
	else
		call_free(call);
}

void call_begin(struct invocation *invocation)
{
	struct function *function = invocation->function;
	struct shard *shard = function->shard;
	struct dsec_wire_ref input = { 0 };
	struct call *call = pool_take(&shard->functions.calls);

	assert(call);
	call->index = invocation_next(invocation, &input);
	call->shard = shard;
	call->function = function;
	call->invocation = invocation;
	call->input = invocation->part->request->payload.payload + input.at;
	call->input_bytes = input.bytes;
	call->child_fds[0] = call->child_fds[1] = call->child_fds[2] = -1;
	for (int i = 0; i < CALL_STREAMS; i++)
		call->streams[i].fd = -1;
	call->facts.cpu_limit_us = function->cpu_ms * 1000ull;
	call->facts.cpu_us = UINT64_MAX;
	function->running++;
	call_clock_await(call, CREATE_LIMIT_S);
	flow_init(&call->flow, &shard->host, "call", call_steps,
		  sizeof call_steps / sizeof call_steps[0]);
	call->flow.done = call_done;
	flow_build(&call->flow);
}
