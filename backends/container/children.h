/*
 * Children of the engine that live in its sandboxes: PID 1s and execs. Learns of a death from the
 * guard's stream (or, without it, from one wait per child) and reaps exactly that pid, so watching
 * an idle child costs nothing. A death may be told before the worker's reply that names the pid:
 * such early ones are reaped at once and kept until the reply claims them, or are strays of a lost
 * worker and forgotten.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/base/io.h"
#include "engine/base/pool.h"

struct guard_exits;

struct child {
	struct io_op op;
	siginfo_t info;
	struct children *in;
	struct child *next;
	int pid;
	uint8_t state;
	bool direct; /* waited for while it lives: without death events, or after some were lost */
	uint32_t holds; /* launcher calls in flight that name the pid or need what it stands for */
	bool told;	/* its death was, and status is as the event has it until it is reaped */
	int status;
	uint64_t cpu_us, peak_bytes; /* with ended(): what it used; UINT64_MAX: nobody told */
	/* Early ones: */
	bool is_early;
	uint64_t sequence; /* of the team's newest request when the death was told */
	uint64_t since_ns;
	struct child *claimer; /* whose reply came while the pid was being reaped */
	/* May be NULL: its death was told; see child_has_died(). It may be gone afterwards. */
	void (*died)(struct child *child);
	/* Reaped, and nobody holds it; the child may be watched anew, or be gone afterwards. */
	void (*ended)(struct child *child, int status);
};

struct children {
	struct io *io;
	struct guard_exits *exits; /* NULL: one wait per child */
	struct io_op poll;
	struct child **buckets;
	uint32_t bucket_count, watched;
	struct pool early;
	uint64_t sequence; /* of the newest request sent to a worker: the team counts it up */
	uint64_t strays;
	bool closing;
};

int children_init(struct children *children, struct io *io, struct guard_exits *exits,
		  uint32_t count_max);
/* No child may be watched. */
void children_done(struct children *children);
/*
 * Watch a new child, named by a reply to the request with this sequence. False when it was dead and
 * reaped already: then ended() was called from inside, and the child may be gone.
 */
bool child_watch(struct children *children, struct child *child, int pid, uint64_t sequence);
/*
 * While it is held a watched child is not reaped, and ended() does not come: its pid and its place
 * stay its own. The last release may call ended() from inside.
 */
void child_hold(struct child *child);
void child_release(struct child *child);
static inline bool child_is_alive(const struct child *child)
{
	return child->state != 0;
}
/* Not known to be dead. With death events PID 1's is known before those of what it takes along. */
bool child_is_running(const struct child *child);
/*
 * Told to be dead, but not reaped yet: its wait status as the death's event has it. A sandbox can
 * delay the reaping by tracing the child; only PID 1's end ends that for sure.
 */
bool child_has_died(const struct child *child, int *ret_status);
/*
 * It is dead or on its way. Without death events that takes a look at /proc: of PID 1 nobody is
 * told before everything that it takes along was reaped.
 */
bool child_is_ending(const struct child *child);
/* Only while watched, hence never to a pid that was reaped. -ESRCH: it has ended. */
int child_signal(struct child *child, int signal);
/* SIGKILL. */
void child_kill(struct child *child);
