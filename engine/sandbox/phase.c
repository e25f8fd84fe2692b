/*
 * The phase op: compare, end what runs, put up the walls of the phase's policy, then it is another
 * phase. Called by request.c, and by execs and operations on files as they end. Must hold: until a
 * move is over nothing begins in the sandbox; a policy that comes keeps all that the one before
 * refused; a move that fails leaves the version as it was, and gives nobody more rights.
 */
#include "engine/sandbox/phase.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/events/news.h"
#include "engine/exec/exec_state.h"
#include "engine/file/file.h"
#include "engine/flows.h"
#include "engine/integrity/integrity.h"
#include "engine/names/resolver.h"
#include "engine/policy/policy_want.h"
#include "engine/request/request.h"
#include "engine/sandbox/network.h"
#include "engine/sandbox/sandbox.h"
#include "engine/sandbox/still.h"
#include "engine/shard.h"
#include "engine/tenant/tenant.h"

/* A killed exec tells by itself that it does not die; whatever else does not go ends the move. */
enum { KILL_LIMIT_MS = 2 * EXEC_KILL_LIMIT_S * 1000 };

/* part->work. */
struct phase_move {
	struct flow flow;
	struct part *part;
	struct sandbox *sandbox; /* on its way from now on; NULL: not yet */
	struct policy_want want; /* of another policy; name "": it keeps its own */
	struct policy *compared; /* used until ready() */
	struct box_clear clear;
	struct box_narrow narrow;
	struct flows_cut cut;
	uint32_t killed;
	bool awaits_ends;
	char name[DSEC_PHASE_NAME_BYTES_MAX + 1];
};

static struct status phase_status(uint16_t code, int error, const char *step, const char *detail)
{
	return (struct status){ .code = code,
				.blame = DSEC_BLAME_CALLER,
				.error = -error,
				.table = "phase",
				.step = step,
				.detail = detail };
}

/* ---- what others ask ---- */

static const char *phase_name(const struct sandbox *sandbox)
{
	return *sandbox->phase.name ? sandbox->phase.name : "none";
}

static struct status phase_conflict(const struct sandbox *sandbox, char ret_detail[80])
{
	(void)snprintf(ret_detail, 80, "it is in phase %.40s, version %llu", phase_name(sandbox),
		       (unsigned long long)sandbox->phase.version); /* fits */
	return phase_status(DSEC_CONFLICT, 0, "version", ret_detail);
}

static struct status phase_refusal(void)
{
	struct status s = status_of_errno(-EAGAIN, "phase", "move");

	s.retry_after_ms = 20;
	s.detail = "it is on its way to another phase";
	return s;
}

struct status phase_admits(const struct sandbox *sandbox, uint64_t version, char ret_detail[80])
{
	if (sandbox->phase.move)
		return phase_refusal();
	if (sandbox->still)
		return still_refusal();
	if (version && version != sandbox->phase.version)
		return phase_conflict(sandbox, ret_detail);
	return STATUS_OK;
}

void phase_done(struct sandbox *sandbox)
{
	while (sandbox->phase.earlier_count)
		policy_put(sandbox->phase.earlier[--sandbox->phase.earlier_count]);
}

/* ---- the end of a move ---- */

struct phased_answer {
	struct dsec_wire_phased body;
	char texts[DSEC_PHASE_NAME_BYTES_MAX + GUARD_POLICY_NAME_MAX];
};

static struct dsec_wire_ref text_add(struct phased_answer *answer, uint32_t *used, const char *text)
{
	struct dsec_wire_ref ref = { *used, (uint32_t)strlen(text) };

	memcpy((char *)answer + *used, text, ref.bytes);
	*used += ref.bytes;
	return ref;
}

