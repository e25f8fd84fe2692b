/*
 * Ops over real descriptors without a ring. Owns the clock, the ops in flight and the mail of all
 * loops of one fuzz run. Always true: an op completes exactly once (or until it lacks IO_MORE),
 * mail between two loops keeps its order, time never goes back.
 */
#include "tests/fuzz/kernel.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/io.h"

enum { FLIGHTS_MAX = 1024, LOOPS_MAX = 3 };

enum kind { KIND_READ, KIND_WRITE, KIND_RECV, KIND_SEND, KIND_POLL, KIND_POLL_ONCE, KIND_CLOSE };

struct flight {
	struct io *io;
	struct io_op *op;
	enum kind kind;
	int fd;
	void *buffer;
	uint32_t bytes; /* or events */
	uint32_t told;	/* events */
	bool cancelled;
};

struct kernel {
	struct choices *choices;
	uint64_t now_ns;
	struct flight flights[FLIGHTS_MAX];
	uint32_t flight_count, loop_count;
	bool moved;
};

struct io {
	struct kernel *kernel;
	void *owner;
	struct mail *mail, **mail_last;
	uint64_t now_ns;
	uint32_t accounts;
	struct io_stats stats;
};

struct kernel *kernel_new(struct choices *choices)
{
	struct kernel *kernel = calloc(1, sizeof *kernel);

	assert(kernel);
	kernel->choices = choices;
	kernel->now_ns = 1000000000;
	return kernel;
}

void kernel_free(struct kernel *kernel)
{
	assert(!kernel->loop_count);
	assert(!kernel->flight_count);
	free(kernel);
}

uint64_t kernel_now_ns(const struct kernel *kernel)
{
	return kernel->now_ns;
}

void kernel_pass(struct kernel *kernel, uint64_t ns)
{
	kernel->now_ns += ns;
}

bool kernel_moved(struct kernel *kernel)
{
	bool moved = kernel->moved;

	kernel->moved = false;
	return moved;
}

struct world *kernel_world(struct kernel *kernel)
{
	return (struct world *)kernel;
}

/* ---- io.h ---- */

int io_open(const struct io_options *options, struct io **ret)
{
	struct io *io = calloc(1, sizeof *io);

	assert(io);
	io->kernel = (struct kernel *)options->world;
	io->owner = options->owner;
	io->mail_last = &io->mail;
	io->now_ns = io->kernel->now_ns;
	io->kernel->loop_count++;
	assert(io->kernel->loop_count <= LOOPS_MAX);
	*ret = io;
	return 0;
}

void io_close(struct io *io)
{
	struct kernel *kernel = io->kernel;

	assert(!io->mail);
	for (uint32_t i = 0; i < kernel->flight_count; i++)
		assert(kernel->flights[i].io != io);
	kernel->loop_count--;
	free(io);
}

const char *io_explain(int error)
{
	(void)error;
	return NULL;
}

/* Every few callbacks one seems to have taken a second, without which time had passed. */
uint64_t io_account(struct io *io, uintptr_t address)
{
	(void)address;
	return io->kernel->now_ns + (++io->accounts % 5 ? 0 : 1000000000);
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
	return io->kernel->now_ns;
}

void io_random(struct io *io, void *ret_bytes, size_t bytes)
{
	(void)io;
	memset(ret_bytes, 0x5a, bytes); /* a run must be the same each time */
}

static void op_submit(struct io *io, struct io_op *op, struct flight flight)
{
	struct kernel *kernel = io->kernel;

	assert(!(op->flags & IO_IN_FLIGHT));
	assert(op->done);
	assert(flight.fd >= 0);
	assert(kernel->flight_count < FLIGHTS_MAX);
	flight.io = io;
	flight.op = op;
	op->flags = IO_IN_FLIGHT;
	kernel->flights[kernel->flight_count++] = flight;
}

void io_read(struct io *io, struct io_op *op, int fd, void *buffer, uint32_t bytes)
{
	op_submit(io, op,
		  (struct flight){ .kind = KIND_READ, .fd = fd, .buffer = buffer, .bytes = bytes });
}

void io_write(struct io *io, struct io_op *op, int fd, const void *buffer, uint32_t bytes)
{
	op_submit(io, op,
		  (struct flight){ .kind = KIND_WRITE,
				   .fd = fd,
				   .buffer = (void *)(uintptr_t)buffer,
				   .bytes = bytes });
}

void io_read_far(struct io *io, struct io_op *op, int fd, const struct io_range *range)
{
	io_read(io, op, fd, range->buffer, range->bytes); /* a pipe has no position */
}

void io_write_far(struct io *io, struct io_op *op, int fd, const struct io_range *range)
{
	io_write(io, op, fd, range->buffer, range->bytes);
}

void io_recv(struct io *io, struct io_op *op, int fd, void *buffer, uint32_t bytes)
{
	op_submit(io, op,
		  (struct flight){ .kind = KIND_RECV, .fd = fd, .buffer = buffer, .bytes = bytes });
}

void io_send(struct io *io, struct io_op *op, int fd, const void *buffer, uint32_t bytes)
{
	op_submit(io, op,
		  (struct flight){ .kind = KIND_SEND,
				   .fd = fd,
				   .buffer = (void *)(uintptr_t)buffer,
				   .bytes = bytes });
}

