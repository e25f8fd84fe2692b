/*
 * The tree that layers are merged into: making, replacing and hiding entries. Called by the
 * unpacker. Must hold: every path is opened by path_open(), every last name is used with calls that
 * do not follow links, and nothing that exists is written to: it is taken away first.
 */
#include "backends/image/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/image/path.h"
#include "engine/base/cleanup.h"

enum { SEEN_SIZE_FIRST = 4096, TIME_SIZE_FIRST = 256 };

/* ---- what this layer made ---- */

static uint64_t path_hash(const char *path)
{
	uint64_t hash = 0xcbf29ce484222325; /* FNV-1a */

	for (; *path; path++)
		hash = (hash ^ (unsigned char)*path) * 0x100000001b3;
	return hash ? hash : 1;
}

static size_t seen_at(const struct tree *tree, uint64_t hash)
{
	size_t at = (size_t)(hash ^ hash >> 32) & (tree->seen_size - 1);

	while (tree->seen[at] && tree->seen[at] != hash)
		at = (at + 1) & (tree->seen_size - 1);
	return at;
}

static bool tree_saw(const struct tree *tree, const char *path)
{
	return tree->seen[seen_at(tree, path_hash(path))] != 0;
}

static int seen_grow(struct tree *tree)
{
	struct tree larger = { .seen_size = tree->seen_size * 2 };

	larger.seen = calloc(larger.seen_size, sizeof *larger.seen);
	if (!larger.seen)
		return -ENOMEM;
	for (size_t i = 0; i < tree->seen_size; i++)
		if (tree->seen[i])
			larger.seen[seen_at(&larger, tree->seen[i])] = tree->seen[i];
	free(tree->seen);
	tree->seen = larger.seen;
	tree->seen_size = larger.seen_size;
	return 0;
}

static int tree_see(struct tree *tree, const char *path)
{
	uint64_t hash = path_hash(path);
	size_t at = seen_at(tree, hash);

	if (tree->seen[at])
		return 0;
	tree->seen[at] = hash;
	if (++tree->seen_count * 2 < tree->seen_size)
		return 0;
	return seen_grow(tree) < 0 ? import_fail(tree->in, ENOMEM, path, "no memory") : 0;
}

static int time_keep(struct tree *tree, const char *path, const struct timespec *time)
{
	struct tree_time *grown = tree->times;

	if (tree->time_count == tree->time_size) {
		tree->time_size = tree->time_size ? tree->time_size * 2 : TIME_SIZE_FIRST;
		grown = realloc(tree->times, tree->time_size * sizeof *grown);
		if (!grown)
			return import_fail(tree->in, ENOMEM, path, "no memory");
		tree->times = grown;
	}
	grown[tree->time_count].path = strdup(path);
	grown[tree->time_count].time = *time;
	if (!grown[tree->time_count].path)
		return import_fail(tree->in, ENOMEM, path, "no memory");
	tree->time_count++;
	return 0;
}

int tree_init(struct tree *tree, struct import *in, int root_fd)
{
	const struct timespec never = { 0 };

	*tree = (struct tree){ .in = in, .root_fd = root_fd, .seen_size = SEEN_SIZE_FIRST };
	tree->seen = calloc(tree->seen_size, sizeof *tree->seen);
	return tree->seen ? time_keep(tree, "", &never) :
			    import_fail(in, ENOMEM, NULL, "no memory");
}

void tree_done(struct tree *tree)
{
	for (size_t i = 0; i < tree->time_count; i++)
		free(tree->times[i].path);
	free(tree->times);
	free(tree->seen);
}

void tree_layer_begin(struct tree *tree)
{
	memset(tree->seen, 0, tree->seen_size * sizeof *tree->seen);
	tree->seen_count = 0;
}

/* ---- places ---- */

/* A directory that the archive does not name: root's, and as old as can be. */
static int parent_make(struct tree *tree, const char *path)
{
	const struct timespec never = { 0 };
	char above[IMPORT_PATH_BYTES];
	const char *last = strrchr(path, '/');
	size_t bytes = last ? (size_t)(last - path) : 0;

	memcpy(above, path, bytes);
	above[bytes] = 0;
	auto_close int dir = path_open(tree, above, O_PATH | O_DIRECTORY);
	if (dir < 0 || mkdirat(dir, last ? last + 1 : path, 0755) < 0)
		return dir < 0 ? dir : -errno;
	return time_keep(tree, path, &never);
}

static int parents_make(struct tree *tree, const char *parent)
{
	char path[IMPORT_PATH_BYTES];
	size_t bytes = strlen(parent);

	memcpy(path, parent, bytes + 1);
	for (size_t at = 0; at <= bytes; at++) {
		if (parent[at] && parent[at] != '/')
			continue;
		path[at] = 0;
		auto_close int there = path_open(tree, path, O_PATH | O_DIRECTORY);
		if (there < 0) {
			int r = there == -ENOENT ? parent_make(tree, path) : there;

			if (r < 0)
				return r;
		}
		path[at] = parent[at];
	}
	return 0;
}

