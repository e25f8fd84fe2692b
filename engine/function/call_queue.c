/*
 * The invoke op: inputs wait by function, and functions that wait take turns. Called by request.c,
 * and whenever there may be room. Must hold: every input is answered once, called, refused or
 * cancelled; what waits is bounded by function, what runs by shard; no more calls begin for a
 * request than its client has room for answers.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/base/cleanup.h"
#include "engine/function/call.h"
#include "engine/function/function.h"
#include "engine/request/request.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"

enum {
	CREDIT = 16, /* calls of a request between two looks at its client's room */
	REFUSALS_PER_TURN = 64,
	RETRY_MS_MIN = 10,
	RETRY_MS_MAX = 5000,
	MEAN_SHARE = 8, /* the newest call's of the mean: 1/8 */
};

/* ---- who waits ---- */

static void function_wait(struct function *function)
{
	struct functions *all = &function->shard->functions;

	if (function->is_waiting)
		return;
	function->is_waiting = true;
	function->next_waiting = NULL;
	*all->waiting_last = function;
	all->waiting_last = &function->next_waiting;
	all->waiting_count++;
}

/* The one whose turn it is. */
static struct function *function_turn(struct functions *all)
{
	struct function *function = all->waiting;

	all->waiting = function->next_waiting;
	if (!all->waiting)
		all->waiting_last = &all->waiting;
	all->waiting_count--;
	function->is_waiting = false;
	return function;
}

static void queue_add(struct invocation *invocation)
{
	struct function *function = invocation->function;

	invocation->is_queued = true;
	invocation->next = NULL;
	*function->last = invocation;
	function->last = &invocation->next;
	function_wait(function);
}

static void queue_remove(struct invocation *invocation)
{
	struct function *function = invocation->function;
	struct invocation **link = &function->first;

	if (!invocation->is_queued)
		return;
	invocation->is_queued = false;
	while (*link != invocation)
		link = &(*link)->next;
	*link = invocation->next;
	if (!*link)
		function->last = link;
}

/* One input of the first that waits. */
static void function_begin(struct function *function)
{
	struct invocation *invocation = function->first;

	queue_remove(invocation);
	invocation->left--;
	invocation->running++;
	invocation->credit--;
	function->waiting--;
	if (invocation->left && invocation->credit)
		queue_add(invocation); /* behind the others */
	else if (function->first)
		function_wait(function);
	(void)quota_take(function->tenancy, QUOTA_CALLS, 1); /* there is: function_may_begin() */
	call_begin(invocation);
}

/* Its tenant leaves others their part, and it leaves its tenant's others a quarter. */
static bool function_may_begin(const struct function *function)
{
	const uint32_t max = function->tenancy->max[QUOTA_CALLS];

	return quota_has(function->tenancy, QUOTA_CALLS) && function->running < max - max / 4;
}

void calls_pump(struct shard *shard)
{
	struct functions *all = &shard->functions;
	uint32_t misses = 0;

	if (all->pumping || shard->stopping)
		return;
	all->pumping = true;
	while (all->waiting && all->calls.free_count && misses < all->waiting_count) {
		struct function *function = function_turn(all);

		if (!function->first) {
			function_settle(function); /* cancelled meanwhile */
		} else if (function_may_begin(function) &&
			   (function->idle || call_set_has_room(shard))) {
			misses = 0;
			function_begin(function);
		} else {
			misses++;
			function_wait(function);
		}
	}
	all->pumping = false;
}

/* ---- one request's share ---- */

static bool is_single(const struct invocation *invocation)
{
	return invocation->part->request->body.invoke.inputs.count == 1;
}

static void invocation_end(struct invocation *invocation, const struct emission *final)
{
	struct part *part = invocation->part;
	struct function *function = invocation->function;

	part->work = NULL;
	free(invocation);
	part_end(part, NULL, final);
	function->invocations--;
	function_settle(function);
}

static void invocation_step(struct invocation *invocation);

static void invocation_again(struct mail *mail, void *owner)
{
	struct invocation *invocation = container_of(mail, struct part, mail)->work;

	(void)owner; /* part->shard */
	invocation->is_resting = false;
	if (!invocation->credit)
		invocation->credit = CREDIT;
	invocation_step(invocation);
	calls_pump(owner);
}

static struct status status_dropped(const struct invocation *invocation)
{
	const struct function *function = invocation->function;
	struct status s = status_of_errno(-EAGAIN, "function", "calls_waiting_max");
	uint64_t ms;

	if (invocation->part->cancelled)
		return status_of_errno(-ECANCELED, "call", "cancel");
	ms = function->waiting * function->wall_mean_us / 1000 / CALLS_PER_SHARD_MAX;
	s.retry_after_ms = ms < RETRY_MS_MIN ? RETRY_MS_MIN :
			   ms > RETRY_MS_MAX ? RETRY_MS_MAX :
					       (uint32_t)ms;
	return s;
}

/* Those that are not called, from the last one on: a cancel adds what comes before them. */
static void invocation_drop(struct invocation *invocation)
{
	struct part *part = invocation->part;
	struct emission e = { .kind = DSEC_EV_DONE,
			      .subject = invocation->function->id,
			      .status = status_dropped(invocation) };

	for (int i = 0; invocation->dropped && i < REFUSALS_PER_TURN; i++) {
		invocation->dropped--;
		do
			invocation->end--;
		while (claim_has_called(part->request, invocation->end));
		e.index = (uint16_t)invocation->end;
		if (!part->cancelled)
			tenancy_of(part)->stats.refused++;
		part_emit(part, &e);
	}
}

