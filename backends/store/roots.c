/*
 * Walking the image files of a store. Called by gc, verify and composing. Must hold: no link is
 * followed, nothing above the directory is reached, and memory is bounded by the depth.
 */
#include "backends/store/roots.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "backends/image.h"
#include "engine/base/cleanup.h"

#define SUFFIX	 ".erofs"
#define SCRATCH	 ".import"
#define COMPOSED "composed"

enum { DEPTH_MAX = 17, PATH_BYTES = 1024 };

struct walk {
	root_visit *visit;
	void *owner;
	enum root_kind kind;
	char path[PATH_BYTES];
};

static bool ends_with(const char *name, const char *end)
{
	size_t bytes = strlen(name), of_end = strlen(end);

	return bytes > of_end && !strcmp(name + bytes - of_end, end);
}

static int file_visit(struct walk *walk, int folder_fd, const char *file)
{
	struct root root = { .kind = walk->kind, .folder_fd = folder_fd, .file = file };
	char name[PATH_BYTES];
	struct stat st;

	auto_close int fd = openat(folder_fd, file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT || errno == ELOOP || errno == ENXIO ? 0 : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return 0;
	(void)snprintf(name, sizeof name, "%s", walk->path);
	if (walk->kind == ROOT_IMAGE)
		name[strlen(name) - (sizeof SUFFIX - 1)] = 0;
	root.fd = fd;
	root.name = name;
	return walk->visit(walk->owner, &root);
}

/* What of the top is no folder of images. */
static bool is_other(const char *name)
{
	return !strcmp(name, "blobs") || !strcmp(name, "cache") || !strcmp(name, COMPOSED);
}

static int folder_walk(struct walk *walk, int folder_fd, int depth);

static int entry_walk(struct walk *walk, int folder_fd, const char *file, int depth)
{
	size_t before = strlen(walk->path);
	bool scratch = walk->kind == ROOT_SCRATCH;
	int r = 0;

	if ((!scratch && *file == '.') || (walk->kind == ROOT_IMAGE && !depth && is_other(file)))
		return 0;
	if (snprintf(walk->path + before, sizeof walk->path - before, "%s%s", depth ? "/" : "",
		     file) >= (int)(sizeof walk->path - before))
		goto end; /* no image has such a name */
	if (scratch ? !strcmp(file, IMPORT_RESULT) : ends_with(file, SUFFIX)) {
		r = file_visit(walk, folder_fd, file);
	} else if (depth < (scratch ? 2 : DEPTH_MAX)) {
		auto_close int below =
			openat(folder_fd, file, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		if (below >= 0)
			r = folder_walk(walk, below, depth + 1);
		else if (errno != ENOTDIR && errno != ENOENT && errno != ELOOP)
			r = -errno;
	}
end:
	walk->path[before] = 0;
	return r;
}

static int folder_walk(struct walk *walk, int folder_fd, int depth)
{
	int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;
	int r = 0;

	if (!dir) {
		r = -errno;
		cleanup_close(&fd);
		return r;
	}
	while (r >= 0 && (errno = 0, entry = readdir(dir)))
		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = entry_walk(walk, folder_fd, entry->d_name, depth);
	if (r >= 0 && errno)
		r = -errno;
	(void)closedir(dir); /* was only read */
	return r;
}

static int place_walk(int directory_fd, const char *place, struct walk *walk)
{
	auto_close int fd =
		openat(directory_fd, place, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	return folder_walk(walk, fd, 0);
}

int roots_walk(int directory_fd, root_visit *visit, void *owner)
{
	struct walk walk = { .visit = visit, .owner = owner, .kind = ROOT_SCRATCH };
	int r = place_walk(directory_fd, SCRATCH, &walk);

	walk.kind = ROOT_IMAGE;
	if (r >= 0)
		r = place_walk(directory_fd, ".", &walk);
	walk.kind = ROOT_COMPOSED;
	return r < 0 ? r : place_walk(directory_fd, COMPOSED, &walk);
}

int root_open(int directory_fd, const char *name, int *ret_fd)
{
	const struct open_how how = {
		.flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	char path[PATH_BYTES];
	struct stat st;

	if (!*name || *name == '.' || *name == '/' ||
	    snprintf(path, sizeof path, "%s" SUFFIX, name) >= (int)sizeof path)
		return -EINVAL;
	auto_close int fd = (int)syscall(SYS_openat2, directory_fd, path, &how, sizeof how);
	if (fd < 0)
		return errno == EXDEV ? -EINVAL : -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOENT;
	*ret_fd = take_fd(&fd);
	return 0;
}
