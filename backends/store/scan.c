/*
 * Walks the upper directory of a sandbox's overlay and makes the tree of a layer. Called by
 * verb_pack.c, in a process of its own. Must hold: everything is reached by descriptors, one name
 * at a time, and no link is followed; whatever cannot be in a layer is left out and counted, or
 * fails all of it with its path; the same directory gives the same tree and the same raw bytes.
 */
#include "backends/store/scan.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "backends/store/residue.h"
#include "backends/store/scan_state.h"
#include "engine/base/cleanup.h"

/* ---- why it fails ---- */

int scan_refuse(struct scanning *s, int error, const char *reason)
{
	const size_t room = sizeof s->report->path - 1;
	const size_t bytes = s->path_bytes < room ? s->path_bytes : room;

	if (*s->report->reason)
		return error;
	memcpy(s->report->path, s->path + s->path_bytes - bytes, bytes);
	s->report->path[bytes] = 0;
	if (!bytes)
		s->report->path[0] = '/';
	(void)snprintf(s->report->reason, sizeof s->report->reason, "%s", reason);
	return error;
}

int scan_refuse_canary(struct scanning *s, const struct canary_hit *hit, const char *what)
{
	char reason[SCAN_REASON_BYTES];

	/* Short: a status has 80 bytes for it and the path. */
	(void)snprintf(reason, sizeof reason, "canary %u is in %s, %s, at byte %llu%s%.8s",
		       hit->canary + 1, what, hit->form, (unsigned long long)hit->offset,
		       *s->layer ? ", layer " : "", *s->layer ? s->layer + strlen("sha256:") : "");
	return scan_refuse(s, -EKEYREJECTED, reason);
}

int scan_check(struct scanning *s, const void *bytes, size_t count, const char *what)
{
	struct canary_hit hit;

	if (!s->scan->canaries || !canary_find(s->scan->canaries, bytes, count, &hit))
		return 0;
	return scan_refuse_canary(s, &hit, what);
}

int scan_check_path(struct scanning *s, size_t folder_bytes)
{
	/* What begins further up was found when that folder was. */
	const size_t reach = CANARY_FORM_BYTES_MAX;
	const size_t from = folder_bytes > reach ? folder_bytes - reach : 0;
	struct canary_hit hit;

	if (!s->scan->canaries ||
	    !canary_find(s->scan->canaries, s->path + from, s->path_bytes - from, &hit))
		return 0;
	hit.offset += from;
	s->path_bytes = folder_bytes;
	return scan_refuse_canary(s, &hit, "a path in it");
}

/* ---- names of a directory, in order ---- */

struct names {
	char *text;
	size_t bytes, size;
	size_t *at;
	size_t count, room;
};

static void names_done(struct names *names)
{
	free(names->text);
	free(names->at);
}

static int name_add(struct names *names, const char *name)
{
	const size_t bytes = strlen(name) + 1;

	if (names->bytes + bytes > names->size) {
		size_t size = 2 * (names->bytes + bytes) + 4096;
		char *more = realloc(names->text, size);

		if (!more)
			return -ENOMEM;
		names->text = more;
		names->size = size;
	}
	if (names->count == names->room) {
		size_t room = 2 * names->room + 256;
		size_t *more = realloc(names->at, room * sizeof *more);

		if (!more)
			return -ENOMEM;
		names->at = more;
		names->room = room;
	}
	memcpy(names->text + names->bytes, name, bytes);
	names->at[names->count++] = names->bytes;
	names->bytes += bytes;
	return 0;
}

static int name_compare(const void *a, const void *b, void *text)
{
	return strcmp((const char *)text + *(const size_t *)a,
		      (const char *)text + *(const size_t *)b);
}

static int names_fill(struct scanning *s, DIR *stream, struct names *names)
{
	const struct dirent *entry;
	int r = 0;

	while (r >= 0 && (errno = 0, entry = readdir(stream))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (s->entries++ >= s->scan->files_max)
			return scan_refuse(s, -E2BIG, "over the limit of files of an image");
		r = name_add(names, entry->d_name);
	}
	return r < 0 ? r : -errno;
}

