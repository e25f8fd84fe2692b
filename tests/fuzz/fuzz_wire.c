/*
 * Reading payloads: whatever the bytes say, what is handed out lies inside of them.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "engine/request/wire.h"
#include "tests/fuzz/choices.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { STRUCT_BYTES = 64, TEXT_BYTES = 32 };

static void ref_check(const struct wire *w, struct dsec_wire_ref ref)
{
	char text[TEXT_BYTES];
	const char *at;

	if (wire_bytes(w, ref, &at) == 0) {
		assert(!at == !ref.bytes);
		assert(!at || at >= w->payload);
		assert(!at || at + ref.bytes <= w->payload + w->bytes);
	}
	if (wire_string(w, ref, text, sizeof text) == 0)
		assert(strlen(text) == ref.bytes);
}

static void items_check(const struct wire *w, const struct dsec_wire_items *items)
{
	struct dsec_wire_ref item;
	uint32_t cursor = 0, count = 0, end = items->at;
	int good = wire_items_check(w, items), r;

	while ((r = wire_next(w, items, &cursor, &item)) > 0) {
		/* One after another, inside the list. */
		assert(item.at == end + 4);
		assert(item.bytes <= items->at + items->bytes - item.at);
		assert(item.at + item.bytes <= w->bytes);
		end = item.at + item.bytes;
		count++;
	}
	assert((good == 0) == (r == 0 && count == items->count && !items->reserved));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct choices c = { data, bytes };
	struct dsec_wire_ref ref;
	struct dsec_wire_items items;
	char body[STRUCT_BYTES];
	struct wire w;

	choose_bytes(&c, &ref, sizeof ref);
	choose_bytes(&c, &items, sizeof items);
	/* A copy of the exact size: a sanitizer sees the first byte read past it. */
	w.bytes = (uint32_t)c.left;
	w.payload = malloc(w.bytes + !w.bytes);
	if (w.bytes)
		memcpy((char *)w.payload, c.at, w.bytes);
	ref_check(&w, ref);
	items_check(&w, &items);
	for (uint32_t size = 4; size <= STRUCT_BYTES; size += 20) {
		uint32_t said;

		if (wire_struct(&w, body, size) < 0)
			continue;
		memcpy(&said, w.payload, sizeof said);
		assert(said <= w.bytes);
		assert(!memcmp(body, w.payload, said < size ? said : size));
		assert(said <= size || wire_is_zero(w.payload + size, said - size));
		assert(said >= size || wire_is_zero(body + said, size - said));
	}
	free((char *)w.payload);
	return 0;
}
