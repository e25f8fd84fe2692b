/* Requests of FUSE: whatever the bytes are, what is returned is within its limits. */
#include "engine/serve/ask.h"

#include <assert.h>
#include <errno.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuse_ask ask;
	int r = fuse_ask_read(data, size, &ask);

	if (r < 0) {
		assert(r == -EPROTO);
		return 0;
	}
	assert(ask.kind < ASK_KINDS);
	if (ask.kind == ASK_READ) {
		assert(ask.bytes);
		assert(ask.bytes <= ASK_READ_BYTES_MAX);
		assert(ask.offset + ask.bytes <= INT64_MAX);
	}
	if (ask.kind == ASK_LOOKUP)
		assert(ask.node == ASK_ROOT);
	assert(ask.error <= 0);
	assert(ask.error > -4096);
	assert(!ask.error || ask.kind == ASK_PLAIN);
	return 0;
}
