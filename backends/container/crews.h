/*
 * Crews: workers of a shard that are bound to the filter of a policy which is asked for often, each
 * crew a team of its own (LAUNCH_BIND). A policy that is not gets the shard's other workers, which
 * give its filter to each child. Nobody is asked twice and nothing waits for a crew: it takes calls
 * from when its first worker has come.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/container/team.h"
#include "engine/base/timer.h"

struct backend_options;
struct backend_walls;
struct crews;
struct sock_filter;

enum { CREWS_MAX = 4 };

enum crew_state {
	CREW_FREE,
	CREW_WATCHED, /* how often its filter is asked for */
	CREW_HIRED,
	CREW_ENDING, /* until its workers have gone */
};

struct crew {
	struct team team;
	struct crews *in;
	enum crew_state state;
	struct sock_filter *filter; /* its own copy */
	uint32_t filter_count;
	int sheet_fd;		    /* HIRED: its own; else -1 */
	uint32_t asked;		    /* within the second from since_ns on */
	uint64_t since_ns, used_ns; /* loop time */
	uint32_t expected;	    /* workers that were asked for and have not come */
};

struct crews {
	struct crew all[CREWS_MAX];
	struct team *others; /* the shard's other workers */
	const struct backend_options *options;
	struct timer look; /* whether one is idle */
	uint64_t lost;	   /* workers, of all crews there were */
	bool closing;
};

/* Both are kept. */
void crews_init(struct crews *crews, struct team *others, const struct backend_options *options);
/* Who makes a sandbox or starts a program with these walls (NULL: none). */
struct team *crews_team(struct crews *crews, const struct backend_walls *walls);
/* A worker has come: takes the descriptor, and closes it where nobody wants one any more. */
void crews_add(struct crews *crews, int channel_fd, int pid);
/* As the others were moved. */
void crews_move(struct crews *crews);
uint32_t crews_workers(const struct crews *crews);
void crews_close(struct crews *crews);
