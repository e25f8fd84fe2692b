/* EROFS images, read back by a reader of these tests' own. */
#include "backends/store/erofs.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/store/digest.h"
#include "backends/store/tree.h"
#include "tests/unit/random_tree.h"

/* ---- a reader ---- */

enum { BLOCK = 4096, LAYOUT_PLAIN = 0, LAYOUT_INLINE = 2, LAYOUT_CHUNKS = 4 };

struct image {
	uint8_t *bytes;
	size_t count;
	uint64_t inodes;
};

static uint64_t number_at(const struct image *image, uint64_t offset, unsigned bytes)
{
	uint64_t number = 0;

	cr_assert_leq(offset + bytes, image->count);
	for (unsigned i = bytes; i--;)
		number = number << 8 | image->bytes[offset + i];
	return number;
}

static struct image image_of(struct tree *tree)
{
	int fd = memfd_create("image", MFD_CLOEXEC);
	struct erofs_made made;
	struct image image;

	cr_assert_eq(erofs_write(tree, fd, &made), 0);
	image.count = made.bytes;
	image.inodes = made.inodes;
	cr_assert_eq(made.bytes % BLOCK, 0);
	image.bytes = malloc(image.count);
	cr_assert_eq(pread(fd, image.bytes, image.count, 0), (ssize_t)image.count);
	(void)close(fd); /* it was only memory */
	return image;
}

struct inode {
	uint64_t at, size, mtime_s, behind; /* behind: what follows inode and attributes */
	uint32_t mode, uid, gid, names, mtime_ns, where, xattr_bytes;
	unsigned layout;
};

static struct inode inode_read(const struct image *image, uint64_t node)
{
	struct inode inode = { .at = node * 32 };
	uint64_t at = inode.at, format = number_at(image, at, 2),
		 count = number_at(image, at + 2, 2);
	bool is_extended = format & 1;

	inode.layout = (unsigned)(format >> 1);
	inode.mode = (uint32_t)number_at(image, at + 4, 2);
	inode.xattr_bytes = count ? (uint32_t)(12 + (count - 1) * 4) : 0;
	inode.behind = at + (is_extended ? 64 : 32) + inode.xattr_bytes;
	inode.where = (uint32_t)number_at(image, at + 16, 4);
	cr_assert_leq(at % BLOCK + (is_extended ? 64 : 32), BLOCK);
	if (is_extended) {
		inode.size = number_at(image, at + 8, 8);
		inode.uid = (uint32_t)number_at(image, at + 24, 4);
		inode.gid = (uint32_t)number_at(image, at + 28, 4);
		inode.mtime_s = number_at(image, at + 32, 8);
		inode.mtime_ns = (uint32_t)number_at(image, at + 40, 4);
		inode.names = (uint32_t)number_at(image, at + 44, 4);
	} else {
		inode.names = (uint32_t)number_at(image, at + 6, 2);
		inode.size = number_at(image, at + 8, 4);
		inode.uid = (uint32_t)number_at(image, at + 24, 2);
		inode.gid = (uint32_t)number_at(image, at + 26, 2);
		inode.mtime_s = number_at(image, 1024 + 24, 8);
		inode.mtime_ns = (uint32_t)number_at(image, 1024 + 32, 4);
	}
	return inode;
}

/* A block of what is in the image itself; *ret_used: of it. */
static const uint8_t *block_read(const struct image *image, const struct inode *inode,
				 uint64_t number, uint64_t *ret_used)
{
	uint64_t left = inode->size - number * BLOCK,
		 at = ((uint64_t)inode->where + number) * BLOCK;

	*ret_used = left < BLOCK ? left : BLOCK;
	if (inode->layout == LAYOUT_INLINE && left < BLOCK) {
		at = inode->behind;
		cr_assert_eq(at / BLOCK, (at + left - 1) / BLOCK, "inline over a block's end");
	}
	cr_assert_leq(at + *ret_used, image->count);
	return image->bytes + at;
}