static uint32_t answer_write(struct phased_answer *answer, const struct sandbox *sandbox,
			     const struct phase_move *move)
{
	const struct dsec_wire_created settings = sandbox_settings(sandbox);
	uint32_t used = sizeof answer->body;

	answer->body = (struct dsec_wire_phased){
		.size = sizeof answer->body,
		.execs_killed = move->killed,
		.version = sandbox->phase.version,
		.policy = settings.policy,
		.rules_unenforced = settings.rules_unenforced,
		.flows_cut = move->cut.count,
	};
	answer->body.name = text_add(answer, &used, sandbox->phase.name);
	answer->body.policy_name = text_add(answer, &used, sandbox->policy->guard.name);
	return used;
}

/* Told with the phase that the sandbox is in now, if there is one. */
static void move_end(struct phase_move *move, const struct status *status)
{
	struct part *part = move->part;
	struct sandbox *sandbox = move->sandbox ? move->sandbox : sandbox_of(part);
	struct phased_answer answer;
	struct emission e = { .kind = DSEC_EV_DONE,
			      .subject = part->request->entry.subject,
			      .status = *status };

	if (sandbox && sandbox->state == DSEC_STATE_RUNNING) {
		e.bytes = answer_write(&answer, sandbox, move);
		e.body = &answer;
	}
	sandbox = move->sandbox;
	if (move->compared)
		policy_put(move->compared);
	if (move->want.policy)
		policy_put(move->want.policy);
	part->work = NULL;
	free(move);
	part_end(part, NULL, &e);
	if (!sandbox)
		return;
	sandbox->phase.move = NULL;
	sandbox_move_over(sandbox); /* it may be gone afterwards */
}

static bool brings_policy(const struct phase_move *move)
{
	return move->want.policy && move->want.policy != move->sandbox->policy;
}

static bool takes_network(const struct phase_move *move)
{
	return brings_policy(move) && move->want.policy->network == POLICY_NETWORK_NONE &&
	       move->sandbox->network != DSEC_NETWORK_NONE;
}

static void move_commit(struct phase_move *move)
{
	struct sandbox *sandbox = move->sandbox;
	struct sandbox_phase *phase = &sandbox->phase;

	integrity_settle(sandbox); /* what was told so far was of the old one */
	if (takes_network(move)) {
		sandbox->network = DSEC_NETWORK_NONE;
		sandbox->network_why = DSEC_NETWORK_WHY_POLICY;
		forwards_end(sandbox);
	}
	if (brings_policy(move)) {
		phase->earlier[phase->earlier_count++] = sandbox->policy;
		sandbox->policy = move->want.policy;
		move->want.policy = NULL;
		resolver_narrowed(sandbox);
	}
	phase->version++;
	memcpy(phase->name, move->name, sizeof phase->name);
	news_of_sandbox(sandbox, DSEC_TOPIC_PHASE);
	log_info("sandbox phase id=%u.%llx name=\"%s\" version=%llu killed=%u",
		 sandbox->shard->number, (unsigned long long)sandbox->id.lo, phase->name,
		 (unsigned long long)phase->version, move->killed);
}

static struct status move_failed(const struct phase_move *move, int error)
{
	struct status s = status_of_errno(error, "phase", move->flow.failed_step);

	if (move->sandbox->state != DSEC_STATE_RUNNING || error == -ESRCH)
		return status_absent();
	if (error == -EOPNOTSUPP) {
		s.code = DSEC_UNSUPPORTED;
		s.blame = DSEC_BLAME_CALLER;
		s.detail =
			move->cut.shard ?
				"this kernel has no iterators that end sockets: kill-old does it" :
				"nothing on this host takes a network away: network.mode none";
	} else if (error == -EBUSY || error == -ETIMEDOUT) {
		s.detail = "something was killed and does not die; it is in the phase before";
	}
	return s;
}

static void move_done(struct flow *f, int error)
{
	struct phase_move *move = container_of(f, struct phase_move, flow);
	struct status s = STATUS_OK;

	if (!error && move->sandbox->state != DSEC_STATE_RUNNING)
		error = -ESRCH;
	if (error)
		s = move_failed(move, error);
	else
		move_commit(move);
	move_end(move, &s);
}

/* ---- step "kill": execs and operations on files of the old phase end ---- */

