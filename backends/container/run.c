/*
 * Runs of the container backend: programs that enter a box from outside. Called by the engine
 * through the class. A run has a leaf cgroup of its own while it lives; its main process is a
 * child of the engine and is reaped before PID 1, which is held while a request that needs its pid
 * or its slot is under way: else the slot could be another sandbox's by then. What a run leaves
 * running stays in the leaf, so a leaf is used again only when a worker found it empty.
 */
#include "backends/container/container.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "backends/container/governor.h"
#include "backends/container/walls.h"
#include "engine/base/cleanup.h"

struct container_run *container_run_of(struct run *run)
{
	return container_of(run, struct container_run, run);
}

struct run *container_run_new(struct box *box)
{
	struct containers *c = containers_of(box->backend);
	struct container_run *run = pool_take(&c->runs);

	if (!run)
		return NULL;
	run->run.box = box;
	run->run.leaf = UINT32_MAX;
	return &run->run;
}

static void leaf_put(struct container_run *run)
{
	container_of_box(run->run.box)->leaves_busy &= ~(1ull << run->leaf);
}

static void held_ended(struct child *child, int status)
{
	struct container_run *run = container_of(child, struct container_run, main);

	(void)status; /* was told */
	leaf_put(run);
	pool_put(&containers_of(run->run.box->backend)->runs, run);
}

/* A run whose dead main process the sandbox holds on to keeps its place until that is reaped. */
void container_run_free(struct run *base)
{
	struct container_run *run = container_run_of(base);

	if (child_is_alive(&run->main))
		run->main.ended = held_ended;
	else
		pool_put(&containers_of(base->box->backend)->runs, run);
}

/* A leaf that no run of ours holds, from run->leaf on: false when there is none. */
static bool leaf_find(struct container_run *run)
{
	struct container *box = container_of_box(run->run.box);

	while (run->leaf < LEAVES_MAX && (box->leaves_busy & 1ull << run->leaf))
		run->leaf++;
	if (run->leaf == LEAVES_MAX)
		run->run.failed_step = "leaf";
	return run->leaf < LEAVES_MAX;
}

/* The run is over when its main process was reaped and no request about it is in flight. */
static void run_settle(struct container_run *run)
{
	if (!run->ended || run->kill_wanted || run->oom_asked)
		return;
	if (!child_is_alive(&run->main))
		leaf_put(run);
	run->run.ended(&run->run, run->status);
}

static void oom_replied(struct launch_call *call, const struct launch_reply *reply)
{
	struct container_run *run = container_of(call, struct container_run, oom_call);
	struct container *box = container_of_box(run->run.box);
	uint64_t limit = box->box.spec.limits.memory_bytes;

	if (!reply) {
		team_call(&containers_of(box->box.backend)->team, call);
		return;
	}
	run->oom_asked = false;
	if (!reply->error && reply->oom_kills != UINT64_MAX &&
	    reply->oom_kills > run->ooms_before) {
		run->run.oom = true;
		run->run.box_peak_bytes = reply->memory_peak_bytes;
		/* By a page or so that was charged beyond it. */
		if (reply->memory_peak_bytes != UINT64_MAX && reply->memory_peak_bytes > limit)
			run->run.box_peak_bytes = limit;
	}
	run_settle(run);
	child_release(&box->init);
}

/* Killed, and not by us: by the box's memory limit, or by somebody inside. */
static void oom_ask(struct container_run *run)
{
	struct container *box = container_of_box(run->run.box);
	struct containers *c = containers_of(run->run.box->backend);

	run->oom_asked = true;
	child_hold(&box->init);
	slot_request(c, box->slot, LAUNCH_STAT, &run->oom_call.request);
	run->oom_call.class = TEAM_END;
	run->oom_call.done = oom_replied;
	team_call(&c->team, &run->oom_call);
}

static void run_end(struct container_run *run, int status)
{
	bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;

	run->ended = true;
	run->run.cpu_us = run->main.cpu_us;
	run->run.peak_bytes = run->main.peak_bytes;
	run->status = status;
	/* What ended by itself did so whatever became of PID 1. */
	run->run.box_died = killed && child_is_ending(&container_of_box(run->run.box)->init);
	if (run->run.box_died)
		run->run.processes_killed = UINT32_MAX;
	if (killed && !run->run.box_died && !run->kill_wanted && !run->emptied &&
	    box_counts_ooms(run->run.box))
		oom_ask(run);
}

/*
 * Where its leaf was emptied nothing of a run is left but its zombie: another process of the
 * sandbox that traces it must not hold the end up.
 */
static void main_died(struct child *child)
{
	struct container_run *run = container_of(child, struct container_run, main);
	int status;

	if (!run->ended && run->emptied && child_has_died(child, &status))
		run_end(run, status);
	if (run->emptied)
		run_settle(run);
}

