/*
 * Sets of namespaces for calls. Called by call.c and call_queue.c. Must hold: a set serves one
 * function only, so that nothing passes from one tenant to another; one that was not proven clean
 * is never used again. There are at most CALL_SETS_PER_SHARD_MAX of them, whatever happens.
 */
#include "engine/function/call_set.h"

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/function/call.h"
#include "engine/function/function.h"
#include "engine/image/image.h"
#include "engine/policy/policies.h"
#include "engine/request/request.h"
#include "engine/shard.h"

static void set_expired(struct timer *timer);
static void set_end(struct call_set *set);

/* Room for one timer per set. */
static void set_deadline(struct call_set *set, uint64_t ms)
{
	(void)timer_set(&set->shard->timers, &set->timer,
			io_now_ns(set->shard->io) + ms * 1000000ull);
}

static void set_free(struct call_set *set)
{
	struct shard *shard = set->shard;
	struct function *function = set->function;

	timer_clear(&shard->timers, &set->timer);
	shard->quarantined -= set->quarantined;
	shard->backend->class->box_free(set->box);
	pool_put(&shard->functions.sets, set);
	function->sets--;
	function_settle(function);
	calls_pump(shard);
	shard_check_stopped(shard);
}

/* ---- idle ones ---- */

static void idle_add(struct call_set *set)
{
	struct functions *all = &set->shard->functions;

	set->state = CALL_SET_IDLE;
	set->next = set->function->idle;
	set->function->idle = set;
	set->colder = all->warmest;
	set->warmer = NULL;
	if (all->warmest)
		all->warmest->warmer = set;
	else
		all->coldest = set;
	all->warmest = set;
	set_deadline(set, CALL_SET_IDLE_MS);
}

static void idle_remove(struct call_set *set)
{
	struct functions *all = &set->shard->functions;
	struct call_set **link = &set->function->idle;

	while (*link != set)
		link = &(*link)->next;
	*link = set->next;
	if (set->colder)
		set->colder->warmer = set->warmer;
	else
		all->coldest = set->warmer;
	if (set->warmer)
		set->warmer->colder = set->colder;
	else
		all->warmest = set->colder;
	set->next = set->colder = set->warmer = NULL;
	timer_clear(&set->shard->timers, &set->timer);
}

struct call_set *call_set_idle(struct function *function)
{
	struct call_set *set = function->idle;

	if (!set)
		return NULL;
	idle_remove(set);
	set->state = CALL_SET_BUSY;
	return set;
}

void call_sets_drop(struct function *function)
{
	while (function->idle) {
		struct call_set *set = function->idle;

		idle_remove(set);
		set_end(set);
	}
}

bool call_set_has_room(struct shard *shard)
{
	struct functions *all = &shard->functions;
	struct call_set *coldest = all->coldest;

	if (all->sets.free_count)
		return true;
	if (coldest) {
		idle_remove(coldest);
		set_end(coldest);
	}
	return false;
}

/* ---- the end ---- */

static void set_gone(struct box *box)
{
	set_free(box->owner);
}

static void set_end(struct call_set *set)
{
	set->state = CALL_SET_ENDING;
	set->call = NULL;
	set_deadline(set, DESTROY_LIMIT_S * 1000ull);
	set->shard->backend->class->box_unwind(set->box);
}

/* An ending one does not end: what can be is tried again, for ever. */
static void set_overdue(struct call_set *set)
{
	struct shard *shard = set->shard;

	if (!set->quarantined)
		log_error("set of function \"%s\" does not end, trying again", set->function->name);
	call_set_spoil(set);
	shard->backend->class->box_retry(set->box);
	set_deadline(set, QUARANTINE_RETRY_S * 1000ull);
}

void call_set_spoil(struct call_set *set)
{
	set->shard->quarantined += !set->quarantined;
	set->quarantined = true;
}

static void set_expired(struct timer *timer)
{
	struct call_set *set = container_of(timer, struct call_set, timer);

	if (set->state == CALL_SET_ENDING) {
		set_overdue(set);
		return;
	}
	idle_remove(set);
	set_end(set);
}

void call_set_give(struct call_set *set, bool clean)
{
	set->call = NULL;
	if (clean && !set->dead && !set->quarantined && !set->function->removed &&
	    !set->shard->stopping && ++set->uses < CALL_SET_USES_MAX)
		idle_add(set);
	else
		set_end(set);
}

/* ---- the beginning ---- */

static void set_died(struct box *box, int status)
{
	struct call_set *set = box->owner;

	(void)status; /* the call's program went with it, and says so */
	set->dead = true;
	if (set->state != CALL_SET_IDLE)
		return;
	idle_remove(set);
	set_end(set);
}

static void set_built(struct box *box, int error)
{
	struct call_set *set = box->owner;
	struct call *call = set->call;

	if (error) {
		call->failed_step = box->failed_step;
		set_free(set);
	} else {
		set->state = CALL_SET_BUSY;
		box->died = set_died;
		box->gone = set_gone;
	}
	call_set_built(call, error);
}

struct call_set *call_set_new(struct call *call)
{
	struct function *function = call->function;
	struct shard *shard = function->shard;
	struct call_set *set = pool_take(&shard->functions.sets);

	if (!set)
		return NULL;
	set->box = shard->backend->class->box_new(shard->backend);
	if (!set->box) {
		pool_put(&shard->functions.sets, set);
		return NULL;
	}
	set->shard = shard;
	set->function = function;
	set->call = call;
	set->timer.expired = set_expired;
	function->sets++;
	set->box->owner = set;
	set->box->built = set_built;
	set->box->spec = (struct box_spec){
		.id_hi = function->id.hi,
		.id_lo = function->id.lo,
		.whose = call->invocation->part->request->client,
		.image = function->image->number,
		.walls = function->policy ? function->policy->walls : NULL,
		.policy = function->policy ? policy_number_held(function->policy) : 0,
		.limits = function->limits,
		.disk_bytes = function->disk_bytes,
		.hostname = "function",
	};
	shard->backend->class->box_build(set->box);
	return set;
}
