/*
 * Network namespaces of sandboxes: a pool per shard, apart from the slots, since most sandboxes
 * have none and one is used again only where it was proven clean.
 *
 *	empty --make--> clean --take--> taken --give--> proving --proven--> clean
 *	  ^                                                \--else--> dirty --drop--> ending
 *	  \--------------------------- torn down by the kernel ---------------------------/
 *
 * One of a group (`shared`) is made for whoever asks first, is the group's as long as somebody is
 * in it and some time longer, and is nobody else's afterwards:
 *
 *	empty --make--> shared --idle--> dirty
 *
 * The kernel makes 1,900 a second at most and tears them down later, one after the other: so what
 * is dirty or ending is bounded, and beyond that nothing is made. Who wants one waits, and is
 * refused with -EAGAIN after NETWORK_WAIT_MS, or at once when NETWORK_WAITERS_MAX wait.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/backend.h"
#include "backends/container/team.h"

struct containers;

enum {
	NETWORKS_READY = 4,	   /* kept clean per shard, once one was asked for */
	NETWORKS_CLEAN_MAX = 64,   /* more that are proven clean go */
	NETWORKS_MAKING_MAX = 4,   /* at a time */
	NETWORKS_ENDING_MAX = 32,  /* being torn down by the kernel */
	NETWORKS_BACKLOG_MAX = 64, /* dirty or ending: beyond it none is made */
	NETWORK_WAITERS_MAX = 256,
	NETWORK_WAIT_MS = 5000,
	NETWORK_PROOFS_MAX = 5,	   /* freed sockets leave the count after an RCU period */
	NETWORK_IDLE_MS = 2000,	   /* nobody was in a group's: it goes */
	NETWORK_ENDING_MS = 10000, /* then it no longer counts as ending: the kernel is late */
};

enum { NETWORK_KINDS = BOX_NETWORK_SHARED + 1 };

enum network_state {
	NETWORK_EMPTY,
	NETWORK_MAKING,
	NETWORK_CLEAN,
	NETWORK_TAKEN,
	NETWORK_SHARED,
	NETWORK_PROVING,
	NETWORK_DIRTY,
	NETWORK_ENDING,
	NETWORK_STATES,
};

struct network {
	struct network *next, *previous; /* in the list of its state */
	struct networks *in;
	uint32_t number; /* in the vault */
	enum network_state state;
	uint32_t proofs;
	bool asking;		/* its call is under way */
	bool wanted;		/* making: for somebody who waits */
	enum box_network kind;	/* it is used again where that is PRIVATE */
	struct box_group group; /* of a SHARED one, as the next two */
	uint32_t users;
	uint32_t first_address;	   /* it has GUARD_SHARED_BLOCK from here on; or all from 0 on */
	struct network_wish *wish; /* making with egress: for whom; NULL: not any more */
	uint64_t at_ns; /* to prove again; ending: when that was late; shared: idle since */
	int witness_fd; /* ending: readable as long as the kernel has it; -1: none */
	struct launch_call call;
};

/* Somebody who wants one. Embedded in its owner. */
struct network_wish {
	struct network *network;
	struct network_wish *next;
	uint64_t until_ns;
	enum box_network kind;	/* EGRESS: made for this wish */
	struct box_group group; /* SHARED */
	bool waiting;
	struct network *making; /* EGRESS: it is under way */
	/* error 0: wish->network is its own, or its group's. Never from inside network_take(). */
	void (*ready)(struct network_wish *wish, int error);
};

struct networks {
	struct containers *owner;
	struct network *all;
	struct network lists[NETWORK_STATES]; /* heads of rings */
	uint32_t count, counts[NETWORK_STATES];
	struct network_queue {
		struct network_wish *first, **last;
		uint32_t count;
	} queues[NETWORK_KINDS]; /* of wishes, by kind */
	struct timer timer;
	bool used, draining;
	uint64_t made, reused, discarded, refused;
	uint64_t blocks; /* of addresses, that namespaces with a way out have */
};

/* Networks first .. first + count - 1 of the vault. */
int networks_init(struct networks *networks, struct containers *owner, uint32_t first,
		  uint32_t count);
void networks_done(struct networks *networks);
/* One that is clean or the group's, now, or NULL: wish->ready() follows. */
struct network *network_take(struct networks *networks, struct network_wish *wish);
/* It waits no longer; false: it did not wait. ready() does not come. */
bool network_withdraw(struct networks *networks, struct network_wish *wish);
/* Nothing of the sandbox runs any more. */
void network_give(struct networks *networks, struct network *network);
/* How many there are, in whatever state. */
uint32_t networks_made(const struct networks *networks);
/* Those that are not taken go, and the owner's prepare_drain() is called as they do. */
void networks_drain(struct networks *networks);
