/*
 * How long a program may take to start, run, and be silent, and what happens then: SIGTERM where it
 * is given time for its end, SIGKILL for all of its leaf after that; and what becomes of whoever
 * waits where that does not die. Called by exec.c; one timer does it all. Must hold: an exec that
 * was killed, by whomever, has its whole time to be over.
 */
#include "engine/exec/exec_state.h"

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/exec/exec.h"
#include "engine/shard.h"

#define NS_PER_MS 1000000ull

static void limit_set(struct exec *exec);

static uint64_t limit_due_ns(const struct exec *exec)
{
	uint64_t due = exec->begun_ns + exec->timeout_ms * NS_PER_MS;
	uint64_t idle = exec->output_ns + exec->idle_timeout_ms * NS_PER_MS;

	if (!exec->started)
		return exec->begun_ns + EXEC_START_LIMIT_S * 1000 * NS_PER_MS;
	if (exec->killed)
		return exec->killed_ns + EXEC_KILL_LIMIT_S * 1000 * NS_PER_MS;
	if (exec->terminated)
		return exec->terminated_ns + exec->kill_after_ms * NS_PER_MS;
	return exec->idle_timeout_ms && idle < due ? idle : due;
}

static void kill_begins(struct exec *exec, uint32_t reason)
{
	if (!exec->terminated)
		exec->reason = reason;
	exec->killed = true;
	exec->killed_ns = io_now_ns(exec->shard->io);
	if (exec->started && !exec->run_over)
		limit_set(exec);
}

void exec_kill(struct exec *exec, uint32_t reason)
{
	if (exec->killed)
		return;
	kill_begins(exec, reason);
	exec->sandbox->box->backend->class->run_kill(exec->run);
}

void exec_end_with_box(struct exec *exec)
{
	if (!exec->killed)
		kill_begins(exec, DSEC_KILLED);
}

void exec_end_with_phase(struct exec *exec)
{
	exec->phase_over = true;
	if (exec->started && !exec->run_over)
		exec_kill(exec, DSEC_PHASE_OVER);
}

void execs_end_bomb(struct sandbox *sandbox, uint32_t leaf, uint64_t since_ns)
{
	for (struct exec *exec = sandbox->execs; exec; exec = exec->next) {
		if (!exec->started || exec->run_over || exec->run->leaf != leaf ||
		    exec->begun_ns > since_ns)
			continue;
		log_info("fork bomb killed id=%u.%llx exec=%llu", exec->shard->number,
			 (unsigned long long)sandbox->id.lo, (unsigned long long)exec->number);
		exec_kill(exec, DSEC_FORK_BOMB);
		return; /* a leaf is of one */
	}
}

static void limit_end(struct exec *exec, uint32_t reason)
{
	if (!exec->kill_after_ms) {
		exec_kill(exec, reason);
		return;
	}
	exec->reason = reason;
	exec->terminated = true;
	exec->terminated_ns = io_now_ns(exec->shard->io);
	exec->sandbox->box->backend->class->run_terminate(exec->run);
	limit_set(exec);
}

static void limit_reached(struct timer *timer)
{
	struct exec *exec = container_of(timer, struct exec, limit);
	uint64_t now = io_now_ns(exec->shard->io);

	if (now < limit_due_ns(exec))
		limit_set(exec); /* it wrote meanwhile */
	else if (exec->killed || !exec->started)
		exec_overdue(exec);
	else if (exec->terminated)
		exec_kill(exec, exec->reason);
	else if (now >= exec->begun_ns + exec->timeout_ms * NS_PER_MS)
		limit_end(exec, DSEC_TIMEOUT);
	else if (!exec_is_held_back(exec))
		limit_end(exec, DSEC_IDLE_TIMEOUT);
	else {
		exec->output_ns = now; /* it is its reader that is silent */
		limit_set(exec);
	}
}

static void limit_set(struct exec *exec)
{
	exec->limit.expired = limit_reached;
	/* As many execs as the heap has room for. */
	(void)timer_set(&exec->shard->timers, &exec->limit, limit_due_ns(exec));
}

void exec_time_start(struct exec *exec)
{
	limit_set(exec);
}

void exec_time_begin(struct exec *exec)
{
	exec->output_ns = io_now_ns(exec->shard->io);
	limit_set(exec);
}

void exec_time_end(struct exec *exec)
{
	timer_clear(&exec->shard->timers, &exec->limit);
	timer_clear(&exec->shard->timers, &exec->paced);
}