static int names_read(struct scanning *s, int fd, struct names *ret)
{
	auto_close int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *stream = again < 0 ? NULL : fdopendir(again);
	int r;

	if (!stream)
		return scan_refuse(s, -errno, "it cannot be opened");
	(void)take_fd(&again); /* the stream's */
	r = names_fill(s, stream, ret);
	(void)closedir(stream); /* only read */
	if (r >= 0 && ret->count)
		qsort_r(ret->at, ret->count, sizeof *ret->at, name_compare, ret->text);
	return r;
}

/* ---- hard links ---- */

static struct scan_link *link_place(struct scan_link *links, size_t size, uint64_t inode)
{
	size_t at = inode * 0x9e3779b97f4a7c15ull >> 20 & (size - 1);

	while (links[at].inode && links[at].inode != inode)
		at = (at + 1) & (size - 1);
	return &links[at];
}

static int links_grow(struct scanning *s)
{
	size_t size = s->link_size ? 2 * s->link_size : 1024;
	struct scan_link *links = calloc(size, sizeof *links);

	if (!links)
		return -ENOMEM;
	for (size_t i = 0; i < s->link_size; i++)
		if (s->links[i].inode)
			*link_place(links, size, s->links[i].inode) = s->links[i];
	free(s->links);
	s->links = links;
	s->link_size = size;
	return 0;
}

static int link_remember(struct scanning *s, uint64_t inode, uint32_t node)
{
	if (2 * s->link_count >= s->link_size) {
		int r = links_grow(s);

		if (r < 0)
			return r;
	}
	*link_place(s->links, s->link_size, inode) = (struct scan_link){ inode, node };
	s->link_count++;
	return 0;
}

static uint32_t link_known(const struct scanning *s, const struct stat *st)
{
	const struct scan_link *link;

	if (st->st_nlink < 2 || !s->link_size || S_ISDIR(st->st_mode))
		return TREE_NONE;
	link = link_place(s->links, s->link_size, st->st_ino);
	return link->inode ? link->node : TREE_NONE;
}

/* ---- entries ---- */

struct entry {
	int parent_fd;
	const char *name;
	uint32_t parent;
	struct stat st;
	struct scan_marks above; /* of the directory it is in */
	unsigned depth;
};

static int directory_scan(struct scanning *s, int fd, uint32_t node, unsigned depth);

/* Where the engine mounts, and what it makes for that. */
static bool is_engines(const char *path)
{
	static const char *const ours[] = { "/dev", "/proc", "/sys", "/etc/resolv.conf" };

	for (size_t i = 0; i < sizeof ours / sizeof *ours; i++)
		if (!strcmp(path, ours[i]))
			return true;
	return false;
}

static int node_add(struct scanning *s, const struct entry *entry, enum tree_type type,
		    uint32_t *ret)
{
	int r = tree_add(s->tree, entry->parent, entry->name, type, ret);

	if (r == -ELOOP)
		return scan_refuse(s, -EBADMSG, "deeper than an image may be");
	return r < 0 && r != -ENOMEM ? scan_refuse(s, r, "it fits no image") : r;
}

static int node_describe(struct scanning *s, const struct stat *st, uint32_t at)
{
	struct tree_node *node = &s->tree->nodes[at];
	const uint32_t uid = st->st_uid - s->scan->id_base, gid = st->st_gid - s->scan->id_base;

	if (uid >= SCAN_IDS || gid >= SCAN_IDS)
		return scan_refuse(s, -EBADMSG, "its owner is none of the sandbox's");
	node->mode = st->st_mode & 07777;
	node->uid = uid;
	node->gid = gid;
	node->mtime_s = st->st_mtim.tv_sec;
	node->mtime_ns = (uint32_t)st->st_mtim.tv_nsec;
	s->report->files++;
	return 0;
}

static int whiteout_add(struct scanning *s, const struct entry *entry)
{
	uint32_t node;
	int r = node_add(s, entry, TREE_WHITEOUT, &node);

	s->report->whiteouts += r >= 0;
	return r;
}

