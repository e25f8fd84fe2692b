/*
 * The steps of the flow simulation, and what they leave in the world: one effect each. Called by
 * the driver under test and by the world. Always true, checked at every move: effects come on top
 * of all earlier ones of their flow and go before them.
 */
#include "tests/sim/trial.h"

#include <errno.h>

uint64_t item_dice(struct item *item, uint64_t below)
{
	return world_random(item->trial->world, below);
}

void item_reason(struct item *item, int reason, const char *step)
{
	if (item->reason)
		return;
	item->reason = reason;
	item->reason_step = step;
}

/* The effect of step `at` comes, on top of all those below it; or goes, before any of those. */
static void effect_come(struct item *item, unsigned at)
{
	CHECK(at < item->table->count);
	for (unsigned i = 0; i < at; i++)
		CHECK(item->live[i] == 1);
	for (unsigned i = at; i < item->table->count; i++)
		CHECK(item->live[i] == 0);
	item->live[at] = 1;
}

static void effect_go(struct item *item, unsigned at)
{
	CHECK(at < item->table->count);
	for (unsigned i = 0; i <= at; i++)
		CHECK(item->live[i] == 1);
	for (unsigned i = at + 1; i < item->table->count; i++)
		CHECK(item->live[i] == 0);
	item->live[at] = 0;
}

static int fd_of(struct item *item, int flags)
{
	int index = (int)(item - item->trial->items);

	return (index * STEPS_MAX + item->flow.at) | flags;
}

/* The kernel's part: ops whose descriptor stands for an effect. */
int step_serve(void *context, const struct world_op *op, int proposed)
{
	struct trial *trial = context;
	int number = op->fd & ~UNDO_FD;
	struct item *item = &trial->items[number / STEPS_MAX];
	unsigned at = (unsigned)number % STEPS_MAX;

	if (op->kind != WORLD_WRITE)
		return proposed;
	if (op->fd & UNDO_FD) {
		effect_go(item, at);
		return 0; /* undoing cannot fail */
	}
	if (proposed >= 0)
		effect_come(item, at);
	else
		item_reason(item, proposed, item->table->names[at]);
	return proposed;
}

bool step_may_hang(void *context, const struct world_op *op)
{
	(void)context;
	return !(op->fd & UNDO_FD);
}

static int step_fail(struct item *item, int error)
{
	item_reason(item, error, item->table->names[item->flow.at]);
	return error;
}

static void step_begin(struct flow *f, enum kind kind)
{
	struct item *item = ITEM(f);

	CHECK(item->table->kinds[f->at] == kind);
	CHECK(!item->live[f->at]);
	CHECK(!f->waiting);
	CHECK(f->direction > 0);
	CHECK(item->told);
	item->began[f->at] = true;
}

static int now_start(struct flow *f)
{
	struct item *item = ITEM(f);

	step_begin(f, KIND_NOW);
	if (item_dice(item, 24) == 0)
		return step_fail(item, -ENODEV);
	effect_come(item, f->at);
	return FLOW_NEXT;
}

static int op_start(struct flow *f)
{
	step_begin(f, KIND_OP);
	io_write(f->host->io, &f->op, fd_of(ITEM(f), 0), "x", 1);
	return FLOW_WAIT;
}

static int read_start(struct flow *f)
{
	struct item *item = ITEM(f);

	if (item->message_bytes == 0)
		step_begin(f, KIND_READ);
	io_read(f->host->io, &f->op, fd_of(item, 0), item->message + item->message_bytes,
		MESSAGE_BYTES - item->message_bytes);
	return FLOW_WAIT;
}

static int read_finish(struct flow *f, int res)
{
	struct item *item = ITEM(f);
	uint32_t bytes = item->message_bytes;

	item->message_bytes = 0;
	if (res == -ECANCELED && item->reason)
		return res;
	if (res <= 0)
		return step_fail(item, res ? res : -EPIPE);
	if (bytes + (uint32_t)res < MESSAGE_BYTES) {
		item->message_bytes = bytes + (uint32_t)res;
		return FLOW_AGAIN;
	}
	effect_come(item, f->at);
	return FLOW_NEXT;
}

static void call_answered(struct mail *mail, void *owner)
{
	struct item *item = container_of(mail, struct item, call.answer);

	CHECK(owner == item->loop);
	CHECK(item->call.asked);
	item->call.asked = false;
	if (item->call.res < 0)
		item_reason(item, item->call.res, item->table->names[item->flow.at]);
	flow_resume(&item->flow, item->call.res);
}

