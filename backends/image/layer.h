/* One tar applied to the tree. */
#pragma once

#include <stdbool.h>

struct files;
struct tarball;

/* `whiteouts`: it lies over others and may hide what they made. */
int layer_apply(struct files *files, struct tarball *tarball, bool whiteouts);
