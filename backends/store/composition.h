/*
 * A composition on its way: an OCI manifest whose first layers are the manifests of its parts, the
 * lowest first. Behind them is all that those name, so that whoever copies images copies it too.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/store/manifest.h"

#define STORE_COMPOSITION "application/vnd.dsec.composition.v1"
#define STORE_PART_TYPE	  "application/vnd.dsec.manifest.v1+json"

struct store_composition {
	struct store_blob parts[IMAGE_MANIFESTS_MAX]; /* manifests, as the layout has them */
	uint32_t part_count;
};

bool store_composition_is(const char *text, size_t bytes);
/* -EBADMSG; `ret_why`: the field, static. What stands behind the parts is not looked at. */
int store_composition_parse(const char *text, size_t bytes, struct store_composition *ret,
			    const char **ret_why);
/* `manifests`: what the parts are, one each. The caller frees. -E2BIG. */
int store_composition_text(const struct store_composition *composition,
			   const struct store_manifest *manifests, char **ret, size_t *ret_bytes);
