/*
 * A shard's loop: take requests, wake clients, wait for completions, run what they call, expire
 * timers; and its mail, and how it comes to its end. Called by the shard's thread, and by
 * simulations in its place.
 */
#include "engine/shard.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/client/channel.h"
#include "engine/client/client.h"
#include "engine/control.h"
#include "engine/sandbox/sandbox.h"
#include "engine/tenant/tenancy.h"

/* Of a turn: BEGIN_NS for beginnings of requests, and so many timers. */
enum { BACKLOG_POLL_NS = 1000000, BEGIN_NS = 100000, TIMERS_PER_TURN = 16 };

/* ---- mail to itself ---- */

void shard_send(struct shard *from, struct shard *to, struct mail *mail)
{
	if (from != to) {
		mail_send(from->io, to->io, mail);
		return;
	}
	mail->next = NULL;
	*from->local_last = mail;
	from->local_last = &mail->next;
}

/*
 * What a delivery sends to this shard again waits for the next pass. None may stay for longer: that
 * a connection has ended must be known before other shards answer for it.
 */
static void shard_deliver_local(struct shard *shard)
{
	struct mail *mail = shard->local;

	shard->local = NULL;
	shard->local_last = &shard->local;
	while (mail) {
		struct mail *next = mail->next;
		const uintptr_t deliver = (uintptr_t)mail->deliver;

		mail->deliver(mail, shard);
		(void)io_account(shard->io, deliver);
		mail = next;
	}
}

void shard_begin(struct shard *shard, struct walk_turn *walk, uint64_t client)
{
	turns_add(&shard->begins, &walk->turn, client);
}

/* Whose turn it is; NULL: nobody waits. */
static struct mail *mail_in_turn(struct turns *turns)
{
	struct turn *turn = turns_take(turns);

	return turn ? container_of(turn, struct walk_turn, turn)->mail : NULL;
}

/* A client may have a ring full of the longest ones: when they took their time, a turn goes by. */
static void shard_begin_some(struct shard *shard)
{
	const uint64_t until_ns = io_clock_ns(shard->io) + BEGIN_NS;
	uint64_t now_ns = 0;
	struct mail *mail;

	while (now_ns <= until_ns && (mail = mail_in_turn(&shard->begins))) {
		const uintptr_t deliver = (uintptr_t)mail->deliver;

		mail->deliver(mail, shard);
		now_ns = io_account(shard->io, deliver);
	}
}

void shard_walk(struct shard *shard, struct walk_turn *walk, uint64_t client)
{
	turns_add(&shard->walks, &walk->turn, client);
}

static void shard_walk_on(struct shard *shard)
{
	struct mail *mail = mail_in_turn(&shard->walks);

	if (mail)
		mail->deliver(mail, shard);
}

/* ---- the loop ---- */

static uint64_t shard_wait_until(struct shard *shard, bool more)
{
	uint64_t until = timers_next(&shard->timers), rested = priority_until_ns(&shard->priority);

	/* Mail to itself is looked at last: channels_rest() sends some. */
	if (more || shard->walks.count || channels_rest(shard) || shard->local ||
	    shard->begins.count)
		return 0;
	if (until > rested)
		until = rested;
	/* A client that makes room in its rings need not tell: look again soon. */
	if (shard->backlogged && until > io_now_ns(shard->io) + BACKLOG_POLL_NS)
		until = io_now_ns(shard->io) + BACKLOG_POLL_NS;
	return until;
}

/* A callback over 1 ms is a bug of ours: say where, for addr2line(1). */
static void shard_watch(struct shard *shard)
{
	extern const char __executable_start;
	const struct io_stats *stats = io_stats(shard->io);

	if (stats->callbacks_over_1ms == shard->slow_seen)
		return;
	shard->slow_seen = stats->callbacks_over_1ms;
	log_warning("callback slow shard=%u took_us=%llu at=dsecd+0x%llx", shard->number,
		    (unsigned long long)stats->slow_ns / 1000,
		    (unsigned long long)(stats->slow_address - (uintptr_t)&__executable_start));
}

static void shard_turn_failed(const struct shard *shard, int error)
{
	log_error("shard loop failed shard=%u err=%s", shard->number, strerror(-error));
	if (error == -EBADR)
		abort(); /* the kernel lost completions: only another engine can know the truth */
	(void)sched_yield(); /* whatever it is, it must not eat the CPU */
}

