/* Request payloads, built in private memory. Called by request.c, without the lock. Stateless. */
#include "sdk/lib/pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Room for `bytes` more: where they go; NULL, and an error that stays, if they do not. */
static unsigned char *pack_grow(struct pack *pack, size_t bytes)
{
	size_t capacity = pack->capacity ? pack->capacity : 512;
	unsigned char *data;

	if (pack->error)
		return NULL;
	if (bytes > DSEC_PAYLOAD_BYTES_MAX - pack->bytes) {
		pack->error = -EMSGSIZE;
		return NULL;
	}
	while (capacity < pack->bytes + bytes)
		capacity *= 2;
	if (capacity > pack->capacity) {
		data = realloc(pack->data, capacity);
		if (!data) {
			pack->error = -ENOMEM;
			return NULL;
		}
		pack->data = data;
		pack->capacity = capacity;
	}
	data = pack->data + pack->bytes;
	pack->bytes += bytes;
	return data;
}

void dsec__pack_begin(struct pack *pack, size_t struct_bytes)
{
	*pack = (struct pack){ 0 };
	(void)pack_grow(pack, struct_bytes); /* an error stays and is told at the end */
}

struct dsec_wire_ref dsec__pack_bytes(struct pack *pack, const void *data, size_t bytes)
{
	struct dsec_wire_ref ref = { 0, 0 };
	size_t at = pack->bytes;
	unsigned char *to;

	if (!bytes)
		return ref;
	if (!data) {
		pack->error = pack->error ? pack->error : -EINVAL;
		return ref;
	}
	to = pack_grow(pack, bytes);
	if (!to)
		return ref;
	memcpy(to, data, bytes);
	return (struct dsec_wire_ref){ (uint32_t)at, (uint32_t)bytes };
}

struct dsec_wire_ref dsec__pack_text(struct pack *pack, const char *text)
{
	return dsec__pack_bytes(pack, text, text ? strlen(text) : 0);
}

static void pack_item(struct pack *pack, struct dsec_bytes item)
{
	uint32_t bytes = (uint32_t)item.bytes;

	if (item.bytes > DSEC_PAYLOAD_BYTES_MAX)
		pack->error = pack->error ? pack->error : -EMSGSIZE;
	(void)dsec__pack_bytes(pack, &bytes, sizeof(bytes)); /* found by counting, not by ref */
	(void)dsec__pack_bytes(pack, item.data, item.bytes);
}

static struct dsec_wire_items items_end(const struct pack *pack, size_t at, uint32_t count)
{
	if (!count)
		return (struct dsec_wire_items){ 0 };
	return (struct dsec_wire_items){ .at = (uint32_t)at,
					 .bytes = (uint32_t)(pack->bytes - at),
					 .count = count };
}

struct dsec_wire_items dsec__pack_items(struct pack *pack, const struct dsec_bytes *items,
					uint32_t count)
{
	size_t at = pack->bytes;

	if (count && !items)
		pack->error = pack->error ? pack->error : -EINVAL;
	for (uint32_t item = 0; item < count && !pack->error; item++)
		pack_item(pack, items[item]);
	return items_end(pack, at, count);
}

struct dsec_wire_items dsec__pack_labels(struct pack *pack, const struct dsec_label *labels,
					 uint32_t count)
{
	size_t at = pack->bytes;

	if ((count && !labels) || count > UINT32_MAX / 2)
		pack->error = pack->error ? pack->error : -EINVAL;
	for (uint32_t label = 0; label < count && !pack->error; label++) {
		pack_item(pack, labels[label].key);
		pack_item(pack, labels[label].value);
	}
	return items_end(pack, at, 2 * count);
}

int dsec__pack_finish(struct pack *pack, const void *content, size_t struct_bytes)
{
	if (pack->error)
		return pack->error;
	memcpy(pack->data, content, struct_bytes);
	return 0;
}