static void call_answer(struct item *item, int res)
{
	item->call.held = false;
	item->call.res = res;
	item->call.answer.deliver = call_answered;
	mail_send(item->peer->io, item->loop->io, &item->call.answer);
}

/* On the other loop. */
static void call_questioned(struct mail *mail, void *owner)
{
	struct item *item = container_of(mail, struct item, call.question);

	CHECK(owner == item->peer);
	if (item->call.undo) {
		effect_go(item, item->flow.at);
		call_answer(item, 0);
		return;
	}
	if (item_dice(item, 8) == 0) {
		item->call.held = true; /* until told to stop */
		return;
	}
	if (item_dice(item, 16) == 0) {
		call_answer(item, -EREMOTEIO);
		return;
	}
	effect_come(item, item->flow.at);
	call_answer(item, 0);
}

static void call_stopped(struct mail *mail, void *owner)
{
	struct item *item = container_of(mail, struct item, call.stop);

	CHECK(owner == item->peer);
	if (item->call.held)
		call_answer(item, -ECANCELED);
}

static int call_ask(struct item *item, bool undo)
{
	CHECK(!item->call.asked);
	item->call.asked = true;
	item->call.undo = undo;
	item->call.question.deliver = call_questioned;
	mail_send(item->loop->io, item->peer->io, &item->call.question);
	return FLOW_WAIT;
}

static int call_start(struct flow *f)
{
	step_begin(f, KIND_CALL);
	return call_ask(ITEM(f), false);
}

static int held_start(struct flow *f)
{
	step_begin(f, KIND_HELD);
	return FLOW_WAIT;
}

static int cancel_start(struct flow *f)
{
	struct item *item = ITEM(f);

	step_begin(f, KIND_CANCEL);
	if (item_dice(item, 8)) {
		effect_come(item, f->at);
		return FLOW_NEXT;
	}
	item_reason(item, -ECANCELED, NULL);
	flow_cancel(f);
	if (item_dice(item, 2)) {
		effect_come(item, f->at);
		return FLOW_NEXT;
	}
	io_write(f->host->io, &f->op, fd_of(item, 0), "x", 1);
	return FLOW_WAIT;
}

static int effect_undo(struct flow *f)
{
	struct item *item = ITEM(f);

	CHECK(f->direction < 0);
	CHECK(item->told);
	item->began[f->at] = false;
	if (!item->table->undo_waits[f->at]) {
		effect_go(item, f->at);
		return FLOW_NEXT;
	}
	if (item->table->kinds[f->at] == KIND_CALL)
		return call_ask(item, true);
	io_write(f->host->io, &f->op, fd_of(item, UNDO_FD), "x", 1);
	return FLOW_WAIT;
}

void step_cancel(struct flow *f)
{
	struct item *item = ITEM(f);
	uint32_t limit_ms = f->steps[f->at].limit_ms;

	if (f->error == -ETIMEDOUT && !item->reason) {
		CHECK(limit_ms);
		CHECK(io_now_ns(f->host->io) >= f->step_ns + limit_ms * 1000000ull);
		item_reason(item, -ETIMEDOUT, item->table->names[f->at]);
	}
	switch (item->table->kinds[f->at]) {
	case KIND_CALL:
		item->call.stop.deliver = call_stopped;
		mail_send(item->loop->io, item->peer->io, &item->call.stop);
		return;
	case KIND_HELD:
		if (item_dice(item, 4) == 0)
			effect_come(item, f->at); /* it was over just before */
		flow_resume(f, item->live[f->at] ? 0 : -ECANCELED);
		return;
	case KIND_NOW:
	case KIND_OP:
	case KIND_READ:
	case KIND_CANCEL:
	case KIND_COUNT:
		io_cancel(f->host->io, &f->op);
		return;
	}
}

struct flow_step step_make(struct world *world, struct table *table, unsigned at)
{
	static int (*const starts[])(struct flow *) = {
		[KIND_NOW] = now_start,	  [KIND_OP] = op_start,	    [KIND_READ] = read_start,
		[KIND_CALL] = call_start, [KIND_HELD] = held_start, [KIND_CANCEL] = cancel_start,
	};
	enum kind kind = (enum kind)world_random(world, KIND_COUNT);
	struct flow_step step = { .name = table->names[at], .undo = effect_undo };

	if (kind == KIND_HELD && world_random(world, 4))
		kind = KIND_OP;
	table->kinds[at] = kind;
	table->undo_waits[at] = world_random(world, 2);
	step.start = starts[kind];
	if (kind == KIND_READ)
		step.finish = read_finish;
	if (world_random(world, 2))
		step.limit_ms = 1 + (uint32_t)world_random(world, 20);
	return step;
}
