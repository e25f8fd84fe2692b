/* SHA-256, by libcrypto. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "backends/image.h"

struct digest;

/* Loads what libcrypto loads on first use: before the process is confined. */
int digest_prepare(void);
struct digest *digest_new(void); /* NULL: no memory */
void digest_free(struct digest *digest);
void digest_add(struct digest *digest, const void *bytes, size_t count);
/* "sha256:…" of what was added. */
void digest_text(struct digest *digest, char ret[IMAGE_DIGEST_BYTES]);
