/*
 * Entries as such: what one is, what a folder holds, new folders, new names. Called for the verbs
 * stat, list, mkdir and rename. A list is a page: the smallest names after a given one, so that
 * what comes or goes meanwhile neither repeats nor hides another, in bounded memory.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "backends/guest/files/files.h"

enum { MODE_FOLDER = 0755 };

uint32_t entry_type(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return DSEC_FILE_TYPE_FILE;
	case S_IFDIR:
		return DSEC_FILE_TYPE_FOLDER;
	case S_IFLNK:
		return DSEC_FILE_TYPE_LINK;
	case S_IFIFO:
		return DSEC_FILE_TYPE_FIFO;
	case S_IFSOCK:
		return DSEC_FILE_TYPE_SOCKET;
	case S_IFCHR:
		return DSEC_FILE_TYPE_CHARACTER;
	case S_IFBLK:
		return DSEC_FILE_TYPE_BLOCK;
	default:
		return DSEC_FILE_TYPE_OTHER;
	}
}

int entry_is_regular(const struct stat *st)
{
	if (S_ISREG(st->st_mode))
		return 0;
	return S_ISDIR(st->st_mode) ? -EISDIR : -EMEDIUMTYPE;
}

/* `name` in a folder, or with "" what the descriptor is. */
static int entry_send(struct files *f, int dir_fd, const char *name, const char *told)
{
	char target[PATH_MAX];
	struct guest_row row = { 0 };
	struct stat st;
	ssize_t n = 0;

	if (fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) < 0)
		return -errno;
	if (S_ISLNK(st.st_mode))
		n = readlinkat(dir_fd, name, target, sizeof target - 1);
	target[n < 0 ? 0 : n] = 0; /* replaced meanwhile */
	row.type = entry_type(st.st_mode);
	row.mode = st.st_mode & 07777;
	row.uid = st.st_uid;
	row.gid = st.st_gid;
	row.links = st.st_nlink;
	row.bytes = (uint64_t)st.st_size;
	row.disk_bytes = (uint64_t)st.st_blocks * 512;
	row.mtime_ns = st.st_mtim.tv_sec * 1000000000ll + st.st_mtim.tv_nsec;
	return talk_row(f, &row, told, target);
}

int verb_stat(struct files *f)
{
	const int follow = f->ask.flags & DSEC_FILE_NO_FOLLOW ? O_NOFOLLOW : 0;
	auto_close int fd = path_open(f, f->path, O_PATH | follow);
	int r = fd < 0 ? fd : entry_send(f, fd, "", f->path);

	return r < 0 ? files_failed(f, GUEST_STEP_OPEN, r) : 0;
}

/* ---- list ---- */

struct page {
	char **names; /* a heap with the greatest first, then sorted */
	uint32_t count, limit;
	bool more;
};

static void page_sink(struct page *page, uint32_t at)
{
	for (;;) {
		uint32_t greatest = at;

		for (uint32_t child = 2 * at + 1; child <= 2 * at + 2; child++)
			if (child < page->count &&
			    strcmp(page->names[child], page->names[greatest]) > 0)
				greatest = child;
		if (greatest == at)
			return;
		char *name = page->names[at];

		page->names[at] = page->names[greatest];
		page->names[greatest] = name;
		at = greatest;
	}
}

static int page_add(struct page *page, const char *name)
{
	bool full = page->count == page->limit;
	char *copy;

	page->more |= full;
	if (full && strcmp(name, page->names[0]) >= 0)
		return 0;
	copy = strdup(name);
	if (!copy)
		return -ENOMEM;
	if (full) {
		free(page->names[0]);
		page->names[0] = copy;
		page_sink(page, 0);
		return 0;
	}
	page->names[page->count++] = copy;
	if (page->count == page->limit)
		for (uint32_t i = page->count / 2; i-- > 0;)
			page_sink(page, i);
	return 0;
}

static int page_read(struct page *page, DIR *folder, const char *after)
{
	struct dirent *entry;

	while (errno = 0, (entry = readdir(folder))) {
		int r = 0;

		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
		    strcmp(entry->d_name, after) <= 0)
			continue;
		r = page_add(page, entry->d_name);
		if (r < 0)
			return r;
	}
	return -errno;
}

static int name_compare(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int page_send(struct files *f, struct page *page, int dir_fd)
{
	qsort(page->names, page->count, sizeof *page->names, name_compare);
	for (uint32_t i = 0; i < page->count; i++) {
		int r = entry_send(f, dir_fd, page->names[i], page->names[i]);

		if (r < 0 && r != -ENOENT) /* gone since */
			return r;
		f->done.entries += r == 0;
	}
	f->done.more = page->more;
	return 0;
}

int verb_list(struct files *f)
{
	struct page page = { .limit = f->ask.limit };
	DIR *folder = NULL;
	int r, fd = path_open(f, f->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK);

	if (fd < 0)
		return files_failed(f, GUEST_STEP_OPEN, fd);
	if (!page.limit || page.limit > GUEST_ROWS_MAX)
		page.limit = GUEST_ROWS_MAX;
	page.names = calloc(page.limit, sizeof *page.names);
	folder = fdopendir(fd);
	r = folder && page.names ? page_read(&page, folder, f->to) : -ENOMEM;
	if (r == 0)
		r = page_send(f, &page, fd);
	for (uint32_t i = 0; i < page.count; i++)
		free(page.names[i]);
	free(page.names);
	if (folder)
		(void)closedir(folder); /* it was only read */
	else
		cleanup_close(&fd);
	return r < 0 ? files_failed(f, GUEST_STEP_READ, r) : 0;
}

/* ---- mkdir, rename ---- */

int verb_mkdir(struct files *f)
{
	const bool has_mode = f->ask.flags & DSEC_FILE_MODE;
	const mode_t mode = has_mode ? f->ask.mode : MODE_FOLDER;
	struct place place;
	int r, fd;

	if (f->ask.flags & DSEC_FILE_PARENTS) {
		fd = path_make(f, f->path, MODE_FOLDER);
		r = fd < 0 ? fd : has_mode && fchmod(fd, mode) < 0 ? -errno : 0;
		cleanup_close(&fd);
		return r < 0 ? files_failed(f, GUEST_STEP_MKDIR, r) : 0;
	}
	r = path_place(f, f->path, &place);
	if (r < 0)
		return files_failed(f, GUEST_STEP_PATH, r == -EBUSY ? -EEXIST : r);
	/* Without a umask the mode is as asked, but for the bits that mkdir leaves out. */
	r = mkdirat(place.fd, place.name, mode) < 0 ? -errno : 0;
	place_done(&place);
	return r < 0 ? files_failed(f, GUEST_STEP_MKDIR, r) : 0;
}

int verb_rename(struct files *f)
{
	const unsigned flags = f->ask.flags & DSEC_FILE_EXCLUSIVE ? RENAME_NOREPLACE : 0;
	struct place from, to;
	int r = path_place(f, f->path, &from);

	if (r < 0)
		return files_failed(f, GUEST_STEP_PATH, r);
	r = path_place(f, f->to, &to);
	if (r == 0) {
		r = renameat2(from.fd, from.name, to.fd, to.name, flags) < 0 ? -errno : 0;
		place_done(&to);
	}
	place_done(&from);
	return r < 0 ? files_failed(f, GUEST_STEP_RENAME, r) : 0;
}
