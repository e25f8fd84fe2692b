/*
 * Chunks of segments: fetched from the remote or read back from the cache's file, checked, given to
 * who waits, written, synced. Called by server.c, and by the shard's loop. Must hold: no byte is
 * given to anybody before its chunk has the digest that the chunk table says, and the table the one
 * that the image says; a bit of the map is written after its chunk was synced.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/serve/map.h"
#include "engine/serve/serve.h"
#include "engine/serve/server.h"
#include "engine/shard.h"

/* Of one advice: 1 GiB, which its count of bytes holds. */
enum { FORGET_CHUNKS_MAX = 16384 };

static void fetch_ask(struct fetch *fetch);

uint32_t fill_free(const struct server *server)
{
	uint32_t count = 0;

	for (const struct fetch *f = server->fetches; f < server->fetches + FETCHES; f++)
		count += !f->served;
	return count;
}

static struct io *io_of(const struct served *served)
{
	return served->server->shard->io;
}

const char *fill_held(const struct server *server, const struct served *served, uint32_t chunk)
{
	for (const struct fetch *f = server->fetches; f < server->fetches + FETCHES; f++)
		if (f->served == served && chunk >= f->chunk && chunk - f->chunk < f->count)
			return f->buffer + (size_t)(chunk - f->chunk) * SEGMENT_CHUNK_BYTES;
	return NULL; /* never: HELD is what a fetch holds */
}

static void fetch_end(struct fetch *fetch)
{
	struct server *server = fetch->server;
	struct served *served = fetch->served;

	fetch->served = NULL;
	served->flights--;
	served_settle(served);
	fill_go_on(server);
}

/* ---- checking ---- */

static bool chunk_is_sound(const struct served *served, uint32_t chunk, const char *bytes)
{
	uint8_t digest[DIGEST_BYTES];

	digest_of(bytes, chunk_bytes(served, chunk), digest);
	return !memcmp(digest, served->table[chunk], DIGEST_BYTES);
}

/* A bit for each of its chunks that is what it should be. */
static uint32_t fetch_check(const struct fetch *fetch)
{
	uint32_t sound = 0;

	for (uint32_t i = 0; i < fetch->count; i++)
		if (chunk_is_sound(fetch->served, fetch->chunk + i,
				   fetch->buffer + (size_t)i * SEGMENT_CHUNK_BYTES))
			sound |= 1u << i;
	return sound;
}

static void corrupt_tell(const struct fetch *fetch, uint32_t sound, const char *where)
{
	char hex[DIGEST_HEX_BYTES];

	fetch->server->counts.corrupt += fetch->count - (uint32_t)__builtin_popcount(sound);
	digest_hex(fetch->served->digest, hex);
	log_error("segment has other bytes than its digest says where=%s segment=%s chunk=%u"
		  " count=%u",
		  where, hex, fetch->chunk, fetch->count);
}

/* ---- writing ---- */

static void chunks_set(const struct fetch *fetch, enum chunk_state state)
{
	memset(fetch->served->states + fetch->chunk, state, fetch->count);
}

static void fetch_written(struct io_op *op, int res)
{
	struct fetch *fetch = container_of(op, struct fetch, op);
	struct served *served = fetch->served;

	if (res == (int)fetch->bytes) {
		chunks_set(fetch, CHUNK_GOOD);
		for (uint32_t i = 0; i < fetch->count; i++)
			bit_set(served->unsynced, fetch->chunk + i);
		served->unsynced_count += fetch->count;
		server_tick_soon(fetch->server);
	} else {
		/* The disk is full, or worse: it was given, and is fetched again when asked. */
		chunks_set(fetch, CHUNK_ABSENT);
		serve_room_give(served, fetch->bytes);
		fetch->server->counts.unwritten += fetch->count;
		server_tick_soon(fetch->server);
	}
	fetch_end(fetch);
}

