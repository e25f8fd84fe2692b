/*
 * Reads of segments. Called by connection.c with what the kernel asks, by fill.c with chunks, and
 * by mail of the control thread with segments. Must hold: a read is answered once: with bytes that
 * were checked against the segment's chunk table, or with an error, within the remote's bound of
 * time; its slot is free only when no part of it is under way.
 */
#include "engine/serve/server.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/config.h"
#include "engine/serve/serve.h"
#include "engine/shard.h"

#define NS_PER_S     1000000000ull
#define TICK_NS	     (NS_PER_S / 2)
/* Whoever is interrupted may only have had a signal that it handles. */
#define INTERRUPT_NS (5 * NS_PER_S)

enum {
	SLOT_BUFFERS_BYTES = SLOTS * ASK_READ_BYTES_MAX,
	FETCH_BYTES = FETCH_CHUNKS * SEGMENT_CHUNK_BYTES,
	BUFFERS_BYTES = SLOT_BUFFERS_BYTES + FETCHES * FETCH_BYTES,
};

/* ---- segments ---- */

static struct served **bucket_of_node(struct server *server, uint64_t node)
{
	return &server->buckets[node % BUCKETS];
}

struct served *server_find(const struct server *server, uint64_t node)
{
	struct served *served = server->buckets[node % BUCKETS];

	while (served && served->node != node)
		served = served->next;
	return served;
}

void server_tick_soon(struct server *server)
{
	if (!timer_is_set(&server->timer))
		(void)timer_set(&server->shard->timers, &server->timer,
				io_now_ns(server->shard->io) + TICK_NS);
}

/* ---- slots ---- */

static void slot_free(struct slot *slot)
{
	struct server *server = slot->connection->server;
	struct served *served = slot->served;

	if (slot->next)
		slot->next->previous = slot->previous;
	else
		server->last = slot->previous;
	if (slot->previous)
		slot->previous->next = slot->next;
	else
		server->first = slot->next;
	slot->served = NULL;
	slot->next = server->free;
	server->free = slot;
	if (!slot->next)
		connections_resume(server);
	if (served)
		served_settle(served);
}

static void slot_answer(struct slot *slot, int error)
{
	if (!slot->is_answered)
		connection_answer(slot->connection, slot->unique, error,
				  error ? NULL : slot->buffer, error ? 0 : slot->bytes);
	slot->is_answered = true;
	slot->missing = 0;
	if (!slot->parts_busy)
		slot_free(slot);
}

static void slot_settle(struct slot *slot)
{
	if (!slot->missing && !slot->parts_busy)
		slot_answer(slot, 0);
}

/* What of a chunk the slot wants: in the chunk, and in the slot's buffer. */
static void slot_copy(struct slot *slot, uint32_t chunk, const char *bytes)
{
	const uint64_t start = (uint64_t)chunk * SEGMENT_CHUNK_BYTES;
	const uint64_t from = start > slot->offset ? start : slot->offset;
	uint64_t to = start + chunk_bytes(slot->served, chunk);

	if (to > slot->offset + slot->bytes)
		to = slot->offset + slot->bytes;
	memcpy(slot->buffer + (from - slot->offset), bytes + (from - start), to - from);
}

/* ---- what is in the cache's file ---- */

static void part_came(struct io_op *op, int res)
{
	struct slot_part *part = container_of(op, struct slot_part, op);
	struct slot *slot = part->slot;
	struct server *server = slot->connection->server;

	slot->parts_busy--;
	slot->served->flights--;
	if (res != (int)part->bytes && !slot->is_answered) {
		for (uint32_t i = 0; i < part->count; i++) {
			fill_lost(slot->served, part->chunk + i);
			slot->missing |= 1u << (part->chunk + i - slot->chunk);
		}
		fill_go_on(server);
		return;
	}
	if (slot->is_answered && !slot->parts_busy)
		slot_free(slot);
	else
		slot_settle(slot);
}

