/*
 * Requests of FUSE as bytes. Called by connection.c with what it read from the device. The kernel
 * wrote them, and they are checked as if somebody else had: sizes, names, offsets.
 */
#include "engine/serve/ask.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <string.h>

/* Offsets of files end here; so offset and bytes cannot overflow. */
#define OFFSET_MAX ((uint64_t)INT64_MAX - ASK_READ_BYTES_MAX)

struct body {
	const char *bytes;
	size_t count;
};

static int body_take(const struct body *body, void *ret, size_t bytes)
{
	if (body->count < bytes)
		return -EIO;
	memcpy(ret, body->bytes, bytes);
	return 0;
}

static int lookup_read(const struct body *body, struct fuse_ask *ask)
{
	if (ask->node != ASK_ROOT)
		return -ENOTDIR;
	if (body->count < DIGEST_HEX_BYTES || !memchr(body->bytes, 0, DIGEST_HEX_BYTES) ||
	    !digest_parse(body->bytes, ask->name))
		return -ENOENT;
	ask->kind = ASK_LOOKUP;
	return 0;
}

static int read_read(const struct body *body, struct fuse_ask *ask)
{
	struct fuse_read_in in;
	int r = body_take(body, &in, sizeof in);

	if (r < 0)
		return r;
	if (!in.size)
		return 0;
	if (in.size > ASK_READ_BYTES_MAX || in.offset > OFFSET_MAX)
		return -EINVAL;
	ask->offset = in.offset;
	ask->bytes = in.size;
	ask->kind = ASK_READ;
	return 0;
}

static int open_read(const struct body *body, struct fuse_ask *ask)
{
	struct fuse_open_in in;
	int r = body_take(body, &in, sizeof in);

	if (r < 0)
		return r;
	if ((in.flags & O_ACCMODE) != O_RDONLY || in.flags & (O_CREAT | O_TRUNC))
		return -EROFS;
	ask->kind = ASK_OPEN;
	return 0;
}

static int interrupt_read(const struct body *body, struct fuse_ask *ask)
{
	struct fuse_interrupt_in in;

	ask->kind = ASK_SILENT;
	if (body_take(body, &in, sizeof in) < 0)
		return 0;
	ask->interrupted = in.unique;
	ask->kind = ASK_INTERRUPT;
	return 0;
}

/* Older kernels send less of it. */
static int init_read(const struct body *body, struct fuse_ask *ask)
{
	struct fuse_init_in in = { 0 };
	const size_t least = offsetof(struct fuse_init_in, flags) + sizeof in.flags;
	int r = body_take(body, &in, body->count < sizeof in ? least : sizeof in);

	if (r < 0)
		return r;
	if (in.major != FUSE_KERNEL_VERSION || in.minor < 31)
		return -EPROTO;
	ask->minor = in.minor;
	ask->readahead = in.max_readahead;
	ask->offered = in.flags;
	if (in.flags & FUSE_INIT_EXT)
		ask->offered |= (uint64_t)in.flags2 << 32;
	ask->kind = ASK_INIT;
	return 0;
}

static int body_read(uint32_t opcode, const struct body *body, struct fuse_ask *ask)
{
	switch (opcode) {
	case FUSE_INIT:
		return init_read(body, ask);
	case FUSE_LOOKUP:
		return lookup_read(body, ask);
	case FUSE_OPEN:
		return open_read(body, ask);
	case FUSE_READ:
		return read_read(body, ask);
	case FUSE_INTERRUPT:
		return interrupt_read(body, ask);
	case FUSE_GETATTR:
		ask->kind = ASK_ATTRIBUTES;
		return 0;
	case FUSE_STATFS:
		ask->kind = ASK_STATFS;
		return 0;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
		ask->kind = ASK_SILENT;
		return 0;
	case FUSE_RELEASE:
	case FUSE_DESTROY:
	case FUSE_FLUSH:
		return 0;
	case FUSE_SETATTR:
	case FUSE_WRITE:
	case FUSE_CREATE:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_UNLINK:
	case FUSE_RMDIR:
	case FUSE_RENAME:
	case FUSE_RENAME2:
	case FUSE_LINK:
	case FUSE_SYMLINK:
	case FUSE_SETXATTR:
	case FUSE_REMOVEXATTR:
	case FUSE_FALLOCATE:
		return -EROFS;
	default:
		return -ENOSYS;
	}
}

int fuse_ask_read(const void *bytes, size_t count, struct fuse_ask *ret)
{
	struct fuse_in_header head;
	struct fuse_ask ask = { .kind = ASK_PLAIN };
	struct body body;

	if (count < sizeof head)
		return -EPROTO;
	memcpy(&head, bytes, sizeof head);
	if (head.len != count)
		return -EPROTO;
	ask.unique = head.unique;
	ask.node = head.nodeid;
	body = (struct body){ (const char *)bytes + sizeof head, count - sizeof head };
	ask.error = body_read(head.opcode, &body, &ask);
	if (ask.error < 0)
		ask.kind = ASK_PLAIN;
	*ret = ask;
	return 0;
}