static bool kills(const struct phase_move *move)
{
	return move->part->request->body.phase.flags & DSEC_PHASE_KILL_OLD;
}

static bool sandbox_is_quiet(const struct sandbox *sandbox)
{
	return !sandbox->exec_count && !sandbox->file_count;
}

static int kill_old(struct flow *f)
{
	struct phase_move *move = container_of(f, struct phase_move, flow);
	struct sandbox *sandbox = move->sandbox;
	const struct status over =
		phase_status(DSEC_CONFLICT, 0, "over", "it ended with its phase");

	if (!kills(move))
		return FLOW_NEXT;
	move->killed = sandbox->exec_count + sandbox->file_count;
	files_end(sandbox, &over);
	for (struct exec *exec = sandbox->execs; exec; exec = exec->next) {
		if (exec->is_undying)
			return -EBUSY;
		exec_end_with_phase(exec);
	}
	if (sandbox_is_quiet(sandbox))
		return FLOW_NEXT;
	move->awaits_ends = true;
	return FLOW_WAIT;
}

static void ends_awaited(struct phase_move *move, int error)
{
	if (!move || !move->awaits_ends)
		return;
	move->awaits_ends = false;
	flow_resume(&move->flow, error);
}

void phase_ended_one(struct sandbox *sandbox)
{
	if (sandbox_is_quiet(sandbox))
		ends_awaited(sandbox->phase.move,
			     sandbox->state == DSEC_STATE_RUNNING ? 0 : -ESRCH);
}

void phase_overdue(struct sandbox *sandbox)
{
	ends_awaited(sandbox->phase.move, sandbox->state == DSEC_STATE_RUNNING ? -EBUSY : -ESRCH);
}

/* ---- step "leaves": whatever execs left running ---- */

static void leaves_cleared(struct box_clear *clear, int error)
{
	flow_resume(&container_of(clear, struct phase_move, clear)->flow, error);
}

static int clear_leaves(struct flow *f)
{
	struct phase_move *move = container_of(f, struct phase_move, flow);
	struct box *box = move->sandbox->box;
	int r;

	if (!kills(move))
		return FLOW_NEXT;
	move->clear.done = leaves_cleared;
	r = box->backend->class->box_clear(box, &move->clear);
	return r < 0 ? r : r ? FLOW_NEXT : FLOW_WAIT;
}

/* ---- step "walls": for what begins from here on; mounts for all ---- */

static void walls_stand(struct box_narrow *narrow, int error)
{
	flow_resume(&container_of(narrow, struct phase_move, narrow)->flow, error);
}

static int put_up_walls(struct flow *f)
{
	struct phase_move *move = container_of(f, struct phase_move, flow);
	struct box *box = move->sandbox->box;
	int r;

	if (!brings_policy(move))
		return FLOW_NEXT;
	move->narrow.walls = move->want.policy->walls;
	move->narrow.policy = policy_number_held(move->want.policy);
	move->narrow.version = (uint32_t)move->sandbox->phase.version + 1;
	move->narrow.takes_network = takes_network(move);
	move->narrow.done = walls_stand;
	r = box->backend->class->box_narrow(box, &move->narrow);
	return r < 0 ? r : FLOW_WAIT;
}

/* ---- step "flows": those of what runs on, and of ports ---- */

static void flows_are_cut(struct flows_cut *cut, int error)
{
	flow_resume(&container_of(cut, struct phase_move, cut)->flow, error);
}

static int cut_flows(struct flow *f)
{
	struct phase_move *move = container_of(f, struct phase_move, flow);
	struct box *box = move->sandbox->box;
	int r;

	if (!(move->part->request->body.phase.flags & DSEC_PHASE_CUT_FLOWS))
		return FLOW_NEXT;
	r = box->backend->class->box_network(box, &move->cut.sockets);
	if (r < 0) /* without a network there are no flows */
		return r == -ENOENT ? FLOW_NEXT : r;
	move->cut.shard = move->sandbox->shard;
	move->cut.done = flows_are_cut;
	flows_cut(&move->cut);
	return FLOW_WAIT;
}

