/*
 * SHA-256, by libcrypto, which uses the CPU's instructions for it. Called by the importer. An
 * object that libcrypto failed inside gives a digest that equals no other: "sha256:".
 */
#include "backends/image/digest.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct digest {
	EVP_MD_CTX *context;
	bool failed;
};

int digest_prepare(void)
{
	char text[IMAGE_DIGEST_BYTES];
	struct digest *digest = digest_new();
	bool works = digest != NULL;

	if (works) {
		digest_text(digest, text);
		works = text[sizeof "sha256:" - 1] != 0;
	}
	digest_free(digest);
	return works ? 0 : -ENOTSUP;
}

struct digest *digest_new(void)
{
	struct digest *digest = calloc(1, sizeof *digest);

	if (!digest)
		return NULL;
	digest->context = EVP_MD_CTX_new();
	if (!digest->context || EVP_DigestInit_ex(digest->context, EVP_sha256(), NULL) != 1) {
		digest_free(digest);
		return NULL;
	}
	return digest;
}

void digest_free(struct digest *digest)
{
	if (!digest)
		return;
	EVP_MD_CTX_free(digest->context);
	free(digest);
}

void digest_add(struct digest *digest, const void *bytes, size_t count)
{
	digest->failed |= EVP_DigestUpdate(digest->context, bytes, count) != 1;
}

void digest_text(struct digest *digest, char ret[IMAGE_DIGEST_BYTES])
{
	unsigned char hash[EVP_MAX_MD_SIZE];
	unsigned bytes = 0;
	int at = snprintf(ret, IMAGE_DIGEST_BYTES, "sha256:");

	if (digest->failed || EVP_DigestFinal_ex(digest->context, hash, &bytes) != 1)
		return;
	for (unsigned i = 0; i < bytes && at < IMAGE_DIGEST_BYTES - 2; i++)
		at += snprintf(ret + at, IMAGE_DIGEST_BYTES - (size_t)at, "%02x", hash[i]);
}