static void part_begin(struct slot *slot, struct slot_part *part)
{
	const uint64_t start = (uint64_t)part->chunk * SEGMENT_CHUNK_BYTES;
	const uint64_t from = start > slot->offset ? start : slot->offset;
	uint64_t to = start + (uint64_t)part->count * SEGMENT_CHUNK_BYTES;
	struct io_range range;

	if (to > slot->offset + slot->bytes)
		to = slot->offset + slot->bytes;
	part->bytes = (uint32_t)(to - from);
	range = (struct io_range){ slot->buffer + (from - slot->offset), part->bytes, from };
	part->slot = slot;
	part->op.done = part_came;
	slot->parts_busy++;
	slot->served->flights++;
	io_read_at(slot->connection->server->shard->io, &part->op, slot->served->data_fd, &range);
}

/* Chunks that are GOOD are read as runs; what is HELD is taken; the others are missing. */
static void slot_look(struct slot *slot, uint32_t count)
{
	struct served *served = slot->served;
	struct server *server = slot->connection->server;
	struct slot_part *part = slot->parts;
	bool is_run = false;

	for (uint32_t i = 0; i < count; i++) {
		const uint32_t chunk = slot->chunk + i;

		if (served->states[chunk] == CHUNK_GOOD) {
			if (!is_run)
				*part++ = (struct slot_part){ .chunk = chunk };
			part[-1].count++;
			is_run = true;
			continue;
		}
		is_run = false;
		if (served->states[chunk] == CHUNK_HELD)
			slot_copy(slot, chunk, fill_held(server, served, chunk));
		else
			slot->missing |= 1u << i;
	}
	for (struct slot_part *p = slot->parts; p < part; p++)
		part_begin(slot, p);
}

static void slot_start(struct slot *slot)
{
	struct served *served = slot->served;
	struct server *server = slot->connection->server;
	uint32_t chunk, end;

	if (served->is_leaving || slot->offset >= served->bytes) {
		slot->bytes = 0;
		slot_answer(slot, served->is_leaving ? -ESTALE : 0);
		return;
	}
	if (slot->bytes > served->bytes - slot->offset)
		slot->bytes = (uint32_t)(served->bytes - slot->offset);
	slot->chunk = chunk = (uint32_t)(slot->offset / SEGMENT_CHUNK_BYTES);
	end = (uint32_t)((slot->offset + slot->bytes - 1) / SEGMENT_CHUNK_BYTES) + 1;
	served->asked += slot->bytes;
	server->counts.reads++;
	slot_look(slot, end - chunk);
	if (slot->missing)
		fill_go_on(server);
	else
		slot_settle(slot);
	ahead_note(server, served, chunk, end); /* what is waited for goes first */
}

/* Of an engine before: the control thread may know the node. One is asked for at a time. */
static void node_want(struct server *server)
{
	for (const struct slot *s = server->first; s && !server->is_node_mail_out; s = s->next) {
		if (s->served || s->is_answered)
			continue;
		server->node_wanted = s->node;
		server->is_node_mail_out = true;
		serve_node_want(server);
	}
}

/* Who asked for it goes on. NULL: it is nobody's. */
static void node_known(struct server *server, struct served *served)
{
	server->is_node_mail_out = false;
	for (struct slot *slot = server->first, *next; slot; slot = next) {
		next = slot->next;
		if (slot->served || slot->node != server->node_wanted || slot->is_answered)
			continue;
		slot->served = served;
		if (served)
			slot_start(slot);
		else
			slot_answer(slot, -EIO);
	}
	node_want(server);
}

void slot_begin(struct connection *connection, const struct fuse_ask *ask)
{
	struct server *server = connection->server;
	struct slot *slot = server->free;
	char *buffer = slot->buffer;
	const uint64_t now_ns = io_now_ns(server->shard->io);

	server->free = slot->next;
	*slot = (struct slot){
		.connection = connection,
		.served = server_find(server, ask->node),
		.node = ask->node,
		.unique = ask->unique,
		.offset = ask->offset,
		.bytes = ask->bytes,
		.until_ns = now_ns + server->shard->config->remote_timeout_s * NS_PER_S,
		.previous = server->last,
		.buffer = buffer,
	};
	if (server->last)
		server->last->next = slot;
	else
		server->first = slot;
	server->last = slot;
	server_tick_soon(server);
	if (slot->served)
		slot_start(slot);
	else if (connection->is_old)
		node_want(server);
	else
		slot_answer(slot, -ESTALE);
}

