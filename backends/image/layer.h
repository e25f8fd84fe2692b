/* One tar applied to the tree. */
#pragma once

#include <stdbool.h>

struct tarball;
struct tree;

/* `whiteouts`: it lies over others and may hide what they made. */
int layer_apply(struct tree *tree, struct tarball *tarball, bool whiteouts);
