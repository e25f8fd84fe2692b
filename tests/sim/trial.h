/* What the flow simulation's two files share: its objects, and the steps its tables are made of. */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "engine/base/cleanup.h"
#include "engine/base/flow.h"
#include "tests/sim/world.h"

enum { LOOPS = 2, TABLES = 3, STEPS_MAX = 8, ITEMS = 20 };

enum kind {
	KIND_NOW,    /* done at once, sometimes fails */
	KIND_OP,     /* one op, whose effect the world has */
	KIND_READ,   /* several reads until a message is whole */
	KIND_CALL,   /* a question to the other loop by mail */
	KIND_HELD,   /* in flight until cancelled, and ends within the cancel */
	KIND_CANCEL, /* cancels its own flow from inside start */
	KIND_COUNT,
};

enum { MESSAGE_BYTES = 12, UNDO_FD = 1 << 20 };

struct table {
	char name[4];
	uint8_t count;
	enum kind kinds[STEPS_MAX];
	bool undo_waits[STEPS_MAX];
	char names[STEPS_MAX][4];
	struct flow_step steps[STEPS_MAX];
};

struct call {
	struct mail question, answer, stop;
	bool asked, held, undo;
	int res;
};

struct item {
	struct flow flow;
	struct trial *trial;
	struct loop *loop, *peer;
	const struct table *table;
	struct call call;
	uint8_t live[STEPS_MAX];
	char message[MESSAGE_BYTES];
	uint32_t message_bytes;
	int reason; /* the first thing that went wrong, as the test saw it */
	const char *reason_step;
	bool built, over, unwinding, told;
	bool began[STEPS_MAX];
};

struct loop {
	struct flow_host host;
	struct trial *trial;
	struct io *io;
	struct timers timers;
	char fault[32];
	uint64_t succeeded, undone;
};

struct trial {
	struct world *world;
	struct loop loops[LOOPS];
	struct table tables[TABLES];
	struct item items[ITEMS];
	uint32_t built, failed;
};

#define ITEM(f) container_of(f, struct item, flow)

#define CHECK(what)                                                                                \
	do {                                                                                       \
		if (!(what)) {                                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #what);                 \
			abort();                                                                   \
		}                                                                                  \
	} while (0)

/* Chance, for this item. */
uint64_t item_dice(struct item *item, uint64_t below);
/* Only the first reason counts: step NULL for a cancel. */
void item_reason(struct item *item, int reason, const char *step);
/* A random row of a table whose name stands already. */
struct flow_step step_make(struct world *world, struct table *table, unsigned at);
/* The flows' `cancel`, and the world's two questions about their ops. */
void step_cancel(struct flow *f);
int step_serve(void *context, const struct world_op *op, int proposed);
bool step_may_hang(void *context, const struct world_op *op);
