/*
 * Crews: who starts what a policy's filter binds. Called by the container backend of one shard.
 * Must hold: a crew is known by its filter, instruction by instruction, and by no name or number
 * that could be another policy's later; a crew without workers gets no calls.
 */
#include "backends/container/crews.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/backend.h"
#include "backends/container/container.h"
#include "backends/container/walls.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"

enum {
	CREW_WORKERS_MAX = 3,
	HIRED_AFTER = 16, /* calls within a second: to start a worker costs as much as some */
	YIELDS_MS = 2000, /* idle for so long, another filter may have its place */
	IDLE_MS = 30000,  /* ... and its workers end */
	LOOK_MS = 5000,
	SECOND_MS = 1000,
};

static uint64_t now_of(const struct crews *crews)
{
	return io_now_ns(crews->others->io);
}

static bool idle_for(const struct crew *crew, uint32_t ms)
{
	return now_of(crew->in) - crew->used_ns >= ms * 1000000ull;
}

static void crew_forget(struct crew *crew)
{
	free(crew->filter);
	cleanup_close(&crew->sheet_fd);
	crew->filter = NULL;
	crew->sheet_fd = -1;
	crew->filter_count = crew->expected = crew->asked = 0;
	crew->state = CREW_FREE;
}

/* Its workers end by themselves, with their channels. */
static void crew_dismiss(struct crew *crew)
{
	log_debug("crew ends shard=%u", crew->in->options->shard);
	team_close(&crew->team);
	crew->state = CREW_ENDING;
	crew->expected = 0;
}

static void crew_worker_lost(void *owner)
{
	struct crew *crew = owner;
	const struct backend_options *o = crew->in->options;

	crew->expected++;
	crew->in->lost++;
	if (!team_workers(&crew->team))
		team_pass_on(&crew->team, crew->in->others);
	o->launcher_lost(o->owner);
}

static void crew_worker_stuck(void *owner, int pid)
{
	const struct crew *crew = owner;
	const struct backend_options *o = crew->in->options;

	o->launcher_stuck(o->owner, pid);
}

/* ---- one comes ---- */

/* One that could not bind itself serves all the same: it gives its children the filter. */
static void worker_bound(struct launch_call *call, const struct launch_reply *reply)
{
	if (reply && reply->error)
		log_debug("worker is not bound err=%s", strerrorname_np(reply->error));
	free(call);
}

static struct launch_call *binding_new(const struct crew *crew)
{
	struct launch_call *call = calloc(1, sizeof *call);

	if (!call)
		return NULL;
	call->request = (struct launch_request){ .op = LAUNCH_BIND, .limit_ms = SPAWN_LIMIT_MS };
	call->class = TEAM_START;
	call->done = worker_bound;
	call_add_walls(call, crew->sheet_fd);
	return call;
}

void crews_add(struct crews *crews, int channel_fd, int pid)
{
	for (unsigned i = 0; i < CREWS_MAX; i++) {
		struct crew *crew = &crews->all[i];
		struct launch_call *binding;

		if (crew->state != CREW_HIRED || !crew->expected)
			continue;
		crew->expected--;
		binding = binding_new(crew);
		if (!binding)
			break;
		team_add(&crew->team, channel_fd, pid, binding);
		return;
	}
	(void)close(channel_fd); /* it ends at once */
}

/* ---- which crew ---- */

static bool crew_is_of(const struct crew *crew, const struct sock_filter *filter, uint32_t count)
{
	return (crew->state == CREW_WATCHED || crew->state == CREW_HIRED) &&
	       crew->filter_count == count &&
	       memcmp(crew->filter, filter, count * sizeof *filter) == 0;
}

/* Many that are asked for in turn must not keep each other from being counted to the end. */
static bool watched_in_vain(const struct crew *crew)
{
	return crew->state == CREW_WATCHED &&
	       now_of(crew->in) - crew->since_ns >= SECOND_MS * 1000000ull;
}

/* A place for one more to be watched; NULL: all are of use. */
static struct crew *place_find(struct crews *crews)
{
	struct crew *oldest = NULL, *yields = NULL;

	for (unsigned i = 0; i < CREWS_MAX; i++) {
		struct crew *crew = &crews->all[i];

		if (crew->state == CREW_ENDING && !team_workers(&crew->team))
			crew_forget(crew);
		if (crew->state == CREW_FREE)
			return crew;
		if (watched_in_vain(crew) && (!oldest || crew->used_ns < oldest->used_ns))
			oldest = crew;
		if (crew->state == CREW_HIRED && idle_for(crew, YIELDS_MS) &&
		    team_is_idle(&crew->team))
			yields = crew;
	}
	if (oldest)
		crew_forget(oldest);
	else if (yields)
		crew_dismiss(yields);
	return oldest;
}

static struct crew *crew_watch(struct crews *crews, const struct backend_walls *walls)
{
	const struct sock_filter *filter;
	const uint32_t count = walls_filter(walls, &filter);
	struct crew *crew = place_find(crews);

