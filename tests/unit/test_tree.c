/* Trees in memory and as bytes. */
#include "backends/store/tree.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/random_tree.h"
#include "tests/unit/tree_bytes.h"

static uint32_t added(struct tree *tree, uint32_t parent, const char *name, enum tree_type type)
{
	uint32_t at = TREE_NONE;

	cr_assert_eq(tree_add(tree, parent, name, type, &at), 0, "%s", name);
	return at;
}

static uint32_t found(const struct tree *tree, uint32_t parent, const char *name)
{
	return tree_find(tree, parent, name, strlen(name));
}

Test(tree, names_that_no_entry_may_have_are_refused)
{
	char long_name[TREE_NAME_MAX + 2];
	struct tree *tree = tree_new();
	uint32_t at, file = added(tree, 0, "file", TREE_FILE);

	memset(long_name, 'x', sizeof long_name - 1);
	long_name[sizeof long_name - 1] = 0;
	cr_assert_eq(tree_add(tree, 0, "", TREE_FILE, &at), -EINVAL);
	cr_assert_eq(tree_add(tree, 0, ".", TREE_FILE, &at), -EINVAL);
	cr_assert_eq(tree_add(tree, 0, "..", TREE_FILE, &at), -EINVAL);
	cr_assert_eq(tree_add(tree, 0, "a/b", TREE_FILE, &at), -EINVAL);
	cr_assert_eq(tree_add(tree, 0, long_name, TREE_FILE, &at), -EINVAL);
	cr_assert_eq(tree_add(tree, 0, long_name + 1, TREE_FILE, &at), 0);
	cr_assert_eq(tree_add(tree, 0, "...", TREE_FILE, &at), 0);
	cr_assert_eq(tree_add(tree, 0, "file", TREE_DIRECTORY, &at), -EEXIST);
	cr_assert_eq(tree_add(tree, file, "below", TREE_FILE, &at), -ENOTDIR);
	tree_free(tree);
}

Test(tree, depth_is_bounded)
{
	struct tree *tree = tree_new();
	uint32_t at = 0;

	for (unsigned i = 0; i < TREE_DEPTH_MAX - 1; i++)
		at = added(tree, at, "d", TREE_DIRECTORY);
	at = added(tree, at, "d", TREE_DIRECTORY);
	cr_assert_eq(tree_add(tree, at, "d", TREE_DIRECTORY, &at), -ELOOP);
	tree_free(tree);
}

Test(tree, a_removed_name_leaves_what_it_had_to_its_other_names)
{
	struct tree *tree = tree_new();
	uint32_t dir = added(tree, 0, "dir", TREE_DIRECTORY), b, c;
	uint32_t a = added(tree, dir, "a", TREE_SYMLINK);

	cr_assert_eq(tree_set_target(tree, a, "where"), 0);
	cr_assert_eq(tree_link(tree, 0, "c", a, &c), 0);
	cr_assert_eq(tree_link(tree, 0, "b", c, &b), 0);
	cr_assert_eq(tree->nodes[a].names, 3);
	tree_remove(tree, dir);
	cr_assert_eq(found(tree, 0, "dir"), TREE_NONE);
	cr_assert_eq(tree->nodes[tree_inode(tree, b)].names, 2);
	tree_sort(tree);
	cr_assert_eq(tree->nodes[0].first, b);
	cr_assert_eq(tree_inode(tree, b), b);
	cr_assert_eq(tree_inode(tree, c), b);
	cr_assert_eq(tree->nodes[b].names, 2);
	cr_assert_str_eq(tree->text + tree->nodes[b].target, "where");
	cr_assert_eq(added(tree, 0, "dir", TREE_FILE), found(tree, 0, "dir"));
	tree_remove(tree, b);
	tree_remove(tree, c);
	cr_assert_eq(tree_link(tree, 0, "d", c, &a), -EINVAL); /* nothing has a name any more */
	tree_free(tree);
}

