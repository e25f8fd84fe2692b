/*
 * Who has which segment. Called on the control thread: by image.c for mounts, by mail of shards,
 * and now and then; the functions at the end by shards. Must hold: the files of a segment are its
 * shard's from server_take() until it came home, and this thread's otherwise; only what no mount
 * and no old connection needs is removed; the cache is never larger than its limit.
 */
#include "engine/serve/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "backends/store/cache_map.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/config.h"
#include "engine/control.h"
#include "engine/serve/serve_state.h"
#include "engine/serve/server.h"
#include "engine/shard.h"

static int entry_join(struct serve_entry *entry);

static struct serve *serve_of(const struct shard *shard)
{
	return control_serve(shard->node->control);
}

/* ---- entries ---- */

static struct serve_entry *entry_find(const struct serve *serve, const uint8_t *digest)
{
	for (uint32_t i = 0; i < serve->count; i++)
		if (!memcmp(serve->entries[i]->facts.digest, digest, DIGEST_BYTES))
			return serve->entries[i];
	return NULL;
}

struct serve_entry *serve_entry_new(struct serve *serve, const struct map_facts *facts)
{
	struct serve_entry *entry = calloc(1, sizeof *entry);

	if (serve->count == serve->size) {
		const uint32_t size = serve->size ? 2 * serve->size : 64;
		struct serve_entry **entries =
			realloc(serve->entries, size * sizeof(struct serve_entry *));

		if (entries) {
			serve->entries = entries;
			serve->size = size;
		}
	}
	if (!entry || serve->count == serve->size) {
		free(entry);
		return NULL;
	}
	entry->serve = serve;
	entry->facts = *facts;
	serve->entries[serve->count++] = entry;
	return entry;
}

static struct shard *shard_of(const struct serve_entry *entry)
{
	const struct node *node = entry->serve->node;

	return node->shards[map_node(entry->facts.digest) % node->shard_count];
}

static bool entry_is_whole(const struct serve_entry *entry)
{
	return entry->served ? entry->served->is_whole : entry->facts.is_whole;
}

bool serve_is_whole(const struct serve_entry *entry)
{
	return entry_is_whole(entry);
}

/* A descriptor for a mount: the cache's own file, or the shard's server. */
static int entry_open(struct serve_entry *entry)
{
	struct serve *serve = entry->serve;

	if (entry_is_whole(entry))
		return map_data_open(serve->cache_fd, entry->facts.digest);
	return serve_connection_open(serve, shard_of(entry)->number, entry->facts.digest);
}

static void waiters_tell(struct serve_entry *entry, int error)
{
	struct serve_use *use = entry->waiters;

	entry->waiters = NULL;
	while (use) {
		struct serve_use *next = use->next;

		use->result = error < 0 ? error : entry_open(entry);
		if (use->result < 0) {
			serve_put(entry);
			use->entry = NULL;
		}
		use->ready(use);
		use = next;
	}
}

static void entry_taken(struct mail *mail, void *owner)
{
	struct served *served = container_of(mail, struct served, mail);
	struct serve_entry *entry = served->owner;

	(void)owner;
	entry->state = ENTRY_SERVED;
	waiters_tell(entry, 0);
}

/* Its files are this thread's again. */
static void entry_settle(struct serve_entry *entry)
{
	struct serve *serve = entry->serve;

	map_close(serve->cache_fd, entry->served);
	entry->served = NULL;
	serve->served_count--;
	entry->state = ENTRY_RESTING;
	if (map_facts_read(serve->cache_fd, entry->facts.digest, &entry->facts) < 0) {
		entry->facts.stored_bytes = 0;
		entry->facts.is_whole = entry->facts.has_table = false;
	}
}

static void entry_given(struct mail *mail, void *owner)
{
	struct served *served = container_of(mail, struct served, mail);
	struct serve_entry *entry = served->owner;
	int r;

	(void)owner;
	entry_settle(entry);
	if (!entry->users)
		return;
	if (entry_is_whole(entry) && !entry->is_held) {
		waiters_tell(entry, 0);
		return;
	}
	r = entry_join(entry);
	if (r < 0)
		waiters_tell(entry, r);
}

static int entry_join(struct serve_entry *entry)
{
	struct serve *serve = entry->serve;
	struct shard *shard = shard_of(entry);
	int r = serve->served_count < SERVED_MAX ? serve_connect(serve, shard->number) : -EMFILE;

	if (r >= 0)
		r = map_open(serve->cache_fd, &entry->facts, &entry->served);
	if (r < 0) {
		log_error("segment cannot be served err=%s", strerror(-r));
		return r;
	}
	serve->served_count++;
	entry->served->owner = entry;
	entry->state = ENTRY_JOINING;
	entry->served->mail.deliver = server_take;
	mail_send(control_io(serve->control), shard->io, &entry->served->mail);
	return 0;
}

static void entry_leave(struct serve_entry *entry)
{
	entry->state = ENTRY_LEAVING;
	entry->served->mail.deliver = server_give;
	mail_send(control_io(entry->serve->control), shard_of(entry)->io, &entry->served->mail);
}

