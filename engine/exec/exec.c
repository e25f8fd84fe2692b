/*
 * Execs: one flow from pipes to the end of the program, for a part of an exec request. Called by
 * request.c; called back by the backend. The flow is over when the main process was reaped and what
 * it had written was taken; the exec is kept after that, see exec_kept.c.
 */
#include "engine/exec/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/exec/exec_state.h"
#include "engine/exec/exec_wish.h"
#include "engine/events/news.h"
#include "engine/request/request.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"

enum { READ_BYTES = 16 << 10, QUIET_LIMIT_MS = 1000 };
#define NS_PER_MS 1000000ull

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

static void streams_close(struct exec *exec)
{
	for (int i = 0; i < EXEC_STREAMS; i++) {
		fds_close(&exec->streams[i].fd, 1);
		free(exec->streams[i].buffer);
		exec->streams[i].buffer = NULL;
	}
}

static int make_pipes(struct flow *f)
{
	struct exec *exec = exec_of(f);
	int r = 0, pair[2];

	for (int i = 0; i < (exec->merge ? 1 : EXEC_STREAMS) && r == 0; i++) {
		exec->streams[i].buffer = malloc(READ_BYTES);
		r = exec->streams[i].buffer ? 0 : -ENOMEM;
		if (r < 0 || exec->has_tty) /* which comes when it starts */
			break;
		if (pipe2(pair, O_CLOEXEC) < 0) {
			r = -errno;
			break;
		}
		exec->streams[i].fd = pair[0];
		exec->child_fds[i + 1] = pair[1];
	}
	if (r == 0)
		return FLOW_NEXT;
	fds_close(exec->child_fds, 3);
	streams_close(exec);
	return r;
}

static int close_pipes(struct flow *f)
{
	struct exec *exec = exec_of(f);

	bool closed;

	fds_close(exec->child_fds, 3);
	if (exec->has_input)
		inlet_done(&exec->inlet);
	closed = exec_tty_close(exec);
	streams_close(exec);
	return closed ? FLOW_NEXT : FLOW_WAIT;
}

/* ---- step "input" ---- */

static void input_quiet(struct inlet *inlet)
{
	exec_op_settled(container_of(inlet, struct exec, inlet));
}

static int open_input(struct flow *f)
{
	struct exec *exec = exec_of(f);
	int r, pair[2];

	if (!exec->has_input)
		return FLOW_NEXT;
	exec->inlet.quiet = input_quiet;
	if (exec->has_tty) {
		inlet_open(&exec->inlet, exec->shard->io, -1); /* waits for the terminal */
		return FLOW_NEXT;
	}
	if (pipe2(pair, O_CLOEXEC) < 0) {
		exec->has_input = false;
		return -errno;
	}
	exec->child_fds[0] = pair[0];
	inlet_open(&exec->inlet, exec->shard->io, pair[1]);
	if (!exec->input_bytes)
		return FLOW_NEXT;
	r = inlet_feed(&exec->inlet, exec->input, exec->input_bytes);
	exec->input = NULL;
	return r < 0 ? r : FLOW_NEXT;
}

/* ---- step "start" ---- */

static void run_ended(struct run *run, int status);

