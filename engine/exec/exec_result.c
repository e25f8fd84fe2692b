/*
 * How an exec ended, as its client sees it and as it is recorded. Called by exec.c at the end of
 * the flow and by readers at theirs. Partial output is always sent, whatever the reason.
 */
#include "engine/exec/exec_state.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "engine/base/log.h"
#include "engine/events/news.h"
#include "engine/integrity/integrity.h"
#include "engine/request/records.h"
#include "engine/request/request.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"

/* Captured bytes as DATA events, in pieces; `e` says of which stream, and where they begin. */
static void emit_data(struct part *part, struct emission e, const char *bytes, size_t count)
{
	e.kind = DSEC_EV_DATA;
	while (count) {
		e.body = bytes;
		e.bytes = count < EXEC_DATA_BYTES_MAX ? (uint32_t)count : EXEC_DATA_BYTES_MAX;
		part_emit(part, &e);
		bytes += e.bytes;
		e.offset += e.bytes;
		count -= e.bytes;
	}
}

static void emit_output(const struct exec *exec, struct part *part, int i,
			struct dsec_wire_output *ret)
{
	const struct stream *stream = &exec->streams[i];
	const struct capture *capture = &stream->capture;
	struct emission e = { .subject = exec->sandbox->id,
			      .exec = exec->number,
			      .stream = (uint16_t)(i + 1) };
	const char *pieces[2];
	size_t bytes[2];

	emit_data(part, e, capture->head, capture->head_bytes);
	e.offset = capture_tail(capture, stream->tail_wish, pieces, bytes);
	e.flags = DSEC_EVENT_TAIL;
	emit_data(part, e, pieces[0], bytes[0]);
	e.offset += bytes[0];
	emit_data(part, e, pieces[1], bytes[1]);
	ret->head_bytes = capture->head_bytes;
	ret->tail_bytes = bytes[0] + bytes[1];
	ret->truncated = ret->total_bytes > ret->head_bytes + ret->tail_bytes;
}

static void result_of_status(const struct exec *exec, struct dsec_wire_result *ret)
{
	ret->exit_code = -1;
	if (WIFEXITED(exec->status)) {
		ret->reason = DSEC_EXIT;
		ret->exit_code = WEXITSTATUS(exec->status);
	} else {
		ret->reason = DSEC_SIGNAL;
		ret->signal = WTERMSIG(exec->status);
	}
	/* It was told to end, and did, in whichever way. */
	if (exec->terminated)
		ret->reason = exec->reason;
	/* Whatever it did next: a program that is quick to end is judged as a slow one is. */
	if (exec_output_is_over(exec) && (!exec->killed || exec->reason == DSEC_OUTPUT_LIMIT) &&
	    !exec->terminated) {
		ret->reason = DSEC_OUTPUT_LIMIT;
		return;
	}
	/* A program that ended by itself in the moment it was to be killed keeps its own end. */
	if (ret->reason != DSEC_SIGNAL || ret->signal != SIGKILL)
		return;
	if (exec->killed) {
		ret->reason = exec->reason;
	} else if (exec->run->oom) {
		ret->reason = DSEC_OOM;
		ret->memory_peak_bytes = exec->run->box_peak_bytes;
		ret->memory_limit_bytes = exec->sandbox->box->spec.limits.memory_bytes;
	}
}

/* The program could not be started and it is the guest's doing: 126 or 127, as a shell says it. */
static bool result_of_failure(const struct exec *exec, int error, struct dsec_wire_result *ret,
			      struct status *ret_status)
{
	if (exec->is_undying) {
		*ret_status = status_of_errno(-ETIMEDOUT, "exec", "start");
		ret_status->detail = "it has not started in time, and is killed when it does";
		return false;
	}
	/* ESRCH: PID 1 has died, which is told here later. */
	if (!exec->started && (exec->sandbox->state != DSEC_STATE_RUNNING || error == -ESRCH)) {
		*ret_status = (struct status){ .code = DSEC_ABSENT,
					       .blame = DSEC_BLAME_CALLER,
					       .table = "exec",
					       .step = "subject",
					       .detail = "it ended before the program started" };
		return false;
	}
	if (exec->run && exec->failed_step && error == -EPERM &&
	    !strcmp(exec->failed_step, "limit"))
		*ret_status = exec_limit_refusal(exec);
	else if (exec->failed_step)
		*ret_status = status_of_errno(error, "container", exec->failed_step);
	else
		*ret_status = status_of_errno(error, "exec", exec->flow.failed_step);
	if (ret_status->code == DSEC_REFUSED && exec->failed_step &&
	    !strcmp(exec->failed_step, "leaf")) {
		ret_status->blame = DSEC_BLAME_CALLER;
		ret_status->detail = "as many programs run in this sandbox as may";
	}
	if (!exec->run || !exec->run->program_failed)
		return false;
	ret->reason = DSEC_NOT_STARTED;
	ret->exit_code = error == -ENOENT || error == -ENOTDIR ? 127 : 126;
	ret_status->code = DSEC_FAILED;
	ret_status->blame = DSEC_BLAME_GUEST;
	ret_status->table = NULL;
	return true;
}