Test(tree, attributes_are_sorted_replaced_and_bounded)
{
	char *large = calloc(1, TREE_XATTRS_BYTES_MAX);
	struct tree *tree = tree_new();
	uint32_t at = added(tree, 0, "f", TREE_FILE), first;

	cr_assert_eq(tree_set_xattr(tree, at, "user.b", "1", 1), 0);
	cr_assert_eq(tree_set_xattr(tree, at, "user.c", "2", 1), 0);
	cr_assert_eq(tree_set_xattr(tree, at, "user.a", "3", 1), 0);
	cr_assert_eq(tree_set_xattr(tree, at, "user.b", "4\0", 2), 0);
	first = tree->nodes[at].xattrs;
	cr_assert_str_eq(tree->text + tree->xattrs[first].name, "user.a");
	first = tree->xattrs[first].next;
	cr_assert_str_eq(tree->text + tree->xattrs[first].name, "user.b");
	cr_assert_eq(tree->xattrs[first].value_bytes, 2);
	cr_assert_eq(tree->xattr_count, 3);
	cr_assert_eq(tree_set_xattr(tree, at, "user.d", large, TREE_XATTRS_BYTES_MAX), -E2BIG);
	cr_assert_eq(tree_set_xattr(tree, at, "user.", "", 0), -EINVAL);
	cr_assert_eq(tree_set_xattr(tree, at, "system.other", "", 0), -EINVAL);
	cr_assert_eq(tree_set_xattr(tree, at, "trusted.overlay.redirect", "/", 1), -EINVAL);
	cr_assert_eq(tree_set_xattr(tree, at, "system.posix_acl_access", "x", 1), 0);
	free(large);
	tree_free(tree);
}

Test(tree, extents_are_in_order_and_joined)
{
	struct tree_segment segment = { .bytes = 1 << 20 };
	struct tree *tree = tree_new();
	uint32_t a = added(tree, 0, "a", TREE_FILE), b = added(tree, 0, "b", TREE_FILE), at;
	struct tree_extent extent = { .file_block = 0, .blocks = 2, .block = 4 };

	cr_assert_eq(tree_add_extent(tree, a, &extent), -EINVAL); /* no segment yet */
	cr_assert_eq(tree_add_segment(tree, &segment, &at), 0);
	cr_assert_eq(tree_add_segment(tree, &segment, &at), 0);
	cr_assert_eq(tree->segment_count, 1);
	cr_assert_eq(tree_add_extent(tree, a, &extent), 0);
	cr_assert_eq(tree_add_extent(tree, a, &extent), -EINVAL); /* over the last */
	cr_assert_eq(tree_add_extent(tree, b, &extent), 0);
	extent = (struct tree_extent){ .file_block = 2, .blocks = 3, .block = 6 };
	cr_assert_eq(tree_add_extent(tree, a, &extent), 0);
	cr_assert_eq(tree->nodes[a].extents, 1);
	cr_assert_eq(tree->extents[tree->nodes[a].extent].blocks, 5);
	extent = (struct tree_extent){ .file_block = 9, .blocks = UINT32_MAX - 8, .block = 9 };
	cr_assert_eq(tree_add_extent(tree, a, &extent), -EINVAL);
	extent.blocks = 1;
	cr_assert_eq(tree_add_extent(tree, a, &extent), 0);
	cr_assert_eq(tree->extents[tree->nodes[a].extent].blocks, 5); /* moved, whole */
	tree->nodes[a].size = 9 * TREE_BLOCK_BYTES;
	cr_assert_eq(tree_write(tree, -1), -EINVAL); /* behind its end */
	tree_free(tree);
}

Test(tree, names_and_values_may_come_from_its_own_text)
{
	struct tree *tree = tree_new();
	uint32_t parent = 0, file = added(tree, 0, "file", TREE_FILE), link;

	for (unsigned i = 0; i < 100; i++) { /* the text grows, and moves */
		const char *name = tree_name(tree, file);

		parent = added(tree, parent, "directory", TREE_DIRECTORY);
		cr_assert_eq(tree_link(tree, parent, name, file, &link), 0);
		cr_assert_str_eq(tree_name(tree, link), "file");
		link = added(tree, parent, "link", TREE_SYMLINK);
		cr_assert_eq(tree_set_target(tree, link, tree_name(tree, link)), 0);
		cr_assert_str_eq(tree->text + tree->nodes[link].target, "link");
		cr_assert_eq(tree_set_xattr(tree, link, "user.name", tree_name(tree, link), 5), 0);
		cr_assert_str_eq(tree->text + tree->xattrs[tree->nodes[link].xattrs].value, "link");
	}
	tree_free(tree);
}

