/* SHA-256, by libcrypto, and what we take the digest of. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	DIGEST_BYTES = 32, /* SHA-256 */
	DIGEST_HEX_BYTES = 2 * DIGEST_BYTES + 1,
	DIGEST_TEXT_BYTES = sizeof "sha256:" - 1 + DIGEST_HEX_BYTES,
};

struct digest;

/* Loads what libcrypto loads on first use: before a process is confined. */
int digest_prepare(void);
struct digest *digest_new(void); /* NULL: no memory */
void digest_free(struct digest *digest);
void digest_add(struct digest *digest, const void *bytes, size_t count);
/* Of what was added; it begins anew. */
void digest_take(struct digest *digest, uint8_t ret[DIGEST_BYTES]);
/* All at once. */
void digest_of(const void *bytes, size_t count, uint8_t ret[DIGEST_BYTES]);

/* ---- as text: digest_text.c, which needs no libcrypto ---- */

void digest_hex(const uint8_t digest[DIGEST_BYTES], char ret[DIGEST_HEX_BYTES]);
/* 64 lower-case digits and nothing else. */
bool digest_parse(const char *hex, uint8_t ret[DIGEST_BYTES]);
/* "sha256:" and the digits, as records and manifests have it. */
void digest_text(const uint8_t digest[DIGEST_BYTES], char ret[DIGEST_TEXT_BYTES]);
bool digest_text_parse(const char *text, uint8_t ret[DIGEST_BYTES]);

/*
 * file_digest of a node: SHA-256 of the contents where there are no holes. With holes, of the text
 * "holes SIZE\n", of "OFFSET BYTES\n" for each extent, and then of the extents' bytes: what is
 * sparse need not be read as zeros.
 */
