/* The smallest EROFS image with one file, composed here: probes need no mkfs. */
#pragma once

#include <stdint.h>

enum { EROFS_IMAGE_BYTES = 4096 };

/* A file "ok" that reads "dsec\n", owner 0:0, in a root directory. */
void erofs_image_compose(uint8_t ret_image[EROFS_IMAGE_BYTES]);
