/* What a composition is called in the cache: of engine and dsec-store alike. */
#include "backends/store/store.h"

void store_compose_key(const uint8_t (*manifests)[DIGEST_BYTES], size_t count,
		       char ret[DIGEST_HEX_BYTES])
{
	uint8_t digest[DIGEST_BYTES];

	digest_of(manifests, count * DIGEST_BYTES, digest);
	digest_hex(digest, ret);
}
