/*
 * The second implementation of engine/base/io.h: a kernel made of a seed. Owns the clock, the ops
 * in flight and the mail under way of all loops of one world. Linked with the engine's code by
 * simulations. Always true: an op completes exactly once (or until it lacks IO_MORE), an op in
 * flight is not handed in again, mail between two loops keeps its order, time never goes back.
 */
#include "tests/sim/world.h"

#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { LOOPS_MAX = 8, FLIGHTS_MAX = 8192, MAILS_MAX = 8192 };

/* An op in flight. */
struct flight {
	struct io *io;
	struct io_op *op;
	struct world_op what;
	uint64_t due_ns; /* UINT64_MAX: never by itself */
	bool cancelled;	 /* the cancel won */
	bool multishot;
};

struct letter {
	struct mail *mail;
	struct io *from;
	uint64_t due_ns; /* not before that of an earlier one of the same two loops */
};

/* How this seed's world behaves, each in 1/256: some kinds of trouble absent, others common. */
struct temper {
	uint8_t error, refusal, hang, partial, end, cancel_wins, jump;
	uint64_t latency_max_ns;
};

struct world {
	struct world_options options;
	uint64_t chance, trace, now_ns;
	struct temper temper;
	struct io *loops[LOOPS_MAX];
	uint32_t loop_count, opened;
	struct flight *flights;
	uint32_t flight_count;
	struct letter *letters;
	uint32_t letter_count;
};

struct completion {
	struct io_op *op; /* one of the two */
	struct mail *mail;
	int res;
	bool more;
};

/* What one turn calls. */
struct due {
	struct completion *completions;
	uint32_t count, room;
};

struct io {
	struct world *world;
	void *owner;
	uint32_t index;
	uint64_t now_ns, waits_until_ns;
	struct io_stats stats;
};

