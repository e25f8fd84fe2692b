/*
 * The cache's files of a segment: made, read, kept and removed. Called by serve.c on the control
 * thread, while no shard has the segment. Must hold: whatever is in the cache's directory, what is
 * returned is sound: a map with a wrong sum, size or table is as if it were not there.
 */
#include "engine/serve/map.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/store/cache_map.h"
#include "engine/base/cleanup.h"

enum { NAME_BYTES = DIGEST_HEX_BYTES + 8 };

uint64_t map_node(const uint8_t digest[DIGEST_BYTES])
{
	uint64_t node;

	memcpy(&node, digest, sizeof node);
	return node | 1ull << 63; /* never 0, nor the root */
}

uint32_t map_chunk_count(uint64_t bytes)
{
	return (uint32_t)((bytes + SEGMENT_CHUNK_BYTES - 1) / SEGMENT_CHUNK_BYTES);
}

static void name_make(const uint8_t *digest, const char *end, char ret[NAME_BYTES])
{
	digest_hex(digest, ret);
	(void)snprintf(ret + DIGEST_HEX_BYTES - 1, NAME_BYTES - DIGEST_HEX_BYTES + 1, "%s", end);
}

bool map_name_parse(const char *name, const char *end, uint8_t ret[DIGEST_BYTES])
{
	char hex[DIGEST_HEX_BYTES];

	if (strlen(name) != sizeof hex - 1 + strlen(end) || strcmp(name + sizeof hex - 1, end) != 0)
		return false;
	memcpy(hex, name, sizeof hex - 1);
	hex[sizeof hex - 1] = 0;
	return digest_parse(hex, ret);
}

static int file_open(int cache_fd, const uint8_t *digest, const char *end, int flags)
{
	char name[NAME_BYTES];
	struct stat st;

	name_make(digest, end, name);
	auto_close int fd =
		openat(cache_fd, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) ? take_fd(&fd) : -EBADMSG;
}

static off_t table_at(uint32_t chunk_count)
{
	return MAP_BITS_AT + (off_t)(bits_bytes(chunk_count) + 4095) / 4096 * 4096;
}

static int all_read(int fd, void *ret, size_t bytes, off_t at)
{
	ssize_t n = pread(fd, ret, bytes, at);

	if (n < 0)
		return -errno;
	return (size_t)n == bytes ? 0 : -EBADMSG;
}

static int all_write(int fd, const void *from, size_t bytes, off_t at)
{
	ssize_t n = pwrite(fd, from, bytes, at);

	if (n < 0)
		return -errno;
	return (size_t)n == bytes ? 0 : -ENOSPC;
}

/* ---- the header ---- */

static int header_write(int fd, const struct served *served)
{
	struct cache_map header = {
		.bytes = served->bytes,
		.asked_bytes = served->asked,
		.has_table = served->table != NULL,
	};

	memcpy(header.digest, served->digest, DIGEST_BYTES);
	memcpy(header.chunks, served->chunks, DIGEST_BYTES);
	return cache_map_write(fd, &header);
}

static uint64_t bits_stored(const uint8_t *bits, uint64_t bytes)
{
	const uint32_t count = map_chunk_count(bytes);
	uint64_t stored = 0;

	for (uint32_t i = 0; i < count; i++)
		if (bit_is_set(bits, i))
			stored += SEGMENT_CHUNK_BYTES;
	/* The last one may be short. */
	if (bit_is_set(bits, count - 1))
		stored -= (uint64_t)count * SEGMENT_CHUNK_BYTES - bytes;
	return stored;
}

/* The data must be there, as large as it is to be. */
static bool data_is_there(int cache_fd, const struct cache_map *header)
{
	auto_close int fd = file_open(cache_fd, header->digest, ".data", O_RDONLY);
	struct stat st;

	return fd >= 0 && fstat(fd, &st) == 0 && (uint64_t)st.st_size == header->bytes;
}

int map_facts_read(int cache_fd, const uint8_t digest[DIGEST_BYTES], struct map_facts *ret)
{
	auto_close int fd = file_open(cache_fd, digest, ".map", O_RDONLY);
	auto_free uint8_t *bits = NULL;
	struct cache_map header;
	struct map_facts facts;
	int r = fd < 0 ? fd : cache_map_read(fd, &header);

	if (r < 0)
		return r;
	if (memcmp(header.digest, digest, DIGEST_BYTES) != 0 || !data_is_there(cache_fd, &header))
		return -EBADMSG;
	bits = malloc(bits_bytes(map_chunk_count(header.bytes)));
	if (!bits)
		return -ENOMEM;
	r = all_read(fd, bits, bits_bytes(map_chunk_count(header.bytes)), MAP_BITS_AT);
	if (r < 0)
		return r;
	/* `digest` may be in *ret. */
	facts = (struct map_facts){
		.bytes = header.bytes,
		.asked_bytes = header.asked_bytes,
		.stored_bytes = bits_stored(bits, header.bytes),
		.has_table = header.has_table,
	};
	facts.is_whole = facts.stored_bytes == facts.bytes;
	memcpy(facts.digest, header.digest, DIGEST_BYTES);
	memcpy(facts.chunks, header.chunks, DIGEST_BYTES);
	*ret = facts;
	return 0;
}

