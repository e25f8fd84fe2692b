/*
 * Execs that are over, kept so that one can ask how they ended and read what they wrote. Called by
 * exec.c at an exec's end and by sandboxes at theirs. Bounded by time, bytes and number; the oldest
 * of its tenant goes first. Always true: nothing of the backend and no descriptor is left of them.
 */
#include "engine/exec/exec_state.h"

#include <assert.h>
#include <stdlib.h>

#include "engine/base/cleanup.h"
#include "engine/exec/exec.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"

#define KEPT_NS ((uint64_t)EXEC_KEPT_S * 1000000000)

static void exec_unlink(struct exec *exec)
{
	*exec->link = exec->next;
	if (exec->next)
		exec->next->link = exec->link;
}

/* Its place among those that run is free. */
static void exec_not_running(const struct exec *exec)
{
	exec->shard->execs_running--;
	exec_place_give(exec->sandbox->tenancy, exec->client);
}

void exec_free(struct exec *exec)
{
	struct sandbox *sandbox = exec->sandbox;
	bool running = !exec->kept_bytes;

	while (exec->readers)
		reader_finish(exec->readers);
	for (int i = 0; i < EXEC_STREAMS; i++)
		capture_done(&exec->streams[i].capture);
	exec_unlink(exec);
	if (exec->run)
		sandbox->box->backend->class->run_free(exec->run);
	free((void *)exec->spec.strings);
	free(exec->limits);
	if (running)
		exec_not_running(exec);
	free(exec);
	if (running)
		sandbox_exec_over(sandbox);
}

/* ---- the tenant's list, oldest first ---- */

static void kept_remove(struct exec *exec)
{
	struct kept_execs *kept = &exec->sandbox->tenancy->kept;

	if (exec->older)
		exec->older->newer = exec->newer;
	else
		kept->oldest = exec->newer;
	if (exec->newer)
		exec->newer->older = exec->older;
	else
		kept->newest = exec->older;
	kept->count--;
	kept->bytes -= exec->kept_bytes;
	exec->sandbox->kept_count--;
	if (!kept->oldest)
		timer_clear(&exec->shard->timers, &kept->timer);
	exec_free(exec);
}

static void kept_evict(struct tenancy *tenancy)
{
	struct kept_execs *kept = &tenancy->kept;
	struct shard *shard = tenancy->shard;
	uint64_t now = io_now_ns(shard->io);

	while (kept->oldest && (kept->count > kept->count_max || kept->bytes > kept->bytes_max ||
				kept->oldest->ended_ns + KEPT_NS <= now))
		kept_remove(kept->oldest);
	if (kept->oldest && !timer_is_set(&kept->timer))
		(void)timer_set(&shard->timers, &kept->timer, /* the heap has room for it */
				kept->oldest->ended_ns + KEPT_NS);
}

static void kept_expired(struct timer *timer)
{
	struct kept_execs *kept = container_of(timer, struct kept_execs, timer);

	kept_evict(container_of(kept, struct tenancy, kept));
}

static void kept_add(struct exec *exec)
{
	struct kept_execs *kept = &exec->sandbox->tenancy->kept;

	exec->kept_bytes = sizeof *exec + exec->spec.string_bytes;
	for (int i = 0; i < EXEC_STREAMS; i++)
		exec->kept_bytes +=
			exec->streams[i].capture.head_room + exec->streams[i].capture.tail_room;
	exec->older = kept->newest;
	exec->newer = NULL;
	if (exec->older)
		exec->older->newer = exec;
	else
		kept->oldest = exec;
	kept->newest = exec;
	kept->count++;
	kept->bytes += exec->kept_bytes;
	kept->timer.expired = kept_expired;
}

/* From the running ones of its sandbox to its kept ones, newest first. */
void exec_keep(struct exec *exec)
{
	struct sandbox *sandbox = exec->sandbox;

	/* Of one that started too late it was told that it has not. */
	if (sandbox->state != DSEC_STATE_RUNNING || !exec->started || !exec->result.size) {
		exec_free(exec);
		return;
	}
	sandbox->box->backend->class->run_free(exec->run);
	exec->run = NULL;
	exec_unlink(exec);
	exec->next = sandbox->kept;
	exec->link = &sandbox->kept;
	if (exec->next)
		exec->next->link = &exec->next;
	sandbox->kept = exec;
	kept_add(exec);
	exec_not_running(exec);
	if (++sandbox->kept_count > EXECS_KEPT_PER_SANDBOX) {
		struct exec *oldest = exec;

		while (oldest->next)
			oldest = oldest->next;
		kept_remove(oldest);
	}
	kept_evict(sandbox->tenancy);
	sandbox_exec_over(sandbox);
}

void execs_forget(struct sandbox *sandbox)
{
	while (sandbox->kept)
		kept_remove(sandbox->kept);
}