static void result_of_undying(const struct exec *exec, struct dsec_wire_result *ret,
			      struct status *ret_status)
{
	ret->reason = exec->reason;
	ret->exit_code = -1;
	*ret_status = (struct status){ .code = DSEC_FAILED,
				       .blame = DSEC_BLAME_PLATFORM,
				       .error = EBUSY,
				       .table = "exec",
				       .step = "kill",
				       .detail = "it was killed and does not die: its sandbox "
						 "cannot end before it has" };
}

void exec_overdue(struct exec *exec)
{
	if (exec->over)
		return;
	log_error("exec does not %s id=%u.%llx exec=%llu pid=%d, continuing",
		  exec->started ? "die" : "start", exec->shard->number,
		  (unsigned long long)exec->sandbox->id.lo, (unsigned long long)exec->number,
		  exec->run ? exec->run->pid : 0);
	exec->is_undying = !exec->run_over;
	exec->shard->execs_undying += exec->is_undying;
	exec->ended_ns = io_now_ns(exec->shard->io);
	exec_input_stop(exec);
	exec_conclude(exec, 0);
	phase_overdue(exec->sandbox);
}

void exec_died(struct exec *exec)
{
	exec->shard->execs_undying -= exec->is_undying;
	exec->is_undying = false;
}

static void record_write(struct tenancy *tenancy, const uint8_t id[16], const struct emission *e)
{
	static const struct request nobody; /* what is recorded has no ticket */
	struct dsec_ring_event event;
	char payload[sizeof(struct dsec_wire_result) + sizeof(struct dsec_wire_status)];

	emission_write(&nobody, e, &event, payload);
	claim_record(tenancy, id, &event, payload);
}

static void exec_record(const struct exec *exec, const struct dsec_wire_result *result)
{
	const struct emission e = {
		.kind = DSEC_EV_DONE,
		.flags = result->flags & DSEC_RESULT_UNPOLICED ? DSEC_EVENT_UNPOLICED : 0,
		.subject = exec->sandbox->id,
		.exec = exec->number,
		.body = result,
		.bytes = result->size,
		.status = exec->result_status,
	};

	record_write(exec->sandbox->tenancy, exec->request_id, &e);
}

void exec_record_failure(const struct part *part, const struct status *status)
{
	const struct emission e = { .kind = DSEC_EV_DONE,
				    .subject = part->request->entry.subject,
				    .status = *status };

	record_write(tenancy_of(part), part->request->entry.request_id, &e);
}

void exec_conclude(struct exec *exec, int error)
{
	struct dsec_wire_result *result = &exec->result, recorded;

	integrity_settle(exec->sandbox);
	*result = (struct dsec_wire_result){
		.size = sizeof *result,
		.exec = exec->number,
		.cpu_us = exec->run_over ? exec->run->cpu_us : UINT64_MAX,
		.memory_peak_bytes = exec->run_over ? exec->run->peak_bytes : UINT64_MAX,
		.processes_killed = exec->run_over ? exec->run->processes_killed :
				    exec->started  ? UINT32_MAX :
						     0,
		.wall_us = exec->ended_ns ? (exec->ended_ns - exec->begun_ns) / 1000 : 0,
		.flags = sandbox_event_flags(exec->sandbox) ? DSEC_RESULT_UNPOLICED : 0,
		.tainted = integrity_taint(exec->sandbox),
		.phase = exec->phase,
	};
	for (int i = 0; i < EXEC_STREAMS; i++)
		result->outputs[i] =
			(struct dsec_wire_output){ .stream = (uint32_t)i + 1,
						   .total_bytes = exec->streams[i].capture.total };
	if (exec->is_undying && exec->started)
		result_of_undying(exec, result, &exec->result_status);
	else if (!error && !exec->is_undying)
		result_of_status(exec, result);
	else if (!result_of_failure(exec, error, result, &exec->result_status))
		result->size = 0; /* it never came to a result */
	exec->over = true;
	news_of_exec(exec, DSEC_TOPIC_EXEC_ENDED);
	/* Of the record alone nobody can read what it wrote. */
	recorded = *result;
	for (int i = 0; i < EXEC_STREAMS; i++)
		recorded.outputs[i].truncated = recorded.outputs[i].total_bytes > 0;
	exec_record(exec, &recorded);
	if (exec->owner.part && !exec->owner.live) {
		exec_answer_captured(exec, exec->owner.part, 0);
		exec->owner.part = NULL;
	}
	readers_pump(exec);
}

