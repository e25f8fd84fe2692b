/*
 * SHA-256, by libcrypto, which uses the CPU's instructions for it. Called by the importer, the
 * store and whoever checks what came from elsewhere. Must hold: where libcrypto failed inside, the
 * digest is a number of chance, which equals no other.
 */
#include "backends/store/digest.h"

#include <assert.h>
#include <errno.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

struct digest {
	EVP_MD_CTX *context;
	bool failed;
};

int digest_prepare(void)
{
	static const uint8_t of_nothing[4] = { 0xe3, 0xb0, 0xc4, 0x42 };
	uint8_t taken[DIGEST_BYTES];

	digest_of("", 0, taken);
	return memcmp(taken, of_nothing, sizeof of_nothing) ? -ENOTSUP : 0;
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

static void digest_of_chance(uint8_t ret[DIGEST_BYTES])
{
	ssize_t n = getrandom(ret, DIGEST_BYTES, 0);

	assert(n == DIGEST_BYTES); /* as many as it gives whole; there is no other way to fail */
}

void digest_take(struct digest *digest, uint8_t ret[DIGEST_BYTES])
{
	unsigned bytes = 0;

	if (digest->failed || EVP_DigestFinal_ex(digest->context, ret, &bytes) != 1)
		digest_of_chance(ret);
	digest->failed = EVP_DigestInit_ex(digest->context, NULL, NULL) != 1;
}

void digest_of(const void *bytes, size_t count, uint8_t ret[DIGEST_BYTES])
{
	unsigned taken = 0;

	if (EVP_Digest(bytes, count, ret, &taken, EVP_sha256(), NULL) != 1)
		digest_of_chance(ret);
}