static void fetch_write(struct fetch *fetch)
{
	const struct served *served = fetch->served;
	const struct io_range range = {
		.buffer = fetch->buffer,
		.bytes = fetch->bytes,
		.offset = (uint64_t)fetch->chunk * SEGMENT_CHUNK_BYTES,
	};

	if (!serve_room_take(fetch->server, fetch->bytes)) {
		chunks_set(fetch, CHUNK_ABSENT);
		fetch->server->counts.unwritten += fetch->count;
		fetch_end(fetch);
		return;
	}
	fetch->op.done = fetch_written;
	io_write_at(io_of(served), &fetch->op, served->data_fd, &range);
}

/* ---- from the remote ---- */

static void fetch_give(struct fetch *fetch, uint32_t sound)
{
	struct served *served = fetch->served;
	struct server *server = fetch->server;

	for (uint32_t i = 0; i < fetch->count; i++) {
		const uint32_t chunk = fetch->chunk + i;

		if (sound & 1u << i) {
			served->states[chunk] = CHUNK_HELD;
			slots_give(server, served, chunk,
				   fetch->buffer + (size_t)i * SEGMENT_CHUNK_BYTES);
		} else {
			served->states[chunk] = CHUNK_ABSENT;
			slots_fail(server, served, chunk, -EIO);
		}
	}
}

static void fetch_came(struct remote_read *read, int result)
{
	struct fetch *fetch = read->owner;
	const uint32_t all = (1u << fetch->count) - 1;
	uint32_t sound = result == (int)fetch->bytes ? fetch_check(fetch) : 0;

	if (result == (int)fetch->bytes && sound != all)
		corrupt_tell(fetch, sound, "remote");
	if (sound != all)
		remote_doubt(fetch->server->remote, fetch->served->digest);
	if (sound != all && !fetch->tries && result != -ETIMEDOUT && result != -ECANCELED) {
		fetch->tries++;
		fetch_ask(fetch);
		return;
	}
	fetch->server->counts.fetched += (uint32_t)__builtin_popcount(sound);
	fetch_give(fetch, sound);
	if (sound == all) {
		fetch_write(fetch);
		return;
	}
	chunks_set(fetch, CHUNK_ABSENT);
	server_tick_soon(fetch->server);
	fetch_end(fetch);
}

static void fetch_ask(struct fetch *fetch)
{
	fetch->read = (struct remote_read){
		.offset = (uint64_t)fetch->chunk * SEGMENT_CHUNK_BYTES,
		.bytes = fetch->bytes,
		.buffer = fetch->buffer,
		.done = fetch_came,
		.owner = fetch,
	};
	memcpy(fetch->read.blob, fetch->served->digest, DIGEST_BYTES);
	remote_read(fetch->server->remote, &fetch->read);
}

/* ---- from the cache's file ---- */

void fill_lost(struct served *served, uint32_t chunk)
{
	if (bit_is_set(served->unsynced, chunk))
		served->unsynced_count--;
	bit_clear(served->unsynced, chunk);
	bit_clear(served->syncing, chunk);
	bit_clear(served->bits, chunk);
	served->is_stale = true;
	served->is_whole = false;
	served->states[chunk] = CHUNK_ABSENT;
	serve_room_give(served, chunk_bytes(served, chunk));
	server_tick_soon(served->server);
}

static void fetch_stored(struct io_op *op, int res)
{
	struct fetch *fetch = container_of(op, struct fetch, op);
	struct served *served = fetch->served;
	const uint32_t sound = res == (int)fetch->bytes ? fetch_check(fetch) : 0;

	if (sound != (1u << fetch->count) - 1)
		corrupt_tell(fetch, sound, "cache");
	for (uint32_t i = 0; i < fetch->count; i++) {
		const uint32_t chunk = fetch->chunk + i;

		if (!(sound & 1u << i)) {
			fill_lost(served, chunk);
			continue;
		}
		served->states[chunk] = CHUNK_GOOD;
		slots_give(fetch->server, served, chunk,
			   fetch->buffer + (size_t)i * SEGMENT_CHUNK_BYTES);
	}
	fetch_end(fetch);
}

