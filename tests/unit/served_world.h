/*
 * A server of segments without an engine around it and a kernel's FUSE before it: requests come by
 * a socket that keeps packets apart, as the device does, contents from a folder, and the control
 * thread is this one. The folder stays from life to life, as a disk does.
 */
#pragma once

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "engine/config.h"
#include "engine/serve/map.h"
#include "engine/serve/serve.h"
#include "engine/serve/server.h"
#include "engine/shard.h"
#include "tests/slowness.h"

/* The last chunk is a short one. */
enum { DISK_CHUNKS = 11, DISK_BYTES = (DISK_CHUNKS - 1) * SEGMENT_CHUNK_BYTES + 3 * 4096 };

/* What outlives a process. */
struct disk {
	char path[64], address[96];
	int cache_fd;
	struct map_facts facts; /* of the segment, nothing of it cached */
	uint8_t contents[DISK_BYTES];
};

/* A process of an engine. */
struct world {
	struct shard shard;
	struct config config;
	struct disk *disk;
	struct served *home; /* it came back */
	int fuse_fd;
	uint64_t unique;
};

/* ---- the disk ---- */

static inline void blob_write(const struct disk *disk, const void *bytes, size_t count,
			      uint8_t ret_digest[DIGEST_BYTES])
{
	char hex[DIGEST_HEX_BYTES], path[192];

	digest_of(bytes, count, ret_digest);
	digest_hex(ret_digest, hex);
	(void)snprintf(path, sizeof path, "%s/blobs/sha256/%s", disk->path, hex);
	auto_close int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, bytes, count), (ssize_t)count);
}

static inline struct disk *disk_new(void)
{
	struct disk *disk = calloc(1, sizeof *disk);
	uint8_t table[DISK_CHUNKS][DIGEST_BYTES];
	char path[192];

	cr_assert(disk);
	(void)snprintf(disk->path, sizeof disk->path, "/dev/shm/dsec-served-XXXXXX");
	cr_assert(mkdtemp(disk->path));
	(void)snprintf(disk->address, sizeof disk->address, "dir:%s", disk->path);
	for (const char *name = "/blobs\0/blobs/sha256\0/cache\0"; *name;
	     name += strlen(name) + 1) {
		(void)snprintf(path, sizeof path, "%s%s", disk->path, name);
		cr_assert_eq(mkdir(path, 0700), 0);
	}
	disk->cache_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_geq(disk->cache_fd, 0);
	for (uint32_t i = 0; i < DISK_BYTES; i++)
		disk->contents[i] = (uint8_t)((i * 2654435761u >> 13) + i / 4096 + 1);
	for (uint32_t i = 0; i < DISK_CHUNKS; i++) {
		const uint32_t at = i * SEGMENT_CHUNK_BYTES, rest = DISK_BYTES - at;

		digest_of(disk->contents + at,
			  rest < SEGMENT_CHUNK_BYTES ? rest : SEGMENT_CHUNK_BYTES, table[i]);
	}
	disk->facts.bytes = DISK_BYTES;
	blob_write(disk, disk->contents, DISK_BYTES, disk->facts.digest);
	blob_write(disk, table, sizeof table, disk->facts.chunks);
	return disk;
}

/* A path of the segment's in the cache. */
static inline void disk_path(const struct disk *disk, const char *end, char ret[192])
{
	char hex[DIGEST_HEX_BYTES];

	digest_hex(disk->facts.digest, hex);
	(void)snprintf(ret, 192, "%s/cache/%s%s", disk->path, hex, end);
}

static inline void disk_empty(const struct disk *disk)
{
	static const char *const ends[] = { ".map", ".data", ".list", ".kept" };
	char path[192];

	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		disk_path(disk, ends[i], path);
		cr_assert(unlink(path) == 0 || errno == ENOENT);
	}
}

static inline void disk_free(struct disk *disk)
{
	const uint8_t *const blobs[] = { disk->facts.digest, disk->facts.chunks };
	char hex[DIGEST_HEX_BYTES], path[192];

	disk_empty(disk);
	(void)close(disk->cache_fd);
	for (size_t i = 0; i < 2; i++) {
		digest_hex(blobs[i], hex);
		(void)snprintf(path, sizeof path, "%s/blobs/sha256/%s", disk->path, hex);
		cr_assert_eq(unlink(path), 0);
	}
	for (const char *name = "/blobs/sha256\0/blobs\0/cache\0\0"; *name;
	     name += strlen(name) + 1) {
		(void)snprintf(path, sizeof path, "%s%s", disk->path, name);
		cr_assert_eq(rmdir(path), 0);
	}
	cr_assert_eq(rmdir(disk->path), 0);
	free(disk);
}

/* What the cache says that it has is there: nobody checks what is whole again. */
static inline uint32_t disk_check(const struct disk *disk)
{
	uint8_t bits[(DISK_CHUNKS + 7) / 8], got[SEGMENT_CHUNK_BYTES];
	struct map_facts facts;
	uint32_t count = 0;
	char path[192];

	if (map_facts_read(disk->cache_fd, disk->facts.digest, &facts) < 0)
		return 0;
	disk_path(disk, ".map", path);
	auto_close int map_fd = open(path, O_RDONLY | O_CLOEXEC);
	auto_close int data_fd = map_data_open(disk->cache_fd, disk->facts.digest);
	cr_assert_eq(pread(map_fd, bits, sizeof bits, MAP_BITS_AT), (ssize_t)sizeof bits);
	for (uint32_t i = 0; i < DISK_CHUNKS; i++) {
		const uint32_t at = i * SEGMENT_CHUNK_BYTES, rest = DISK_BYTES - at;
		const uint32_t bytes = rest < SEGMENT_CHUNK_BYTES ? rest : SEGMENT_CHUNK_BYTES;

		if (!bit_is_set(bits, i))
			continue;
		count++;
		cr_assert_eq(pread(data_fd, got, bytes, at), (ssize_t)bytes);
		cr_assert_eq(memcmp(got, disk->contents + at, bytes), 0, "chunk %u", i);
	}
	cr_assert_eq(facts.is_whole, count == DISK_CHUNKS);
	return count;
}