/* ---- answers ---- */

static void answer(const struct exec *exec, struct part *part, uint16_t flags,
		   const struct dsec_wire_result *body)
{
	struct emission e = {
		.kind = DSEC_EV_DONE,
		.flags = flags | (body->flags & DSEC_RESULT_UNPOLICED ? DSEC_EVENT_UNPOLICED : 0),
		.subject = exec->sandbox->id,
		.exec = exec->number,
		.body = body,
		.bytes = body->size,
		.status = exec->result_status,
	};

	part_end(part, NULL, &e);
}

void exec_answer(const struct exec *exec, struct part *part, uint16_t flags)
{
	answer(exec, part, flags, &exec->result);
}

void exec_answer_captured(const struct exec *exec, struct part *part, uint16_t flags)
{
	struct dsec_wire_result body = exec->result;

	for (int i = 0; i < EXEC_STREAMS; i++)
		emit_output(exec, part, i, &body.outputs[i]);
	answer(exec, part, flags, &body);
}

void exec_answer_running(const struct exec *exec, struct part *part)
{
	struct dsec_wire_result body = {
		.size = sizeof body,
		.reason = DSEC_RUNNING,
		.flags = sandbox_event_flags(exec->sandbox) ? DSEC_RESULT_UNPOLICED : 0,
		.exit_code = -1,
		.exec = exec->number,
		.phase = exec->phase,
		.cpu_us = UINT64_MAX,
		.memory_peak_bytes = UINT64_MAX,
		.wall_us = (io_now_ns(exec->shard->io) - exec->begun_ns) / 1000,
	};

	for (int i = 0; i < EXEC_STREAMS; i++)
		body.outputs[i] =
			(struct dsec_wire_output){ .stream = (uint32_t)i + 1,
						   .total_bytes = exec->streams[i].capture.total };
	answer(exec, part, 0, &body);
}

/* ---- the same request again ---- */

/*
 * The exec is there: whoever asks again hears of it as the first one would have. False: somebody
 * still hears it.
 */
static bool replay_joins(struct exec *exec, struct part *part)
{
	const struct dsec_wire_exec *wish = &part->request->body.exec;

	if (exec->over && exec->detaches) {
		exec_answer_running(exec, part);
	} else if (wish->flags & DSEC_EXEC_STREAM) {
		struct status s = exec_attach(exec, part, wish->resume, wish->window_bytes);

		if (s.code)
			part_end(part, &s, NULL);
	} else if (exec->over) {
		exec_answer_captured(exec, part, DSEC_EVENT_REPLAYED);
	} else if (exec->owner.part) {
		return false;
	} else {
		exec->owner = (struct reader){ .part = part, .exec = exec, .follows = true };
		part->work = &exec->owner;
		if (exec->started)
			reader_tell_started(&exec->owner);
		if (exec->started && exec->detaches) {
			exec->owner.part = NULL;
			exec_answer_running(exec, part);
		}
	}
	return true;
}

/* All that is left of it is how it ended: who read its streams is told what is missing. */
static void replay_gaps(struct part *part, const struct dsec_wire_result *result)
{
	const struct dsec_wire_exec *wish = &part->request->body.exec;

	for (int i = 0; i < EXEC_STREAMS && wish->flags & DSEC_EXEC_STREAM; i++) {
		uint64_t total = result->outputs[i].total_bytes, missing;
		struct emission e = { .kind = DSEC_EV_GAP,
				      .subject = part->request->entry.subject,
				      .exec = result->exec,
				      .stream = (uint16_t)(i + 1),
				      .offset = wish->resume[i],
				      .body = &missing,
				      .bytes = sizeof missing };

		missing = total > wish->resume[i] ? total - wish->resume[i] : 0;
		if (missing)
			part_emit(part, &e);
	}
}

/* The first one's claim says how it ended, if it has. */
void exec_replay(struct part *part)
{
	const struct request *request = part->request;
	const struct claim *claim = &request->claim;
	struct sandbox *sandbox = sandbox_of(part);
	struct exec *exec = sandbox ? exec_of_request(sandbox, request->entry.request_id) : NULL;
	struct dsec_wire_result result = { 0 };
	struct status s = record_refusal(-EEXIST);

	if (exec && replay_joins(exec, part))
		return;
	if (claim->is_running) {
		part_end(part, &s, NULL);
		return;
	}
	/* What we recorded: a result, a status, or both. */
	if (claim->last.bytes >= sizeof result)
		memcpy(&result, claim->payload, sizeof result);
	replay_gaps(part, &result);
	claim_answer(part);
}
