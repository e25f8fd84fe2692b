/* A shard as the governor knows it: where its mail goes, and where it runs. */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <sys/types.h>

struct containers;
struct io;

struct desk {
	_Atomic(struct containers *) c; /* NULL: it takes no mail */
	pid_t tid;			/* its thread, which outlives the governor's */
	cpu_set_t own;			/* where that ran before it was moved */
	bool is_moved;
};

/* On the shard's thread. */
void desk_meet(struct desk *desk, struct containers *c);
/* On the governor's: the shard and its workers run there, or where they did before. */
void desk_move(struct desk *desk, struct io *io, const cpu_set_t *cpus, bool is_away);