/* The node that a directory has by this name; 0: none. Looked for in order, as the kernel may. */
static uint64_t name_find(const struct image *image, const struct inode *directory,
			  const char *name, unsigned *ret_kind)
{
	for (uint64_t number = 0; number * BLOCK < directory->size; number++) {
		uint64_t used;
		const uint8_t *block = block_read(image, directory, number, &used);
		unsigned first = block[8] | block[9] << 8, count = first / 12;

		cr_assert_eq(first % 12, 0);
		for (unsigned i = 0; i < count; i++) {
			const uint8_t *entry = block + i * 12;
			unsigned from = entry[8] | entry[9] << 8;
			unsigned end = i + 1 < count ? (unsigned)(entry[20] | entry[21] << 8) :
						       (unsigned)used;
			size_t bytes = strnlen((const char *)block + from, end - from);
			uint64_t node = 0;

			memcpy(&node, entry, sizeof node);
			*ret_kind = entry[10];
			if (bytes == strlen(name) && !memcmp(block + from, name, bytes))
				return node;
		}
	}
	return 0;
}

/* Names in all blocks ascend: the kernel looks by halves. */
static uint32_t names_count(const struct image *image, const struct inode *directory)
{
	char last[TREE_NAME_MAX + 1] = "", name[TREE_NAME_MAX + 1];
	uint32_t total = 0;

	for (uint64_t number = 0; number * BLOCK < directory->size; number++) {
		uint64_t used;
		const uint8_t *block = block_read(image, directory, number, &used);
		unsigned count = (block[8] | block[9] << 8) / 12u;

		for (unsigned i = 0; i < count; i++, total++) {
			const uint8_t *entry = block + i * 12;
			unsigned from = entry[8] | entry[9] << 8;
			unsigned end = i + 1 < count ? (unsigned)(entry[20] | entry[21] << 8) :
						       (unsigned)used;

			cr_assert_leq(end - from, number == UINT64_MAX ? 0 : BLOCK);
			memset(name, 0, sizeof name);
			memcpy(name, block + from, strnlen((const char *)block + from, end - from));
			cr_assert_lt(strcmp(last, name), 0, "%s before %s", last, name);
			memcpy(last, name, sizeof last);
		}
	}
	return total;
}

/* ---- what must be in it ---- */

static const char *const prefixes[] = {
	"", "user.",	"system.posix_acl_access", "system.posix_acl_default", "trusted.",
	"", "security."
};

static void xattrs_check(const struct image *image, const struct inode *inode,
			 const struct tree *tree, const struct tree_node *node)
{
	uint64_t at = inode->behind - inode->xattr_bytes + 12;
	uint32_t want = node->xattrs, bytes = inode->xattr_bytes;
	bool opaque = node->flags & TREE_OPAQUE;

	cr_assert_eq(bytes != 0, opaque || want != TREE_NONE);
	while (bytes && at < inode->behind) {
		const struct tree_xattr *xattr = opaque ? NULL : &tree->xattrs[want];
		unsigned name_bytes = (unsigned)number_at(image, at, 1);
		unsigned value_bytes = (unsigned)number_at(image, at + 2, 2);
		char name[300];

		(void)snprintf(name, sizeof name, "%s%.*s", prefixes[number_at(image, at + 1, 1)],
			       (int)name_bytes, (const char *)image->bytes + at + 4);
		if (opaque) {
			cr_assert_str_eq(name, "trusted.overlay.opaque");
			opaque = false;
		} else {
			cr_assert_neq(want, TREE_NONE);
			cr_assert_str_eq(name, tree->text + xattr->name);
			cr_assert_eq(value_bytes, xattr->value_bytes);
			cr_assert_eq(memcmp(image->bytes + at + 4 + name_bytes,
					    tree->text + xattr->value, value_bytes),
				     0);
			want = xattr->next;
		}
		at += (4 + name_bytes + value_bytes + 3) & ~3u;
	}
	cr_assert_eq(want, TREE_NONE);
}

