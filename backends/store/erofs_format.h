/*
 * EROFS as it lies in a file, little-endian; what we write and read of it. Linux,
 * fs/erofs/erofs_fs.h.
 */
#pragma once

#include <endian.h>
#include <stdint.h>

_Static_assert(__BYTE_ORDER == __LITTLE_ENDIAN, "in memory as on disk");

enum {
	EROFS_MAGIC = 0xe0f5e1e2,
	EROFS_SUPER_OFFSET = 1024,
	EROFS_BLOCK_BITS = 12,
	EROFS_BLOCK_BYTES = 1 << EROFS_BLOCK_BITS,
	EROFS_SLOT_BYTES = 32, /* a node's number is its offset in these */

	EROFS_COMPAT_CHECKSUM = 1,
	EROFS_COMPAT_MTIME = 2,
	EROFS_INCOMPAT_CHUNKS = 4,
	EROFS_INCOMPAT_DEVICES = 8,

	EROFS_LAYOUT_PLAIN = 0,
	EROFS_LAYOUT_INLINE = 2, /* what does not fill a block stands behind the inode */
	EROFS_LAYOUT_CHUNKS = 4,
	EROFS_CHUNK_INDEX = 0x20,
	EROFS_CHUNK_BITS_MAX = 31, /* in blocks */

	EROFS_XATTR_USER = 1,
	EROFS_XATTR_ACL_ACCESS = 2,
	EROFS_XATTR_ACL_DEFAULT = 3,
	EROFS_XATTR_TRUSTED = 4,
	EROFS_XATTR_SECURITY = 6,
};

#define EROFS_NO_BLOCK 0xffffffffu

struct erofs_super {
	uint32_t magic, checksum, compat;
	uint8_t block_bits, slots;
	uint16_t root;
	uint64_t inodes;
	uint64_t mtime_s; /* of compact inodes */
	uint32_t mtime_ns;
	uint32_t blocks, meta_block, xattr_block;
	uint8_t uuid[16], name[16];
	uint32_t incompat;
	uint16_t compression, devices, device_slot; /* the first slot, in 128 bytes */
	uint8_t reserved[38];
};
_Static_assert(sizeof(struct erofs_super) == 128, "on disk");

struct erofs_device {
	uint8_t tag[64];
	uint32_t blocks, address;
	uint8_t reserved[56];
};
_Static_assert(sizeof(struct erofs_device) == 128, "on disk");

struct erofs_compact {
	uint16_t format, xattrs, mode, names;
	uint32_t size, mtime; /* mtime: not before Linux 6.15 */
	uint32_t where;	      /* first block, chunk format or device */
	uint32_t number;
	uint16_t uid, gid;
	uint32_t reserved;
};
_Static_assert(sizeof(struct erofs_compact) == 32, "on disk");

struct erofs_extended {
	uint16_t format, xattrs, mode, reserved;
	uint64_t size;
	uint32_t where, number, uid, gid;
	uint64_t mtime_s;
	uint32_t mtime_ns, names;
	uint8_t unused[16];
};
_Static_assert(sizeof(struct erofs_extended) == 64, "on disk");

struct erofs_chunk {
	uint16_t high, device; /* 0: this file */
	uint32_t block;	       /* EROFS_NO_BLOCK: a hole */
};
_Static_assert(sizeof(struct erofs_chunk) == 8, "on disk");

struct erofs_entry {
	uint64_t node;
	uint16_t name; /* its offset in the block */
	uint8_t type, reserved;
} __attribute__((packed));
_Static_assert(sizeof(struct erofs_entry) == 12, "on disk");

struct erofs_xattr_head {
	uint32_t filter;
	uint8_t shared, reserved[7];
};
_Static_assert(sizeof(struct erofs_xattr_head) == 12, "on disk");

struct erofs_xattr {
	uint8_t name_bytes, prefix;
	uint16_t value_bytes;
};
_Static_assert(sizeof(struct erofs_xattr) == 4, "on disk");
