/*
 * The EROFS writer: a tree becomes a metadata image whose contents are on devices, one per segment
 * (chunk-based files, a device table). A device's tag is the segment's digest in hex, so a mount
 * finds what it needs by the image alone. Format: Linux, Documentation/filesystems/erofs.rst and
 * fs/erofs/erofs_fs.h.
 *
 * The same tree gives the same bytes: no time, uuid or order of making is in it. Hard links are one
 * inode; holes stay holes; small directories, links and attributes are inline.
 */
#pragma once

#include <stdint.h>

struct tree;

struct erofs_made {
	uint64_t bytes;	 /* of the image, a multiple of 4096 */
	uint64_t inodes; /* hard links once */
};

/*
 * From offset 0 of `fd`, an empty file. The tree is sorted by it. Segments that nothing lies in
 * are no devices. Whiteouts are written as
 * overlayfs has them (character device 0:0), opaque directories with trusted.overlay.opaque "y".
 * -EFBIG: more than 2^32 blocks of metadata, or a file with holes so many or so odd that its index
 * would be larger than EROFS_INDEX_MAX entries; -EINVAL: an unsound tree; -ENOSPC, -EIO, -ENOMEM.
 * Addresses in segments have 32 bits in a tree, so EROFS's 48 are not needed.
 */
int erofs_write(struct tree *tree, int fd, struct erofs_made *ret);

enum { EROFS_DEVICES_MAX = 1024, EROFS_TAG_BYTES = 64, EROFS_INDEX_MAX = 16 << 20 };

/* What a mount needs to know. Checked: a file may say of itself what it likes. */
struct erofs_table {
	uint32_t count;
	char (*tags)[EROFS_TAG_BYTES + 1]; /* owned; digests in hex, or as its maker wrote them */
	uint64_t *bytes;		   /* owned; of each device */
};

/* -EMEDIUMTYPE: no EROFS; -EBADMSG: a table that cannot be. Without a table: count 0. */
int erofs_table_read(int fd, struct erofs_table *ret);
void erofs_table_done(struct erofs_table *table);