int place_open(struct tree *tree, const char *path, struct place *ret)
{
	char parent[IMPORT_PATH_BYTES];
	const char *last;
	int r = path_clean(tree->in, path, ret->path);

	ret->dir_fd = -1;
	if (r < 0)
		return r;
	last = strrchr(ret->path, '/');
	ret->name = last ? last + 1 : ret->path;
	if (!*ret->path)
		return 0;
	memcpy(parent, ret->path, (size_t)(ret->name - ret->path));
	parent[last ? last - ret->path : 0] = 0;
	ret->dir_fd = path_open(tree, parent, O_PATH | O_DIRECTORY);
	if (ret->dir_fd == -ENOENT) {
		r = parents_make(tree, parent);
		if (r < 0)
			return path_fail(tree->in, r, ret->path);
		ret->dir_fd = path_open(tree, parent, O_PATH | O_DIRECTORY);
	}
	return ret->dir_fd < 0 ? path_fail(tree->in, ret->dir_fd, ret->path) : 0;
}

void place_close(struct place *place)
{
	cleanup_close(&place->dir_fd);
	place->dir_fd = -1;
}

/* ---- taking away ---- */

/* What is asked of each entry of a directory. */
typedef int entry_call(struct tree *tree, int dir_fd, const char *name, const char *path);

static int directory_walk(struct tree *tree, int fd, const char *path, entry_call *call)
{
	char below[IMPORT_PATH_BYTES];
	size_t bytes = strlen(path);
	DIR *dir = fdopendir(fd);
	const struct dirent *entry;
	int r = 0;

	if (!dir) {
		(void)close(fd); /* only its number was lost */
		return -ENOMEM;
	}
	memcpy(below, path, bytes);
	if (bytes)
		below[bytes++] = '/';
	while (r >= 0 && (entry = readdir(dir))) {
		size_t name_bytes = strlen(entry->d_name);

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (bytes + name_bytes >= sizeof below) {
			r = -ENAMETOOLONG; /* no path so long was made */
			break;
		}
		memcpy(below + bytes, entry->d_name, name_bytes + 1);
		r = call(tree, fd, entry->d_name, below);
	}
	(void)closedir(dir); /* was only read */
	return r;
}

