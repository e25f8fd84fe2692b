/* Headers of tar (ustar and pax), block by block. Called by tests. */
#include "tests/unit/files/tar_make.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512 };

static char *blocks_add(struct tar *tar, size_t bytes)
{
	const size_t count = (bytes + BLOCK - 1) / BLOCK * BLOCK;
	char *at;

	tar->bytes = realloc(tar->bytes, tar->count + count);
	at = tar->bytes + tar->count;
	memset(at, 0, count);
	tar->count += count;
	return at;
}

/* Octal where it fits, else as GNU tar does. */
static void number_put(char *field, size_t bytes, uint64_t value)
{
	if (value < 1ull << (3 * (bytes - 1))) {
		char text[32];

		(void)snprintf(text, sizeof text, "%0*llo", (int)bytes - 1,
			       (unsigned long long)value);
		memcpy(field, text, bytes - 1);
		return;
	}
	for (size_t i = bytes; i-- > 1; value >>= 8)
		field[i] = (char)(value & 0xff);
	field[0] = (char)0x80;
}

void tar_add(struct tar *tar, const struct tar_entry *entry)
{
	const size_t content = entry->content ? strlen(entry->content) : 0;
	char *header = blocks_add(tar, BLOCK), *data;
	unsigned sum = 0;

	(void)strncpy(header, entry->name, 100);
	number_put(header + 100, 8, entry->mode ? entry->mode : 0644);
	number_put(header + 108, 8, 0);
	number_put(header + 116, 8, 0);
	number_put(header + 124, 12, entry->size ? entry->size : content);
	number_put(header + 136, 12, 1000000000);
	memset(header + 148, ' ', 8);
	header[156] = entry->type ? entry->type : '0';
	if (entry->link)
		(void)strncpy(header + 157, entry->link, 100);
	memcpy(header + 257, "ustar\00000", 8);
	for (int i = 0; i < BLOCK; i++)
		sum += (unsigned char)header[i];
	(void)snprintf(header + 148, 8, "%06o", sum);
	if (content) {
		data = blocks_add(tar, content);
		memcpy(data, entry->content, content);
	}
}

void tar_pax(struct tar *tar, const char *key, const char *value)
{
	char record[4096];
	size_t bytes = strlen(key) + strlen(value) + 3, digits = 1;

	while (snprintf(NULL, 0, "%zu", bytes + digits) > (int)digits)
		digits++;
	(void)snprintf(record, sizeof record, "%zu %s=%s\n", bytes + digits, key, value);
	tar_add(tar, &(struct tar_entry){ .name = "pax", .type = 'x', .content = record });
}

void tar_end(struct tar *tar)
{
	(void)blocks_add(tar, (size_t)2 * BLOCK);
}

void tar_done(struct tar *tar)
{
	free(tar->bytes);
	*tar = (struct tar){ 0 };
}