/* ---- step "version": what the kernel refuses from here on is told with it ---- */

static int tell_version(struct flow *f)
{
	struct phase_move *move = container_of(f, struct phase_move, flow);
	struct box *box = move->sandbox->box;
	int r;

	if (brings_policy(move)) /* told with it */
		return FLOW_NEXT;
	r = box->backend->class->box_phase(box, (uint32_t)move->sandbox->phase.version + 1);
	return r < 0 ? r : FLOW_NEXT;
}

/* clang-format off */
static const struct flow_step phase_steps[] = {
	/* name      start         finish undo  limit_ms */
	{ "kill",    kill_old,     NULL,  NULL, KILL_LIMIT_MS },
	{ "leaves",  clear_leaves, NULL,  NULL, 0 },
	{ "walls",   put_up_walls, NULL,  NULL, 0 },
	{ "flows",   cut_flows,    NULL,  NULL, 0 },
	{ "version", tell_version, NULL,  NULL, 0 },
};
/* clang-format on */

/* The others end by themselves, within limits of their own. */
static void move_cancel(struct flow *f)
{
	ends_awaited(container_of(f, struct phase_move, flow), -ETIMEDOUT);
}

static void move_go(struct phase_move *move, struct sandbox *sandbox)
{
	move->sandbox = sandbox;
	sandbox->phase.move = move;
	flow_init(&move->flow, &sandbox->shard->host, "phase", phase_steps,
		  sizeof phase_steps / sizeof phase_steps[0]);
	move->flow.done = move_done;
	move->flow.cancel = move_cancel;
	flow_build(&move->flow);
}

/* ---- its policy ---- */

static struct status network_narrows(const struct sandbox *sandbox, const struct policy *policy)
{
	if (policy->network != POLICY_NETWORK_NONE &&
	    network_fits(policy, sandbox->network).code != DSEC_OK)
		return phase_status(DSEC_DENIED, 0, "policy",
				    "network.mode: the network it has cannot be made another");
	if (policy->network == POLICY_NETWORK_NONE && sandbox->network != DSEC_NETWORK_NONE &&
	    !sandbox->shard->node->guard)
		return status_unsupported("phase", "policy",
					  "network.mode none: without BPF nothing takes a network "
					  "away");
	return STATUS_OK;
}

static struct status policy_fits(struct phase_move *move, const struct sandbox *sandbox)
{
	const struct policy *policy = move->want.policy, *wider = sandbox->policy;
	const uint32_t flags = move->part->request->body.phase.flags;

	if (policy == wider)
		return STATUS_OK;
	if (move->want.unheld < 0)
		return policy_unheld(&move->want, "phase", move->part->detail);
	if (move->want.lacks) {
		(void)snprintf(move->part->detail, sizeof move->part->detail, "%.24s lacks %.47s",
			       policy->guard.name, wider->rules[move->want.lacks - 1].label);
		return phase_status(DSEC_DENIED, 0, "policy", move->part->detail);
	}
	if (policy->network > wider->network || move->want.goes_further)
		return phase_status(DSEC_DENIED, 0, "policy",
				    "it lets more network through than the one before");
	if (sandbox->phase.earlier_count == PHASE_POLICIES_MAX)
		return phase_status(DSEC_CONFLICT, 0, "policies_max",
				    "it has had 8 other policies: give it no more");
	if (policy->unmet && !(flags & DSEC_PHASE_ALLOW_DEGRADED))
		return policy_unmet(policy, "phase", move->part->detail);
	return network_narrows(sandbox, policy);
}

/* The sandbox as it is now may go. */
static struct status sandbox_fits(const struct phase_move *move, struct sandbox **ret)
{
	const struct dsec_wire_phase *wish = &move->part->request->body.phase;
	struct sandbox *sandbox = *ret = sandbox_of(move->part);

	if (!sandbox || sandbox->state != DSEC_STATE_RUNNING)
		return status_absent();
	return phase_admits(sandbox, wish->version, move->part->detail);
}