void slots_interrupt(struct server *server, uint64_t unique)
{
	for (struct slot *slot = server->first; slot; slot = slot->next)
		if (slot->unique == unique && !slot->interrupted_ns)
			slot->interrupted_ns = io_now_ns(server->shard->io);
}

void slots_give(struct server *server, struct served *served, uint32_t chunk, const char *bytes)
{
	for (struct slot *slot = server->first, *next; slot; slot = next) {
		next = slot->next;
		if (slot->served != served || chunk < slot->chunk ||
		    chunk - slot->chunk >= SLOT_CHUNKS ||
		    !(slot->missing & 1u << (chunk - slot->chunk)))
			continue;
		slot_copy(slot, chunk, bytes);
		slot->missing &= ~(1u << (chunk - slot->chunk));
		slot_settle(slot);
	}
}

void slots_fail(struct server *server, struct served *served, uint32_t chunk, int error)
{
	for (struct slot *slot = server->first, *next; slot; slot = next) {
		next = slot->next;
		if (slot->served != served || !slot->missing)
			continue;
		if (chunk != UINT32_MAX &&
		    (chunk < slot->chunk || chunk - slot->chunk >= SLOT_CHUNKS ||
		     !(slot->missing & 1u << (chunk - slot->chunk))))
			continue;
		server->counts.failed++;
		slot_answer(slot, error);
	}
}

bool slots_use(const struct server *server, const struct served *served)
{
	for (const struct slot *slot = server->first; slot; slot = slot->next)
		if (slot->served == served)
			return true;
	return false;
}

/* ---- time ---- */

static void slots_expire(struct server *server, uint64_t now_ns)
{
	for (struct slot *slot = server->first, *next; slot; slot = next) {
		next = slot->next;
		if (slot->is_answered)
			continue;
		if (slot->until_ns <= now_ns) {
			server->counts.failed++;
			slot_answer(slot, -EIO);
		} else if (slot->interrupted_ns && now_ns - slot->interrupted_ns > INTERRUPT_NS) {
			slot_answer(slot, -EINTR);
		}
	}
}

/* Whoever looks after the node must know, and need not be told a thousand times. */
static void counts_tell(struct server *server)
{
	struct server_counts *now = &server->counts, *told = &server->told;

	if (now->corrupt != told->corrupt || now->failed != told->failed ||
	    now->unwritten != told->unwritten)
		log_warning("serve shard=%u reads=%llu fetched=%llu: chunks corrupt=%llu, reads"
			    " failed=%llu, chunks not cached=%llu, continuing",
			    server->shard->number, (unsigned long long)now->reads,
			    (unsigned long long)now->fetched, (unsigned long long)now->corrupt,
			    (unsigned long long)now->failed, (unsigned long long)now->unwritten);
	*told = *now;
}

static void server_tick(struct timer *timer)
{
	struct server *server = container_of(timer, struct server, timer);
	bool is_dirty = false;

	slots_expire(server, io_now_ns(server->shard->io));
	for (uint32_t i = 0; i < BUCKETS; i++)
		for (struct served *s = server->buckets[i]; s; s = s->next) {
			fill_sync(s);
			is_dirty |= fill_is_dirty(s);
		}
	counts_tell(server);
	if (server->first || is_dirty)
		server_tick_soon(server);
}

/* ---- by mail ---- */

void server_connect(struct mail *mail, void *owner)
{
	struct server_join *join = container_of(mail, struct server_join, mail);
	struct server *server = ((struct shard *)owner)->server;
	struct connection *connection = &server->connections[server->connection_count++];

	assert(server->connection_count <= CONNECTIONS); /* serve.c counts */
	connection->server = server;
	connection->fd = join->fd;
	connection->is_old = join->is_old;
	connection_listen(connection);
	free(join);
}