/* Every block of a file is where the tree has it, or in a hole. */
static void contents_check(const struct image *image, const struct inode *inode,
			   const struct tree *tree, const struct tree_node *node)
{
	uint64_t blocks = (node->size + BLOCK - 1) / BLOCK, index = (inode->behind + 7) & ~7ull;
	unsigned bits = inode->where & 0x1f;
	uint32_t extent = 0;

	cr_assert_eq(inode->size, node->size);
	cr_assert_eq(inode->layout, node->size ? LAYOUT_CHUNKS : LAYOUT_PLAIN);
	cr_assert_eq(inode->where & ~0x1fu, node->size ? 0x20 : 0);
	for (uint64_t block = 0; block < blocks; block++) {
		uint64_t at = index + (block >> bits) * 8;
		uint32_t device = (uint32_t)number_at(image, at + 2, 2);
		uint32_t where = (uint32_t)number_at(image, at + 4, 4);
		const struct tree_extent *has = NULL;
		char tag[DIGEST_HEX_BYTES];

		for (; extent < node->extents; extent++) {
			has = &tree->extents[node->extent + extent];
			if (has->file_block + has->blocks > block)
				break;
		}
		if (extent == node->extents || has->file_block > block) {
			cr_assert_eq(where, UINT32_MAX, "no hole at %llu",
				     (unsigned long long)block);
			continue;
		}
		cr_assert_geq(device, 1);
		digest_hex(tree->segments[has->segment].digest, tag);
		cr_assert_eq(memcmp(image->bytes + 1152 + 128ull * (device - 1), tag, 64), 0);
		cr_assert_eq(where + (block & ((1ull << bits) - 1)),
			     has->block + (block - has->file_block));
	}
}

static void attributes_check(const struct inode *inode, const struct tree_node *node)
{
	const uint32_t kinds[] = { 0,	     S_IFDIR, S_IFREG, S_IFLNK, S_IFIFO,
				   S_IFSOCK, S_IFCHR, S_IFBLK, S_IFCHR };

	cr_assert_eq(inode->mode & S_IFMT, kinds[node->type]);
	cr_assert_eq(inode->uid, node->uid);
	cr_assert_eq(inode->gid, node->gid);
	cr_assert_eq((int64_t)inode->mtime_s, node->mtime_s);
	cr_assert_eq(inode->mtime_ns, node->mtime_ns);
	if (node->type != TREE_DIRECTORY)
		cr_assert_eq(inode->names, node->names);
	if (node->type != TREE_SYMLINK)
		cr_assert_eq(inode->mode & 07777, node->mode);
	if (node->type == TREE_CHARACTER || node->type == TREE_BLOCK) {
		cr_assert_eq((inode->where >> 8) & 0xfff, node->rdev_major);
		cr_assert_eq((inode->where & 0xff) | ((inode->where >> 12) & 0xfff00),
			     node->rdev_minor);
	}
}

