/*
 * The table of devices of an EROFS image. Called by who mounts images, on a file that somebody
 * else may have written. Must hold: what is returned lies within the file and within the limits of
 * erofs.h; no size in it can overflow; on failure nothing is.
 */
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/store/erofs.h"
#include "engine/base/cleanup.h"

enum {
	SUPER_AT = 1024,
	MAGIC = 0xE0F5E1E2u,
	FEATURE_DEVICE_TABLE = 0x8,
	FEATURE_48BIT = 0x80,
	SLOT_BYTES = 128,
	BLOCK_BITS_MIN = 9,
	BLOCK_BITS_MAX = 16,
	BLOCKS_BITS_MAX = 44, /* of a device: so that bytes fit what a file can have */
};

/* Of the superblock what is looked at here. */
struct super {
	uint32_t magic, checksum, feature_compat;
	uint8_t block_bits, unused1[67];
	uint32_t feature_incompat;
	uint16_t unused2, devices, slots_at;
	uint8_t unused3[38];
};

struct slot {
	char tag[EROFS_TAG_BYTES];
	uint32_t blocks, address, blocks_high;
	uint16_t address_high;
	uint8_t unused[50];
};

_Static_assert(sizeof(struct super) == 128, "as on disk");
_Static_assert(offsetof(struct super, feature_incompat) == 80, "as on disk");
_Static_assert(sizeof(struct slot) == SLOT_BYTES, "as on disk");

static int bytes_read(int fd, void *ret, size_t bytes, uint64_t offset)
{
	ssize_t n = pread(fd, ret, bytes, (off_t)offset);

	if (n < 0)
		return -errno;
	return (size_t)n == bytes ? 0 : -EBADMSG;
}

static int slot_read(const struct super *super, const struct slot *slot, uint64_t *ret_bytes)
{
	const bool is_wide = le32toh(super->feature_incompat) & FEATURE_48BIT;
	uint64_t blocks = le32toh(slot->blocks);

	if (is_wide)
		blocks |= (uint64_t)le32toh(slot->blocks_high) << 32;
	if (blocks >> BLOCKS_BITS_MAX)
		return -EBADMSG;
	*ret_bytes = blocks << super->block_bits;
	return 0;
}

static int slots_read(int fd, const struct super *super, struct erofs_table *table)
{
	const uint64_t from = (uint64_t)le16toh(super->slots_at) * SLOT_BYTES;
	struct slot slot;
	int r = 0;

	for (uint32_t i = 0; r >= 0 && i < table->count; i++) {
		r = bytes_read(fd, &slot, sizeof slot, from + (uint64_t)i * SLOT_BYTES);
		if (r < 0)
			break;
		memcpy(table->tags[i], slot.tag, sizeof slot.tag);
		table->tags[i][EROFS_TAG_BYTES] = 0;
		r = slot_read(super, &slot, &table->bytes[i]);
	}
	return r;
}

static int super_read(int fd, struct super *ret)
{
	int r = bytes_read(fd, ret, sizeof *ret, SUPER_AT);

	if (r == -EBADMSG || (r >= 0 && le32toh(ret->magic) != MAGIC))
		return -EMEDIUMTYPE;
	if (r < 0)
		return r;
	if (!(le32toh(ret->feature_incompat) & FEATURE_DEVICE_TABLE))
		ret->devices = 0;
	return 0;
}

int erofs_table_read(int fd, struct erofs_table *ret)
{
	struct erofs_table table = { 0 };
	struct super super;
	int r = super_read(fd, &super);

	if (r < 0)
		return r;
	table.count = le16toh(super.devices);
	if (table.count) {
		if (table.count > EROFS_DEVICES_MAX || super.block_bits < BLOCK_BITS_MIN ||
		    super.block_bits > BLOCK_BITS_MAX ||
		    (uint32_t)le16toh(super.slots_at) * SLOT_BYTES < SUPER_AT + sizeof super)
			return -EBADMSG;
		table.tags = calloc(table.count, sizeof *table.tags);
		table.bytes = calloc(table.count, sizeof *table.bytes);
		r = table.tags && table.bytes ? slots_read(fd, &super, &table) : -ENOMEM;
	}
	if (r < 0)
		erofs_table_done(&table);
	else
		*ret = table;
	return r;
}

void erofs_table_done(struct erofs_table *table)
{
	free(table->tags);
	free(table->bytes);
	*table = (struct erofs_table){ 0 };
}