/* ---- uses ---- */

/* A segment of that digest has one chunk table and one size: another is a lie of who names it. */
static int entry_get(struct serve *serve, const struct tree_segment *segment,
		     struct serve_entry **ret)
{
	struct serve_entry *entry = entry_find(serve, segment->digest);
	struct map_facts facts = { .bytes = segment->bytes };

	if (!segment->bytes || segment->bytes > (uint64_t)CACHE_CHUNKS_MAX * SEGMENT_CHUNK_BYTES)
		return -EBADMSG;
	memcpy(facts.digest, segment->digest, DIGEST_BYTES);
	memcpy(facts.chunks, segment->chunks, DIGEST_BYTES);
	if (entry && (memcmp(entry->facts.chunks, segment->chunks, DIGEST_BYTES) != 0 ||
		      entry->facts.bytes != segment->bytes)) {
		/* Unless it was the liar's, and nobody uses it. */
		if (entry->users || entry->state != ENTRY_RESTING)
			return -EBADMSG;
		serve_entry_drop(entry);
		entry->facts = facts;
	}
	if (!entry)
		entry = serve_entry_new(serve, &facts);
	*ret = entry;
	return entry ? 0 : -ENOMEM;
}

int serve_begin(struct serve *serve, struct serve_use *use)
{
	struct serve_entry *entry;
	int r = entry_get(serve, &use->segment, &entry);

	if (r < 0)
		return r;
	entry->users++;
	entry->used = ++serve->clock;
	use->entry = entry;
	if (entry->state == ENTRY_SERVED ||
	    (entry->state == ENTRY_RESTING && entry_is_whole(entry))) {
		use->result = r = entry_open(entry);
	} else {
		if (entry->state == ENTRY_RESTING)
			r = entry_join(entry);
		if (r >= 0) {
			use->next = entry->waiters;
			entry->waiters = use;
			return -EAGAIN;
		}
	}
	if (r < 0) {
		serve_put(entry);
		use->entry = NULL;
	}
	return r < 0 ? r : 0;
}

void serve_put(struct serve_entry *entry)
{
	entry->users--;
	entry->used = ++entry->serve->clock;
}

void serve_rest(struct serve *serve)
{
	for (uint32_t i = 0; i < serve->count; i++)
		if (serve->entries[i]->state == ENTRY_SERVED && !serve->entries[i]->users)
			entry_leave(serve->entries[i]);
}

/* ---- from shards ---- */

void serve_taken(struct served *served)
{
	struct shard *shard = served->server->shard;

	served->mail.deliver = entry_taken;
	mail_send(shard->io, control_io(shard->node->control), &served->mail);
}

void serve_given(struct shard *shard, struct served *served)
{
	served->mail.deliver = entry_given;
	mail_send(shard->io, control_io(shard->node->control), &served->mail);
}

static void node_look(struct mail *mail, void *owner)
{
	struct server *server = container_of(mail, struct server, node_mail);
	struct serve *serve = control_serve(owner);
	int r = -ENOENT;

	for (uint32_t i = 0; i < serve->count; i++) {
		struct serve_entry *entry = serve->entries[i];

		if (map_node(entry->facts.digest) != server->node_wanted ||
		    shard_of(entry) != server->shard)
			continue;
		r = 0;
		if (!entry->is_held)
			entry->users++; /* until this engine ends */
		entry->is_held = true;
		if (entry->state == ENTRY_RESTING)
			r = entry_join(entry);
		else if (entry->state == ENTRY_SERVED)
			r = -EAGAIN; /* it became so meanwhile */
	}
	if (!r)
		return; /* server_take() knows that it was asked for */
	mail->deliver = r == -EAGAIN ? server_node_there : server_no_node;
	mail_send(control_io(owner), server->shard->io, mail);
}

void serve_node_want(struct server *server)
{
	server->node_mail.deliver = node_look;
	mail_send(server->shard->io, control_io(server->shard->node->control), &server->node_mail);
}

static void room_make(struct mail *mail, void *owner)
{
	struct server *server = container_of(mail, struct server, full_mail);

	serve_evict(control_serve(owner));
	mail->deliver = server_had_room;
	mail_send(control_io(owner), server->shard->io, mail);
}

bool serve_room_take(struct server *server, uint32_t bytes)
{
	struct serve *serve = serve_of(server->shard);
	const uint64_t limit = server->shard->config->image_cache_bytes;
	const uint64_t now = atomic_fetch_add(&serve->bytes, bytes) + bytes;

	if (now > limit - limit / 8 && !server->is_full_mail_out) {
		server->is_full_mail_out = true;
		server->full_mail.deliver = room_make;
		mail_send(server->shard->io, control_io(serve->control), &server->full_mail);
	}
	if (now <= limit)
		return true;
	atomic_fetch_sub(&serve->bytes, bytes);
	return false;
}

void serve_room_give(struct served *served, uint32_t bytes)
{
	atomic_fetch_sub(&serve_of(served->server->shard)->bytes, bytes);
}