/* ---- a life ---- */

static inline struct world *world_new(struct disk *disk)
{
	struct world *world = calloc(1, sizeof *world);
	struct server_join *join = calloc(1, sizeof *join);
	int pair[2];

	cr_assert(world);
	cr_assert(join);
	world->disk = disk;
	world->config.remote_address = disk->address;
	world->config.remote_timeout_s = 20;
	world->shard.config = &world->config;
	cr_assert_eq(timers_init(&world->shard.timers, 64), 0);
	cr_assert_eq(io_open(&(struct io_options){ .entries = 64 }, &world->shard.io), 0);
	cr_assert_eq(server_open(&world->shard, &world->shard.server), 0);
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair),
		     0);
	join->fd = pair[0];
	world->fuse_fd = pair[1];
	server_connect(&join->mail, &world->shard);
	return world;
}

static inline void world_turn_for(struct world *world, uint64_t wait_ns)
{
	const uint64_t soon_ns = io_clock_ns(world->shard.io) + wait_ns;
	const uint64_t timer_ns = timers_next(&world->shard.timers);

	cr_assert_geq(io_turn(world->shard.io, timer_ns < soon_ns ? timer_ns : soon_ns), 0);
	(void)timers_run(&world->shard.timers, io_now_ns(world->shard.io), 16);
}

static inline void world_turn(struct world *world)
{
	world_turn_for(world, 10000000);
}

static inline void world_free(struct world *world)
{
	server_close(world->shard.server);
	for (unsigned turns = 0; turns < 8; turns++)
		world_turn_for(world, 100000);
	io_close(world->shard.io);
	server_free(world->shard.server);
	timers_done(&world->shard.timers);
	(void)close(world->fuse_fd);
	free(world);
}

static inline void world_take(struct world *world)
{
	struct served *served;

	cr_assert_eq(map_open(world->disk->cache_fd, &world->disk->facts, &served), 0);
	server_take(&served->mail, &world->shard);
}

static inline void world_give(struct world *world)
{
	struct served *served =
		server_find(world->shard.server, map_node(world->disk->facts.digest));
	const uint64_t end_ns = io_clock_ns(world->shard.io) + 20000000000ull * slowness();

	server_give(&served->mail, &world->shard);
	while (!world->home && io_clock_ns(world->shard.io) < end_ns)
		world_turn(world);
	cr_assert(world->home, "it stays");
	map_close(world->disk->cache_fd, world->home);
	world->home = NULL;
}

/* Bytes of an answer; negative: its error. */
static inline int world_read(struct world *world, uint64_t offset, uint32_t bytes, void *ret)
{
	struct {
		struct fuse_in_header head;
		struct fuse_read_in in;
	} ask = {
		.head = { .len = sizeof ask,
			  .opcode = FUSE_READ,
			  .unique = ++world->unique,
			  .nodeid = map_node(world->disk->facts.digest) },
		.in = { .offset = offset, .size = bytes },
	};
	const uint64_t end_ns = io_clock_ns(world->shard.io) + 20000000000ull * slowness();
	static char answer[sizeof(struct fuse_out_header) + ASK_READ_BYTES_MAX];
	struct fuse_out_header head;
	ssize_t n = -1;

	cr_assert_eq(write(world->fuse_fd, &ask, sizeof ask), (ssize_t)sizeof ask);
	while (n < 0 && io_clock_ns(world->shard.io) < end_ns) {
		world_turn(world);
		n = read(world->fuse_fd, answer, sizeof answer);
	}
	cr_assert_geq(n, (ssize_t)sizeof head, "nobody answers");
	memcpy(&head, answer, sizeof head);
	cr_assert_eq(head.unique, ask.head.unique);
	cr_assert_eq(head.len, (uint32_t)n);
	memcpy(ret, answer + sizeof head, (size_t)n - sizeof head);
	return head.error ? head.error : (int)((size_t)n - sizeof head);
}

/* All of it is as it was made. */
static inline void world_read_all(struct world *world)
{
	uint8_t got[SEGMENT_CHUNK_BYTES];

	for (uint32_t at = 0; at < DISK_BYTES; at += SEGMENT_CHUNK_BYTES) {
		const uint32_t rest = DISK_BYTES - at;
		const uint32_t bytes = rest < SEGMENT_CHUNK_BYTES ? rest : SEGMENT_CHUNK_BYTES;

		cr_assert_eq(world_read(world, at, SEGMENT_CHUNK_BYTES, got), (int)bytes);
		cr_assert_eq(memcmp(got, world->disk->contents + at, bytes), 0, "at %u", at);
	}
}

/* All that was asked for is cached when it comes back: then the next needs no remote. */
static inline void world_live(struct disk *disk)
{
	struct world *world = world_new(disk);

	world_take(world);
	world_read_all(world);
	world_give(world);
	world_free(world);
}