/* ---- for a shard ---- */

static void served_free(struct served *served)
{
	cleanup_close(&served->data_fd);
	cleanup_close(&served->map_fd);
	free(served->table);
	free(served->states);
	free(served->bits);
	free(served->touched);
	free(served->list);
	free(served->is_touched);
	free(served->unsynced);
	free(served->syncing);
	free(served);
}

static struct served *served_new(const struct map_facts *facts)
{
	struct served *served = calloc(1, sizeof *served);
	const uint32_t count = map_chunk_count(facts->bytes);

	if (!served)
		return NULL;
	memcpy(served->digest, facts->digest, DIGEST_BYTES);
	memcpy(served->chunks, facts->chunks, DIGEST_BYTES);
	served->bytes = facts->bytes;
	served->node = map_node(facts->digest);
	served->chunk_count = count;
	served->data_fd = served->map_fd = -1;
	served->states = calloc(count, 1);
	served->touched = calloc(count, sizeof *served->touched);
	served->bits = calloc(bits_bytes(count), 1);
	served->is_touched = calloc(bits_bytes(count), 1);
	served->unsynced = calloc(bits_bytes(count), 1);
	served->syncing = calloc(bits_bytes(count), 1);
	if (served->states && served->touched && served->bits && served->is_touched &&
	    served->unsynced && served->syncing)
		return served;
	served_free(served);
	return NULL;
}

/* Without it, it is fetched. */
static int table_read(int fd, struct served *served)
{
	const size_t bytes = (size_t)served->chunk_count * DIGEST_BYTES;
	uint8_t digest[DIGEST_BYTES];
	auto_free uint8_t *table = malloc(bytes);
	int r = table ? all_read(fd, table, bytes, table_at(served->chunk_count)) : -ENOMEM;

	if (r < 0)
		return r;
	digest_of(table, bytes, digest);
	if (memcmp(digest, served->chunks, DIGEST_BYTES) != 0)
		return -EBADMSG;
	served->table = (uint8_t(*)[DIGEST_BYTES])take_ptr(table);
	return 0;
}

/* Numbers of chunks, or nothing. */
static void list_read(int cache_fd, struct served *served)
{
	auto_close int fd = file_open(cache_fd, served->digest, ".list", O_RDONLY);
	auto_free uint32_t *list = calloc(served->chunk_count, sizeof *list);
	ssize_t n = fd < 0 || !list ? -1 : pread(fd, list, served->chunk_count * sizeof *list, 0);

	if (n <= 0)
		return;
	for (size_t i = 0; i < (size_t)n / sizeof *list; i++)
		if (list[i] >= served->chunk_count)
			return;
	served->list_count = (uint32_t)((size_t)n / sizeof *list);
	served->list = take_ptr(list);
}

static int map_load(struct served *served, const struct map_facts *facts)
{
	struct cache_map header;
	int r = cache_map_read(served->map_fd, &header);

	if (r >= 0 && (memcmp(header.digest, facts->digest, DIGEST_BYTES) != 0 ||
		       memcmp(header.chunks, facts->chunks, DIGEST_BYTES) != 0 ||
		       header.bytes != facts->bytes))
		r = -EBADMSG;
	if (r >= 0)
		r = all_read(served->map_fd, served->bits, bits_bytes(served->chunk_count),
			     MAP_BITS_AT);
	if (r < 0)
		return r;
	served->asked = header.asked_bytes;
	for (uint32_t i = 0; i < served->chunk_count; i++)
		if (bit_is_set(served->bits, i))
			served->states[i] = CHUNK_STORED;
	if (header.has_table)
		(void)table_read(served->map_fd, served); /* else it is fetched */
	return 0;
}

/* Nothing of it is there; whatever was, was no map. */
static int map_begin(struct served *served)
{
	int r = 0;

	memset(served->bits, 0, bits_bytes(served->chunk_count));
	if (ftruncate(served->map_fd, 0) < 0 || ftruncate(served->data_fd, 0) < 0 ||
	    ftruncate(served->data_fd, (off_t)served->bytes) < 0)
		return -errno;
	r = all_write(served->map_fd, served->bits, bits_bytes(served->chunk_count), MAP_BITS_AT);
	if (r >= 0)
		r = header_write(served->map_fd, served);
	return r >= 0 && fdatasync(served->map_fd) < 0 ? -errno : r;
}

