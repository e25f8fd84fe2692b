/*
 * Holds sandboxes still, or empties them first. Called by pack.c and fork.c, and by sandbox.c when
 * one ends. Must hold: whatever was frozen is thawed, and over() comes after that; no program is
 * frozen on its way into the sandbox, since a launcher worker waits for it; one that was emptied is
 * frozen all the same, since that is what holds it.
 */
#include "engine/sandbox/still.h"

#include <errno.h>

#include "engine/base/cleanup.h"
#include "engine/exec/exec_state.h"
#include "engine/file/file.h"
#include "engine/sandbox/phase.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"

enum { LOOK_NS = 2 * 1000000, LOOKS_MAX = 1500 };

/* A killed exec tells by itself that it does not die; whatever else does not go ends the wait. */
enum { KILL_LOOKS_MAX = 2 * EXEC_KILL_LIMIT_S * (1000000000 / LOOK_NS) };

struct status still_refusal(void)
{
	struct status s = status_of_errno(-EAGAIN, "sandbox", "still");

	s.retry_after_ms = 20;
	s.detail = "it is held still while what it wrote is read";
	return s;
}

struct status still_status(const char *table, int error)
{
	struct status s = status_of_errno(error, table, "freeze");

	if (error == -ESRCH)
		return status_absent();
	if (error == -EBUSY) {
		s = status_of_errno(-EAGAIN, table, "freeze");
		s.detail = "programs or operations on files kept starting in it";
	} else if (error == -ETIMEDOUT) {
		s.detail = "something in it does not stop, or die";
	}
	return s;
}

static void still_look_later(struct still *still);

/* ---- from the wish to stillness ---- */

static void still_failed(struct still *still, int error)
{
	struct sandbox *sandbox = still->sandbox;

	sandbox->still = NULL;
	still->ready(still, error);
	sandbox_still_over(sandbox);
}

static void still_frozen(struct box_freeze *freeze, int error)
{
	struct still *still = container_of(freeze, struct still, freeze);

	if (error) {
		still_failed(still, error);
		return;
	}
	still->since_ns = io_now_ns(still->sandbox->shard->io);
	still->is_still = true;
	still->ready(still, 0);
}

/* A program is on its way into it, or an operation on files is under way. */
static bool is_starting(const struct sandbox *sandbox)
{
	if (sandbox->file_count)
		return true;
	for (const struct exec *exec = sandbox->execs; exec; exec = exec->next)
		if (!exec->started)
			return true;
	return false;
}

/* Again at each look: what was starting has started meanwhile. True: something still runs. */
static bool writers_end(struct still *still)
{
	struct sandbox *sandbox = still->sandbox;
	struct status over = status_of_errno(-ECANCELED, "pack", "kill");

	over.detail = "it ended with all that was in its sandbox";
	files_end(sandbox, &over);
	for (struct exec *exec = sandbox->execs; exec; exec = exec->next)
		if (exec->started && !exec->run_over)
			exec_kill(exec, DSEC_KILLED);
	return sandbox->exec_count || sandbox->file_count;
}

static void still_freeze(struct still *still)
{
	struct box *box = still->sandbox->box;
	int r;

	still->freeze.done = still_frozen;
	r = box->backend->class->box_freeze(box, &still->freeze);
	if (r < 0)
		still_failed(still, r);
}

static void still_cleared(struct box_clear *clear, int error)
{
	struct still *still = container_of(clear, struct still, clear);

	if (error)
		still_failed(still, error == -EBUSY ? -ETIMEDOUT : error);
	else if (still->sandbox->state != DSEC_STATE_RUNNING)
		still_failed(still, -ESRCH);
	else
		still_freeze(still);
}

/* Whatever execs left running. */
static void still_clear(struct still *still)
{
	struct box *box = still->sandbox->box;
	int r;

	still->clear.done = still_cleared;
	r = box->backend->class->box_clear(box, &still->clear);
	if (r)
		still_cleared(&still->clear, r < 0 ? r : 0);
}

static void still_look(struct timer *timer)
{
	struct still *still = container_of(timer, struct still, look);
	struct sandbox *sandbox = still->sandbox;

	if (sandbox->state != DSEC_STATE_RUNNING)
		still_failed(still, -ESRCH);
	else if (still->kills ? !writers_end(still) : !is_starting(sandbox))
		still->kills ? still_clear(still) : still_freeze(still);
	else if (++still->looks >= (still->kills ? KILL_LOOKS_MAX : LOOKS_MAX))
		still_failed(still, still->kills ? -ETIMEDOUT : -EBUSY);
	else
		still_look_later(still);
}

/* Full: it is looked at as often as the loop turns. */
static void still_look_later(struct still *still)
{
	struct shard *shard = still->sandbox->shard;

	still->look.expired = still_look;
	if (timer_set(&shard->timers, &still->look, io_now_ns(shard->io) + LOOK_NS) < 0)
		still_failed(still, -EAGAIN);
}

struct status still_begin(struct still *still, char ret_detail[80])
{
	struct sandbox *sandbox = still->sandbox;
	struct status s = phase_admits(sandbox, 0, ret_detail);

	if (s.code)
		return s;
	still->freeze.upper_fd = -1;
	sandbox->still = still;
	still_look_later(still);
	return STATUS_OK;
}

/* ---- and back ---- */

static void still_thawed(struct box_freeze *freeze, int error)
{
	struct still *still = container_of(freeze, struct still, freeze);
	struct sandbox *sandbox = still->sandbox;

	(void)error; /* never */
	still->paused_us = (io_now_ns(sandbox->shard->io) - still->since_ns) / 1000;
	sandbox->still = NULL;
	still->over(still);
	sandbox_still_over(sandbox);
}

static void still_thaw(struct timer *timer)
{
	struct still *still = container_of(timer, struct still, look);
	struct sandbox *sandbox = still->sandbox;
	struct box *box = sandbox->box;
	struct shard *shard = sandbox->shard;

	still->freeze.done = still_thawed;
	if (box->backend->class->box_thaw(box, &still->freeze) == 0)
		return;
	still->look.expired = still_thaw;
	if (timer_set(&shard->timers, &still->look, io_now_ns(shard->io) + LOOK_NS) < 0)
		still_thaw(timer);
}

void still_end(struct still *still)
{
	still_thaw(&still->look);
}

void still_hurry(struct still *still)
{
	if (!still->is_still || still->is_ending)
		return; /* not yet: it is seen at the next look */
	still->is_ending = true;
	still->hurry(still);
}