static void invocation_step(struct invocation *invocation)
{
	struct part *part = invocation->part;

	if (is_single(invocation) && invocation->dropped) {
		struct emission e = { .kind = DSEC_EV_DONE,
				      .subject = invocation->function->id,
				      .status = status_dropped(invocation) };

		invocation_end(invocation, &e);
		return;
	}
	if (invocation->is_resting)
		return;
	invocation_drop(invocation);
	if (invocation->left && invocation->credit && !invocation->is_queued)
		queue_add(invocation);
	if (invocation->dropped || (invocation->left && !invocation->credit)) {
		invocation->is_resting = true;
		part_again_with_room(part, invocation_again);
	} else if (!invocation->left && !invocation->running) {
		if (part->cancelled) {
			struct status s = status_dropped(invocation);

			status_merge(&part->status, &s);
		}
		invocation_end(invocation, NULL);
	}
}

static void input_take(struct invocation *invocation, struct dsec_wire_ref *ret)
{
	const struct request *request = invocation->part->request;

	/* The list was checked as a whole. */
	(void)wire_next(&request->payload, &request->body.invoke.inputs, &invocation->cursor, ret);
	invocation->index++;
}

uint32_t invocation_next(struct invocation *invocation, struct dsec_wire_ref *ret)
{
	while (claim_has_called(invocation->part->request, invocation->index))
		input_take(invocation, ret);
	input_take(invocation, ret);
	return invocation->index - 1;
}

/* Of its share; those before it that have their verdict are none. */
static uint32_t inputs_uncalled(const struct part *part)
{
	uint32_t count = part->count;

	if (!part->request->claim.called)
		return count; /* and whatever it says is not checked yet */
	for (uint32_t i = 0; i < part->count; i++)
		count -= claim_has_called(part->request, part->first + i);
	return count;
}

void invocation_called(struct invocation *invocation, const struct emission *done)
{
	invocation->running--;
	if (is_single(invocation)) {
		invocation_end(invocation, done);
		return;
	}
	part_emit(invocation->part, done);
	invocation_step(invocation);
}

void function_took(struct function *function, uint64_t wall_ns)
{
	const int64_t mean = (int64_t)function->wall_mean_us, now = (int64_t)(wall_ns / 1000);

	function->wall_mean_us = (uint64_t)(mean ? mean + (now - mean) / MEAN_SHARE : now);
}

/* ---- the op ---- */

static struct status invoke_invalid(const char *field, const char *detail)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = EINVAL,
				.table = "invoke",
				.step = field,
				.detail = detail };
}

static struct status invoke_check(struct part *part, struct function **ret)
{
	const struct request *request = part->request;
	const struct dsec_wire_invoke *wish = &request->body.invoke;

	if (wish->flags)
		return invoke_invalid("flags", "unknown flag");
	if (!wire_is_zero(wish->reserved, sizeof wish->reserved))
		return invoke_invalid("reserved", NULL);
	if (!wish->inputs.count || wish->inputs.count > DSEC_INVOKE_INPUTS_MAX)
		return invoke_invalid("inputs", "from 1 to 1,024; one that is empty is one");
	if (wire_items_check(&request->payload, &wish->inputs) < 0)
		return invoke_invalid("inputs", NULL);
	*ret = function_of(part);
	if (!*ret || (*ret)->removed)
		return (struct status){ .code = DSEC_ABSENT,
					.blame = DSEC_BLAME_CALLER,
					.table = "invoke",
					.step = "function",
					.detail = "no such function, or it was removed" };
	if (part->cancelled || part->shard->stopping)
		return status_of_errno(-ECANCELED, "invoke", "cancel");
	return STATUS_OK;
}

void invoke_part(struct part *part)
{
	struct function *function = NULL;
	struct status s = invoke_check(part, &function);
	struct dsec_wire_ref passed;
	struct invocation *invocation;
	uint32_t room, count = inputs_uncalled(part);

	if (s.code || !count) {
		part_end(part, &s, NULL);
		return;
	}
	invocation = calloc(1, sizeof *invocation);
	if (!invocation) {
		s = status_of_errno(-ENOMEM, "invoke", "request");
		part_end(part, &s, NULL);
		return;
	}
	part->work = invocation;
	invocation->part = part;
	invocation->function = function;
	invocation->credit = CREDIT;
	function->invocations++;
	while (invocation->index < part->first)
		input_take(invocation, &passed);
	room = function->waiting < CALLS_WAITING_MAX ? CALLS_WAITING_MAX - function->waiting : 0;
	invocation->left = count < room ? count : room;
	invocation->dropped = count - invocation->left;
	invocation->end = part->first + part->count;
	function->waiting += invocation->left;
	invocation_step(invocation);
	calls_pump(part->shard);
}

/* What waits is not called; what runs is killed, and told when that has ended. */
void invoke_part_cancel(struct part *part)
{
	struct invocation *invocation = part->work;
	struct pool *calls = &part->shard->functions.calls;

	if (!invocation)
		return;
	queue_remove(invocation);
	invocation->function->waiting -= invocation->left;
	invocation->dropped += invocation->left;
	invocation->left = 0;
	for (uint32_t i = 0; i < calls->count; i++) {
		struct call *call = pool_at(calls, i);

		if (call && call->invocation == invocation)
			call_end(call, CALL_END_CANCEL);
	}
	invocation_step(invocation);
}
