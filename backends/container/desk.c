/*
 * Moves a shard and its workers to other CPUs and back. Called by the governor. Must hold: a worker
 * is moved by its shard, which knows what it is busy with; what a moved worker starts may run
 * wherever it could have (LAUNCH_WIDE).
 */
#include "backends/container/desk.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "backends/container/container.h"

struct move {
	struct mail mail;
	struct containers *c;
	cpu_set_t cpus;
	bool is_away;
};

void desk_meet(struct desk *desk, struct containers *c)
{
	desk->tid = gettid();
	atomic_store(&desk->c, c);
}

/* On the shard's thread. */
static void move_arrived(struct mail *mail, void *owner)
{
	struct move *move = container_of(mail, struct move, mail);

	(void)owner;
	team_move(&move->c->team, &move->cpus, move->is_away);
	crews_move(&move->c->crews);
	free(move);
}

static void workers_move(struct containers *c, struct io *io, const cpu_set_t *cpus, bool is_away)
{
	struct move *move = calloc(1, sizeof *move);

	if (!move)
		return; /* they stay, and are slow at worst */
	move->mail.deliver = move_arrived;
	move->c = c;
	move->cpus = *cpus;
	move->is_away = is_away;
	mail_send(io, c->options.host->io, &move->mail);
}

void desk_move(struct desk *desk, struct io *io, const cpu_set_t *cpus, bool is_away)
{
	struct containers *c = atomic_load(&desk->c);

	if (!c)
		return;
	if (is_away && !desk->is_moved &&
	    sched_getaffinity(desk->tid, sizeof desk->own, &desk->own) == 0)
		desk->is_moved = sched_setaffinity(desk->tid, sizeof *cpus, cpus) == 0;
	else if (!is_away && desk->is_moved)
		desk->is_moved = sched_setaffinity(desk->tid, sizeof desk->own, &desk->own) < 0;
	workers_move(c, io, cpus, is_away);
}
