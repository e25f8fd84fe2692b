/*
 * Packing: what a sandbox wrote becomes a layer, while it is held still. The image op's verb, on
 * the sandbox's shard. See docs/pack.md.
 */
#pragma once

#include "engine/request/status.h"

struct image_words;
struct part;
struct sandbox;
struct tenant;
struct node;

/* `words` are taken where it returns OK: rules and canaries. Not OK: the part ends with it. */
struct status pack_part(struct part *part, struct image_words *words);
void pack_part_cancel(struct part *part);

/* May its connections make images of sandboxes: OK, or DENIED. */
struct status pack_admits(const struct tenant *tenant, const struct node *node, const char *table);
/*
 * What dsec-store is told of a sandbox besides `words`, which are of a client: in front of them.
 * -ENOMEM, -E2BIG.
 */
int pack_words_add(const struct sandbox *sandbox, uint32_t id_base, struct image_words *words);
