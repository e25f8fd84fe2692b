/*
 * Sinks. Called by execs at their end. Always true: what a sink reads in a while is bounded, one by
 * one and all of them together, and there are at most as many as there may be execs.
 */
#include "engine/exec/sink.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "engine/base/cleanup.h"
#include "engine/shard.h"

enum { SCRAP_BYTES = 64 << 10, READS_PER_TICK = 16 };
#define TICK_NS (10 * 1000000ull)

static void sink_read(struct sink *sink);

int sinks_init(struct sinks *sinks)
{
	*sinks = (struct sinks){ .scrap = malloc(SCRAP_BYTES) };
	sinks->due_last = &sinks->due;
	return sinks->scrap ? 0 : -ENOMEM;
}

static void sink_free(struct sink *sink)
{
	*sink->link = sink->next;
	if (sink->next)
		sink->next->link = sink->link;
	cleanup_close(&sink->fd);
	free(sink);
}

void sinks_done(struct sinks *sinks)
{
	while (sinks->all)
		sink_free(sinks->all);
	free(sinks->scrap);
	sinks->scrap = NULL;
}

/* Its next turn comes with the next tick. */
static void sink_is_due(struct sink *sink)
{
	struct shard *shard = sink->shard;
	struct sinks *sinks = &shard->sinks;

	sink->next_due = NULL;
	*sinks->due_last = sink;
	sinks->due_last = &sink->next_due;
	if (!timer_is_set(&sinks->timer))
		(void)timer_set(&shard->timers, &sinks->timer,
				io_now_ns(shard->io) + TICK_NS); /* the heap has room for it */
}

static void sinks_tick(struct timer *timer)
{
	struct sinks *sinks = container_of(timer, struct sinks, timer);
	struct shard *shard = container_of(sinks, struct shard, sinks);

	for (int i = 0; i < READS_PER_TICK && sinks->due; i++) {
		struct sink *sink = sinks->due;

		sinks->due = sink->next_due;
		if (!sinks->due)
			sinks->due_last = &sinks->due;
		sink_read(sink);
	}
	if (sinks->due)
		(void)timer_set(&shard->timers, timer,
				io_now_ns(shard->io) + TICK_NS); /* as above */
}

static void sink_got(struct pipe_op *op, int res)
{
	struct sink *sink = container_of(op, struct sink, pipe);

	sink->reading = false;
	if (res > 0 || res == -EINTR || res == -EAGAIN) {
		sink_is_due(sink);
		return;
	}
	sink->shard->sinks.count--;
	sink_free(sink);
}

static void sink_read(struct sink *sink)
{
	sink->reading = true;
	sink->pipe.io = sink->shard->io;
	sink->pipe.done = sink_got;
	pipe_read(&sink->pipe, sink->fd, sink->shard->sinks.scrap, SCRAP_BYTES);
}

/* The oldest that waits for bytes: its next ones meet nobody. */
static void sinks_shrink(struct sinks *sinks)
{
	struct sink *oldest = NULL;

	for (struct sink *sink = sinks->all; sink; sink = sink->next)
		if (sink->reading)
			oldest = sink;
	if (oldest)
		pipe_cancel(&oldest->pipe);
}

void sink_take(struct shard *shard, int fd)
{
	struct sinks *sinks = &shard->sinks;
	struct sink *sink = calloc(1, sizeof *sink);

	if (!sink) {
		cleanup_close(&fd); /* its writers are told so, as of old */
		return;
	}
	sink->shard = shard;
	sink->fd = fd;
	sink->next = sinks->all;
	sink->link = &sinks->all;
	if (sink->next)
		sink->next->link = &sink->next;
	sinks->all = sink;
	sinks->timer.expired = sinks_tick;
	if (sinks->count++ >= shard->execs_max)
		sinks_shrink(sinks);
	sink_read(sink);
}
