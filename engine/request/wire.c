/*
 * Reading payloads that clients wrote. Called by request.c and the ops behind it, on a private
 * copy; nothing here trusts an offset, a length or a count before it was compared with that copy.
 */
#include "engine/request/wire.h"

#include <errno.h>
#include <string.h>

bool wire_is_zero(const void *bytes, size_t count)
{
	const unsigned char *at = bytes;

	/* Each is as the one before it: a megabyte is looked at in 30 us, not 300. */
	return !count || (!at[0] && !memcmp(at, at + 1, count - 1));
}

int wire_struct(const struct wire *w, void *ret, uint32_t bytes)
{
	uint32_t size, known;

	if (w->bytes < sizeof size)
		return -EINVAL;
	memcpy(&size, w->payload, sizeof size);
	if (size < sizeof size || size > w->bytes)
		return -EINVAL;
	known = size < bytes ? size : bytes;
	memset(ret, 0, bytes);
	memcpy(ret, w->payload, known);
	return wire_is_zero(w->payload + known, size - known) ? 0 : -E2BIG;
}

int wire_bytes(const struct wire *w, struct dsec_wire_ref ref, const char **ret)
{
	if (ref.at > w->bytes || ref.bytes > w->bytes - ref.at)
		return -EINVAL;
	*ret = ref.bytes ? w->payload + ref.at : NULL;
	return 0;
}

int wire_string(const struct wire *w, struct dsec_wire_ref ref, char *ret, uint32_t bytes_max)
{
	const char *text;
	int r;

	r = wire_bytes(w, ref, &text);
	if (r < 0)
		return r;
	if (ref.bytes >= bytes_max)
		return -ENAMETOOLONG;
	if (ref.bytes && memchr(text, 0, ref.bytes))
		return -EINVAL;
	if (ref.bytes)
		memcpy(ret, text, ref.bytes);
	ret[ref.bytes] = 0;
	return 0;
}

int wire_next(const struct wire *w, const struct dsec_wire_items *items, uint32_t *cursor,
	      struct dsec_wire_ref *ret)
{
	uint32_t bytes;

	if (items->at > w->bytes || items->bytes > w->bytes - items->at)
		return -EINVAL;
	if (*cursor == items->bytes)
		return 0;
	if (items->bytes - *cursor < sizeof bytes)
		return -EINVAL;
	memcpy(&bytes, w->payload + items->at + *cursor, sizeof bytes);
	*cursor += sizeof bytes;
	if (bytes > items->bytes - *cursor)
		return -EINVAL;
	*ret = (struct dsec_wire_ref){ items->at + *cursor, bytes };
	*cursor += bytes;
	return 1;
}

int wire_items_check(const struct wire *w, const struct dsec_wire_items *items)
{
	struct dsec_wire_ref item;
	uint32_t cursor = 0, count = 0;
	int r;

	while ((r = wire_next(w, items, &cursor, &item)) > 0)
		count++;
	if (r < 0)
		return r;
	return count == items->count && !items->reserved ? 0 : -EINVAL;
}