static void fetch_read_back(struct fetch *fetch)
{
	const struct io_range range = {
		.buffer = fetch->buffer,
		.bytes = fetch->bytes,
		.offset = (uint64_t)fetch->chunk * SEGMENT_CHUNK_BYTES,
	};

	fetch->op.done = fetch_stored;
	io_read_at(io_of(fetch->served), &fetch->op, fetch->served->data_fd, &range);
}

/* ---- beginning ---- */

bool fill_begin(struct server *server, struct served *served, uint32_t chunk, uint32_t count)
{
	struct fetch *fetch = server->fetches;
	const enum chunk_state state = served->states[chunk];

	while (fetch < server->fetches + FETCHES && fetch->served)
		fetch++;
	if (fetch == server->fetches + FETCHES)
		return false;
	fetch->served = served;
	fetch->chunk = chunk;
	fetch->count = count;
	fetch->tries = 0;
	fetch->bytes = 0;
	for (uint32_t i = 0; i < count; i++)
		fetch->bytes += chunk_bytes(served, chunk + i);
	chunks_set(fetch, CHUNK_COMING);
	served->flights++;
	if (state == CHUNK_STORED)
		fetch_read_back(fetch);
	else
		fetch_ask(fetch);
	return true;
}

/* False: no fetch is free. */
static bool slot_fill(struct server *server, const struct slot *slot)
{
	struct served *served = slot->served;

	for (uint32_t i = 0, count; i < SLOT_CHUNKS; i += count) {
		const uint32_t chunk = slot->chunk + i;
		enum chunk_state state;

		count = 1;
		if (!(slot->missing & 1u << i))
			continue;
		state = served->states[chunk];
		if (state != CHUNK_ABSENT && state != CHUNK_STORED)
			continue;
		while (i + count < SLOT_CHUNKS && slot->missing & 1u << (i + count) &&
		       served->states[chunk + count] == state)
			count++;
		if (!fill_begin(server, served, chunk, count))
			return false;
	}
	return true;
}

void fill_go_on(struct server *server)
{
	for (const struct slot *slot = server->first; slot; slot = slot->next) {
		if (!slot->missing)
			continue;
		if (!slot->served->table)
			table_want(server, slot->served);
		else if (!slot_fill(server, slot))
			return;
	}
	ahead_go_on(server);
}

/* ---- chunk tables ---- */

static void table_next(struct table_fetch *table);

static void table_end(struct table_fetch *table, int error)
{
	struct served *served = table->served;
	struct server *server = table->server;

	if (error < 0) {
		free(table->bytes);
		served->list_count = 0; /* or it would be tried for ever */
		slots_fail(server, served, UINT32_MAX, -EIO);
		server_tick_soon(server);
	} else {
		served->table = (uint8_t(*)[DIGEST_BYTES])table->bytes;
	}
	table->bytes = NULL;
	table->served = NULL;
	served->flights--;
	served_settle(served);
	fill_go_on(server);
}

static void table_came(struct remote_read *read, int result)
{
	struct table_fetch *table = read->owner;
	struct served *served = table->served;
	uint8_t digest[DIGEST_BYTES];
	bool is_sound = result == (int)read->bytes;

	if (is_sound) {
		digest_add(table->digest, read->buffer, read->bytes);
		table->got += read->bytes;
		if (table->got < served->chunk_count * DIGEST_BYTES) {
			table_next(table);
			return;
		}
		digest_take(table->digest, digest);
		is_sound = !memcmp(digest, served->chunks, DIGEST_BYTES);
		if (!is_sound)
			log_error("chunk table has other bytes than its digest says");
	}
	if (!is_sound)
		remote_doubt(table->server->remote, served->chunks);
	if (!is_sound && !table->tries && result != -ETIMEDOUT && result != -ECANCELED) {
		digest_take(table->digest, digest); /* it begins anew */
		table->tries++;
		table->got = 0;
		table_next(table);
		return;
	}
	table_end(table, is_sound ? 0 : -EIO);
}