	if (!crew)
		return NULL;
	crew->filter = malloc(count * sizeof *filter);
	if (!crew->filter)
		return NULL;
	memcpy(crew->filter, filter, count * sizeof *filter);
	crew->filter_count = count;
	crew->state = CREW_WATCHED;
	crew->since_ns = now_of(crews);
	return crew;
}

static void crews_look(struct timer *timer);

static void look_set(struct crews *crews)
{
	crews->look.expired = crews_look;
	if (!timer_is_set(&crews->look)) /* there is room: one timer per shard */
		(void)timer_set(crews->others->timers, &crews->look,
				now_of(crews) + LOOK_MS * 1000000ull);
}

/* Without a descriptor for the sheet it is tried again in a second. */
static void crew_hire(struct crew *crew, const struct backend_walls *walls)
{
	const struct team *others = crew->in->others;
	const struct backend_options *o = crew->in->options;
	const uint32_t count = o->launchers < CREW_WORKERS_MAX ? o->launchers : CREW_WORKERS_MAX;

	crew->sheet_fd = fcntl(walls_for_exec(walls), F_DUPFD_CLOEXEC, 0);
	if (crew->sheet_fd < 0)
		return;
	team_init(&crew->team, others->io, others->timers, others->sequence);
	crew->team.owner = crew;
	crew->team.worker_lost = crew_worker_lost;
	crew->team.worker_stuck = crew_worker_stuck;
	crew->team.here = others->here;
	crew->team.is_moved = others->is_moved;
	crew->state = CREW_HIRED;
	log_debug("crew is hired shard=%u workers=%u", o->shard, count);
	for (crew->expected = 0; crew->expected < count; crew->expected++)
		o->launcher_wanted(o->owner);
	look_set(crew->in);
}

static void crew_count(struct crew *crew, const struct backend_walls *walls)
{
	const uint64_t now_ns = crew->used_ns = now_of(crew->in);

	if (crew->state != CREW_WATCHED)
		return;
	if (now_ns - crew->since_ns >= SECOND_MS * 1000000ull) {
		crew->since_ns = now_ns;
		crew->asked = 0;
	}
	if (++crew->asked == HIRED_AFTER && !crew->in->closing)
		crew_hire(crew, walls);
}

struct team *crews_team(struct crews *crews, const struct backend_walls *walls)
{
	const struct sock_filter *filter;
	const uint32_t count = walls_filter(walls, &filter);
	struct crew *crew = NULL;

	if (!count)
		return crews->others;
	for (unsigned i = 0; i < CREWS_MAX && !crew; i++)
		if (crew_is_of(&crews->all[i], filter, count))
			crew = &crews->all[i];
	if (!crew)
		crew = crew_watch(crews, walls);
	if (!crew)
		return crews->others;
	crew_count(crew, walls);
	return crew->state == CREW_HIRED && team_workers(&crew->team) ? &crew->team : crews->others;
}

/* ---- all of them ---- */

static void crews_look(struct timer *timer)
{
	struct crews *crews = container_of(timer, struct crews, look);
	bool any = false;

	for (unsigned i = 0; i < CREWS_MAX; i++) {
		struct crew *crew = &crews->all[i];

		if (crew->state == CREW_HIRED && idle_for(crew, IDLE_MS) &&
		    team_is_idle(&crew->team))
			crew_dismiss(crew);
		if (crew->state == CREW_ENDING && !team_workers(&crew->team))
			crew_forget(crew);
		any |= crew->state == CREW_HIRED || crew->state == CREW_ENDING;
	}
	if (any)
		look_set(crews);
}

void crews_init(struct crews *crews, struct team *others, const struct backend_options *options)
{
	*crews = (struct crews){ .others = others, .options = options };
	for (unsigned i = 0; i < CREWS_MAX; i++) {
		crews->all[i].in = crews;
		crews->all[i].sheet_fd = -1;
	}
}

void crews_move(struct crews *crews)
{
	const struct team *others = crews->others;

	for (unsigned i = 0; i < CREWS_MAX; i++)
		if (crews->all[i].state == CREW_HIRED)
			team_move(&crews->all[i].team, &others->here, others->is_moved);
}

uint32_t crews_workers(const struct crews *crews)
{
	uint32_t count = 0;

	for (unsigned i = 0; i < CREWS_MAX; i++)
		if (crews->all[i].state >= CREW_HIRED)
			count += team_workers(&crews->all[i].team);
	return count;
}

void crews_close(struct crews *crews)
{
	crews->closing = true;
	timer_clear(crews->others->timers, &crews->look);
	for (unsigned i = 0; i < CREWS_MAX; i++) {
		struct crew *crew = &crews->all[i];

		if (crew->state == CREW_HIRED)
			crew_dismiss(crew);
		if (crew->state == CREW_WATCHED)
			crew_forget(crew);
		free(crew->filter);
		cleanup_close(&crew->sheet_fd);
	}
}
