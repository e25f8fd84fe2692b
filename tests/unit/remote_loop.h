/* A remote of a loop of a test's own, and reads that remember how they ended. */
#pragma once

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/config.h"
#include "engine/serve/remote.h"
#include "engine/shard.h"
#include "tests/slowness.h"

struct loop {
	struct shard shard;
	struct config config;
	struct remote *remote;
};

struct asked {
	struct remote_read read;
	unsigned told;
	int result;
};

/* The shard's own order: what the ring brings, then timers. */
static inline void loop_turn(struct loop *loop, uint64_t until_ns)
{
	const uint64_t timer_ns = timers_next(&loop->shard.timers);

	cr_assert_geq(io_turn(loop->shard.io, until_ns < timer_ns ? until_ns : timer_ns), 0);
	(void)timers_run(&loop->shard.timers, io_now_ns(loop->shard.io), 16);
}

static inline void loop_open(struct loop *loop, const char *address)
{
	const char *why = "";

	loop->shard.config = &loop->config;
	if (!loop->config.remote_timeout_s)
		loop->config.remote_timeout_s = 60;
	cr_assert_eq(timers_init(&loop->shard.timers, 64), 0);
	cr_assert_eq(io_open(&(struct io_options){ .entries = 64 }, &loop->shard.io), 0);
	cr_assert_eq(remote_check(address, &why), 0, "%s", why);
	cr_assert_eq(remote_open(address, &loop->shard, &loop->remote), 0);
}

/* What was given up may end after the remote was closed: its memory goes with its last op. */
static inline void loop_close(struct loop *loop)
{
	remote_close(loop->remote);
	for (unsigned turns = 0; turns < 8; turns++)
		loop_turn(loop, io_clock_ns(loop->shard.io) + 1000000);
	io_close(loop->shard.io);
	timers_done(&loop->shard.timers);
}

static inline void asked_done(struct remote_read *read, int result)
{
	struct asked *asked = container_of(read, struct asked, read);

	asked->told++;
	asked->result = result;
}

static inline void ask(struct loop *loop, struct asked *asked, uint64_t offset, uint32_t bytes)
{
	asked->told = 0;
	asked->read.offset = offset;
	asked->read.bytes = bytes;
	asked->read.done = asked_done;
	free(asked->read.buffer);
	asked->read.buffer = malloc(bytes ? bytes : 1);
	cr_assert(asked->read.buffer);
	memset(asked->read.buffer, 0xa5, bytes);
	remote_read(loop->remote, &asked->read);
	cr_assert_eq(asked->told, 0, "done() was called from within");
}

/* Until all of them were told; each once. */
static inline void loop_until(struct loop *loop, const struct asked *asked, size_t count)
{
	const uint64_t end_ns = io_clock_ns(loop->shard.io) + 20000000000ull * slowness();
	size_t told = 0;

	while (told < count && io_clock_ns(loop->shard.io) < end_ns) {
		loop_turn(loop, end_ns);
		for (told = 0; told < count && asked[told].told; told++)
			;
	}
	for (size_t i = 0; i < count; i++)
		cr_assert_eq(asked[i].told, 1, "read %zu was told %u times", i, asked[i].told);
}

static inline int ask_and_wait(struct loop *loop, struct asked *asked, uint64_t offset,
			       uint32_t bytes)
{
	ask(loop, asked, offset, bytes);
	loop_until(loop, asked, 1);
	return asked->result;
}

/* The byte of a blob at an offset: no two near each other alike. */
static inline uint8_t blob_byte(uint8_t blob, uint64_t offset)
{
	return (uint8_t)((offset * 2654435761u >> 16) + offset + blob * 31u);
}

static inline void assert_read(const struct asked *asked, uint32_t bytes)
{
	const uint8_t *got = asked->read.buffer;

	cr_assert_eq(asked->result, (int)bytes, "%d, not %u", asked->result, bytes);
	for (uint32_t i = 0; i < bytes; i++)
		cr_assert_eq(got[i], blob_byte(asked->read.blob[0], asked->read.offset + i),
			     "byte %u", i);
}