static bool data_fits(const struct served *served)
{
	struct stat st;

	return fstat(served->data_fd, &st) == 0 && (uint64_t)st.st_size == served->bytes;
}

int map_open(int cache_fd, const struct map_facts *facts, struct served **ret)
{
	struct served *served = served_new(facts);
	int r = 0;

	if (!served)
		return -ENOMEM;
	served->map_fd = file_open(cache_fd, facts->digest, ".map", O_RDWR | O_CREAT);
	served->data_fd = file_open(cache_fd, facts->digest, ".data", O_RDWR | O_CREAT);
	if (served->map_fd < 0 || served->data_fd < 0)
		r = served->map_fd < 0 ? served->map_fd : served->data_fd;
	else if (!data_fits(served) || map_load(served, facts) < 0)
		r = map_begin(served);
	if (r < 0) {
		served_free(served);
		return r;
	}
	list_read(cache_fd, served);
	*ret = served;
	return 0;
}

static int list_write(int cache_fd, const struct served *served)
{
	const size_t bytes = served->touched_count * sizeof *served->touched;
	auto_close int fd =
		file_open(cache_fd, served->digest, ".list", O_WRONLY | O_CREAT | O_TRUNC);

	return fd < 0 ? fd : all_write(fd, served->touched, bytes, 0);
}

void map_close(int cache_fd, struct served *served)
{
	int r = 0;

	if (served->table)
		r = all_write(served->map_fd, served->table,
			      (size_t)served->chunk_count * DIGEST_BYTES,
			      table_at(served->chunk_count));
	if (r >= 0)
		r = header_write(served->map_fd, served);
	/* Of a time that asked for little the list would be short of what another begins with. */
	if (r >= 0 && served->touched_count > served->list_count)
		r = list_write(cache_fd, served);
	(void)r; /* what is missing of it is fetched, or not known, next time */
	served_free(served);
}

int map_remove(int cache_fd, const uint8_t digest[DIGEST_BYTES])
{
	char name[NAME_BYTES];

	name_make(digest, ".map", name);
	if (unlinkat(cache_fd, name, 0) < 0 && errno != ENOENT)
		return -errno;
	if (fsync(cache_fd) < 0)
		return -errno;
	name_make(digest, ".data", name);
	return unlinkat(cache_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

int map_data_open(int cache_fd, const uint8_t digest[DIGEST_BYTES])
{
	return file_open(cache_fd, digest, ".data", O_RDONLY);
}

/* ---- looking after what rests ---- */

static int chunk_scrub(int data_fd, int map_fd, const struct map_facts *facts, uint32_t chunk)
{
	const uint64_t at = (uint64_t)chunk * SEGMENT_CHUNK_BYTES;
	const size_t bytes = facts->bytes - at < SEGMENT_CHUNK_BYTES ? facts->bytes - at :
								       SEGMENT_CHUNK_BYTES;
	uint8_t wanted[DIGEST_BYTES], digest[DIGEST_BYTES], bits;
	auto_free char *buffer = malloc(bytes);
	int r = buffer ? all_read(map_fd, &bits, 1, MAP_BITS_AT + chunk / 8) : -ENOMEM;

	if (r < 0 || !(bits & 1u << chunk % 8))
		return r < 0 ? r : 1;
	r = all_read(map_fd, wanted, sizeof wanted,
		     table_at(map_chunk_count(facts->bytes)) + (off_t)chunk * DIGEST_BYTES);
	if (r >= 0)
		r = all_read(data_fd, buffer, bytes, (off_t)at);
	if (r < 0)
		return r;
	digest_of(buffer, bytes, digest);
	return !memcmp(digest, wanted, sizeof wanted);
}

int map_scrub(int cache_fd, const struct map_facts *facts, uint32_t chunk, uint32_t count)
{
	auto_close int map_fd = file_open(cache_fd, facts->digest, ".map", O_RDONLY);
	auto_close int data_fd = file_open(cache_fd, facts->digest, ".data", O_RDONLY);
	int r = 1;

	if (map_fd < 0 || data_fd < 0)
		return map_fd < 0 ? map_fd : data_fd;
	for (uint32_t i = 0; r > 0 && i < count && chunk + i < map_chunk_count(facts->bytes); i++)
		r = chunk_scrub(data_fd, map_fd, facts, chunk + i);
	return r;
}