/* The first answer counts all of them, a later one what did not die of it. */
static void killed_count(struct container_run *run, const struct launch_reply *reply)
{
	uint32_t count = reply ? reply->processes : UINT32_MAX;

	if (count > run->run.processes_killed)
		run->run.processes_killed = count;
}

static void kill_replied(struct launch_call *call, const struct launch_reply *reply)
{
	struct container_run *run = container_of(call, struct container_run, kill_call);
	struct container *box = container_of_box(run->run.box);
	struct containers *c = containers_of(run->run.box->backend);

	killed_count(run, reply);
	if (!reply || (reply->error && reply->error != ENOENT)) {
		/*
		 * Not empty yet (a zombie of ours, a slow death), or the worker was lost. A leaf
		 * that was killed must not stay, even if the sandbox ends: the slot outlives it.
		 */
		if (reply)
			team_call_later(&c->team, &run->kill_call);
		else
			team_call(&c->team, &run->kill_call);
		return;
	}
	box->slot->leaves_made &= ~(1ull << run->leaf);
	run->kill_wanted = false;
	run->emptied = true;
	main_died(&run->main);
	child_release(&box->init);
}

void container_run_kill(struct run *base)
{
	struct container_run *run = container_run_of(base);
	struct container *box = container_of_box(base->box);
	struct containers *c = containers_of(base->box->backend);

	if (run->kill_wanted)
		return;
	run->kill_wanted = true;
	child_hold(&box->init);
	slot_request(c, box->slot, LAUNCH_KILL, &run->kill_call.request);
	run->kill_call.request.leaf = run->leaf;
	run->kill_call.request.limit_ms = KILL_LIMIT_MS;
	run->kill_call.class = TEAM_END;
	run->kill_call.done = kill_replied;
	team_call(&c->team, &run->kill_call);
}

void container_run_terminate(struct run *base)
{
	struct container_run *run = container_run_of(base);

	run->terminated = true;
	(void)child_signal(&run->main, SIGTERM); /* or it has ended, which is as good */
}

static void main_ended(struct child *child, int status)
{
	struct container_run *run = container_of(child, struct container_run, main);

	if (run->ended) {
		leaf_put(run); /* told before; see main_died() */
		return;
	}
	run_end(run, status);
	/* PID 1 takes everything along: without it there is nobody to wait for. */
	if (run->terminated && child_is_alive(&container_of_box(run->run.box)->init))
		container_run_kill(&run->run);
	run_settle(run);
}

static void leaf_ask(struct container_run *run);

static void start_failed(struct container_run *run, int error)
{
	struct container *box = container_of_box(run->run.box);

	leaf_put(run);
	run->run.leaf = run->leaf;
	run->run.started(&run->run, error);
	child_release(&box->init);
}

static void failed_child_ended(struct child *child, int status)
{
	struct container_run *run = container_of(child, struct container_run, main);

	(void)status; /* it failed before its program; run->status holds why */
	start_failed(run, run->status);
}

static bool failure_is_guests(const struct launch_reply *reply)
{
	if (reply->step == LAUNCH_STEP_TTY)
		return reply->error == EDQUOT || reply->error == ENODEV;
	if (reply->step == LAUNCH_STEP_CLONE)
		return reply->flags & LAUNCH_CROWDED;
	return reply->step == LAUNCH_STEP_ARGV0 || reply->step == LAUNCH_STEP_CWD ||
	       reply->step == LAUNCH_STEP_USER;
}

static void start_replied(struct launch_call *call, const struct launch_reply *reply)
{
	struct container_run *run = container_of(call, struct container_run, call);
	struct container *box = container_of_box(run->run.box);
	struct containers *c = containers_of(run->run.box->backend);

	if (!reply) {
		/* It may run without anybody knowing: its leaf is emptied, its death a stray's. */
		run->run.failed_step = "worker";
		run->lost = true;
		leaf_ask(run);
		return;
	}
	if (reply->error == EBUSY && reply->leaf_left && !reply->pid) {
		leaf_put(run);
		run->leaf++; /* that one holds what an earlier exec left running */
		if (leaf_find(run)) {
			leaf_ask(run);
			return;
		}
		run->run.started(&run->run, -EAGAIN);
		child_release(&box->init);
		return;
	}
	box->slot->leaves_made |= 1ull << run->leaf;
	if (reply->error) {
		cleanup_close(&call->reply_fd);
		run->run.failed_step = launch_step_name(reply->step);
		run->run.program_failed = failure_is_guests(reply);
		run->run.failed_limit = reply->limit;
		run->status = -reply->error;
		if (!reply->pid) {
			start_failed(run, -reply->error);
			return;
		}
		run->main.ended = failed_child_ended;
		if (child_watch(&c->children, &run->main, reply->pid, call->sequence))
			child_kill(&run->main);
		return;
	}
	run->run.pid = reply->pid;
	run->ooms_before = reply->oom_kills;
	run->run.box_cpu_us = reply->cpu_us - box->cpu_before_us;
	run->run.tty_fd = take_fd(&call->reply_fd);
	run->main.died = main_died;
	run->main.ended = main_ended;
	run->run.leaf = run->leaf;
	run->run.started(&run->run, 0);
	(void)child_watch(&c->children, &run->main, reply->pid, call->sequence); /* or it ended */
	child_release(&box->init);
}

