/*
 * Ends of many sandboxes: the walks over them, and how many end at a time. Called by the destroy
 * op, by clients that go and by the shard's stop. Must hold: a walk that waits is told as often as
 * ends that are counted end, and no end is counted when the engine stops, since nobody is served
 * then.
 */
#include <errno.h>
#include <stdlib.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"

/* Dying keeps the CPUs busy: who wants many sandboxes gone has some of them go at a time. */
static bool end_take(struct sandbox *sandbox, uint64_t client)
{
	struct shard *shard = sandbox->shard;

	if (!shard->stopping && !share_take(&shard->ends, client))
		return false;
	sandbox->ends_counted = !shard->stopping;
	sandbox->ender = client;
	return true;
}

/* The next of the client's walks goes on. */
void sandbox_end_over(struct sandbox *sandbox)
{
	struct shard *shard = sandbox->shard;
	struct turn *turn;

	if (!sandbox->ends_counted)
		return;
	sandbox->ends_counted = false;
	share_give(&shard->ends, sandbox->ender);
	turn = turns_take_of(&shard->ends_waiting, sandbox->ender);
	if (turn)
		shard_walk(shard, container_of(turn, struct walk_turn, turn), sandbox->ender);
}

int sandbox_destroy_in_turn(struct sandbox *sandbox, enum dsec_cause cause, struct part *waiter,
			    const struct ender *ender)
{
	struct shard *shard = sandbox->shard;

	if (sandbox->state == DSEC_STATE_RUNNING && !end_take(sandbox, ender->client)) {
		turns_add(&shard->ends_waiting, &ender->walk->turn, ender->client);
		return -EAGAIN;
	}
	sandbox_destroy(sandbox, cause, waiter);
	return 0;
}

/* ---- all of them, or all of a connection that ended: some per turn ---- */

/* STEPS: what is looked at of a shard's places. */
enum { ENDS_PER_TURN = 64, STEPS_PER_TURN = 1024 };

static bool sandbox_is_of(const struct sandbox *sandbox, const struct shard *shard, uint64_t client)
{
	return shard->stopping ||
	       (sandbox->client == client && sandbox->on_disconnect == DSEC_DISCONNECT_DESTROY);
}

/* How many ended; -EAGAIN: it goes on when one of them has. */
static int ending_look(struct ending *ending, struct shard *shard)
{
	const enum dsec_cause cause = shard->stopping ? DSEC_CAUSE_STOPPED :
							DSEC_CAUSE_DISCONNECTED;
	const struct ender ender = { ending->client, &ending->walk };
	struct sandbox *sandbox = pool_at(&shard->sandboxes, ending->at);
	int r;

	if (!sandbox || !sandbox_is_of(sandbox, shard, ending->client)) {
		ending->at++;
		return 0;
	}
	r = sandbox_destroy_in_turn(sandbox, cause, NULL, &ender);
	ending->at += r >= 0;
	return r < 0 ? r : 1;
}

static void ending_more(struct mail *mail, void *owner)
{
	struct ending *ending = container_of(mail, struct ending, mail);
	struct shard *shard = owner;
	int ended = 0, r;

	for (int steps = 0; shard->sandboxes_live && ending->at < shard->sandboxes.count; steps++) {
		if (ended == ENDS_PER_TURN || steps == STEPS_PER_TURN) {
			shard_walk(shard, &ending->walk, ending->client);
			return;
		}
		r = ending_look(ending, shard);
		if (r < 0)
			return;
		ended += r;
	}
	if (ending != &shard->ending)
		free(ending);
}

static void ending_init(struct ending *ending, uint64_t client)
{
	ending->client = client;
	ending->mail.deliver = ending_more;
	ending->walk.mail = &ending->mail;
}

void sandboxes_destroy_all(struct shard *shard)
{
	ending_init(&shard->ending, 0);
	ending_more(&shard->ending.mail, shard);
}

void sandboxes_disconnect(struct shard *shard, uint64_t client)
{
	struct node *node = shard->node;

	for (uint32_t i = 0; i < node->shard_count; i++) {
		struct ending *ending = calloc(1, sizeof *ending);

		if (!ending) {
			log_error("disconnect not told shard=%u err=ENOMEM, continuing", i);
			continue; /* their ttl ends them */
		}
		ending_init(ending, client);
		shard_send(shard, node->shards[i], &ending->mail);
	}
}
