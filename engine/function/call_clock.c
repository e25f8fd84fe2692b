/*
 * How long a call may run, and take to begin and to end. Called by call.c. CPU time is read from
 * the control group of its set, which nothing that it starts can leave; it is not looked at before
 * all CPUs together could have used it up.
 */
#include <errno.h>

#include "engine/base/cleanup.h"
#include "engine/function/call.h"
#include "engine/function/function.h"
#include "engine/shard.h"

enum { LOOK_NS_MIN = 2000000, LOOK_NS_MAX = 20000000 };

static void clock_expired(struct timer *timer);

/* At this time, or when the clock's limit is over. */
static void clock_set(struct call *call, uint64_t at_ns)
{
	if (at_ns > call->wall_end_ns)
		at_ns = call->wall_end_ns;
	call->clock.expired = clock_expired;
	(void)timer_set(&call->shard->timers, &call->clock, at_ns); /* room for one per call */
}

/*
 * The earliest moment at which so much more could have been used, but no sooner than the pause.
 */
static uint64_t clock_look_ns(const struct call *call, uint64_t cpu_us)
{
	uint64_t ns = cpu_us * 1000 / call->shard->functions.cpus;

	return io_now_ns(call->shard->io) + (ns < call->look_pause_ns ? call->look_pause_ns : ns);
}

/* Who is close to its limit and does not work is looked at less and less often. */
static void look_pause(struct call *call, uint64_t used_us)
{
	const bool works = (used_us - call->looked_us) * 1000 >= call->look_pause_ns / 4;

	call->looked_us = used_us;
	if (works)
		call->look_pause_ns = LOOK_NS_MIN;
	else if (call->look_pause_ns < LOOK_NS_MAX)
		call->look_pause_ns *= 2;
}

static void usage_came(struct box_usage *usage, int error)
{
	struct call_set *set = usage->owner;
	struct call *call = set->call;
	uint64_t used_us, limit_us;

	set->usage_asked = false;
	if (!call || call->clock_is_deadline || call->facts.end)
		return; /* another call's, or too late */
	if (error || usage->cpu_us == UINT64_MAX || usage->cpu_us < set->cpu_us)
		return; /* looked at again */
	used_us = usage->cpu_us - set->cpu_us;
	limit_us = call->function->cpu_ms * 1000ull;
	look_pause(call, used_us);
	if (used_us > limit_us)
		call_end(call, CALL_END_CPU);
	else
		clock_set(call, clock_look_ns(call, limit_us - used_us));
}

static void clock_expired(struct timer *timer)
{
	struct call *call = container_of(timer, struct call, clock);
	struct call_set *set = call->set;

	if (call->clock_is_deadline) {
		call_overdue(call);
		return;
	}
	if (io_now_ns(call->shard->io) >= call->wall_end_ns) {
		call_end(call, CALL_END_WALL);
		return;
	}
	clock_set(call, clock_look_ns(call, 0));
	if (set->usage_asked)
		return;
	set->usage.owner = set;
	set->usage.done = usage_came;
	set->usage_asked = set->box->backend->class->box_usage(set->box, &set->usage) == 0;
}

void call_clock_await(struct call *call, uint32_t seconds)
{
	call->clock_is_deadline = true;
	call->wall_end_ns = io_now_ns(call->shard->io) + seconds * 1000000000ull;
	clock_set(call, UINT64_MAX);
}

void call_clock_start(struct call *call)
{
	const struct function *function = call->function;

	call->clock_is_deadline = false;
	call->look_pause_ns = LOOK_NS_MIN;
	call->wall_end_ns = call->begun_ns + function->wall_ms * 1000000ull;
	clock_set(call,
		  function->cpu_ms ? clock_look_ns(call, function->cpu_ms * 1000ull) : UINT64_MAX);
}

void call_clock_stop(struct call *call)
{
	timer_clear(&call->shard->timers, &call->clock);
}
