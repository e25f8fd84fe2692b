/*
 * The end of a run whose box may be used again. Called by the engine through the class. Must hold:
 * PID 1 is held while a worker is asked, so that its pid and its slot stay; the box is proven clean
 * only where a worker found the kernel's side as it was and the root file system is untouched. What
 * does not die is asked for again, and nobody gets the box until then.
 */
#include <errno.h>

#include "backends/container/container.h"
#include "engine/base/cleanup.h"

static void finish_ask(struct container_run *run, uint32_t flags);

static void finish_take(struct container_run *run, const struct launch_reply *reply)
{
	struct container *box = container_of_box(run->run.box);
	struct run_end *end = run->end;

	if (reply->flags & LAUNCH_LEAF_GONE)
		box->slot->leaves_made &= ~(1ull << run->leaf);
	end->cpu_us = reply->cpu_us == UINT64_MAX ? UINT64_MAX : reply->cpu_us - box->cpu_before_us;
	end->oom = box_counts_ooms(&box->box) && reply->oom_kills != UINT64_MAX &&
		   reply->oom_kills > run->ooms_before;
}

static void finish_end(struct container_run *run)
{
	struct container *box = container_of_box(run->run.box);
	struct run_end *end = run->end;

	run->end = NULL;
	end->done(end);
	child_release(&box->init);
}

static void finish_opened(struct io_op *op, int res)
{
	struct container_run *run = container_of(op, struct container_run, upper_op);
	struct container *box = container_of_box(run->run.box);
	auto_close int up_fd = res;

	run->end->clean = slot_untouched(box->slot, up_fd);
	finish_end(run);
}

/* What a worker found clean is proven when its root file system is, too. */
static void finish_prove(struct container_run *run)
{
	struct container *box = container_of_box(run->run.box);
	struct containers *c = containers_of(box->box.backend);

	slot_path(box->slot, run->upper_path);
	run->upper_op.done = finish_opened;
	io_open_folder(c->options.host->io, &run->upper_op, c->slots.vault_fd, run->upper_path);
}

static void finish_replied(struct launch_call *call, const struct launch_reply *reply)
{
	struct container_run *run = container_of(call, struct container_run, finish_call);

	if (!reply) {
		finish_ask(run, LAUNCH_LEAF_GONE);
		return;
	}
	if (reply->error) {
		/* Somebody dies slowly: until then the leaf must not be used, nor afterwards. */
		call->request.flags |= LAUNCH_LEAF_GONE;
		team_call_later(&containers_of(run->run.box->backend)->team, call);
		return;
	}
	finish_take(run, reply);
	if (run->end->prove && reply->flags & LAUNCH_CLEAN)
		finish_prove(run);
	else
		finish_end(run);
}

static void finish_ask(struct container_run *run, uint32_t flags)
{
	struct container *box = container_of_box(run->run.box);
	struct containers *c = containers_of(run->run.box->backend);
	struct launch_request *request = &run->finish_call.request;

	slot_request(c, box->slot, LAUNCH_FINISH, request);
	request->leaf = run->leaf;
	request->limit_ms = KILL_LIMIT_MS;
	request->pid = box->init.pid;
	request->flags = flags | (run->end->prove ? LAUNCH_PROVE : 0);
	run->finish_call.class = TEAM_END;
	run->finish_call.done = finish_replied;
	team_call(&c->team, &run->finish_call);
}

int container_run_finish(struct run *base, struct run_end *end)
{
	struct container_run *run = container_run_of(base);
	struct container *box = container_of_box(base->box);

	if (!box->up || !child_is_alive(&box->init) || child_is_ending(&box->init))
		return -ESRCH;
	end->clean = end->oom = false;
	end->cpu_us = UINT64_MAX;
	run->end = end;
	child_hold(&box->init);
	finish_ask(run, 0);
	return 0;
}