void server_take(struct mail *mail, void *owner)
{
	struct served *served = container_of(mail, struct served, mail);
	struct server *server = ((struct shard *)owner)->server;
	struct served **bucket = bucket_of_node(server, served->node);

	served->server = server;
	served->next = *bucket;
	*bucket = served;
	server->served_count++;
	serve_taken(served);
	if (server->is_node_mail_out && server->node_wanted == served->node)
		node_known(server, served);
	fill_go_on(server);
}

void server_no_node(struct mail *mail, void *owner)
{
	struct server *server = ((struct shard *)owner)->server;

	(void)mail;
	node_known(server, NULL);
}

void server_node_there(struct mail *mail, void *owner)
{
	struct server *server = ((struct shard *)owner)->server;

	(void)mail;
	node_known(server, server_find(server, server->node_wanted));
}

void server_had_room(struct mail *mail, void *owner)
{
	(void)mail;
	((struct shard *)owner)->server->is_full_mail_out = false;
}

void server_give(struct mail *mail, void *owner)
{
	struct served *served = container_of(mail, struct served, mail);

	(void)owner;
	served->is_leaving = true;
	served_settle(served);
}

void served_settle(struct served *served)
{
	struct server *server = served->server;
	struct served **at;

	if (!served->is_leaving || served->flights || slots_use(server, served))
		return;
	if (fill_is_dirty(served)) {
		fill_sync(served); /* comes here again */
		return;
	}
	at = bucket_of_node(server, served->node);
	while (*at != served)
		at = &(*at)->next;
	*at = served->next;
	server->served_count--;
	served->server = NULL;
	serve_given(server->shard, served);
}

/* ---- the server ---- */

static void server_buffers(struct server *server)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct slot *slot = &server->slots[i];

		slot->buffer = server->buffers + (size_t)i * ASK_READ_BYTES_MAX;
		slot->next = server->free;
		server->free = slot;
	}
	for (uint32_t i = 0; i < FETCHES; i++) {
		server->fetches[i].server = server;
		server->fetches[i].buffer =
			server->buffers + SLOT_BUFFERS_BYTES + (size_t)i * FETCH_BYTES;
	}
}

int server_open(struct shard *shard, struct server **ret)
{
	struct server *server = calloc(1, sizeof *server);
	int r;

	if (!server)
		return -ENOMEM;
	server->shard = shard;
	server->timer.expired = server_tick;
	server->table_fetch.server = server;
	for (uint32_t i = 0; i < CONNECTIONS; i++)
		server->connections[i].fd = -1;
	/* Pages of it are memory once they were used. */
	server->buffers = mmap(NULL, BUFFERS_BYTES, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (server->buffers == MAP_FAILED)
		server->buffers = NULL;
	server->ask = malloc(ASK_BYTES_MIN);
	r = server->buffers && server->ask ?
		    remote_open(shard->config->remote_address, shard, &server->remote) :
		    -ENOMEM;
	if (r < 0) {
		server_free(server);
		return r;
	}
	server_buffers(server);
	*ret = server;
	return 0;
}

void server_close(struct server *server)
{
	bool is_reading = server && server->table_fetch.served;

	if (!server)
		return;
	timer_clear(&server->shard->timers, &server->timer);
	for (uint32_t i = 0; i < CONNECTIONS; i++)
		if (server->connections[i].fd >= 0)
			connection_end(&server->connections[i]);
	for (uint32_t i = 0; i < FETCHES; i++)
		is_reading |= server->fetches[i].served != NULL;
	/* One that is asked keeps what it has until the process ends. */
	if (!is_reading)
		remote_close(server->remote);
}

void server_free(struct server *server)
{
	if (!server)
		return;
	if (server->buffers)
		(void)munmap(server->buffers, BUFFERS_BYTES);
	digest_free(server->table_fetch.digest);
	free(server->table_fetch.bytes);
	free(server->ask);
	free(server);
}