static void node_check(const struct image *image, const struct tree *tree, uint32_t at,
		       uint64_t *nodes)
{
	uint32_t inode_at = tree_inode(tree, at), children = 2;
	const struct tree_node *node = &tree->nodes[inode_at];
	struct inode inode = inode_read(image, nodes[at]);
	unsigned kind;

	cr_assert_eq(nodes[at], nodes[inode_at]);
	attributes_check(&inode, node);
	xattrs_check(image, &inode, tree, node);
	if (node->type == TREE_FILE)
		contents_check(image, &inode, tree, node);
	if (node->type == TREE_SYMLINK) {
		uint64_t used;

		cr_assert_eq(memcmp(block_read(image, &inode, 0, &used), tree->text + node->target,
				    inode.size),
			     0);
		cr_assert_eq(inode.size, strlen(tree->text + node->target));
	}
	if (node->type != TREE_DIRECTORY)
		return;
	cr_assert_eq(name_find(image, &inode, ".", &kind), nodes[at]);
	cr_assert_eq(name_find(image, &inode, "..", &kind), at ? nodes[node->parent] : nodes[0]);
	for (uint32_t i = node->first; i != TREE_NONE; i = tree->nodes[i].next, children++) {
		const unsigned kinds[] = { 0, 2, 1, 7, 5, 6, 3, 4, 3 };

		nodes[i] = name_find(image, &inode, tree_name(tree, i), &kind);
		cr_assert_neq(nodes[i], 0, "%s", tree_name(tree, i));
		cr_assert_eq(kind, kinds[tree->nodes[i].type]);
	}
	cr_assert_eq(names_count(image, &inode), children);
}

