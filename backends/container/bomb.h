/*
 * Who is a fork bomb: at its sandbox's limit of processes, and seen inside fork() most of the times
 * that it is seen on a CPU, at each look for so long. An honest program that meets the limit fails,
 * or waits; a build forks, and computes more than that.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct members;

enum {
	BOMB_SAMPLES_MIN = 1, /* of a look: who is seen less often tries now and then */
	BOMB_FORKS_SHARE = 2, /* half of its samples */
	BOMB_FULL_SHARE = 8,  /* of the limit: all but an eighth; some end and are born again */
	BOMB_GRACE_MS = 2000, /* from told to killed, where nobody did anything about it */
};

#define BOMB_NS_PER_S 1000000000ull

/* As counted from the leaf's beginning; they may have been forgotten in between. */
struct bomb_look {
	uint64_t samples, forks;
	bool is_full;
};

struct bomb {
	uint64_t samples, forks; /* at the last look */
	uint64_t since_ns;	 /* at each look since; 0: it is none */
	uint64_t told_ns;
};

enum bomb_state { BOMB_NOT, BOMB_TELL, BOMB_KILL };

static inline bool bomb_is_full(uint64_t processes, uint64_t processes_max)
{
	return processes_max && processes >= processes_max - processes_max / BOMB_FULL_SHARE;
}

/*
 * Whether its sandbox is at its limit, of which the controller's files tell, or else the two
 * numbers.
 */
bool bomb_fills(int leaf_fd, uint64_t processes, uint64_t processes_max);
/* All of the leaf: what an exec that is over left behind, so nobody is told. */
void bomb_kill(int leaf_fd, const char *leaf_path, struct members *scratch);

static inline enum bomb_state bomb_judge(struct bomb *b, const struct bomb_look *look,
					 uint64_t limit_s, uint64_t now_ns)
{
	const bool is_new = look->samples < b->samples || look->forks < b->forks;
	const uint64_t seen = look->samples - (is_new ? 0 : b->samples);
	const uint64_t forked = look->forks - (is_new ? 0 : b->forks);

	b->samples = look->samples;
	b->forks = look->forks;
	if (!look->is_full || seen < BOMB_SAMPLES_MIN || forked * BOMB_FORKS_SHARE < seen) {
		b->since_ns = b->told_ns = 0;
		return BOMB_NOT;
	}
	if (!b->since_ns)
		b->since_ns = now_ns;
	if (now_ns - b->since_ns < limit_s * BOMB_NS_PER_S)
		return BOMB_NOT;
	if (!b->told_ns) {
		b->told_ns = now_ns;
		return BOMB_TELL;
	}
	return now_ns - b->told_ns < BOMB_GRACE_MS * (BOMB_NS_PER_S / 1000) ? BOMB_NOT : BOMB_KILL;
}