void shard_turn(struct shard *shard)
{
	bool more = channels_drain(shard);
	int r;

	(void)io_account(shard->io, (uintptr_t)channels_drain);
	shard_deliver_local(shard);
	shard_begin_some(shard);
	shard_walk_on(shard);
	(void)io_account(shard->io, (uintptr_t)shard_walk_on);
	shard_deliver_local(shard); /* of what was short the answer goes out in this turn */
	tenancies_tell(shard);
	channels_announce(shard);
	(void)io_account(shard->io, (uintptr_t)channels_announce);
	shard_watch(shard);
	r = io_turn(shard->io, shard_wait_until(shard, more));
	if (r < 0)
		shard_turn_failed(shard, r);
	timers_run(&shard->timers, io_now_ns(shard->io), TIMERS_PER_TURN);
	(void)io_account(shard->io, (uintptr_t)timers_run);
}

/* ---- stopping ---- */

static uint64_t destroyed_total(const struct shard *shard)
{
	uint64_t total = 0;

	for (uint32_t i = 0; i < shard->node->tenant_count; i++)
		total += shard->tenancies[i].stats.destroyed;
	return total;
}

static void shard_has_stopped(struct shard *shard)
{
	if (shard->stopped)
		return;
	shard->stopped = true;
	shard->stop_destroyed = destroyed_total(shard) - shard->destroyed_before;
	shard->stop_left = shard->sandboxes_live;
	control_shard_stopped(shard->node->control, shard);
}

static void slots_given_back(void *owner)
{
	shard_has_stopped(owner);
}

void shard_check_stopped(struct shard *shard)
{
	if (!shard->stopping || shard->draining || shard->sandboxes_live || shard->clients_live ||
	    pool_taken(&shard->requests) || !functions_are_gone(shard) ||
	    shard->forwards.accepting || pool_taken(&shard->forwards.inbounds) ||
	    !tenancies_are_told(shard))
		return;
	shard->draining = true;
	shard->backend->class->drain(shard->backend, slots_given_back);
}

static void stop_arrived(struct mail *mail, void *owner)
{
	struct shard *shard = owner;

	(void)mail;
	shard->stopping = true;
	shard->destroyed_before = destroyed_total(shard);
	clients_close(shard);
	forwards_stop(&shard->forwards);
	functions_stop(shard);
	sandboxes_destroy_all(shard);
	shard_check_stopped(shard);
}

void shard_stop(struct shard *shard, struct io *from)
{
	shard->stop_mail.deliver = stop_arrived;
	mail_send(from, shard->io, &shard->stop_mail);
}

static void sandboxes_left_log(const struct shard *shard)
{
	enum { LINES_MAX = 16 };
	uint32_t lines = 0;

	for (uint32_t i = 0; i < shard->sandboxes.count && lines < LINES_MAX; i++) {
		const struct sandbox *sandbox = pool_at(&shard->sandboxes, i);
		const char *step = sandbox ? flow_step_name(&sandbox->box->flow) : NULL;

		if (!sandbox)
			continue;
		log_error("sandbox left id=%u.%llx state=%u step=%s execs=%u", shard->number,
			  (unsigned long long)sandbox->id.lo, (unsigned int)sandbox->state,
			  step ? step : "none", sandbox->exec_count);
		lines++;
	}
}

static void give_up_arrived(struct mail *mail, void *owner)
{
	struct shard *shard = owner;
	struct backend_gauges gauges;

	(void)mail;
	if (shard->stopped)
		return;
	shard->gave_up = true;
	shard->backend->class->gauges(shard->backend, &gauges);
	log_error("shard does not stop in time shard=%u sandboxes=%u clients=%u requests=%u"
		  " slots=%llu quarantined=%llu, leaving them",
		  shard->number, shard->sandboxes_live, shard->clients_live,
		  pool_taken(&shard->requests), (unsigned long long)gauges.slots_made,
		  (unsigned long long)gauges.slots_quarantined);
	sandboxes_left_log(shard);
	shard_has_stopped(shard);
}

void shard_give_up(struct shard *shard, struct io *from)
{
	shard->give_up_mail.deliver = give_up_arrived;
	mail_send(from, shard->io, &shard->give_up_mail);
}

static void end_arrived(struct mail *mail, void *owner)
{
	struct shard *shard = owner;

	(void)mail;
	shard->ended = true;
}

void shard_end(struct shard *shard, struct io *from)
{
	shard->end_mail.deliver = end_arrived;
	mail_send(from, shard->io, &shard->end_mail);
}
