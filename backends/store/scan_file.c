/*
 * Contents and attributes of one entry of an upper directory. Called by scan.c. Must hold: what is
 * written to the raw file is what was looked through for canaries; a file that is not as long as it
 * says is refused.
 */
#include <elf.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backends/store/scan_state.h"

/* ---- attributes ---- */

#define OVERLAY	     "trusted.overlay."
#define OVERLAY_USER "user.overlay."
#define CAPABILITY   "security.capability"

/* As Linux has it in the attribute. */
struct capability {
	uint32_t magic, permitted0, inheritable0, permitted1, inheritable1;
	uint32_t root; /* of the third revision only */
};

enum {
	CAPABILITY_2 = 0x02000000,
	CAPABILITY_3 = 0x03000000,
	CAPABILITY_FLAGS = 0x00ffffff,
	CAPABILITY_2_BYTES = 20,
	CAPABILITY_3_BYTES = 24,
};

/* Capabilities below the sandbox's root are what an image has for everyone's root. */
static int capability_keep(struct scanning *s, uint32_t node, size_t bytes)
{
	struct capability value = { 0 };
	uint32_t magic, root;

	if (bytes != CAPABILITY_2_BYTES && bytes != CAPABILITY_3_BYTES)
		return scan_refuse(s, -EBADMSG, "its file capabilities are malformed");
	memcpy(&value, s->value, bytes);
	magic = le32toh(value.magic);
	if ((magic & ~(uint32_t)CAPABILITY_FLAGS) ==
	    (bytes == CAPABILITY_2_BYTES ? CAPABILITY_2 : CAPABILITY_3))
		root = bytes == CAPABILITY_2_BYTES ? s->scan->id_base : le32toh(value.root);
	else
		return scan_refuse(s, -EBADMSG, "its file capabilities are malformed");
	if (root - s->scan->id_base >= SCAN_IDS)
		return scan_refuse(s, -EBADMSG, "its file capabilities are of a foreign root");
	root -= s->scan->id_base;
	value.root = htole32(root);
	value.magic = htole32((root ? CAPABILITY_3 : CAPABILITY_2) | (magic & CAPABILITY_FLAGS));
	return tree_set_xattr(s->tree, node, CAPABILITY, &value,
			      root ? CAPABILITY_3_BYTES : CAPABILITY_2_BYTES);
}

/* What overlayfs wrote for itself: a mark, or nothing that means anything elsewhere. */
static int overlay_mark(struct scanning *s, const char *name, size_t bytes, struct scan_marks *ret)
{
	static const char *const plain[] = { "origin", "impure", "nlink",
					     "upper",  "uuid",	 "protattr" };

	if (!strcmp(name, "opaque") && bytes == 1 && (*s->value == 'y' || *s->value == 'x')) {
		ret->is_opaque = *s->value == 'y';
		ret->has_whiteouts = *s->value == 'x';
		return 0;
	}
	if (!strcmp(name, "whiteout")) {
		ret->is_whiteout = true;
		return 0;
	}
	for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
		if (!strcmp(name, plain[i]))
			return 0;
	/* Contents or place are elsewhere: redirect, metacopy, verity, what nobody knows yet. */
	return scan_refuse(s, -EBADMSG, "an attribute of overlayfs that a layer cannot hold");
}

static int xattr_take(struct scanning *s, int fd, const char *name, uint32_t node,
		      struct scan_marks *ret)
{
	ssize_t bytes = fgetxattr(fd, name, s->value, sizeof s->value - 1);
	int r;

	if (bytes < 0)
		return scan_refuse(s, errno == ERANGE ? -EBADMSG : -errno,
				   "its attributes cannot be read");
	if (!strncmp(name, OVERLAY, sizeof OVERLAY - 1))
		return overlay_mark(s, name + sizeof OVERLAY - 1, (size_t)bytes, ret);
	if (node == TREE_NONE)
		return 0;
	if (!strcmp(name, CAPABILITY))
		return capability_keep(s, node, (size_t)bytes);
	if (strncmp(name, "user.", 5) != 0 ||
	    !strncmp(name, OVERLAY_USER, sizeof OVERLAY_USER - 1)) {
		s->report->dropped[SCAN_DROP_XATTR]++;
		return 0;
	}
	r = scan_check(s, name, strlen(name), "the name of an attribute");
	if (r >= 0)
		r = scan_check(s, s->value, (size_t)bytes, "an attribute");
	if (r >= 0)
		r = tree_set_xattr(s->tree, node, name, s->value, (size_t)bytes);
	return r == -E2BIG ?
		       scan_refuse(s, -EBADMSG, "more attributes than an image has room for") :
		       r;
}

int scan_xattrs(struct scanning *s, int fd, uint32_t node, struct scan_marks *ret)
{
	ssize_t bytes = flistxattr(fd, s->list, sizeof s->list);
	int r = 0;

	*ret = (struct scan_marks){ 0 };
	if (bytes < 0 && errno == EOPNOTSUPP)
		return 0;
	if (bytes < 0)
		return scan_refuse(s, errno == ERANGE ? -EBADMSG : -errno,
				   "its attributes cannot be listed");
	for (const char *name = s->list; r >= 0 && name < s->list + bytes; name += strlen(name) + 1)
		r = xattr_take(s, fd, name, node, ret);
	return r;
}

