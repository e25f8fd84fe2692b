/*
 * The cache's directory: opened by one engine at a time, known when it starts, kept within its
 * bytes, and looked at again and again. Called by the control thread. Must hold: what is removed
 * rests and is used by nobody; its bits are gone, and synced, before its bytes are.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/config.h"
#include "engine/control.h"
#include "engine/serve/remote.h"
#include "engine/serve/serve_state.h"

/* Each time: 512 KiB a second. */
enum { SCRUB_CHUNKS = 4 };

/* ---- opening ---- */

static int cache_open(const struct config *config, int *ret_fd, int *ret_lock_fd)
{
	auto_close int images = open(config->images_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_close int fd = -1, lock = -1;

	if (images < 0)
		return -errno;
	if (mkdirat(images, "cache", 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(images, "cache", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	lock = openat(fd, ".lock", O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (lock < 0 || flock(lock, LOCK_EX | LOCK_NB) < 0)
		return -errno;
	*ret_fd = take_fd(&fd);
	*ret_lock_fd = take_fd(&lock);
	return 0;
}

/* A name in the cache: a map that is sound is known; what belongs to none goes. */
static void name_look(struct serve *serve, const char *name)
{
	uint8_t digest[DIGEST_BYTES];
	struct map_facts facts;
	struct serve_entry *entry = NULL;

	if (map_name_parse(name, ".map", digest)) {
		if (map_facts_read(serve->cache_fd, digest, &facts) >= 0)
			entry = serve_entry_new(serve, &facts);
		if (entry)
			serve->bytes += facts.stored_bytes;
		else
			(void)map_remove(serve->cache_fd, digest); /* tried again next time */
		return;
	}
	if (map_name_parse(name, ".data", digest) &&
	    map_facts_read(serve->cache_fd, digest, &facts) < 0)
		(void)map_remove(serve->cache_fd, digest);
}

static int cache_scan(struct serve *serve)
{
	int fd = openat(serve->cache_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *folder = fd < 0 ? NULL : fdopendir(fd);
	struct dirent *found;

	if (!folder) {
		cleanup_close(&fd);
		return -errno;
	}
	while ((found = readdir(folder)))
		name_look(serve, found->d_name);
	(void)closedir(folder); /* was only read */
	return 0;
}

int serve_open(struct control *control, int keeper_fd, struct serve **ret)
{
	const struct config *config = control_config(control);
	struct serve *serve = NULL;
	const char *why = "";
	int r;

	*ret = NULL;
	if (!config->remote_address)
		return 0;
	if (remote_check(config->remote_address, &why) < 0) {
		log_error("remote=\"%s\": %s", config->remote_address, why);
		return -EINVAL;
	}
	serve = calloc(1, sizeof *serve);
	if (!serve)
		return -ENOMEM;
	*serve = (struct serve){
		.control = control,
		.node = control_node(control),
		.cache_fd = -1,
		.lock_fd = -1,
		.keeper_fd = keeper_fd,
		.connections = calloc(config->shards, sizeof *serve->connections),
		.old = calloc(config->shards * SERVE_OLD_MAX, sizeof *serve->old),
	};
	r = serve->connections && serve->old ? 0 : -ENOMEM;
	for (uint32_t i = 0; r >= 0 && i < config->shards; i++)
		serve->connections[i].fuse_fd = serve->connections[i].mount_fd = -1;
	if (r >= 0)
		r = cache_open(config, &serve->cache_fd, &serve->lock_fd);
	if (r >= 0)
		r = cache_scan(serve);
	if (r >= 0) {
		log_info("cache open bytes=%llu segments=%u", (unsigned long long)serve->bytes,
			 serve->count);
		*ret = serve;
		return 0;
	}
	log_warning("cache cannot be used path=\"%s/cache\" err=%s%s: images whose contents are"
		    " not here are refused, continuing",
		    config->images_path, strerror(-r),
		    r == -EWOULDBLOCK ? " (another engine has it)" : "");
	serve_close(serve);
	return r == -ENOMEM ? r : 0;
}

void serve_close(struct serve *serve)
{
	if (!serve)
		return;
	for (uint32_t i = 0; i < serve->count; i++) {
		if (serve->entries[i]->served)
			map_close(serve->cache_fd, serve->entries[i]->served);
		free(serve->entries[i]);
	}
	serve_connections_close(serve);
	free(serve->entries);
	free(serve->connections);
	free(serve->old);
	cleanup_close(&serve->cache_fd);
	cleanup_close(&serve->lock_fd);
	free(serve);
}

/* ---- eviction ---- */

void serve_entry_drop(struct serve_entry *entry)
{
	int r = map_remove(entry->serve->cache_fd, entry->facts.digest);

	if (r < 0)
		log_error("cache file cannot be removed err=%s, continuing", strerror(-r));
	entry->serve->bytes -= entry->facts.stored_bytes;
	entry->facts.stored_bytes = 0;
	entry->facts.is_whole = entry->facts.has_table = false;
}

static struct serve_entry *entry_oldest(const struct serve *serve)
{
	struct serve_entry *oldest = NULL;

	for (uint32_t i = 0; i < serve->count; i++) {
		struct serve_entry *entry = serve->entries[i];

		if (entry->state != ENTRY_RESTING || entry->users || !entry->facts.stored_bytes)
			continue;
		if (!oldest || entry->used < oldest->used)
			oldest = entry;
	}
	return oldest;
}

void serve_evict(struct serve *serve)
{
	const uint64_t limit = control_config(serve->control)->image_cache_bytes;
	struct serve_entry *entry;

	serve_rest(serve); /* and so the next time there may be more */
	if (serve->old_count)
		return; /* which of them old mounts need is not known */
	while (serve->bytes > limit - limit / 4 && (entry = entry_oldest(serve)))
		serve_entry_drop(entry);
}

/* ---- scrubbing ---- */

static void scrub_next(struct serve *serve)
{
	struct serve_entry *entry;
	int r;

	if (serve->scrub_entry >= serve->count)
		serve->scrub_entry = serve->scrub_chunk = 0;
	if (!serve->count)
		return;
	entry = serve->entries[serve->scrub_entry];
	if (entry->state != ENTRY_RESTING || !entry->facts.has_table ||
	    serve->scrub_chunk >= map_chunk_count(entry->facts.bytes)) {
		serve->scrub_entry++;
		serve->scrub_chunk = 0;
		return;
	}
	r = map_scrub(serve->cache_fd, &entry->facts, serve->scrub_chunk, SCRUB_CHUNKS);
	serve->scrub_chunk += SCRUB_CHUNKS;
	if (r < 0)
		log_warning("cache cannot be looked at again err=%s, continuing", strerror(-r));
	if (r != 0)
		return;
	log_error("cache holds other bytes than were fetched chunk=%u users=%u: it is dropped",
		  serve->scrub_chunk - SCRUB_CHUNKS, entry->users);
	serve_entry_drop(entry); /* a mount keeps the file it has */
}

void serve_tick(struct serve *serve)
{
	if (!serve)
		return;
	serve_old_look(serve);
	serve_rest(serve);
	if (serve->bytes > control_config(serve->control)->image_cache_bytes)
		serve_evict(serve);
	scrub_next(serve);
}
