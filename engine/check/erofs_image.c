/*
 * Owns a 4 KiB EROFS image: superblock at 1024, then the root directory and one file, both with
 * their data inline behind a compact inode. Used by probes.
 */
#include "engine/check/erofs_image.h"

#include <endian.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>

enum {
	EROFS_MAGIC = 0xE0F5E1E2u,
	SUPER_AT = 1024,
	ROOT_NID = 36, /* inodes are numbered by their place in units of 32 bytes */
	FILE_NID = 40,
	NID_BYTES = 32,
	INLINE_COMPACT = 2 << 1, /* data layout "flat inline", inode version 0 */
	TYPE_FILE = 1,
	TYPE_DIRECTORY = 2,
};

struct super {
	uint32_t magic, checksum, feature_compat;
	uint8_t block_bits, extra_slots;
	uint16_t root_nid;
	uint64_t inodes, build_time;
	uint32_t build_time_ns, blocks, meta_block, xattr_block;
	uint8_t uuid[16], volume[16];
	uint32_t feature_incompat;
	uint8_t rest[44];
};

struct inode {
	uint16_t format, xattr_count, mode, links;
	uint32_t bytes, unused1, block, number;
	uint16_t uid, gid;
	uint32_t unused2;
};

struct entry {
	uint64_t nid;
	uint16_t name_at;
	uint8_t type, unused;
} __attribute__((packed));

_Static_assert(sizeof(struct super) == 128, "as on disk");
_Static_assert(sizeof(struct inode) == NID_BYTES, "as on disk");
_Static_assert(sizeof(struct entry) == 12, "as on disk");

static void inode_put(uint8_t *image, unsigned int nid, mode_t mode, const void *data,
		      uint32_t bytes)
{
	const struct inode inode = {
		.format = htole16(INLINE_COMPACT),
		.mode = htole16((uint16_t)mode),
		.links = htole16(S_ISDIR(mode) ? 2 : 1),
		.bytes = htole32(bytes),
		.number = htole32(nid),
	};

	memcpy(image + nid * NID_BYTES, &inode, sizeof(inode));
	memcpy(image + nid * NID_BYTES + sizeof(inode), data, bytes);
}

void erofs_image_compose(uint8_t ret_image[EROFS_IMAGE_BYTES])
{
	static const char content[] = "dsec\n", names[] = "...ok"; /* ".", "..", "ok" */
	const struct super super = {
		.magic = htole32(EROFS_MAGIC),
		.block_bits = 12,
		.root_nid = htole16(ROOT_NID),
		.inodes = htole64(2),
		.blocks = htole32(1),
	};
	const struct entry entries[3] = {
		{ htole64(ROOT_NID), htole16(sizeof(entries)), TYPE_DIRECTORY, 0 },
		{ htole64(ROOT_NID), htole16(sizeof(entries) + 1), TYPE_DIRECTORY, 0 },
		{ htole64(FILE_NID), htole16(sizeof(entries) + 3), TYPE_FILE, 0 },
	};
	uint8_t directory[sizeof(entries) + sizeof(names) - 1];

	memset(ret_image, 0, EROFS_IMAGE_BYTES);
	memcpy(ret_image + SUPER_AT, &super, sizeof(super));
	memcpy(directory, entries, sizeof(entries));
	memcpy(directory + sizeof(entries), names, sizeof(names) - 1);
	inode_put(ret_image, ROOT_NID, S_IFDIR | 0755, directory, sizeof(directory));
	inode_put(ret_image, FILE_NID, S_IFREG | 0644, content, sizeof(content) - 1);
}
