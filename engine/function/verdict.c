/*
 * Verdicts. Called by call.c. What ends a call first is not always what is seen first, so the order
 * is fixed: what the platform did, then memory, time, output, and only then how the program ended.
 */
#include "engine/function/verdict.h"

#include <sys/wait.h>

#include "dsec/ring.h"

static uint32_t verdict_by_limits(const struct call_facts *f)
{
	if (f->oom)
		return DSEC_VERDICT_MLE;
	if (f->end == CALL_END_CPU || f->end == CALL_END_WALL ||
	    (f->cpu_limit_us && f->cpu_us != UINT64_MAX && f->cpu_us > f->cpu_limit_us))
		return DSEC_VERDICT_TLE;
	if (f->end == CALL_END_OUTPUT || f->output_over)
		return DSEC_VERDICT_OLE;
	return 0;
}

static uint32_t reason_by_limits(uint32_t verdict)
{
	switch (verdict) {
	case DSEC_VERDICT_MLE:
		return DSEC_OOM;
	case DSEC_VERDICT_TLE:
		return DSEC_TIMEOUT;
	default:
		return DSEC_OUTPUT_LIMIT;
	}
}

struct verdict verdict_of(const struct call_facts *f)
{
	struct verdict v = { .verdict = DSEC_VERDICT_IE, .reason = DSEC_NOT_STARTED };

	if (!f->started) {
		v.exit_code = f->not_found ? 127 : 126;
		return v;
	}
	v.exit_code = WIFEXITED(f->status) ? WEXITSTATUS(f->status) : -1;
	v.signal = WIFSIGNALED(f->status) ? WTERMSIG(f->status) : 0;
	v.verdict = verdict_by_limits(f);
	if (v.verdict) {
		v.reason = reason_by_limits(v.verdict);
		return v;
	}
	if (f->box_died || f->end == CALL_END_CANCEL) {
		v.verdict = DSEC_VERDICT_IE;
		v.reason = DSEC_KILLED;
		return v;
	}
	v.reason = v.signal ? DSEC_SIGNAL : DSEC_EXIT;
	v.verdict = v.signal || v.exit_code ? DSEC_VERDICT_RE : DSEC_VERDICT_OK;
	return v;
}