/* ---- contents ---- */

static int raw_write(struct scanning *s, size_t count)
{
	const uint8_t *from = s->buffer;

	while (count) {
		ssize_t n = pwrite(s->scan->raw_fd, from, count, (off_t)s->raw_bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return scan_refuse(s, -errno, "its contents cannot be stored");
		from += n;
		count -= (size_t)n;
		s->raw_bytes += (uint64_t)n;
	}
	return 0;
}

static int read_exactly(struct scanning *s, int fd, uint64_t at, size_t count)
{
	size_t done = 0;

	while (done < count) {
		ssize_t n = pread(fd, s->buffer + done, count - done, (off_t)(at + done));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return scan_refuse(s, n < 0 ? -errno : -EBADMSG,
					   "it is not as long as it says");
		done += (size_t)n;
	}
	return 0;
}

int scan_progress(struct scanning *s)
{
	return s->scan->progress ?
		       s->scan->progress(s->scan->owner, s->report->files, s->report->bytes) :
		       0;
}

int scan_extent(struct scanning *s, int fd, uint64_t at, uint64_t end, struct canary_scan *canary)
{
	struct canary_hit hit;
	int r = 0;

	while (r >= 0 && at < end) {
		size_t count = end - at < sizeof s->buffer ? (size_t)(end - at) : sizeof s->buffer;
		size_t whole = (count + TREE_BLOCK_BYTES - 1) / TREE_BLOCK_BYTES * TREE_BLOCK_BYTES;

		r = read_exactly(s, fd, at, count);
		if (r >= 0 && canary->list && canary_feed(canary, s->buffer, count, &hit))
			r = scan_refuse_canary(s, &hit, "its contents");
		if (r < 0)
			return r;
		memset(s->buffer + count, 0, whole - count);
		r = raw_write(s, whole);
		s->report->bytes += count;
		at += count;
		if (r >= 0)
			r = scan_progress(s);
	}
	return r;
}

/* The next piece that is no hole, whole blocks. False: none. */
static bool extent_next(int fd, uint64_t size, uint64_t from, uint64_t ret[2])
{
	off_t begin = lseek(fd, (off_t)from, SEEK_DATA), end;

	if (begin < 0 && errno == ENXIO)
		return false;
	if (begin < (off_t)from) /* it knows of no holes */
		begin = (off_t)from;
	end = lseek(fd, begin, SEEK_HOLE);
	if (end <= begin)
		end = (off_t)size;
	ret[0] = (uint64_t)begin / TREE_BLOCK_BYTES * TREE_BLOCK_BYTES;
	ret[1] = ((uint64_t)end + TREE_BLOCK_BYTES - 1) / TREE_BLOCK_BYTES * TREE_BLOCK_BYTES;
	if (ret[0] < from)
		ret[0] = from;
	if (ret[1] > size)
		ret[1] = size;
	return ret[0] < ret[1];
}

int scan_contents(struct scanning *s, int fd, const struct stat *st, uint32_t node)
{
	const uint64_t size = (uint64_t)st->st_size;
	struct canary_scan canary;
	uint64_t at = 0, piece[2];
	int r = 0;

	if (size / TREE_BLOCK_BYTES >= UINT32_MAX)
		return scan_refuse(s, -EFBIG, "larger than a file of an image may be");
	if (size > s->scan->bytes_max - s->content_bytes)
		return scan_refuse(s, -EFBIG, "over the limit of bytes of an image");
	s->content_bytes += size;
	s->tree->nodes[node].size = size;
	canary_begin(&canary, s->scan->canaries);
	while (r >= 0 && at < size && extent_next(fd, size, at, piece)) {
		struct tree_extent extent = {
			.file_block = (uint32_t)(piece[0] / TREE_BLOCK_BYTES),
			.blocks = (uint32_t)((piece[1] - piece[0] + TREE_BLOCK_BYTES - 1) /
					     TREE_BLOCK_BYTES),
			.block = (uint32_t)(s->raw_bytes / TREE_BLOCK_BYTES),
		};

		if (canary.list && piece[0] > at)
			canary_skip(&canary, piece[0] - at);
		r = scan_extent(s, fd, piece[0], piece[1], &canary);
		if (r >= 0)
			r = tree_add_extent(s->tree, node, &extent);
		at = piece[1];
	}
	return r;
}

bool scan_is_core(int fd, uint64_t at)
{
	Elf64_Ehdr header;
	uint16_t type;

	if (pread(fd, &header, sizeof header, (off_t)at) != sizeof header ||
	    memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
		return false;
	type = header.e_ident[EI_DATA] == ELFDATA2MSB ? be16toh(header.e_type) :
							le16toh(header.e_type);
	return type == ET_CORE;
}
