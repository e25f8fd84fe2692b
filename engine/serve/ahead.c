/*
 * What is fetched before it is asked for: further on where somebody reads in order, and in the
 * order in which an earlier time began. Called by server.c and fill.c. Must hold: some fetches stay
 * free for who waits; a chunk that is coming or here is not fetched again.
 */
#include "engine/serve/server.h"

enum {
	RUN_LEAST = 8,	 /* chunks in order, before anything is fetched ahead */
	WINDOW_MAX = 64, /* chunks: 16 fetches of 256 KiB */
};

static void touch(struct served *served, uint32_t chunk)
{
	if (bit_is_set(served->is_touched, chunk))
		return;
	bit_set(served->is_touched, chunk);
	served->touched[served->touched_count++] = chunk;
}

static struct stream *stream_follow(struct served *served, uint32_t chunk, uint32_t end)
{
	struct stream *stream;

	for (uint32_t i = 0; i < STREAMS; i++) {
		stream = &served->streams[i];
		if (!stream->run || chunk > stream->next || end < stream->next)
			continue;
		stream->run += end - stream->next;
		stream->next = end;
		return stream;
	}
	stream = &served->streams[served->stream_at++ % STREAMS];
	*stream = (struct stream){ .next = end, .run = end - chunk };
	return stream;
}

/* Whole blocks of FETCH_CHUNKS, so that a window that moves on slowly makes no small ones. */
static void window_fetch(struct server *server, struct served *served, uint32_t from, uint32_t to)
{
	while (from < to && fill_free(server) > FETCHES_SPARE) {
		uint32_t end = (from / FETCH_CHUNKS + 1) * FETCH_CHUNKS, count = 1;
		const uint8_t state = served->states[from];

		if (end > served->chunk_count)
			end = served->chunk_count;
		if (end > to)
			return;
		while (from + count < end && served->states[from + count] == state)
			count++;
		if (state == CHUNK_ABSENT || state == CHUNK_STORED)
			(void)fill_begin(server, served, from, count); /* one is free */
		from += count;
	}
}

void ahead_note(struct server *server, struct served *served, uint32_t chunk, uint32_t end)
{
	const struct stream *stream = stream_follow(served, chunk, end);
	uint32_t window = stream->run;

	for (uint32_t i = chunk; i < end; i++)
		touch(served, i);
	if (stream->run < RUN_LEAST || !served->table)
		return;
	if (window > WINDOW_MAX)
		window = WINDOW_MAX;
	if (window > served->chunk_count - stream->next)
		window = served->chunk_count - stream->next;
	window_fetch(server, served, stream->next, stream->next + window);
}

/* The next of its list that is not here: one fetch. False: there is none. */
static bool list_next(struct server *server, struct served *served)
{
	while (served->list_at < served->list_count) {
		const uint32_t chunk = served->list[served->list_at++];
		uint32_t count = 1;

		if (served->states[chunk] != CHUNK_ABSENT)
			continue;
		while (count < FETCH_CHUNKS && served->list_at < served->list_count &&
		       served->list[served->list_at] == chunk + count &&
		       served->states[chunk + count] == CHUNK_ABSENT) {
			served->list_at++;
			count++;
		}
		return fill_begin(server, served, chunk, count);
	}
	return false;
}

/* False: nothing of these segments' lists could begin. */
static bool bucket_go_on(struct server *server, uint32_t bucket)
{
	bool has_begun = false;

	for (struct served *s = server->buckets[bucket]; s; s = s->next) {
		if (s->is_leaving || s->list_at == s->list_count)
			continue;
		if (s->table)
			has_begun |= list_next(server, s);
		else
			table_want(server, s);
	}
	return has_begun;
}

/* Lists take turns: what begins an image of several segments is at the beginning of each. */
void ahead_go_on(struct server *server)
{
	uint32_t idle = 0;

	while (idle < BUCKETS && fill_free(server) > FETCHES_SPARE) {
		server->list_bucket = (server->list_bucket + 1) % BUCKETS;
		idle = bucket_go_on(server, server->list_bucket) ? 0 : idle + 1;
	}
}
