/*
 * The host's files as a tree with segments, and a comparison of a mounted image with them. Must
 * hold: whatever differs ends the test with its name.
 */
#include "tests/root/image/host_tree.h"

#include <dirent.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "backends/store/erofs.h"
#include "engine/base/cleanup.h"

enum { FAIL = 1, PIECE_BYTES = 1 << 20, XATTRS_BYTES = 65536 };

struct host_link {
	dev_t device;
	ino_t inode;
	uint32_t node;
	struct host_link *next;
};

static uint64_t now_us(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail */
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static void must(int r, const char *what)
{
	if (r < 0)
		errx(FAIL, "%s: %s", what, strerror(-r));
}

/* ---- contents ---- */

static uint32_t segment_for(struct host_tree *host, uint64_t bytes)
{
	struct tree_segment segment = { 0 };
	uint32_t number;
	int fd;

	if (host->segment_count &&
	    (!host->segment_bytes || host->segment_bytes + bytes <= host->segment_bytes_max))
		return host->segment_count - 1;
	if (host->segment_count == HOST_SEGMENTS_MAX)
		errx(FAIL, "more than %d segments", HOST_SEGMENTS_MAX);
	fd = openat(host->directory_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		err(FAIL, "a segment");
	segment.digest[0] = (uint8_t)(host->segment_count + 1);
	segment.digest[1] = (uint8_t)((host->segment_count + 1) >> 8);
	must(tree_add_segment(host->tree, &segment, &number), "a segment");
	host->segment_fds[number] = fd;
	host->segment_count = number + 1;
	host->segment_bytes = 0;
	return number;
}

/* `bytes` of a file from `offset` on become an extent. */
static void extent_read(struct host_tree *host, uint32_t node, int fd, off_t offset, uint64_t bytes)
{
	uint64_t whole = (bytes + TREE_BLOCK_BYTES - 1) / TREE_BLOCK_BYTES * TREE_BLOCK_BYTES;
	uint32_t segment = segment_for(host, whole);
	struct tree_extent extent = {
		.file_block = (uint32_t)(offset / TREE_BLOCK_BYTES),
		.blocks = (uint32_t)(whole / TREE_BLOCK_BYTES),
		.segment = segment,
		.block = (uint32_t)(host->segment_bytes / TREE_BLOCK_BYTES),
	};
	auto_free char *piece = malloc(bytes < PIECE_BYTES ? bytes : PIECE_BYTES);
	off_t to = (off_t)host->segment_bytes;

	for (uint64_t done = 0; done < bytes;) {
		size_t want = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
		ssize_t count = pread(fd, piece, want, offset + (off_t)done);

		if (count <= 0)
			errx(FAIL, "a file became shorter");
		if (pwrite(host->segment_fds[segment], piece, (size_t)count, to + (off_t)done) !=
		    count)
			err(FAIL, "writing a segment");
		done += (uint64_t)count;
	}
	host->segment_bytes += whole;
	host->contents_bytes += whole;
	if (ftruncate(host->segment_fds[segment], (off_t)host->segment_bytes) < 0)
		err(FAIL, "a segment's end");
	host->tree->segments[segment].bytes = host->segment_bytes;
	must(tree_add_extent(host->tree, node, &extent), "an extent");
}

static void contents_read(struct host_tree *host, uint32_t node, int fd, off_t size)
{
	off_t at = 0;

	host->tree->nodes[node].size = (uint64_t)size;
	while (at < size) {
		off_t data = lseek(fd, at, SEEK_DATA), hole;

		if (data < 0 && errno == ENXIO)
			return;
		data = data < 0 ? at : data / TREE_BLOCK_BYTES * TREE_BLOCK_BYTES;
		hole = lseek(fd, data, SEEK_HOLE);
		if (hole < 0 || hole > size)
			hole = size;
		extent_read(host, node, fd, data, (uint64_t)(hole - data));
		at = (hole + TREE_BLOCK_BYTES - 1) / TREE_BLOCK_BYTES * TREE_BLOCK_BYTES;
	}
}

/* ---- attributes ---- */

/* Those that trees have, sorted by the kernel's order; a name's value in `value`. */
static bool xattr_wanted(const char *name)
{
	return !strncmp(name, "user.", 5) || !strncmp(name, "trusted.", 8) ||
	       !strcmp(name, "security.capability") || !strncmp(name, "system.posix_acl", 16);
}

static void xattr_read(struct host_tree *host, uint32_t node, const char *path, const char *name)
{
	auto_free char *value = malloc(XATTRS_BYTES);
	ssize_t count = lgetxattr(path, name, value, XATTRS_BYTES);

	if (count < 0)
		err(FAIL, "%s of %s", name, path);
	must(tree_set_xattr(host->tree, node, name, value, (size_t)count), name);
}

static void xattrs_read(struct host_tree *host, uint32_t node, const char *path)
{
	auto_free char *names = malloc(XATTRS_BYTES);
	ssize_t bytes = llistxattr(path, names, XATTRS_BYTES);

	for (ssize_t at = 0; at < bytes; at += (ssize_t)strlen(names + at) + 1) {
		if (!strcmp(names + at, "trusted.overlay.opaque"))
			host->tree->nodes[node].flags |= TREE_OPAQUE;
		else if (xattr_wanted(names + at))
			xattr_read(host, node, path, names + at);
	}
}

static void attributes_read(struct host_tree *host, uint32_t at, const char *path,
			    const struct stat *st)
{
	struct tree_node *node = &host->tree->nodes[at];

	node->mode = st->st_mode & 07777;
	node->uid = st->st_uid;
	node->gid = st->st_gid;
	node->mtime_s = st->st_mtim.tv_sec;
	node->mtime_ns = (uint32_t)st->st_mtim.tv_nsec;
	if (S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode)) {
		node->rdev_major = major(st->st_rdev);
		node->rdev_minor = minor(st->st_rdev);
	}
	xattrs_read(host, at, path);
}

/* ---- a folder ---- */

static enum tree_type type_of(const struct stat *st)
{
	switch (st->st_mode & S_IFMT) {
	case S_IFDIR:
		return TREE_DIRECTORY;
	case S_IFLNK:
		return TREE_SYMLINK;
	case S_IFIFO:
		return TREE_FIFO;
	case S_IFSOCK:
		return TREE_SOCKET;
	case S_IFCHR:
		return st->st_rdev ? TREE_CHARACTER : TREE_WHITEOUT;
	case S_IFBLK:
		return TREE_BLOCK;
	default:
		return TREE_FILE;
	}
}

static struct host_link *link_find(struct host_tree *host, const struct stat *st)
{
	struct host_link *link = host->links;

	while (link && (link->device != st->st_dev || link->inode != st->st_ino))
		link = link->next;
	return link;
}

static void link_keep(struct host_tree *host, const struct stat *st, uint32_t node)
{
	struct host_link *link = malloc(sizeof *link);

	*link = (struct host_link){ st->st_dev, st->st_ino, node, host->links };
	host->links = link;
}

/* What is no directory. */
static void leaf_read(struct host_tree *host, uint32_t at, const char *path, const struct stat *st)
{
	char target[PATH_MAX];
	ssize_t count;

	if (S_ISLNK(st->st_mode)) {
		count = readlink(path, target, sizeof target - 1);
		if (count < 0)
			err(FAIL, "%s", path);
		target[count] = 0;
		must(tree_set_target(host->tree, at, target), path);
	} else if (S_ISREG(st->st_mode)) {
		auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

		if (fd < 0)
			err(FAIL, "%s", path);
		contents_read(host, at, fd, st->st_size);
	}
}

static void folder_read(struct host_tree *host, uint32_t parent, const char *path);

static void entry_read(struct host_tree *host, uint32_t parent, const char *path, const char *name)
{
	struct host_link *link = NULL;
	struct stat st;
	uint32_t at;

	if (lstat(path, &st) < 0)
		err(FAIL, "%s", path);
	if (!S_ISDIR(st.st_mode) && st.st_nlink > 1)
		link = link_find(host, &st);
	if (link) {
		must(tree_link(host->tree, parent, name, link->node, &at), path);
		return;
	}
	must(tree_add(host->tree, parent, name, type_of(&st), &at), path);
	if (!S_ISDIR(st.st_mode) && st.st_nlink > 1)
		link_keep(host, &st, at);
	if (host->tree->nodes[at].type == TREE_WHITEOUT)
		return;
	attributes_read(host, at, path, &st);
	if (S_ISDIR(st.st_mode))
		folder_read(host, at, path);
	else
		leaf_read(host, at, path, &st);
}

static void folder_read(struct host_tree *host, uint32_t parent, const char *path)
{
	DIR *dir = opendir(path);
	struct dirent *entry;
	char *below;

	if (!dir)
		err(FAIL, "%s", path);
	while ((entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (asprintf(&below, "%s/%s", path, entry->d_name) < 0)
			errx(FAIL, "no memory");
		entry_read(host, parent, below, entry->d_name);
		free(below);
	}
	(void)closedir(dir); /* it was only read */
}

void host_tree_read(struct host_tree *host, const char *path, const char *scratch,
		    uint64_t segment_bytes_max)
{
	struct stat st;

	*host = (struct host_tree){
		.tree = tree_new(),
		.directory_fd = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
		.segment_bytes_max = segment_bytes_max,
	};
	if (!host->tree || host->directory_fd < 0 || lstat(path, &st) < 0)
		err(FAIL, "%s or %s", path, scratch);
	attributes_read(host, 0, path, &st);
	folder_read(host, 0, path);
}

void host_tree_done(struct host_tree *host)
{
	while (host->links) {
		struct host_link *next = host->links->next;

		free(host->links);
		host->links = next;
	}
	for (uint32_t i = 0; i < host->segment_count; i++)
		(void)close(host->segment_fds[i]); /* it has no name: gone */
	(void)close(host->directory_fd);	   /* it was only looked at */
	tree_free(host->tree);
}

/* ---- the image ---- */

static bool mount_flag(int context, unsigned command, const char *key, int fd)
{
	char path[64];

	(void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return fsconfig(context, command, key, command == FSCONFIG_SET_STRING ? path : NULL, 0) ==
	       0;
}

int host_image_mount(int fd, const int *devices, uint32_t count)
{
	auto_close int context = fsopen("erofs", FSOPEN_CLOEXEC);
	int mount_fd;

	if (context < 0 || !mount_flag(context, FSCONFIG_SET_STRING, "source", fd))
		return -errno;
	/* Until Linux 6.15 is the minimum: without it contents are cached twice, and right too. */
	(void)mount_flag(context, FSCONFIG_SET_FLAG, "directio", fd);
	for (uint32_t i = 0; i < count; i++)
		if (!mount_flag(context, FSCONFIG_SET_STRING, "device", devices[i]))
			return -errno;
	if (fsconfig(context, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -errno;
	mount_fd = fsmount(context, FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV);
	return mount_fd < 0 ? -errno : mount_fd;
}

void host_image_make(struct host_tree *host, struct host_image *ret)
{
	struct erofs_made made;
	uint64_t begun;

	*ret = (struct host_image){
		.fd = openat(host->directory_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600),
	};
	if (ret->fd < 0)
		err(FAIL, "an image");
	begun = now_us();
	must(erofs_write(host->tree, ret->fd, &made), "erofs_write");
	ret->write_us = now_us() - begun;
	ret->bytes = made.bytes;
	ret->inodes = made.inodes;
	begun = now_us();
	ret->mount_fd = host_image_mount(ret->fd, host->segment_fds, host->segment_count);
	ret->mount_us = now_us() - begun;
	must(ret->mount_fd, "mount");
}

void host_image_done(struct host_image *image)
{
	(void)close(image->mount_fd); /* and with it the mount */
	(void)close(image->fd);	      /* it has no name: gone */
}