/* Through bytes and back; what came back is written as the same bytes. */
static void round_trip(struct tree *tree)
{
	size_t count, again_count;
	uint8_t *bytes = tree_bytes(tree, &count), *again;
	const char *why = "";
	struct tree *back;

	cr_assert_eq(tree_read(bytes, count, &back, &why), 0, "%s", why);
	again = tree_bytes(back, &again_count);
	cr_assert_eq(count, again_count);
	cr_assert_eq(memcmp(bytes, again, count), 0);
	tree_free(back);
	free(again);
	free(bytes);
}

Test(tree, what_is_written_is_read_back_and_written_the_same)
{
	for (uint64_t seed = 1; seed <= 200; seed++) {
		struct tree *tree = random_tree(&(struct random_tree){
			.seed = seed,
			.tries = 10 + (uint32_t)(seed % 7) * 40,
			.names = 40,
			.is_layer = seed % 2,
		});

		round_trip(tree);
		tree_free(tree);
	}
}

static void add_numbered(struct tree *tree, const uint32_t dirs[2], unsigned number)
{
	char name[16];

	(void)snprintf(name, sizeof name, "%u", number);
	(void)added(tree, dirs[number % 2], name, TREE_FILE);
}

Test(tree, the_order_of_making_is_not_in_the_bytes)
{
	struct tree *up = tree_new(), *down = tree_new();
	uint32_t up_dirs[] = { added(up, 0, "x", TREE_DIRECTORY),
			       added(up, 0, "y", TREE_DIRECTORY) };
	uint32_t down_dirs[2], link;
	size_t up_count, down_count;
	uint8_t *a, *b;

	down_dirs[1] = added(down, 0, "y", TREE_DIRECTORY);
	down_dirs[0] = added(down, 0, "x", TREE_DIRECTORY);
	for (unsigned i = 0; i < 1000; i++) {
		add_numbered(up, up_dirs, i);
		add_numbered(down, down_dirs, 999 - i);
	}
	cr_assert_eq(tree_link(up, 0, "link", found(up, up_dirs[0], "0"), &link), 0);
	tree_remove(down, found(down, down_dirs[0], "0")); /* the other name comes first here */
	link = added(down, 0, "link", TREE_FILE);
	cr_assert_eq(tree_link(down, down_dirs[0], "0", link, &link), 0);
	a = tree_bytes(up, &up_count);
	b = tree_bytes(down, &down_count);
	cr_assert_eq(up_count, down_count);
	cr_assert_eq(memcmp(a, b, up_count), 0);
	free(a);
	free(b);
	tree_free(up);
	tree_free(down);
}

/* Whatever bytes are read, they are a tree's only form. */
static void refused_or_the_one_form(const uint8_t *bytes, size_t count)
{
	const char *why = NULL;
	struct tree *tree;
	size_t again_count;
	uint8_t *again;
	int r = tree_read(bytes, count, &tree, &why);

	if (r < 0) {
		cr_assert_eq(r, -EBADMSG);
		cr_assert_not_null(why);
		return;
	}
	again = tree_bytes(tree, &again_count);
	cr_assert_eq(count, again_count);
	cr_assert_eq(memcmp(bytes, again, count), 0);
	free(again);
	tree_free(tree);
}

static struct tree *small_tree(uint64_t seed)
{
	return random_tree(
		&(struct random_tree){ .seed = seed, .tries = 30, .names = 12, .is_layer = true });
}

Test(tree, every_truncation_is_refused)
{
	struct tree *tree = small_tree(3), *cut;
	const char *why;
	size_t count;
	uint8_t *bytes = tree_bytes(tree, &count);

	for (size_t i = 0; i < count; i++)
		cr_assert_eq(tree_read(bytes, i, &cut, &why), -EBADMSG, "%zu of %zu", i, count);
	free(bytes);
	tree_free(tree);
}

Test(tree, every_flipped_bit_is_refused_or_another_tree_s_only_form)
{
	struct tree *tree = small_tree(4);
	size_t count;
	uint8_t *bytes = tree_bytes(tree, &count);

	for (size_t i = 0; i < count * 8; i++) {
		bytes[i / 8] ^= (uint8_t)(1u << i % 8);
		refused_or_the_one_form(bytes, count);
		bytes[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	free(bytes);
	tree_free(tree);
}
