/* A store in a folder of its own, and trees to seal into it. */
#pragma once

#include <criterion/criterion.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/store/file.h"
#include "backends/store/manifest.h"
#include "backends/store/segment.h"
#include "backends/store/store.h"
#include "engine/base/cleanup.h"

struct place_of {
	char path[64]; /* "": somewhere */
	int fd;
	struct store store;
};

static inline void store_new(struct place_of *at)
{
	if (!*at->path)
		(void)snprintf(at->path, sizeof at->path, "/var/tmp/dsec-store.XXXXXX");
	cr_assert_not_null(mkdtemp(at->path));
	at->fd = open(at->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_geq(at->fd, 0);
	cr_assert_eq(store_open(at->fd, &at->store), 0);
}

static inline void folder_empty(int folder_fd)
{
	DIR *dir = fdopendir(folder_fd);
	const struct dirent *entry;

	cr_assert_not_null(dir);
	while ((entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..") &&
		    unlinkat(dirfd(dir), entry->d_name, 0) < 0) {
			folder_empty(openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY));
			cr_assert_eq(unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR), 0);
		}
	closedir(dir);
}

static inline void store_gone(struct place_of *at)
{
	store_close(&at->store);
	folder_empty(at->fd);
	cr_assert_eq(rmdir(at->path), 0);
}

static inline uint32_t blobs_count(const struct place_of *at)
{
	DIR *dir = fdopendir(openat(at->fd, "blobs/sha256", O_RDONLY | O_DIRECTORY));
	uint32_t count = 0;

	cr_assert_not_null(dir);
	for (const struct dirent *entry; (entry = readdir(dir));)
		count += entry->d_name[0] != '.';
	closedir(dir);
	return count;
}

/* ---- trees to seal ---- */

struct raw {
	struct tree *tree;
	int fd;
	uint32_t block;
};

static inline void raw_new(struct raw *raw)
{
	struct tree_segment segment = { .bytes = TREE_SIZE_MAX };
	uint32_t number;

	raw->tree = tree_new();
	raw->fd = memfd_create("raw", MFD_CLOEXEC);
	raw->block = 0;
	cr_assert_geq(raw->fd, 0);
	cr_assert_eq(tree_add_segment(raw->tree, &segment, &number), 0);
}

static inline void raw_free(struct raw *raw)
{
	tree_free(raw->tree);
	(void)close(raw->fd); /* it was only memory */
}

/* Contents that are of `seed`, from block `file_block` of the file on. */
static inline void raw_extend(struct raw *raw, uint32_t node, uint32_t seed, uint64_t bytes,
			      uint32_t file_block)
{
	uint32_t blocks = (uint32_t)((bytes + TREE_BLOCK_BYTES - 1) / TREE_BLOCK_BYTES);
	struct tree_extent extent = { file_block, blocks, 0, raw->block };
	auto_free char *contents = malloc(bytes);

	for (uint64_t i = 0; i < bytes; i++)
		contents[i] = (char)(seed * 31 + i + (i >> 8) * 7);
	cr_assert_eq(file_write(raw->fd, contents, bytes, (uint64_t)raw->block * 4096), 0);
	cr_assert_eq(tree_add_extent(raw->tree, node, &extent), 0);
	raw->block += blocks;
	raw->tree->nodes[node].size = (uint64_t)file_block * TREE_BLOCK_BYTES + bytes;
}

static inline uint32_t raw_file(struct raw *raw, const char *name, uint32_t seed, uint64_t bytes)
{
	uint32_t node;

	cr_assert_eq(tree_add(raw->tree, 0, name, TREE_FILE, &node), 0);
	raw->tree->nodes[node].mode = 0644;
	if (bytes)
		raw_extend(raw, node, seed, bytes, 0);
	return node;
}

static inline struct image_record *record_new(void)
{
	struct image_record *record = calloc(1, sizeof *record);

	cr_assert_not_null(record);
	(void)snprintf(record->source, sizeof record->source, "tree");
	(void)snprintf(record->user, sizeof record->user, "builder");
	(void)snprintf(record->cwd, sizeof record->cwd, "/srv");
	memcpy(record->strings, "A=b\0/bin/run\0-v", sizeof "A=b\0/bin/run\0-v");
	record->string_bytes = sizeof "A=b\0/bin/run\0-v";
	record->env_count = record->entrypoint_count = record->cmd_count = 1;
	record->layers = 1;
	return record;
}