static uint64_t chance_next(struct world *world)
{
	uint64_t z = world->chance += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

uint64_t world_random(struct world *world, uint64_t below)
{
	assert(below > 0);
	return chance_next(world) % below;
}

static bool chance_of(struct world *world, uint8_t of_256)
{
	return world_random(world, 256) < of_256;
}

void world_note(struct world *world, uint64_t what)
{
	world->trace = (world->trace ^ what) * 0x100000001b3ull;
	world->trace ^= world->trace >> 29;
}

static uint8_t temper_pick(struct world *world, uint8_t common)
{
	static const uint8_t parts[] = { 0, 0, 1, 2, 4 };

	return (uint8_t)(common * parts[world_random(world, sizeof parts)] / 4);
}

struct world *world_new(const struct world_options *options)
{
	struct world *world = calloc(1, sizeof *world);
	static const uint64_t latencies_ns[] = { 1, 100000, 3000000, 30000000 };

	assert(world);
	world->options = *options;
	world->chance = options->seed * 0x2545f4914f6cdd1dull + 1;
	world->now_ns = 1000000000ull + world_random(world, 1000000000ull);
	world->flights = calloc(FLIGHTS_MAX, sizeof *world->flights);
	world->letters = calloc(MAILS_MAX, sizeof *world->letters);
	assert(world->flights);
	assert(world->letters);
	world->temper = (struct temper){
		.error = temper_pick(world, 80),
		.refusal = temper_pick(world, 20),
		.hang = temper_pick(world, 60),
		.partial = temper_pick(world, 200),
		.end = temper_pick(world, 30),
		.cancel_wins = temper_pick(world, 255),
		.jump = temper_pick(world, 8),
		.latency_max_ns = latencies_ns[world_random(world, 4)],
	};
	return world;
}

void world_free(struct world *world)
{
	if (!world)
		return;
	assert(!world->loop_count);
	free(world->flights);
	free(world->letters);
	free(world);
}

uint64_t world_now_ns(const struct world *world)
{
	return world->now_ns;
}

bool world_is_idle(const struct world *world)
{
	return !world->flight_count && !world->letter_count;
}

uint64_t world_trace(const struct world *world)
{
	return world->trace;
}

int io_open(const struct io_options *options, struct io **ret)
{
	struct world *world = options->world;
	struct io *io = calloc(1, sizeof *io);

	assert(world);
	assert(world->opened < LOOPS_MAX);
	assert(io);
	io->world = world;
	io->owner = options->owner;
	io->index = world->opened++;
	io->waits_until_ns = UINT64_MAX;
	io->now_ns = world->now_ns;
	world->loops[world->loop_count++] = io;
	*ret = io;
	return 0;
}

/* The world forgets what the loop had in flight, as the kernel does. */
void io_close(struct io *io)
{
	struct world *world;
	uint32_t kept = 0;

	if (!io)
		return;
	world = io->world;
	for (uint32_t i = 0; i < world->flight_count; i++)
		if (world->flights[i].io != io)
			world->flights[kept++] = world->flights[i];
	world->flight_count = kept;
	kept = 0;
	for (uint32_t i = 0; i < world->letter_count; i++)
		if (world->letters[i].mail->to != io && world->letters[i].from != io)
			world->letters[kept++] = world->letters[i];
	world->letter_count = kept;
	for (uint32_t i = 0; i < world->loop_count; i++)
		if (world->loops[i] == io)
			world->loops[i] = world->loops[--world->loop_count];
	free(io);
}

uint64_t io_account(struct io *io, uintptr_t address)
{
	(void)address;
	return io->world->now_ns; /* time passes here only when the world says so */
}

const struct io_stats *io_stats(const struct io *io)
{
	return &io->stats;
}

uint64_t io_now_ns(const struct io *io)
{
	return io->now_ns;
}

uint64_t io_clock_ns(struct io *io)
{
	io->world->now_ns += world_random(io->world, 1000); /* work takes time */
	return io->world->now_ns;
}

void io_random(struct io *io, void *ret_bytes, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		((uint8_t *)ret_bytes)[i] = (uint8_t)chance_next(io->world);
}

static uint64_t latency_ns(struct world *world)
{
	uint64_t most = world->temper.latency_max_ns;

	/* A few are much slower than the others. */
	if (world_random(world, 16) == 0)
		most *= 10;
	return world_random(world, most);
}

static bool op_hangs(struct world *world, const struct world_op *what)
{
	if (!chance_of(world, world->temper.hang))
		return false;
	return !world->options.may_hang || world->options.may_hang(world->options.context, what);
}

static void op_submit(struct io *io, struct io_op *op, struct world_op what)
{
	struct world *world = io->world;
	struct flight *flight = &world->flights[world->flight_count];

	assert(!(op->flags & IO_IN_FLIGHT));
	assert(op->done);
	assert(world->flight_count < FLIGHTS_MAX);
	world->flight_count++;
	op->flags = IO_IN_FLIGHT;
	*flight = (struct flight){
		.io = io,
		.op = op,
		.what = what,
		.multishot = what.kind == WORLD_ACCEPT || what.kind == WORLD_POLL,
		.due_ns = world->now_ns + latency_ns(world),
	};
	if (chance_of(world, world->temper.refusal)) {
		op->flags |= IO_REFUSED;
		flight->due_ns = world->now_ns;
	} else if (op_hangs(world, &what)) {
		flight->due_ns = UINT64_MAX;
	}
}

void io_read(struct io *io, struct io_op *op, int fd, void *buffer, uint32_t bytes)
{
	op_submit(io, op, (struct world_op){ WORLD_READ, fd, buffer, bytes });
}

void io_write(struct io *io, struct io_op *op, int fd, const void *buffer, uint32_t bytes)
{
	op_submit(io, op, (struct world_op){ WORLD_WRITE, fd, (void *)(uintptr_t)buffer, bytes });
}

void io_read_far(struct io *io, struct io_op *op, int fd, const struct io_range *range)
{
	io_read(io, op, fd, range->buffer, range->bytes); /* all are as slow as the world likes */
}

void io_write_far(struct io *io, struct io_op *op, int fd, const struct io_range *range)
{
	io_write(io, op, fd, range->buffer, range->bytes);
}

void io_recv(struct io *io, struct io_op *op, int fd, void *buffer, uint32_t bytes)
{
	op_submit(io, op, (struct world_op){ WORLD_RECV, fd, buffer, bytes });
}

void io_send(struct io *io, struct io_op *op, int fd, const void *buffer, uint32_t bytes)
{
	op_submit(io, op, (struct world_op){ WORLD_SEND, fd, (void *)(uintptr_t)buffer, bytes });
}

static uint32_t message_bytes(const struct msghdr *message)
{
	size_t bytes = 0;

	for (size_t i = 0; i < message->msg_iovlen; i++)
		bytes += message->msg_iov[i].iov_len;
	return (uint32_t)bytes;
}

void io_recvmsg(struct io *io, struct io_op *op, int fd, struct msghdr *message)
{
	op_submit(io, op, (struct world_op){ WORLD_RECVMSG, fd, message, message_bytes(message) });
}

void io_sendmsg(struct io *io, struct io_op *op, int fd, const struct msghdr *message)
{
	op_submit(io, op,
		  (struct world_op){ WORLD_SENDMSG, fd, (void *)(uintptr_t)message,
				     message_bytes(message) });
}

void io_accept(struct io *io, struct io_op *op, int fd)
{
	op_submit(io, op, (struct world_op){ WORLD_ACCEPT, fd, NULL, 0 });
}

void io_poll(struct io *io, struct io_op *op, int fd, uint32_t events)
{
	op_submit(io, op, (struct world_op){ WORLD_POLL, fd, NULL, events });
}

void io_poll_once(struct io *io, struct io_op *op, int fd, uint32_t events)
{
	op_submit(io, op, (struct world_op){ WORLD_POLL_ONCE, fd, NULL, events });
}

void io_open_folder(struct io *io, struct io_op *op, int folder_fd, const char *path)
{
	(void)path; /* the world has one folder only */
	op_submit(io, op, (struct world_op){ WORLD_OPEN, folder_fd, NULL, 0 });
}

void io_close_fd(struct io *io, struct io_op *op, int fd)
{
	op_submit(io, op, (struct world_op){ WORLD_CLOSE, fd, NULL, 0 });
}

void io_wait_pid(struct io *io, struct io_op *op, int pid, void *ret_info)
{
	op_submit(io, op, (struct world_op){ WORLD_WAIT_PID, pid, ret_info, 0 });
}

/* The same here: nobody in the simulated world asks a child twice. */
void io_watch_pid(struct io *io, struct io_op *op, int pid, void *ret_info)
{
	io_wait_pid(io, op, pid, ret_info);
}

void io_cancel(struct io *io, struct io_op *target)
{
	struct world *world = io->world;

	if (!(target->flags & IO_IN_FLIGHT) || target->flags & (IO_REFUSED | IO_CANCEL_SENT))
		return;
	target->flags |= IO_CANCEL_SENT;
	for (struct flight *f = world->flights; f < world->flights + world->flight_count; f++) {
		if (f->op != target)
			continue;
		/* What hangs ends by a cancel only; the others may be over before it comes. */
		if (f->due_ns != UINT64_MAX && !f->multishot &&
		    !chance_of(world, world->temper.cancel_wins))
			return;
		f->cancelled = true;
		f->due_ns = world->now_ns + latency_ns(world) / 16;
	}
}

void mail_send(struct io *io, struct io *to, struct mail *mail)
{
	struct world *world = io->world;
	uint64_t due_ns = world->now_ns + latency_ns(world) / 16;

	assert(world->letter_count < MAILS_MAX);
	mail->to = to;
	mail->next = NULL;
	for (uint32_t i = 0; i < world->letter_count; i++) {
		struct letter *earlier = &world->letters[i];

		if (earlier->from == io && earlier->mail->to == to && earlier->due_ns > due_ns)
			due_ns = earlier->due_ns;
	}
	world->letters[world->letter_count++] =
		(struct letter){ .mail = mail, .from = io, .due_ns = due_ns };
	io->stats.mails_sent++;
}

static int error_pick(struct world *world)
{
	static const int errors[] = { -EIO, -ENOSPC, -ENOMEM, -EMFILE, -ECONNRESET, -EAGAIN };

	return errors[world_random(world, sizeof errors / sizeof errors[0])];
}

/* What the kernel would have said, its effect on the caller's memory included. */
static int flight_result(struct world *world, struct flight *f)
{
	const struct world_op *what = &f->what;

	if (f->op->flags & IO_REFUSED)
		return -EBUSY;
	if (chance_of(world, world->temper.error))
		return error_pick(world);
	switch (what->kind) {
	case WORLD_READ:
	case WORLD_RECV:
	case WORLD_RECVMSG:
		if (chance_of(world, world->temper.end))
			return 0;
		break;
	case WORLD_WRITE:
	case WORLD_SEND:
	case WORLD_SENDMSG:
		break;
	case WORLD_ACCEPT:
		return 1000 + (int)world_random(world, 1000);
	case WORLD_POLL:
	case WORLD_POLL_ONCE:
		return (int)what->bytes;
	case WORLD_OPEN:
		return what->fd;
	case WORLD_CLOSE:
		return 0;
	case WORLD_WAIT_PID:
		if (what->buffer) {
			siginfo_t *info = what->buffer;

			info->si_pid = what->fd;
			info->si_code = CLD_EXITED;
			info->si_status = (int)world_random(world, 256);
		}
		return 0;
	}
	if (what->bytes > 1 && chance_of(world, world->temper.partial))
		return 1 + (int)world_random(world, what->bytes - 1);
	return (int)what->bytes;
}

static void flight_fill(struct world *world, const struct world_op *what, int res)
{
	if (res > 0 && (what->kind == WORLD_READ || what->kind == WORLD_RECV))
		memset(what->buffer, (int)world_random(world, 256), (size_t)res);
}

/* The flight ends, or goes on when it is a multishot one. */
static struct completion flight_land(struct world *world, uint32_t index)
{
	struct flight *f = &world->flights[index];
	struct completion c = { .op = f->op, .res = -ECANCELED };

	if (!f->cancelled) {
		c.res = flight_result(world, f);
		flight_fill(world, &f->what, c.res);
		if (world->options.serve)
			c.res = world->options.serve(world->options.context, &f->what, c.res);
		c.more = f->multishot && c.res >= 0 && world_random(world, 8);
	}
	if (c.more)
		f->due_ns = world->now_ns + latency_ns(world);
	else
		world->flights[index] = world->flights[--world->flight_count];
	return c;
}

/* The earliest thing that can happen anywhere, or that a loop waits for. */
static uint64_t world_next_ns(const struct world *world)
{
	uint64_t next = UINT64_MAX;

	for (uint32_t i = 0; i < world->flight_count; i++)
		if (world->flights[i].due_ns < next)
			next = world->flights[i].due_ns;
	for (uint32_t i = 0; i < world->letter_count; i++)
		if (world->letters[i].due_ns < next)
			next = world->letters[i].due_ns;
	for (uint32_t i = 0; i < world->loop_count; i++)
		if (world->loops[i]->waits_until_ns < next)
			next = world->loops[i]->waits_until_ns;
	return next;
}

static void clock_advance(struct io *io, uint64_t until_ns)
{
	struct world *world = io->world;
	uint64_t next;

	io->waits_until_ns = until_ns ? until_ns : UINT64_MAX;
	next = until_ns ? world_next_ns(world) : 0;
	world->now_ns += world_random(world, 2000);
	if (next != UINT64_MAX && next > world->now_ns)
		world->now_ns = next;
	/* The machine was busy with something else, or asleep. */
	if (chance_of(world, world->temper.jump))
		world->now_ns += world_random(world, 5000000000ull);
	io->now_ns = world->now_ns;
}

static void due_add(struct due *due, struct completion c)
{
	if (due->count == due->room) {
		due->room = due->room * 2 + 16;
		due->completions = realloc(due->completions, due->room * sizeof c);
		assert(due->completions);
	}
	due->completions[due->count++] = c;
}

/* Some of the loop's ops that are due, in any order. */
static void flights_collect(struct io *io, struct due *due)
{
	struct world *world = io->world;
	uint32_t start = world->flight_count ? (uint32_t)world_random(world, world->flight_count) :
					       0;
	uint32_t wanted = 1 + (uint32_t)world_random(world, 16);

	for (uint32_t seen = 0; seen < world->flight_count && wanted; seen++) {
		uint32_t index = (start + seen) % world->flight_count;
		struct flight *f = &world->flights[index];

		if (f->io != io || f->due_ns > world->now_ns || world_random(world, 4) == 0)
			continue;
		due_add(due, flight_land(world, index));
		wanted--;
	}
}

/* Mail that is due; once one is held back, so is all later mail from the same loop. */
static void letters_collect(struct io *io, struct due *due)
{
	struct world *world = io->world;
	bool held[LOOPS_MAX] = { false };
	uint32_t kept = 0;

	for (uint32_t i = 0; i < world->letter_count; i++) {
		struct letter letter = world->letters[i];

		if (letter.mail->to == io &&
		    (letter.due_ns > world->now_ns || world_random(world, 4) == 0))
			held[letter.from->index] = true;
		if (letter.mail->to == io && !held[letter.from->index])
			due_add(due, (struct completion){ .mail = letter.mail });
		else
			world->letters[kept++] = letter;
	}
	world->letter_count = kept;
}

static void completion_run(struct io *io, const struct completion *c)
{
	io->stats.callbacks++;
	if (c->mail) {
		io->stats.mails_received++;
		world_note(io->world, 1);
		c->mail->deliver(c->mail, io->owner);
		return;
	}
	world_note(io->world, (uint64_t)(uint32_t)c->res << 8 | 2);
	c->op->res = c->res;
	c->op->flags = c->more ? c->op->flags | IO_MORE : 0;
	c->op->done(c->op, c->res);
}

/* Ops in any order; mail keeps its places. */
static void due_shuffle(struct world *world, struct due *due)
{
	for (uint32_t i = due->count; i > 1; i--) {
		struct completion *a = &due->completions[i - 1];
		struct completion *b = &due->completions[world_random(world, i)];
		struct completion swapped = *a;

		if (a->mail || b->mail)
			continue;
		*a = *b;
		*b = swapped;
	}
}

int io_turn(struct io *io, uint64_t until_ns)
{
	struct world *world = io->world;
	struct due due = { 0 };

	clock_advance(io, until_ns);
	flights_collect(io, &due);
	letters_collect(io, &due);
	due_shuffle(world, &due);
	world_note(world, world->now_ns << 8 | io->index);
	io->stats.turns++;
	for (uint32_t i = 0; i < due.count; i++)
		completion_run(io, &due.completions[i]);
	free(due.completions);
	return (int)due.count;
}