static void policy_ready(struct policy_want *want, int result)
{
	struct phase_move *move = container_of(want, struct phase_move, want);
	struct sandbox *sandbox;
	struct status s = sandbox_fits(move, &sandbox);

	if (!s.code && result == -EINVAL)
		s = phase_status(DSEC_INVALID, result, "policy", "1 to 63 of a-z 0-9 and - inside");
	else if (!s.code && result < 0)
		s = phase_status(DSEC_ABSENT, result, "policy", "no such policy");
	else if (!s.code && sandbox->policy != move->compared)
		s = phase_refusal(); /* another move came first */
	else if (!s.code)
		s = policy_fits(move, sandbox);
	if (s.code)
		move_end(move, &s);
	else
		move_go(move, sandbox);
}

/* ---- the op ---- */

/* What the sandbox's first policy says of its phases. */
static struct status policy_choose(struct phase_move *move, const struct sandbox *sandbox)
{
	const struct sandbox_phase *phase = &sandbox->phase;
	const struct policy *first = phase->earlier_count ? phase->earlier[0] : sandbox->policy;

	if (*move->want.name)
		return STATUS_OK;
	for (uint32_t i = 0; i < first->phase_count; i++) {
		if (strcmp(first->phases[i].name, move->name) != 0)
			continue;
		(void)snprintf(move->want.name, sizeof move->want.name, "%s",
			       first->phases[i].policy); /* fits */
		return STATUS_OK;
	}
	if (!first->phase_count)
		return STATUS_OK;
	(void)snprintf(move->part->detail, sizeof move->part->detail,
		       "%.24s has no phase %.24s: name a policy", first->guard.name, move->name);
	return phase_status(DSEC_INVALID, -EINVAL, "name", move->part->detail);
}

static struct status move_check(struct phase_move *move)
{
	const struct request *request = move->part->request;
	const struct dsec_wire_phase *wish = &request->body.phase;
	int r;

	if (wish->flags & ~(uint32_t)DSEC_PHASE_FLAGS_KNOWN)
		return phase_status(DSEC_INVALID, -EINVAL, "flags", NULL);
	if (!wire_is_zero(wish->reserved, sizeof wish->reserved))
		return phase_status(DSEC_INVALID, -EINVAL, "reserved", NULL);
	r = wire_string(&request->payload, wish->name, move->name, sizeof move->name);
	if (r < 0 || !policy_name_is_good(move->name))
		return phase_status(DSEC_INVALID, r < 0 ? r : -EINVAL, "name",
				    "1 to 63 of a-z 0-9 and - inside");
	r = wire_string(&request->payload, wish->policy, move->want.name, sizeof move->want.name);
	if (r < 0)
		return phase_status(DSEC_INVALID, r, "policy", "a name, at most 63 bytes");
	return STATUS_OK;
}

static void policy_ask(struct phase_move *move, struct sandbox *sandbox)
{
	int r;

	move->compared = sandbox->policy;
	policy_use(move->compared);
	move->want.shard = sandbox->shard;
	move->want.tenant = move->part->request->tenant->index;
	move->want.wider = move->compared;
	move->want.ready = policy_ready;
	r = policy_get(&move->want);
	if (r != -EAGAIN)
		policy_ready(&move->want, r);
}

void phase_part(struct part *part)
{
	struct phase_move *move = calloc(1, sizeof *move);
	struct sandbox *sandbox = NULL;
	struct status s;

	if (!move) {
		s = status_of_errno(-ENOMEM, "phase", "request");
		part_end(part, &s, NULL);
		return;
	}
	move->part = part;
	part->work = move;
	s = move_check(move);
	if (!s.code)
		s = sandbox_fits(move, &sandbox);
	if (!s.code)
		s = policy_choose(move, sandbox);
	if (s.code)
		move_end(move, &s);
	else if (*move->want.name)
		policy_ask(move, sandbox);
	else
		move_go(move, sandbox);
}
