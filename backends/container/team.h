/*
 * A shard's launcher workers and the queue of calls to them. A worker gets at most two requests at
 * a time, so that it finds the next one when it is done; the rest waits here, urgent ones first,
 * and of those that are equally urgent one of each client's in turn.
 */
#pragma once

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "backends/container/launch.h"
#include "engine/base/io.h"
#include "engine/base/timer.h"
#include "engine/base/turns.h"

enum { TEAM_WORKERS_MAX = 8, TEAM_DEPTH = 2, LAUNCH_CALL_FDS_MAX = 4 };

/* Classes of the queue: ending things first, then starting, then preparing. */
enum team_class { TEAM_END, TEAM_START, TEAM_PREPARE, TEAM_CLASS_COUNT };

/* One exchange with one worker. Embedded in its owner, one in flight. */
struct launch_call {
	struct launch_request request;
	const struct launch_limit *limits; /* request.limit_count of them */
	const void *payload;		   /* after the limits */
	int fds[LAUNCH_CALL_FDS_MAX];
	enum team_class class;
	uint64_t whose; /* calls of a class take turns, by whose they are; 0: the engine's */
	uint64_t sequence;
	bool queued, sent;
	/* team_call_later(): */
	struct team *team;
	struct timer later;
	uint32_t tries;
	/*
	 * What came with the reply is done()'s, if it says so here; else it is closed. -1: none.
	 */
	bool takes_descriptor;
	int reply_fd;
	/*
	 * reply NULL: the worker was lost while it may have been busy with this request. Otherwise
	 * the reply, checked; it lives during the callback.
	 */
	void (*done)(struct launch_call *call, const struct launch_reply *reply);
	struct turn turn;
	struct msghdr message; /* owned by the team while in flight */
	struct iovec parts[3];
	union {
		char bytes[CMSG_SPACE(LAUNCH_CALL_FDS_MAX * sizeof(int))];
		size_t align; /* as a cmsghdr is */
	} control;
};

struct worker {
	struct team *team;
	struct timer deadline; /* of the oldest request, or the next look at the worker */
	uint64_t deadline_ns;  /* then it is stuck */
	int pid;
	struct io_op recv, send;
	int fd; /* -1: no worker here */
	bool sending, receiving, replied, broken, killed;
	bool has_answered, is_moved;
	uint32_t call_count;
	struct launch_call *calls[TEAM_DEPTH]; /* oldest first */
	uint32_t sent_count;		       /* of calls[] handed to the socket */
	struct launch_reply reply;
	int reply_fd; /* that came with it */
	struct msghdr reply_message;
	struct iovec reply_part;
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		size_t align; /* as a cmsghdr is */
	} reply_control;
};

struct team {
	struct io *io;
	struct timers *timers;
	uint64_t *sequence; /* of the children: counts requests */
	struct worker workers[TEAM_WORKERS_MAX];
	struct turns queue[TEAM_CLASS_COUNT];
	uint32_t waiting;
	uint64_t lost;
	void *owner;
	void (*worker_lost)(void *owner);
	/* It answers no more: the owner ends the process, and its channel tells the rest. */
	void (*worker_stuck)(void *owner, int pid);
	bool closing, is_moved;
	cpu_set_t here; /* where workers are to run, from team_move() on */
};

void team_init(struct team *team, struct io *io, struct timers *timers, uint64_t *sequence);
/* Takes the descriptor. `first`: a call that this worker is asked before all others, or NULL. */
void team_add(struct team *team, int channel_fd, int pid, struct launch_call *first);
/* Queue a call; request, payload, fds, class and done are set. */
void team_call(struct team *team, struct launch_call *call);
/*
 * The same after a pause that grows from a tenth of a second to five, for what waits for somebody's
 * end: it is looked at for a moment then, so that it keeps no worker from others.
 */
void team_call_later(struct team *team, struct launch_call *call);
/* Take a call that was not sent back out of the queue: true if it was there. */
bool team_withdraw(struct team *team, struct launch_call *call);
/*
 * Workers are to run there: each moves when it is idle. is_away: what they start does not, see
 * LAUNCH_WIDE; else these are the CPUs that they began with.
 */
void team_move(struct team *team, const cpu_set_t *cpus, bool is_away);
uint32_t team_workers(const struct team *team);
/* What waits for a worker of one team waits for one of the other from now on. */
void team_pass_on(struct team *team, struct team *to);
/* No call waits or is in flight. */
bool team_is_idle(const struct team *team);
/* Close the channels: the workers end. Calls must be done. */
void team_close(struct team *team);