/* `how`: its fields that are not of the raw contents. */
static inline int raw_seal_as(struct place_of *at, struct raw *raw, struct seal how,
			      struct sealed *ret)
{
	auto_free struct image_record *record = record_new();

	if (how.is_alone) /* whole blocks, as it says */
		cr_assert_eq(ftruncate(raw->fd, (off_t)raw->block * TREE_BLOCK_BYTES), 0);
	how.tree = raw->tree;
	how.raw_fd = raw->fd;
	how.record = record;
	return store_seal(&at->store, &how, ret);
}

static inline int raw_seal(struct place_of *at, struct raw *raw, struct sealed *ret)
{
	return raw_seal_as(at, raw, (struct seal){ 0 }, ret);
}

/* Forty files, of which `from` on are of other contents than a tree of another `from` has. */
static inline void forty(struct raw *raw, uint32_t from)
{
	char name[16];

	raw_new(raw);
	for (uint32_t i = 0; i < 40; i++) {
		(void)snprintf(name, sizeof name, "f%02u", i);
		(void)raw_file(raw, name, i < from ? i : i + 1000 * from, 100 + i * 3000);
	}
}

/* What the store gives back of a file, by the tree that it keeps. */
static inline void file_check(const struct place_of *at, const struct tree *tree, uint32_t node)
{
	const struct tree_node *n = &tree->nodes[node];
	uint8_t digest[DIGEST_BYTES];
	auto_free char *contents = calloc(1, n->size + TREE_BLOCK_BYTES);

	for (uint32_t i = 0; i < n->extents; i++) {
		const struct tree_extent *e = &tree->extents[n->extent + i];
		int fd = -1;

		cr_assert_eq(store_blob_open(&at->store, tree->segments[e->segment].digest, &fd),
			     0);
		auto_close int segment = fd;
		cr_assert_eq(file_read(segment, contents + (uint64_t)e->file_block * 4096,
				       (size_t)e->blocks * 4096, (uint64_t)e->block * 4096),
			     0);
	}
	for (uint64_t i = n->size; n->extents && i < (n->size + 4095) / 4096 * 4096; i++)
		cr_assert_eq(contents[i], 0, "behind a file are zeros");
	digest_of(contents, n->size, digest);
	cr_assert_eq(memcmp(digest, n->digest, DIGEST_BYTES), 0);
}

static inline void sealed_check(const struct place_of *at, const struct sealed *sealed)
{
	struct store_manifest manifest = { 0 };
	struct tree *tree = NULL;

	cr_assert_eq(store_manifest_load(&at->store, sealed->manifest, &manifest), 0);
	cr_assert_eq(store_tree_load(&at->store, &manifest, &tree), 0);
	for (uint32_t i = 0; i < manifest.segment_count; i++) {
		auto_free void *table = NULL;
		size_t bytes;

		cr_assert_eq(store_blob_read(&at->store, manifest.segments[i].chunks, 1 << 20,
					     &table, &bytes),
			     0);
		cr_assert_eq(bytes, segment_table_bytes(manifest.segments[i].bytes));
	}
	for (uint32_t node = 0; node != TREE_NONE; node = tree_walk(tree, node))
		if (tree->nodes[node].type == TREE_FILE)
			file_check(at, tree, tree_inode(tree, node));
	tree_free(tree);
	store_manifest_done(&manifest);
}

/* An image file of these manifests. */
static inline void image_make(const struct place_of *at, const uint8_t (*manifests)[DIGEST_BYTES],
			      size_t count, const char *path)
{
	auto_free struct image_record *record = calloc(1, sizeof *record);
	auto_close int fd = openat(at->fd, path, O_RDWR | O_CREAT | O_EXCL, 0644);

	cr_assert_geq(fd, 0);
	cr_assert_eq(store_compose(&at->store, manifests, count, fd, record), 0);
}