void io_poll(struct io *io, struct io_op *op, int fd, uint32_t events)
{
	op_submit(io, op, (struct flight){ .kind = KIND_POLL, .fd = fd, .bytes = events });
}

void io_poll_once(struct io *io, struct io_op *op, int fd, uint32_t events)
{
	op_submit(io, op, (struct flight){ .kind = KIND_POLL_ONCE, .fd = fd, .bytes = events });
}

void io_close_fd(struct io *io, struct io_op *op, int fd)
{
	op_submit(io, op, (struct flight){ .kind = KIND_CLOSE, .fd = fd });
}

void io_cancel(struct io *io, struct io_op *target)
{
	struct kernel *kernel = io->kernel;

	for (uint32_t i = 0; i < kernel->flight_count; i++)
		if (kernel->flights[i].op == target)
			kernel->flights[i].cancelled = true;
}

void mail_send(struct io *io, struct io *to, struct mail *mail)
{
	(void)io;
	mail->next = NULL;
	*to->mail_last = mail;
	to->mail_last = &mail->next;
}

/* ---- a turn ---- */

static bool is_ready(const struct flight *flight, uint32_t *ret_events)
{
	static const short wanted[] = { [KIND_READ] = POLLIN,
					[KIND_WRITE] = POLLOUT,
					[KIND_RECV] = POLLIN,
					[KIND_SEND] = POLLOUT };
	struct pollfd at = { .fd = flight->fd };

	if (flight->kind == KIND_CLOSE)
		return true;
	at.events = flight->kind >= KIND_POLL ? (short)flight->bytes : wanted[flight->kind];
	if (poll(&at, 1, 0) <= 0)
		return false;
	assert(!(at.revents & POLLNVAL)); /* an op on a descriptor that was closed */
	*ret_events = (uint32_t)at.revents;
	return flight->kind != KIND_POLL || *ret_events != flight->told;
}

/* What the kernel does; less of it where the input says so. */
static int flight_do(const struct flight *flight, uint32_t events)
{
	size_t bytes = flight->bytes;
	ssize_t r = 0;

	if (flight->kind < KIND_POLL && bytes > 1 && choose(flight->io->kernel->choices, 4) == 3)
		bytes = 1 + choose_byte(flight->io->kernel->choices) % (bytes - 1);
	switch (flight->kind) {
	case KIND_READ:
		r = read(flight->fd, flight->buffer, flight->bytes);
		break;
	case KIND_WRITE:
		r = write(flight->fd, flight->buffer, bytes);
		break;
	case KIND_RECV:
		r = recv(flight->fd, flight->buffer, bytes, MSG_DONTWAIT);
		break;
	case KIND_SEND:
		r = send(flight->fd, flight->buffer, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
		break;
	case KIND_POLL:
	case KIND_POLL_ONCE:
		return (int)events;
	case KIND_CLOSE:
		r = close(flight->fd);
		break;
	}
	return r < 0 ? -errno : (int)r;
}

static void flight_land(struct kernel *kernel, uint32_t index)
{
	struct flight flight = kernel->flights[index];
	uint32_t events = 0;
	bool more = false;
	int res;

	if (!is_ready(&flight, &events)) {
		if (!flight.cancelled)
			return;
		res = -ECANCELED;
	} else if (flight.cancelled && flight.kind != KIND_CLOSE &&
		   choose(kernel->choices, 2) == 0) {
		res = -ECANCELED;
	} else {
		res = flight_do(&flight, events);
		more = flight.kind == KIND_POLL && !flight.cancelled;
	}
	kernel->flights[index].told = events;
	if (!more)
		kernel->flights[index] = kernel->flights[--kernel->flight_count];
	kernel->moved = true;
	flight.op->res = res;
	flight.op->flags = more ? IO_IN_FLIGHT | IO_MORE : 0;
	flight.op->done(flight.op, res);
}

static void mail_deliver(struct io *io)
{
	struct mail *mail = io->mail;

	io->mail = NULL;
	io->mail_last = &io->mail;
	while (mail) {
		struct mail *next = mail->next;

		io->kernel->moved = true;
		mail->deliver(mail, io->owner);
		mail = next;
	}
}

int io_turn(struct io *io, uint64_t until_ns)
{
	struct kernel *kernel = io->kernel;
	struct io_op *ops[FLIGHTS_MAX];
	uint32_t count = 0, first;

	(void)until_ns; /* time passes when the input says so */
	io->now_ns = kernel->now_ns;
	for (uint32_t i = 0; i < kernel->flight_count; i++)
		if (kernel->flights[i].io == io)
			ops[count++] = kernel->flights[i].op;
	first = count ? choose(kernel->choices, count) : 0;
	if (choose(kernel->choices, 8) != 7)
		mail_deliver(io);
	for (uint32_t i = 0; i < count; i++) {
		const struct io_op *op = ops[(first + i) % count];

		/* Those that were begun since wait for the next turn. */
		if (choose(kernel->choices, 8) == 7)
			continue;
		for (uint32_t k = 0; k < kernel->flight_count; k++) {
			if (kernel->flights[k].op == op) {
				flight_land(kernel, k);
				break;
			}
		}
	}
	return 0;
}