static int directory_open(int dir_fd, const char *name)
{
	int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

/* All of it, whichever layer made it. */
static int remove_any(struct tree *tree, int dir_fd, const char *name, const char *path)
{
	int fd, r;

	if (unlinkat(dir_fd, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	fd = directory_open(dir_fd, name);
	if (fd < 0)
		return fd;
	r = directory_walk(tree, fd, path, remove_any);
	return r < 0 ? r : unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}

static int hide(struct tree *tree, int dir_fd, const char *name, const char *path)
{
	bool ours = tree_saw(tree, path);
	struct stat st;
	int fd, r;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISDIR(st.st_mode))
		return ours || unlinkat(dir_fd, name, 0) == 0 ? 0 : -errno;
	fd = directory_open(dir_fd, name);
	if (fd < 0)
		return fd;
	r = directory_walk(tree, fd, path, hide);
	if (r < 0 || ours || unlinkat(dir_fd, name, AT_REMOVEDIR) == 0)
		return r;
	return errno == ENOTEMPTY ? 0 : -errno; /* something of this layer is in it */
}

int tree_hide(struct tree *tree, const struct place *place)
{
	int r = hide(tree, place->dir_fd, place->name, place->path);

	return r < 0 ? import_fail(tree->in, -r, place->path, strerror(-r)) : 0;
}

int tree_hide_below(struct tree *tree, const struct place *directory)
{
	int r, fd = path_open(tree, directory->path, O_RDONLY | O_DIRECTORY);

	if (fd == -ENOENT)
		return 0;
	r = fd < 0 ? fd : directory_walk(tree, fd, directory->path, hide);
	return r < 0 ? path_fail(tree->in, r, directory->path) : 0;
}

static int place_clear(struct tree *tree, const struct place *place)
{
	int r = tree_see(tree, place->path);

	if (r < 0)
		return r;
	if (!*place->path)
		return import_fail(tree->in, EINVAL, ".", "the root is a directory");
	r = remove_any(tree, place->dir_fd, place->name, place->path);
	return r < 0 ? import_fail(tree->in, -r, place->path, strerror(-r)) : 0;
}

/* ---- making ---- */

static int made(struct tree *tree, const struct place *place, int r)
{
	return r < 0 ? import_fail(tree->in, errno, place->path, strerror(errno)) : 0;
}

int tree_directory(struct tree *tree, const struct place *place, int *ret_fd)
{
	struct stat st;
	int r = 0;

	if (*place->path) {
		if (fstatat(place->dir_fd, place->name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
		    !S_ISDIR(st.st_mode)) {
			r = place_clear(tree, place);
			if (r >= 0)
				r = made(tree, place, mkdirat(place->dir_fd, place->name, 0700));
		} else {
			r = tree_see(tree, place->path);
		}
	}
	if (r < 0)
		return r;
	*ret_fd = path_open(tree, place->path, O_RDONLY | O_DIRECTORY);
	return *ret_fd < 0 ? path_fail(tree->in, *ret_fd, place->path) : 0;
}

int tree_file(struct tree *tree, const struct place *place, int *ret_fd)
{
	int r = place_clear(tree, place);

	if (r < 0)
		return r;
	*ret_fd = openat(place->dir_fd, place->name,
			 O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	return made(tree, place, *ret_fd);
}

static int owner_check(struct tree *tree, const struct place *place, const struct attributes *a)
{
	if (a->uid <= IMPORT_ID_MAX && a->gid <= IMPORT_ID_MAX)
		return 0;
	return import_fail(tree->in, EOVERFLOW, place->path, "an owner beyond 65535");
}

/* By name, of what cannot be opened without a side effect; nobody else moves in this tree. */
static int attributes_at(struct tree *tree, const struct place *place, const struct attributes *a,
			 bool has_mode)
{
	const struct timespec times[2] = { a->time, a->time };
	int r = owner_check(tree, place, a);

	if (r < 0)
		return r;
	r = fchownat(place->dir_fd, place->name, (uid_t)a->uid, (gid_t)a->gid, AT_SYMLINK_NOFOLLOW);
	if (r >= 0 && has_mode)
		r = fchmodat(place->dir_fd, place->name, a->mode & 07777, 0);
	if (r >= 0)
		r = utimensat(place->dir_fd, place->name, times, AT_SYMLINK_NOFOLLOW);
	return made(tree, place, r);
}

int tree_symlink(struct tree *tree, const struct place *place, const char *target,
		 const struct attributes *attributes)
{
	int r = place_clear(tree, place);

	if (r >= 0)
		r = made(tree, place, symlinkat(target, place->dir_fd, place->name));
	return r < 0 ? r : attributes_at(tree, place, attributes, false);
}

int tree_fifo(struct tree *tree, const struct place *place, const struct attributes *attributes)
{
	int r = place_clear(tree, place);

	if (r >= 0)
		r = made(tree, place, mkfifoat(place->dir_fd, place->name, 0600));
	return r < 0 ? r : attributes_at(tree, place, attributes, true);
}

int tree_hardlink(struct tree *tree, const struct place *place, const char *target)
{
	struct place from;
	char parent[IMPORT_PATH_BYTES];
	int r = path_clean(tree->in, target, from.path);
	const char *last = strrchr(from.path, '/');

	if (r < 0)
		return r;
	if (!strcmp(from.path, place->path)) /* to itself: it would take itself away */
		return import_fail(tree->in, EINVAL, place->path, "a hard link to itself");
	from.name = last ? last + 1 : from.path;
	memcpy(parent, from.path, (size_t)(from.name - from.path));
	parent[last ? last - from.path : 0] = 0;
	auto_close int dir = path_open(tree, parent, O_PATH | O_DIRECTORY);
	if (dir < 0)
		return dir == -ENOENT ? import_fail(tree->in, ENOENT, place->path,
						    "a hard link to nothing") :
					path_fail(tree->in, dir, place->path);
	r = place_clear(tree, place);
	if (r < 0)
		return r;
	if (linkat(dir, from.name, place->dir_fd, place->name, 0) == 0)
		return 0;
	switch (errno) {
	case ENOENT:
		return import_fail(tree->in, ENOENT, place->path, "a hard link to nothing");
	case EPERM:
		return import_fail(tree->in, EPERM, place->path, "a hard link to a directory");
	default:
		return made(tree, place, -1);
	}
}

/* ---- attributes ---- */

int tree_attributes(struct tree *tree, const struct place *place, int fd,
		    const struct attributes *a)
{
	const struct timespec times[2] = { a->time, a->time };
	struct stat st;
	int r = owner_check(tree, place, a);

	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0 || fchown(fd, (uid_t)a->uid, (gid_t)a->gid) < 0 ||
	    fchmod(fd, a->mode & 07777) < 0)
		return made(tree, place, -1);
	if (S_ISDIR(st.st_mode))
		return time_keep(tree, place->path, &a->time);
	return made(tree, place, futimens(fd, times));
}

int tree_finish(struct tree *tree)
{
	for (size_t i = 0; i < tree->time_count; i++) {
		const struct tree_time *t = &tree->times[i];
		const struct timespec times[2] = { t->time, t->time };
		auto_close int fd = path_open(tree, t->path, O_RDONLY | O_DIRECTORY);

		if (fd < 0)
			continue; /* a later layer took it away */
		if (futimens(fd, times) < 0)
			return import_fail(tree->in, errno, t->path, strerror(errno));
	}
	return 0;
}