static void table_next(struct table_fetch *table)
{
	const struct served *served = table->served;
	const uint32_t rest = served->chunk_count * DIGEST_BYTES - table->got;

	table->read = (struct remote_read){
		.offset = table->got,
		.bytes = rest < REMOTE_BYTES_MAX ? rest : REMOTE_BYTES_MAX,
		.buffer = table->bytes + table->got,
		.done = table_came,
		.owner = table,
	};
	memcpy(table->read.blob, served->chunks, DIGEST_BYTES);
	remote_read(table->server->remote, &table->read);
}

void table_want(struct server *server, struct served *served)
{
	struct table_fetch *table = &server->table_fetch;

	if (table->served || served->table)
		return; /* whoever waits comes again when it ends */
	table->got = table->tries = 0;
	if (!table->digest)
		table->digest = digest_new();
	table->bytes = malloc((size_t)served->chunk_count * DIGEST_BYTES);
	if (!table->digest || !table->bytes) {
		free(take_ptr(table->bytes));
		return; /* tried again when something ends; who waits is told in time */
	}
	table->served = served;
	served->flights++;
	table_next(table);
}

/* ---- the map ---- */

bool fill_is_dirty(const struct served *served)
{
	return served->unsynced_count || served->is_stale || served->is_syncing;
}

static void sync_end(struct served *served, int error)
{
	if (error < 0)
		log_error("cache sync failed err=%s: the next engine fetches it again, continuing",
			  strerror(-error));
	served->is_syncing = false;
	served->flights--;
	served_settle(served);
}

/* Who asked has it in pages of its own; what nobody asked for yet is read of ours. */
static bool is_twice(const struct served *served, uint32_t chunk)
{
	return bit_is_set(served->syncing, chunk) && bit_is_set(served->is_touched, chunk);
}

static void pages_forget(struct io_op *op, int res)
{
	struct served *served = container_of(op, struct served, sync_op);
	uint32_t from = served->forget_at, count = 0;
	struct io_range range;

	(void)res; /* it was only advice */
	while (from < served->chunk_count && !is_twice(served, from))
		from++;
	while (from + count < served->chunk_count && count < FORGET_CHUNKS_MAX &&
	       is_twice(served, from + count))
		count++;
	if (!count) {
		sync_end(served, 0);
		return;
	}
	served->forget_at = from + count;
	range = (struct io_range){
		.bytes = count * SEGMENT_CHUNK_BYTES,
		.offset = (uint64_t)from * SEGMENT_CHUNK_BYTES,
	};
	op->done = pages_forget;
	io_forget(io_of(served), op, served->data_fd, &range);
}

static void map_written(struct io_op *op, int res)
{
	struct served *served = container_of(op, struct served, sync_op);
	uint32_t count = 0;

	for (uint32_t i = 0; i < bits_bytes(served->chunk_count); i++)
		count += (uint32_t)__builtin_popcount(served->bits[i]);
	if (res == (int)bits_bytes(served->chunk_count) && count == served->chunk_count)
		served->is_whole = true;
	if (res < 0) {
		sync_end(served, res);
		return;
	}
	served->forget_at = 0;
	pages_forget(op, 0);
}

static void data_synced(struct io_op *op, int res)
{
	struct served *served = container_of(op, struct served, sync_op);
	const struct io_range range = {
		.buffer = served->bits,
		.bytes = bits_bytes(served->chunk_count),
		.offset = MAP_BITS_AT,
	};

	if (res < 0) {
		sync_end(served, res);
		return;
	}
	for (uint32_t i = 0; i < range.bytes; i++)
		served->bits[i] |= served->syncing[i];
	op->done = map_written;
	io_write_at(io_of(served), op, served->map_fd, &range);
}

void fill_sync(struct served *served)
{
	if (served->is_syncing || !fill_is_dirty(served))
		return;
	memcpy(served->syncing, served->unsynced, bits_bytes(served->chunk_count));
	memset(served->unsynced, 0, bits_bytes(served->chunk_count));
	served->unsynced_count = 0;
	served->is_stale = false;
	served->is_syncing = true;
	served->flights++;
	served->sync_op.done = data_synced;
	io_sync_data(io_of(served), &served->sync_op, served->data_fd);
}
