/*
 * How an exec ended, as its client sees it and as it is recorded. Called by exec.c at the end of
 * the flow. Partial output is always sent, whatever the reason.
 */
#include "engine/exec_state.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "engine/records.h"
#include "engine/request.h"
#include "engine/shard.h"

enum { DATA_BYTES_MAX = 16 << 10 };

/* Captured bytes as DATA events, in pieces; `e` says of which stream, and where they begin. */
static void emit_data(struct exec *exec, struct emission e, const char *bytes, size_t count)
{
	e.kind = DSEC_EV_DATA;
	e.subject = exec->sandbox->id;
	e.exec = exec->number;
	while (count) {
		e.body = bytes;
		e.bytes = count < DATA_BYTES_MAX ? (uint32_t)count : DATA_BYTES_MAX;
		part_emit(exec->part, &e);
		bytes += e.bytes;
		e.offset += e.bytes;
		count -= e.bytes;
	}
}

static void emit_output(struct exec *exec, int i, struct dsec_wire_output *ret)
{
	const struct capture *capture = &exec->streams[i].capture;
	struct emission e = { .stream = (uint16_t)(i + 1) };
	const char *pieces[2];
	size_t bytes[2];

	emit_data(exec, e, capture->head, capture->head_bytes);
	e.offset = capture_tail(capture, pieces, bytes);
	e.flags = DSEC_EVENT_TAIL;
	emit_data(exec, e, pieces[0], bytes[0]);
	e.offset += bytes[0];
	emit_data(exec, e, pieces[1], bytes[1]);
	*ret = (struct dsec_wire_output){
		.stream = e.stream,
		.truncated = capture_is_truncated(capture),
		.total_bytes = capture->total,
		.head_bytes = capture->head_bytes,
		.tail_bytes = capture->tail_bytes,
	};
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
	if (!exec->run || !exec->run->program_failed)
		return false;
	ret->reason = DSEC_NOT_STARTED;
	ret->exit_code = error == -ENOENT || error == -ENOTDIR ? 127 : 126;
	ret_status->code = DSEC_FAILED;
	ret_status->blame = DSEC_BLAME_GUEST;
	ret_status->table = NULL;
	return true;
}

void exec_report(struct exec *exec, int error)
{
	struct dsec_wire_result body = {
		.size = sizeof body,
		.exec = exec->number,
		.cpu_us = exec->run_over ? exec->run->cpu_us : UINT64_MAX,
		.memory_peak_bytes = exec->run_over ? exec->run->peak_bytes : UINT64_MAX,
		.wall_us = exec->ended_ns ? (exec->ended_ns - exec->begun_ns) / 1000 : 0,
	};
	struct emission e = {
		.kind = DSEC_EV_DONE,
		.subject = exec->sandbox->id,
		.exec = exec->number,
		.body = &body,
		.bytes = sizeof body,
	};

	if (!error)
		result_of_status(exec, &body);
	else if (!result_of_failure(exec, error, &body, &e.status))
		body.size = 0; /* it never came to a result */
	if (exec->part) {
		emit_output(exec, 0, &body.outputs[0]);
		emit_output(exec, 1, &body.outputs[1]);
		e.bytes = body.size;
		part_end(exec->part, NULL, &e);
	}
	for (int i = 0; i < 2; i++) {
		body.outputs[i].truncated |= body.outputs[i].total_bytes > 0;
		body.outputs[i].head_bytes = body.outputs[i].tail_bytes = 0;
	}
	record_end(exec->sandbox->shard->records, exec->request_id, &e.status, &body);
}

void exec_replay(struct part *part, int error, const struct record *record)
{
	const struct dsec_ring_request *entry = &part->request->entry;
	bool same = record && record->op == DSEC_OP_EXEC &&
		    record->subject.hi == entry->subject.hi &&
		    record->subject.lo == entry->subject.lo;
	struct status s = record_refusal(error, record);
	struct emission e = { .kind = DSEC_EV_DONE, .flags = DSEC_EVENT_REPLAYED };

	if (!same || record->state != RECORD_ENDED) {
		part_end(part, &s, NULL);
		return;
	}
	e.subject = record->subject;
	e.exec = record->result.exec;
	e.status = record->status;
	if (record->result.size) {
		e.body = &record->result;
		e.bytes = sizeof record->result;
	}
	part_end(part, NULL, &e);
}
