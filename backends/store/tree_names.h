/* What tree.c has for the other files of trees: names that do not end with a NUL. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/store/tree.h"

/* Attributes that overlayfs obeys: no tree has them, the EROFS writer makes its one. */
#define TREE_OVERLAY_PREFIX "trusted.overlay."

struct tree_text {
	const char *bytes;
	size_t count;
};

bool tree_name_ok(const char *name, size_t bytes);
/* As tree_add(), tree_link() and tree_set_target(). */
int tree_add_named(struct tree *tree, uint32_t parent, struct tree_text name, enum tree_type type,
		   uint32_t *ret);
int tree_link_named(struct tree *tree, uint32_t parent, struct tree_text name, uint32_t of,
		    uint32_t *ret);
int tree_set_target_named(struct tree *tree, uint32_t node, struct tree_text target);
