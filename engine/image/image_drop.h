/*
 * Images that nobody may name: made for one use, gone by their file as soon as they are mounted,
 * and for good when nobody uses them.
 */
#pragma once

#include <stdint.h>

#include "engine/image/image.h"

struct config;
struct control;
struct shard;

/* A name for one: of this engine, never given before. */
void image_unnamed(const struct shard *shard, uint64_t hi, uint64_t lo, char ret[IMAGE_NAME_MAX]);
/* On a shard: its file goes, soon. */
void image_drop(struct shard *shard, const char *name);
/* On the control thread: files of such images that an engine of this instance left. */
void images_drop_left(const struct config *config);
