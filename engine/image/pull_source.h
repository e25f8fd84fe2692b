/* Where a pull reads. */
#pragma once

#include <stdbool.h>

#include "engine/request/request.h"

struct config;
struct image_words;

/*
 * oci:DIR[:TAG] and http[s]://ADDRESS#TAG name a layout, and are for who `is_own`: root, or the
 * engine's own uid. Anything else is a name in the engine's remote. OK: the text of the request has
 * become those that dsec-store wants.
 */
struct status pull_source_set(const struct config *config, bool is_own, struct image_words *words);
