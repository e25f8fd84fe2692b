/* What an archive of layers says it is: which layers, in which order, and the image's config. */
#pragma once

#include <stdint.h>

#include "backends/image/blobs.h"

struct manifest {
	const struct blob **layers; /* the lowest first; owned */
	uint32_t layer_count;
	const struct blob *config;
	const char *source;
	char (*diffs)
		[IMAGE_DIGEST_BYTES]; /* of the layers' tars, from the config; or NULL. Owned */
};

/* Checked against digests and sizes where the archive gives them. */
int manifest_read(const struct blobs *blobs, struct manifest *ret);
void manifest_done(struct manifest *manifest);
/* "" where the config says none. */
const char *manifest_diff(const struct manifest *manifest, uint32_t layer);
/* The config's fields into in->record, its digests of layers into the manifest. */
int config_read(const struct blobs *blobs, struct manifest *manifest);