static uint32_t crc32c_of(const uint8_t *bytes, size_t count)
{
	uint32_t crc = UINT32_MAX;

	while (count--) {
		crc ^= *bytes++;
		for (unsigned bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
	}
	return crc;
}

static void super_check(const struct image *image)
{
	uint8_t first[BLOCK];

	memcpy(first, image->bytes, sizeof first);
	cr_assert_eq(number_at(image, 1024, 4), 0xe0f5e1e2);
	memset(first + 1028, 0, 4);
	cr_assert_eq(number_at(image, 1028, 4), crc32c_of(first + 1024, BLOCK - 1024));
	cr_assert_eq(number_at(image, 1032, 4) & 1, 1); /* it is to be checked */
	cr_assert_eq(number_at(image, 1024 + 16, 8), image->inodes);
	cr_assert_eq(number_at(image, 1024 + 36, 4), image->count / BLOCK);
	cr_assert_eq(number_at(image, 1024 + 88, 2), 9);
}

static void image_check(struct tree *tree)
{
	struct image image = image_of(tree), again = image_of(tree);
	uint64_t *nodes = calloc(tree->count, sizeof *nodes);

	super_check(&image);
	cr_assert_eq(image.count, again.count);
	cr_assert_eq(memcmp(image.bytes, again.bytes, image.count), 0);
	nodes[0] = number_at(&image, 1024 + 14, 2);
	for (uint32_t at = 0; at != TREE_NONE; at = tree_walk(tree, at))
		node_check(&image, tree, at, nodes);
	free(nodes);
	free(image.bytes);
	free(again.bytes);
}

/* ---- claims ---- */

Test(erofs, random_trees_are_all_there)
{
	for (uint64_t seed = 1; seed <= 120; seed++) {
		struct tree *tree = random_tree(&(struct random_tree){
			.seed = seed,
			.tries = 10 + (uint32_t)(seed % 9) * 60,
			.names = 60,
			.is_layer = seed % 2,
		});

		image_check(tree);
		tree_free(tree);
	}
}

Test(erofs, directories_of_every_size_near_a_block_s_end_are_all_there)
{
	for (unsigned entries = 0; entries<700; entries += entries> 220 ? 97 : 1) {
		struct tree *tree = tree_new();
		char name[TREE_NAME_MAX + 1];
		uint32_t at;

		for (unsigned i = 0; i < entries; i++) {
			(void)snprintf(name, sizeof name, "%0*u", 1 + (int)(i * 7 % 13) + 3, i);
			cr_assert_eq(tree_add(tree, 0, name, TREE_FIFO, &at), 0);
		}
		image_check(tree);
		tree_free(tree);
	}
}

Test(erofs, links_of_every_length_are_all_there)
{
	struct tree *tree = tree_new();
	char name[16], target[TREE_TARGET_MAX + 1];
	uint32_t at;

	for (unsigned bytes = 1; bytes <= TREE_TARGET_MAX; bytes += bytes > 200 ? 61 : 1) {
		(void)snprintf(name, sizeof name, "%u", bytes);
		memset(target, 'a' + (int)(bytes % 26), bytes);
		target[bytes] = 0;
		cr_assert_eq(tree_add(tree, 0, name, TREE_SYMLINK, &at), 0);
		cr_assert_eq(tree_set_target(tree, at, target), 0);
	}
	image_check(tree);
	tree_free(tree);
}

Test(erofs, attributes_larger_than_a_block_are_all_there)
{
	struct tree *tree = tree_new();
	char name[16], value[500];
	uint32_t nodes[3];

	cr_assert_eq(tree_add(tree, 0, "file", TREE_FILE, &nodes[0]), 0);
	cr_assert_eq(tree_add(tree, 0, "link", TREE_SYMLINK, &nodes[1]), 0);
	cr_assert_eq(tree_set_target(tree, nodes[1], "file"), 0);
	cr_assert_eq(tree_add(tree, 0, "directory", TREE_DIRECTORY, &nodes[2]), 0);
	for (unsigned i = 0; i < 3 * 100; i++) {
		memset(value, (int)i, sizeof value);
		(void)snprintf(name, sizeof name, "user.%u", i);
		cr_assert_eq(tree_set_xattr(tree, nodes[i % 3], name, value, i), 0);
	}
	image_check(tree);
	tree_free(tree);
}

static struct tree *file_of_extents(uint64_t size, const struct tree_extent *extents,
				    unsigned count, uint32_t *ret)
{
	struct tree_segment segment = { .bytes = TREE_SIZE_MAX };
	struct tree *tree = tree_new();
	uint32_t at;

	cr_assert_eq(tree_add(tree, 0, "file", TREE_FILE, ret), 0);
	for (uint8_t i = 0; i < 3; i++) {
		segment.digest[0] = i;
		cr_assert_eq(tree_add_segment(tree, &segment, &at), 0);
	}
	for (unsigned i = 0; i < count; i++)
		cr_assert_eq(tree_add_extent(tree, *ret, &extents[i]), 0);
	tree->nodes[*ret].size = size;
	return tree;
}

Test(erofs, a_dense_file_is_one_chunk_and_only_its_segment_a_device)
{
	const struct tree_extent extent = { .blocks = 777777, .segment = 1, .block = 5 };
	uint32_t at;
	struct tree *tree = file_of_extents(777777ull * BLOCK - 1, &extent, 1, &at);
	struct image image = image_of(tree);

	cr_assert_eq(image.count, BLOCK);
	cr_assert_eq(number_at(&image, 1024 + 86, 2), 1);
	image_check(tree);
	free(image.bytes);
	tree_free(tree);
}

Test(erofs, a_file_of_16_tib_is_held_and_one_too_odd_is_refused)
{
	struct tree_extent extent = { .file_block = UINT32_MAX - 1, .blocks = 1, .block = 7 };
	struct erofs_made made;
	uint32_t at;
	struct tree *odd = file_of_extents(TREE_SIZE_MAX, &extent, 1, &at), *even;
	int fd = memfd_create("image", MFD_CLOEXEC);

	cr_assert_eq(erofs_write(odd, fd, &made), -EFBIG);
	extent.file_block = 1u << 30;
	extent.blocks = 1u << 30;
	extent.block = 1;
	even = file_of_extents(TREE_SIZE_MAX, &extent, 1, &at);
	cr_assert_eq(erofs_write(even, fd, &made), 0);
	cr_assert_eq(made.bytes, BLOCK);
	(void)close(fd); /* it was only memory */
	tree_free(odd);
	tree_free(even);
}

Test(erofs, a_disk_that_is_full_is_told)
{
	struct tree *tree = tree_new();
	struct erofs_made made;
	int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	cr_assert_eq(erofs_write(tree, fd, &made), -ENOSPC);
	(void)close(fd); /* nothing was written */
	tree_free(tree);
}