static void run_started(struct run *run, int error)
{
	struct exec *exec = run->owner;

	/* The child has its own; only ours may keep the streams open. */
	fds_close(exec->child_fds, 3);
	exec->started = error == 0;
	exec->failed_step = run->failed_step;
	if (!exec->started) {
		exec_time_end(exec);
		exec_died(exec);
	}
	if (exec->started && exec->has_tty)
		exec_tty_open(exec, take_fd(&run->tty_fd));
	if (exec->started && !exec->over)
		news_of_exec(exec, DSEC_TOPIC_EXEC_STARTED);
	if (exec->started && exec->owner.part)
		reader_tell_started(&exec->owner);
	if (exec->started && exec->owner.part && exec->detaches) {
		exec_answer_running(exec, exec->owner.part);
		exec->owner.part = NULL;
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
	exec->spec.whose = exec->client;
	exec->begun_ns = io_now_ns(f->host->io);
	r = class->run_start(exec->run, &exec->spec);
	if (r < 0) {
		exec->failed_step = exec->run->failed_step;
		return r;
	}
	exec_time_start(exec);
	return FLOW_WAIT;
}

/* Only where the exec fails after it started: else the program has ended by then. */
static int end_run(struct flow *f)
{
	struct exec *exec = exec_of(f);

	if (exec->run_over)
		return FLOW_NEXT;
	exec_kill(exec, DSEC_KILLED);
	return FLOW_WAIT;
}

/* ---- step "run": until the main process was reaped ---- */

static int wait_run(struct flow *f)
{
	struct exec *exec = exec_of(f);

	for (int i = 0; i < EXEC_STREAMS; i++)
		exec_stream_read(&exec->streams[i]);
	if (exec->run_over)
		return FLOW_NEXT;
	exec_time_begin(exec);
	if (exec->over) /* it started too late */
		exec_kill(exec, DSEC_KILLED);
	if (exec->phase_over)
		exec_kill(exec, DSEC_PHASE_OVER);
	if (exec_output_is_over(exec))
		exec_kill(exec, DSEC_OUTPUT_LIMIT);
	return FLOW_WAIT;
}

static void run_ended(struct run *run, int status)
{
	struct exec *exec = run->owner;

	exec->run_over = true;
	exec_died(exec);
	exec->status = status;
	if (run->box_died && !exec->killed) {
		exec->killed = true;
		exec->reason = DSEC_KILLED;
	}
	if (!exec->over)
		exec->ended_ns = io_now_ns(exec->shard->io);
	exec_time_end(exec);
	if (exec->flow.waiting)
		flow_resume(&exec->flow, 0);
}

/* ---- steps "quiet" and "drain": what the program had written is taken ---- */

static bool exec_is_quiet(const struct exec *exec)
{
	bool quiet = !exec->has_input || !exec->inlet.writing;

	for (int i = 0; i < EXEC_STREAMS; i++)
		quiet &= !exec->streams[i].reading;
	return quiet;
}

/* A thread reads or writes, and one of its programs has the pipe's lock: see engine/base/pipe.h. */
static void quiet_is_late(struct timer *timer)
{
	struct exec *exec = container_of(timer, struct exec, limit);

	log_warning("exec holds its streams id=%u.%llx exec=%llu, ended without the rest",
		    exec->shard->number, (unsigned long long)exec->sandbox->id.lo,
		    (unsigned long long)exec->number);
	if (!exec->over)
		exec_conclude(exec, 0);
}

void exec_input_stop(struct exec *exec)
{
	static const struct status over = { .code = DSEC_FAILED,
					    .blame = DSEC_BLAME_GUEST,
					    .error = EPIPE,
					    .table = "input",
					    .step = "write",
					    .detail = "the program has ended" };

	if (exec->has_input)
		(void)inlet_stop(&exec->inlet, &over);
}

void exec_op_settled(struct exec *exec)
{
	if (!exec->quieting || !exec_is_quiet(exec))
		return;
	exec->quieting = false;
	timer_clear(&exec->shard->timers, &exec->limit);
	flow_resume(&exec->flow, 0);
}

static int stop_ops(struct flow *f)
{
	struct exec *exec = exec_of(f);

	exec->stopping = true;
	for (int i = 0; i < EXEC_STREAMS; i++)
		(void)exec_stream_stop(&exec->streams[i]); /* asked below */
	exec_input_stop(exec);				   /* input_quiet() */
	exec->quieting = !exec_is_quiet(exec);
	if (!exec->quieting)
		return FLOW_NEXT;
	exec->limit.expired = quiet_is_late;
	(void)timer_set(&exec->shard->timers, &exec->limit, /* the heap has room for it */
			io_now_ns(exec->shard->io) + QUIET_LIMIT_MS * NS_PER_MS);
	return FLOW_WAIT;
}

static int drain(struct flow *f)
{
	struct exec *exec = exec_of(f);

	for (int i = 0; i < EXEC_STREAMS; i++)
		exec_stream_finish(&exec->streams[i]);
	return FLOW_NEXT;
}

/* clang-format off */
static const struct flow_step exec_steps[] = {
	/* name     start       finish undo         limit_ms */
	{ "pipes",  make_pipes, NULL,  close_pipes, 0 },
	{ "input",  open_input, NULL,  stop_ops,    0 },
	{ "start",  start_run,  NULL,  end_run,     0 },
	{ "run",    wait_run,   NULL,  NULL,        0 },
	{ "quiet",  stop_ops,   NULL,  NULL,        0 },
	{ "drain",  drain,      NULL,  NULL,        0 },
};
/* clang-format on */

static void exec_done(struct flow *f, int error)
{
	struct exec *exec = exec_of(f);

	if (!error && f->at == f->count) {
		if (!exec->over)
			exec_conclude(exec, 0);
		flow_unwind(f); /* comes back here with nothing left */
		return;
	}
	if (!exec->over)
		exec_conclude(exec, error);
	exec_keep(exec);
}

/* A launcher request cannot be taken back; the start ends by itself. */
static void exec_cancel_step(struct flow *f)
{
	(void)f;
}

/* ---- the op ---- */

static struct exec *exec_new(struct sandbox *sandbox, struct part *part)
{
	struct shard *shard = sandbox->shard;
	struct exec *exec;

	if (shard->execs_running == shard->execs_max)
		return NULL;
	exec = calloc(1, sizeof *exec);
	if (!exec)
		return NULL;
	exec->client = part->request->client;
	shard->execs_running++;
	exec->shard = shard;
	exec->sandbox = sandbox;
	exec->owner = (struct reader){ .part = part, .exec = exec, .follows = true };
	exec->number = sandbox->exec_next++;
	exec->phase = sandbox->phase.version;
	exec->child_fds[0] = exec->child_fds[1] = exec->child_fds[2] = -1;
	for (int i = 0; i < EXEC_STREAMS; i++) {
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
	part->work = &exec->owner;
	return exec;
}

struct exec *exec_find(const struct sandbox *sandbox, uint64_t number)
{
	struct exec *exec = sandbox->execs;

	while (exec && exec->number != number)
		exec = exec->next;
	if (exec)
		return exec;
	for (exec = sandbox->kept; exec && exec->number != number;)
		exec = exec->next;
	return exec;
}

static struct exec *find_by_request(struct exec *exec, const uint8_t id[16])
{
	while (exec && memcmp(exec->request_id, id, sizeof exec->request_id) != 0)
		exec = exec->next;
	return exec;
}

struct exec *exec_of_request(const struct sandbox *sandbox, const uint8_t id[16])
{
	struct exec *exec = find_by_request(sandbox->execs, id);

	return exec ? exec : find_by_request(sandbox->kept, id);
}

/* Among those that run, of its tenant and of its client; else the limit's name. */
static const char *place_take(struct tenancy *tenancy, const struct part *part)
{
	const char *limit = tenancy->tenant->has_limits ? "tenant_execs_max" : "execs_max";

	if (!tenant_take(tenancy->tenant, TENANT_EXECS))
		return limit;
	if (quota_take(tenancy, QUOTA_EXECS, 1)) {
		if (share_take(&part->shard->shares, part->request->client))
			return NULL;
		limit = "client_execs_max";
		quota_give(tenancy, QUOTA_EXECS, 1);
	}
	tenant_give(tenancy->tenant, TENANT_EXECS);
	return limit;
}

void exec_place_give(struct tenancy *tenancy, uint64_t client)
{
	quota_give(tenancy, QUOTA_EXECS, 1);
	tenant_give(tenancy->tenant, TENANT_EXECS);
	share_give(&tenancy->shard->shares, client);
}

/* What came of the wish: its status, and the exec, whatever that is. */
static struct status exec_begin(struct part *part, struct exec **ret)
{
	struct sandbox *sandbox = sandbox_of(part);
	struct exec *exec;
	const char *limit;
	struct status s;

	if (!sandbox || sandbox->state != DSEC_STATE_RUNNING)
		return status_absent();
	s = phase_admits(sandbox, part->request->body.exec.phase, part->detail);
	if (s.code)
		return s;
	limit = place_take(sandbox->tenancy, part);
	if (limit)
		return status_of_errno(-EAGAIN, "exec", limit);
	exec = *ret = exec_new(sandbox, part);
	if (!exec) {
		exec_place_give(sandbox->tenancy, part->request->client);
		return status_of_errno(-EAGAIN, "exec", "execs_max");
	}
	s = exec_wish(exec, part->request);
	if (s.code)
		return s;
	exec->run = sandbox->box->backend->class->run_new(sandbox->box);
	return exec->run ? STATUS_OK : status_of_errno(-EAGAIN, "exec", "execs_max");
}

void exec_part(struct part *part)
{
	static const uint64_t beginning[EXEC_STREAMS];
	struct shard *shard = part->shard;
	struct exec *exec = NULL;
	struct status s;

	if (part->request->claim.state == CLAIM_AGAIN) {
		exec_replay(part);
		return;
	}
	s = exec_begin(part, &exec);
	if (s.code) {
		if (exec)
			exec_free(exec);
		exec_record_failure(part, &s);
		part->work = NULL;
		part_end(part, &s, NULL);
		return;
	}
	memcpy(exec->request_id, part->request->entry.request_id, sizeof exec->request_id);
	if (part->request->body.exec.flags & DSEC_EXEC_STREAM)
		reader_begin(exec, &exec->owner, beginning, exec->window_bytes);
	flow_init(&exec->flow, &shard->host, "exec", exec_steps,
		  sizeof exec_steps / sizeof exec_steps[0]);
	exec->flow.done = exec_done;
	exec->flow.cancel = exec_cancel_step;
	flow_build(&exec->flow);
}

void execs_overdue(struct sandbox *sandbox)
{
	for (struct exec *exec = sandbox->execs; exec; exec = exec->next)
		exec_overdue(exec);
}

void execs_end(struct sandbox *sandbox)
{
	execs_forget(sandbox);
	for (struct exec *exec = sandbox->execs; exec; exec = exec->next)
		exec_end_with_box(exec);
}