static int symlink_add(struct scanning *s, const struct entry *entry)
{
	char target[TREE_TARGET_MAX + 2];
	ssize_t bytes = readlinkat(entry->parent_fd, entry->name, target, sizeof target - 1);
	uint32_t node;
	int r;

	if (bytes < 0)
		return scan_refuse(s, -errno, "it cannot be read");
	target[bytes] = 0;
	if (!bytes || bytes > TREE_TARGET_MAX)
		return scan_refuse(s, -EBADMSG, "a link with an impossible target");
	r = scan_check(s, target, (size_t)bytes, "the target of a link");
	if (r >= 0)
		r = node_add(s, entry, TREE_SYMLINK, &node);
	if (r >= 0)
		r = tree_set_target(s->tree, node, target);
	return r < 0 ? r : node_describe(s, &entry->st, node);
}

static int fifo_add(struct scanning *s, const struct entry *entry)
{
	uint32_t node;
	int r = node_add(s, entry, TREE_FIFO, &node);

	return r < 0 ? r : node_describe(s, &entry->st, node);
}

/* What was looked at is what was opened. */
static int entry_open(struct scanning *s, const struct entry *entry, int flags, int *ret_fd)
{
	auto_close int fd = openat(entry->parent_fd, entry->name,
				   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | flags);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return scan_refuse(s, -errno, "it cannot be opened");
	if (st.st_ino != entry->st.st_ino || st.st_dev != s->device ||
	    st.st_mode != entry->st.st_mode || st.st_size != entry->st.st_size)
		return scan_refuse(s, -EBADMSG, "it changed while it was read");
	*ret_fd = take_fd(&fd);
	return 0;
}

static bool is_wiped(struct scanning *s, int fd, bool is_directory)
{
	struct residue_hit hit;

	if (!s->scan->residue || !residue_find(s->scan->residue, s->path, is_directory, &hit) ||
	    (hit.only_cores && !scan_is_core(fd, 0)))
		return false;
	residue_count(s->scan->residue, &hit);
	s->report->wiped++;
	return true;
}

static int file_add(struct scanning *s, const struct entry *entry)
{
	auto_close int fd = -1;
	struct scan_marks marks;
	uint32_t node;
	int r = entry_open(s, entry, 0, &fd);

	if (r >= 0)
		r = scan_xattrs(s, fd, TREE_NONE, &marks);
	if (r < 0)
		return r;
	if (marks.is_whiteout && entry->above.has_whiteouts && !entry->st.st_size)
		return whiteout_add(s, entry);
	if (is_wiped(s, fd, false))
		return 0;
	r = node_add(s, entry, TREE_FILE, &node);
	if (r >= 0)
		r = node_describe(s, &entry->st, node);
	if (r >= 0)
		r = scan_xattrs(s, fd, node, &marks);
	if (r >= 0)
		r = scan_contents(s, fd, &entry->st, node);
	if (r >= 0 && entry->st.st_nlink > 1)
		r = link_remember(s, entry->st.st_ino, node);
	return r;
}

static int directory_add(struct scanning *s, const struct entry *entry)
{
	auto_close int fd = -1;
	uint32_t node;
	int r;

	if (is_wiped(s, -1, true))
		return 0;
	r = entry_open(s, entry, O_DIRECTORY, &fd);
	if (r >= 0)
		r = node_add(s, entry, TREE_DIRECTORY, &node);
	if (r >= 0)
		r = node_describe(s, &entry->st, node);
	return r < 0 ? r : directory_scan(s, fd, node, entry->depth + 1);
}

static int link_add(struct scanning *s, const struct entry *entry, uint32_t of)
{
	uint32_t node;
	int r;

	if (is_wiped(s, -1, false))
		return 0;
	r = tree_link(s->tree, entry->parent, entry->name, of, &node);
	s->report->files += r >= 0;
	return r < 0 && r != -ENOMEM ? scan_refuse(s, r, "it fits no image") : r;
}

static int drop(struct scanning *s, enum scan_drop why)
{
	s->report->dropped[why]++;
	return 0;
}

