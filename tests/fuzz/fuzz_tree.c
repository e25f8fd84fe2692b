/*
 * Tree blobs, which may come from anywhere. Must hold: what is accepted is sound, and written again
 * is the bytes it was read from.
 */
#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/store/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void names_check(const struct tree *tree)
{
	for (uint32_t at = tree_walk(tree, 0); at != TREE_NONE; at = tree_walk(tree, at)) {
		const struct tree_node *node = &tree->nodes[at];

		assert(tree_find(tree, node->parent, tree_name(tree, at), node->name_bytes) == at);
		assert(tree->nodes[node->parent].type == TREE_DIRECTORY);
		assert(tree->nodes[tree_inode(tree, at)].link == TREE_NONE);
	}
}

static void bytes_check(struct tree *tree, const uint8_t *data, size_t bytes)
{
	int fd = memfd_create("tree", MFD_CLOEXEC);
	uint8_t *again = malloc(bytes);
	struct stat st;

	assert(fd >= 0);
	assert(again);
	assert(tree_write(tree, fd) == 0);
	assert(fstat(fd, &st) == 0);
	assert((size_t)st.st_size == bytes);
	assert(pread(fd, again, bytes, 0) == (ssize_t)bytes);
	assert(!memcmp(again, data, bytes));
	free(again);
	(void)close(fd); /* gone */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	const char *why = NULL;
	struct tree *tree;
	int r = tree_read(data, bytes, &tree, &why);

	if (r < 0) {
		assert(r == -EBADMSG);
		assert(why);
		return 0;
	}
	names_check(tree);
	bytes_check(tree, data, bytes);
	tree_free(tree);
	return 0;
}