static void lost_emptied(struct launch_call *call, const struct launch_reply *reply)
{
	struct container_run *run = container_of(call, struct container_run, call);
	struct container *box = container_of_box(run->run.box);

	if (!reply) {
		leaf_ask(run);
		return;
	}
	if (reply->error && reply->error != ENOENT) {
		team_call_later(&containers_of(run->run.box->backend)->team, call);
		return;
	}
	box->slot->leaves_made &= ~(1ull << run->leaf);
	start_failed(run, -EPIPE);
}

/* The program's limits, arguments, environment and working directory. */
static void run_strings(struct container_run *run, struct launch_request *request)
{
	static const char helper[] = "dsec-file\0/";
	const struct run_spec *spec = run->spec;

	if (spec->is_helper) {
		request->flags |= LAUNCH_HELPER;
		request->argument_count = 1;
		request->payload_bytes = sizeof helper;
		run->call.payload = helper;
		return;
	}
	request->argument_count = spec->argument_count;
	request->environment_count = spec->environment_count;
	if (spec->wants_home)
		request->flags |= LAUNCH_HOME;
	for (uint32_t i = 0; i < spec->limit_count; i++)
		run->limits[i] = (struct launch_limit){ spec->limits[i].resource, 0,
							spec->limits[i].soft,
							spec->limits[i].hard };
	request->limit_count = spec->limit_count;
	request->payload_bytes =
		spec->string_bytes + spec->limit_count * (uint32_t)sizeof *run->limits;
	run->call.limits = run->limits;
	run->call.payload = spec->strings;
}

static void run_stdio(struct container_run *run)
{
	const struct run_spec *spec = run->spec;
	struct launch_request *request = &run->call.request;
	int *fds = run->call.fds;

	run->call.takes_descriptor = spec->has_tty;
	if (spec->has_tty) {
		request->flags |= LAUNCH_TTY;
		request->rows = spec->rows;
		request->columns = spec->columns;
		return;
	}
	request->descriptor_count = spec->stdin_fd < 0 ? 2 : 3;
	if (spec->stdin_fd >= 0)
		*fds++ = spec->stdin_fd;
	fds[0] = spec->stdout_fd;
	fds[1] = spec->stderr_fd;
}

/* Ask for the program in run->leaf; or, where a worker was lost with it, for the leaf's end. */
static void leaf_ask(struct container_run *run)
{
	struct container *box = container_of_box(run->run.box);
	struct containers *c = containers_of(run->run.box->backend);
	const struct run_spec *spec = run->spec;
	struct launch_request *request = &run->call.request;

	slot_request(c, box->slot, run->lost ? LAUNCH_KILL : LAUNCH_EXEC, request);
	run->call.done = run->lost ? lost_emptied : start_replied;
	run->call.class = run->lost ? TEAM_END : TEAM_START;
	if (!run->lost) {
		box->leaves_busy |= 1ull << run->leaf;
		if (box->slot->leaves_made & 1ull << run->leaf)
			request->flags |= LAUNCH_LEAF_USED;
		if (box_counts_ooms(run->run.box))
			request->flags |= LAUNCH_OOM;
		if (spec->counts)
			request->flags |= LAUNCH_COUNT;
		if (box->box.spec.limits.sched_idle)
			request->flags |= LAUNCH_SCHED_IDLE;
		request->pid = box->init.pid;
		run_strings(run, request);
		run_stdio(run);
		call_add_walls(&run->call, walls_for_exec(box->box.spec.walls));
		(void)strncpy(request->user, spec->user ? spec->user : "",
			      sizeof request->user - 1);
	}
	request->leaf = run->leaf;
	team_call(run->lost ? &c->team : crews_team(&c->crews, box->box.spec.walls), &run->call);
}

int container_run_start(struct run *base, const struct run_spec *spec)
{
	struct container_run *run = container_run_of(base);
	struct container *box = container_of_box(base->box);

	if (!box->up || !child_is_alive(&box->init))
		return -ESRCH;
	/* Not by started(), which may not be called from inside this. */
	if (!leaf_find(run))
		return -EAGAIN;
	assert(spec->limit_count <= RUN_LIMITS_MAX);
	run->spec = spec;
	run->call.whose = run->kill_call.whose = spec->whose;
	run->oom_call.whose = run->finish_call.whose = spec->whose;
	run->run.tty_fd = -1;
	child_hold(&box->init); /* until it has started or failed */
	governor_begins(node_governor(containers_of(base->box->backend)->options.node),
			containers_of(base->box->backend)->options.shard, box->slot);
	leaf_ask(run);
	return 0;
}
