/*
 * Removing a name, with all that is under it when asked. Called for the verb remove. Must hold:
 * what goes was found in a folder that was reached from the first one by names alone, never by a
 * link or across a mount; descriptors and the stack are bounded however deep it is: what lies
 * deeper than the bound is moved up first.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "backends/guest/files/files.h"

enum { DEPTH_MAX = 128 };

struct removal {
	struct files *files;
	int top_fd; /* of the folder that goes */
	bool moved; /* something was put into it that must go too */
};

static int folder_empty(struct removal *removal, int dir_fd, unsigned depth);

static int folder_open(int dir_fd, const char *name)
{
	const struct open_how how = {
		.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV,
	};
	long fd = syscall(SYS_openat2, dir_fd, name, &how, sizeof how);

	return fd < 0 ? -errno : (int)fd;
}

static int folder_raise(struct removal *removal, int dir_fd, const char *name)
{
	char raised[32];

	temporary_name(raised);
	removal->moved = true;
	return renameat(dir_fd, name, removal->top_fd, raised) < 0 ? -errno : 0;
}

/* Whoever removes it first is welcome. 1: it has gone; 0: it is a folder that is not empty. */
static int name_remove(struct removal *removal, int dir_fd, const char *name)
{
	int error = unlinkat(dir_fd, name, 0) < 0 ? errno : 0;

	if (error == EISDIR || error == EPERM)
		error = unlinkat(dir_fd, name, AT_REMOVEDIR) < 0 ? errno : 0;
	removal->files->done.entries += !error;
	if (!error || error == ENOENT)
		return 1;
	if (error == ENOTEMPTY || error == EEXIST)
		return 0;
	return error == ENOTDIR ? -EPERM : -error; /* a file that may not go */
}

/* One name in a folder. */
static int entry_remove(struct removal *removal, int dir_fd, const char *name, unsigned depth)
{
	int r = name_remove(removal, dir_fd, name), fd;

	if (r)
		return r < 0 ? r : 0;
	if (depth == DEPTH_MAX)
		return folder_raise(removal, dir_fd, name);
	fd = folder_open(dir_fd, name);
	if (fd < 0)
		return fd;
	r = folder_empty(removal, fd, depth + 1);
	if (r == 0)
		r = name_remove(removal, dir_fd, name);
	/* Filled again meanwhile: that is for whoever fills it to end. */
	return r == 0 ? -ENOTEMPTY : r < 0 ? r : 0;
}

/* Takes the descriptor. */
static int folder_empty(struct removal *removal, int dir_fd, unsigned depth)
{
	DIR *folder = fdopendir(dir_fd);
	struct dirent *entry;
	int r = 0;

	if (!folder) {
		cleanup_close(&dir_fd);
		return -ENOMEM;
	}
	while (r == 0 && (errno = 0, entry = readdir(folder))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		r = entry_remove(removal, dir_fd, entry->d_name, depth);
	}
	if (r == 0)
		r = -errno;
	(void)closedir(folder); /* it was only read */
	return r;
}

static int tree_remove(struct files *f, const struct place *place)
{
	struct removal removal = { .files = f };
	auto_close int top_fd = folder_open(place->fd, place->name);
	int r = 0;

	if (top_fd < 0)
		return top_fd;
	removal.top_fd = top_fd;
	do {
		int fd = folder_open(top_fd, ".");

		removal.moved = false;
		r = fd < 0 ? fd : folder_empty(&removal, fd, 0);
	} while (r == 0 && removal.moved);
	if (r == 0 && unlinkat(place->fd, place->name, AT_REMOVEDIR) < 0)
		r = -errno;
	return r;
}

static int place_remove(struct files *f, const struct place *place)
{
	if (unlinkat(place->fd, place->name, 0) == 0)
		return 0;
	if (errno != EISDIR && errno != EPERM)
		return -errno;
	if (unlinkat(place->fd, place->name, AT_REMOVEDIR) == 0)
		return 0;
	if ((errno == ENOTEMPTY || errno == EEXIST) && f->ask.flags & DSEC_FILE_RECURSIVE)
		return tree_remove(f, place);
	return errno == ENOTDIR ? -EPERM : -errno;
}

int verb_remove(struct files *f)
{
	struct place place;
	int r = path_place(f, f->path, &place);

	if (r < 0)
		return files_failed(f, GUEST_STEP_PATH, r);
	r = place_remove(f, &place);
	place_done(&place);
	f->done.entries += r == 0;
	return r < 0 ? files_failed(f, GUEST_STEP_REMOVE, r) : 0;
}
