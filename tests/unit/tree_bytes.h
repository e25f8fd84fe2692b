/* A tree as its bytes, for tests. */
#pragma once

#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/store/tree.h"

/* The caller frees. */
static inline uint8_t *tree_bytes(struct tree *tree, size_t *ret_count)
{
	int fd = memfd_create("tree", MFD_CLOEXEC);
	struct stat st;
	uint8_t *bytes;

	cr_assert_geq(fd, 0);
	cr_assert_eq(tree_write(tree, fd), 0);
	cr_assert_eq(fstat(fd, &st), 0);
	bytes = malloc((size_t)st.st_size);
	cr_assert_eq(pread(fd, bytes, (size_t)st.st_size, 0), st.st_size);
	(void)close(fd); /* it was only memory */
	*ret_count = (size_t)st.st_size;
	return bytes;
}
