/*
 * Reading payloads that clients wrote. Called by request.c and the ops behind it, on a private
 * copy; nothing here trusts an offset, a length or a count before it was compared with that copy.
 */
#include "engine/request/wire.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

enum { IDS_MAX = 65536 }; /* of a sandbox */

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

/* Digits below IDS_MAX at *at, which moves on. */
static bool id_skip(const char **at)
{
	uint32_t id = 0;
	int digits = 0;

	for (; isdigit((unsigned char)**at) && digits < 10; (*at)++, digits++)
		id = id * 10 + (uint32_t)(**at - '0');
	return digits && digits < 10 && id < IDS_MAX;
}

int wire_user(const struct wire *w, struct dsec_wire_ref ref, char *ret, uint32_t bytes_max)
{
	const char *at = ret;
	int r = wire_string(w, ref, ret, bytes_max);

	if (r < 0 || !isdigit((unsigned char)*ret))
		return r;
	if (!id_skip(&at) || (*at == ':' && (at++, !id_skip(&at))) || *at)
		return -EINVAL;
	return 0;
}

int wire_hostname(const struct wire *w, struct dsec_wire_ref ref, char *ret, uint32_t bytes_max)
{
	int r = wire_string(w, ref, ret, bytes_max);

	for (const char *at = ret; r == 0 && *at; at++) {
		if (!isalnum((unsigned char)*at) && !strchr("._-", *at))
			return -EINVAL;
	}
	return r;
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
