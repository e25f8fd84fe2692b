/*
 * A FUSE connection on a shard: requests are read while slots are free, and answered. Called by the
 * shard's loop and by the server. Must hold: the device's descriptor is non-blocking; a request is
 * answered once or not at all, and what is no request is answered by nobody.
 */
#include <errno.h>
#include <linux/fuse.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/serve/server.h"
#include "engine/shard.h"

/* Of one turn: an answer is a copy of up to ASK_READ_BYTES_MAX. */
enum { ASKS_PER_TURN = 8 };

/* Attributes and names of segments never change. */
enum { VALID_S = 86400 };

/* Newer than the headers of Debian 12. Until Linux 6.9's headers are the minimum. */
#define HAS_RESEND (1ull << 39)

#define OURS                                                                                       \
	((uint64_t)FUSE_ASYNC_READ | FUSE_MAX_PAGES | FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS |      \
	 FUSE_INIT_EXT | HAS_RESEND)

void connection_answer(struct connection *connection, uint64_t unique, int error, const void *bytes,
		       size_t count)
{
	struct fuse_out_header head = {
		.len = (uint32_t)(sizeof head + count),
		.error = error,
		.unique = unique,
	};
	const struct iovec parts[] = { { &head, sizeof head },
				       { (void *)(uintptr_t)bytes, count } };

	if (connection->fd < 0)
		return;
	/* Who asked may have gone meanwhile: ENOENT. */
	if (writev(connection->fd, parts, count ? 2 : 1) < 0 && errno != ENOENT)
		log_error("fuse answer failed err=%s, continuing", strerror(errno));
}

static void init_answer(struct connection *connection, const struct fuse_ask *ask)
{
	const uint64_t flags = ask->offered & OURS;
	const struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION,
		.minor = ask->minor < FUSE_KERNEL_MINOR_VERSION ? ask->minor :
								  FUSE_KERNEL_MINOR_VERSION,
		.max_readahead = ask->readahead < ASK_READ_BYTES_MAX ? ask->readahead :
								       ASK_READ_BYTES_MAX,
		.flags = (uint32_t)flags,
		.flags2 = (uint32_t)(flags >> 32),
		.max_background = 2 * SLOTS,
		.congestion_threshold = SLOTS,
		.max_write = 4096,
		.max_pages = ASK_READ_BYTES_MAX / 4096,
		.time_gran = 1,
	};

	connection_answer(connection, ask->unique, 0, &out, sizeof out);
}

static struct fuse_attr attributes_of(const struct served *served)
{
	if (!served)
		return (struct fuse_attr){ .ino = ASK_ROOT, .mode = S_IFDIR | 0555, .nlink = 2 };
	return (struct fuse_attr){
		.ino = served->node,
		.size = served->bytes,
		.blocks = served->bytes / 512,
		.mode = S_IFREG | 0444,
		.nlink = 1,
		.blksize = SEGMENT_CHUNK_BYTES,
	};
}

static const struct served *served_named(const struct server *server, const uint8_t *digest)
{
	for (uint32_t i = 0; i < BUCKETS; i++)
		for (const struct served *s = server->buckets[i]; s; s = s->next)
			if (!memcmp(s->digest, digest, DIGEST_BYTES))
				return s;
	return NULL;
}

static void lookup_answer(struct connection *connection, const struct fuse_ask *ask)
{
	const struct served *served = served_named(connection->server, ask->name);
	struct fuse_entry_out out = { .entry_valid = VALID_S, .attr_valid = VALID_S };

	if (!served) {
		connection_answer(connection, ask->unique, -ENOENT, NULL, 0);
		return;
	}
	out.nodeid = served->node;
	out.attr = attributes_of(served);
	connection_answer(connection, ask->unique, 0, &out, sizeof out);
}

static void attributes_answer(struct connection *connection, const struct fuse_ask *ask)
{
	const struct served *served = server_find(connection->server, ask->node);
	const struct fuse_attr_out out = { .attr_valid = VALID_S, .attr = attributes_of(served) };

	if (!served && ask->node != ASK_ROOT)
		connection_answer(connection, ask->unique, -ESTALE, NULL, 0);
	else
		connection_answer(connection, ask->unique, 0, &out, sizeof out);
}

static void open_answer(struct connection *connection, const struct fuse_ask *ask)
{
	const struct fuse_open_out out = { .fh = ask->node, .open_flags = FOPEN_KEEP_CACHE };

	if (server_find(connection->server, ask->node))
		connection_answer(connection, ask->unique, 0, &out, sizeof out);
	else
		connection_answer(connection, ask->unique, -ESTALE, NULL, 0);
}

static void ask_take(struct connection *connection, const struct fuse_ask *ask)
{
	const struct fuse_statfs_out fs = { .st = { .bsize = 4096, .namelen = 255 } };

	switch (ask->kind) {
	case ASK_INIT:
		init_answer(connection, ask);
		return;
	case ASK_LOOKUP:
		lookup_answer(connection, ask);
		return;
	case ASK_ATTRIBUTES:
		attributes_answer(connection, ask);
		return;
	case ASK_OPEN:
		open_answer(connection, ask);
		return;
	case ASK_READ:
		slot_begin(connection, ask);
		return;
	case ASK_STATFS:
		connection_answer(connection, ask->unique, 0, &fs, sizeof fs);
		return;
	case ASK_INTERRUPT:
		slots_interrupt(connection->server, ask->interrupted);
		return;
	case ASK_PLAIN:
		connection_answer(connection, ask->unique, ask->error, NULL, 0);
		return;
	case ASK_SILENT:
	case ASK_KINDS:
		return;
	}
}

/* False: there is no more for now, or never again. */
static bool ask_next(struct connection *connection)
{
	struct server *server = connection->server;
	struct fuse_ask ask;
	ssize_t n = read(connection->fd, server->ask, ASK_BYTES_MIN);

	if (n >= 0) {
		if (fuse_ask_read(server->ask, (size_t)n, &ask) >= 0)
			ask_take(connection, &ask);
		return true;
	}
	/* It was interrupted before we took it: there may be others. */
	if (errno == ENOENT || errno == EINTR)
		return true;
	if (errno != EAGAIN) {
		if (errno != ENODEV)
			log_error("fuse device failed err=%s: what it serves is lost",
				  strerror(errno));
		connection_end(connection);
	}
	return false;
}

static void asks_came(struct io_op *op, int res)
{
	struct connection *connection = container_of(op, struct connection, op);

	(void)res; /* reading says what it is */
	connection->is_waiting = false;
	for (int i = 0; i < ASKS_PER_TURN && connection->server->free; i++)
		if (!ask_next(connection))
			break;
	connection_listen(connection);
}

void connection_listen(struct connection *connection)
{
	if (connection->fd < 0 || connection->is_waiting || !connection->server->free)
		return;
	connection->is_waiting = true;
	connection->op.done = asks_came;
	io_poll_once(connection->server->shard->io, &connection->op, connection->fd, POLLIN);
}

void connections_resume(struct server *server)
{
	for (struct connection *c = server->connections; c < server->connections + CONNECTIONS; c++)
		connection_listen(c);
}

/* Its mount is gone, or it was refused: nobody reads by it any more. */
void connection_end(struct connection *connection)
{
	(void)close(take_fd(&connection->fd)); /* nothing is in flight there */
}