/* By its kind. Other than files, folders and whiteouts only a name can make something residue. */
static int entry_add(struct scanning *s, const struct entry *entry)
{
	const struct stat *st = &entry->st;
	const uint32_t of = link_known(s, st);

	if (st->st_dev != s->device)
		return scan_refuse(s, -EBADMSG, "something is mounted there");
	if (S_ISCHR(st->st_mode) && st->st_rdev == makedev(0, 0))
		return whiteout_add(s, entry);
	if (of != TREE_NONE)
		return link_add(s, entry, of);
	switch (st->st_mode & S_IFMT) {
	case S_IFREG:
		return file_add(s, entry);
	case S_IFDIR:
		return directory_add(s, entry);
	case S_IFLNK:
		return is_wiped(s, -1, false) ? 0 : symlink_add(s, entry);
	case S_IFIFO:
		return is_wiped(s, -1, false) ? 0 : fifo_add(s, entry);
	case S_IFSOCK:
		return drop(s, SCAN_DROP_SOCKET);
	default:
		return drop(s, SCAN_DROP_DEVICE);
	}
}

static int entry_scan(struct scanning *s, struct entry *entry)
{
	const size_t bytes = strlen(entry->name), folder_bytes = s->path_bytes;
	int r;

	if (bytes > TREE_NAME_MAX || entry->depth >= TREE_DEPTH_MAX)
		return scan_refuse(s, -EBADMSG, "deeper than an image may be");
	s->path[s->path_bytes++] = '/';
	memcpy(s->path + s->path_bytes, entry->name, bytes + 1);
	s->path_bytes += bytes;
	r = scan_check_path(s, folder_bytes);
	if (r < 0)
		return r;
	if (is_engines(s->path))
		return drop(s, SCAN_DROP_ENGINE);
	if (!strncmp(entry->name, ".wh.", 4))
		return drop(s, SCAN_DROP_WHITEOUT);
	if (fstatat(entry->parent_fd, entry->name, &entry->st, AT_SYMLINK_NOFOLLOW) < 0)
		return scan_refuse(s, -errno, "it cannot be looked at");
	return entry_add(s, entry);
}

/* Of the directory at s->path, which comes to be as it was. */
static int directory_scan(struct scanning *s, int fd, uint32_t node, unsigned depth)
{
	const size_t path_bytes = s->path_bytes;
	struct entry entry = { .parent_fd = fd, .parent = node, .depth = depth };
	__attribute__((cleanup(names_done))) struct names names = { 0 };
	int r = scan_xattrs(s, fd, node, &entry.above);

	if (r >= 0)
		r = names_read(s, fd, &names);
	if (r >= 0 && entry.above.is_opaque)
		s->tree->nodes[node].flags |= TREE_OPAQUE;
	for (size_t i = 0; r >= 0 && i < names.count; i++) {
		entry.name = names.text + names.at[i];
		r = entry_scan(s, &entry);
		s->path_bytes = path_bytes;
		s->path[path_bytes] = 0;
	}
	return r < 0 ? r : scan_progress(s);
}

static int root_scan(struct scanning *s)
{
	struct stat st;
	int r;

	if (fstat(s->scan->upper_fd, &st) < 0)
		return scan_refuse(s, -errno, "it cannot be looked at");
	if (!S_ISDIR(st.st_mode))
		return scan_refuse(s, -ENOTDIR, "no directory");
	s->device = st.st_dev;
	r = node_describe(s, &st, 0);
	return r < 0 ? r : directory_scan(s, s->scan->upper_fd, 0, 0);
}

int scan_upper(const struct scan *scan, struct tree **ret_tree, struct scanned *ret)
{
	auto_free struct scanning *s = calloc(1, sizeof *s);
	const struct tree_segment raw = { .bytes = 0 }; /* the raw file, which has no digest yet */
	uint32_t segment = 0;
	int r;

	*ret = (struct scanned){ 0 };
	if (!s)
		return -ENOMEM;
	s->scan = scan;
	s->report = ret;
	s->tree = tree_new();
	r = s->tree ? tree_add_segment(s->tree, &raw, &segment) : -ENOMEM;
	if (r >= 0)
		r = root_scan(s);
	if (r >= 0)
		s->tree->segments[segment].bytes = s->raw_bytes;
	free(s->links);
	if (r < 0)
		tree_free(s->tree);
	else
		*ret_tree = s->tree;
	return r;
}
