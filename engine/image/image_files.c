/*
 * The files of images: walking, removing, publishing. Called on the control thread, which may
 * block. Must hold: names are checked before they come here; below the images' directory no link is
 * followed; an image that sandboxes use is not removed.
 */
#include "engine/image/image_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "dsec/ring.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/config.h"
#include "engine/control.h"
#include "engine/image/image_contents.h"
#include "engine/request/request.h"
#include "engine/shard.h"

#define SUFFIX ".erofs"

enum { DEPTH_MAX = 16, FILE_NAME_BYTES = IMAGE_NAME_MAX + sizeof SUFFIX };

/* ---- one image's place ---- */

static int images_open(const struct config *config)
{
	int fd = open(config->images_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int below_open(int images_fd, const char *path, uint64_t flags)
{
	const struct open_how how = {
		.flags = flags | O_CLOEXEC,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	long fd = syscall(SYS_openat2, images_fd, *path ? path : ".", &how, sizeof how);

	return fd < 0 ? -errno : (int)fd;
}

/* A folder that is named as an image's file would be in its way, and it in the folder's. */
static int folders_make(int images_fd, const char *name)
{
	char path[IMAGE_NAME_MAX];

	for (size_t at = 0; name[at]; at++) {
		path[at] = name[at];
		if (name[at] != '/')
			continue;
		path[at] = 0;
		if (at >= sizeof SUFFIX - 1 && !strcmp(path + at - (sizeof SUFFIX - 1), SUFFIX))
			return -EINVAL;
		if (mkdirat(images_fd, path, 0755) < 0 && errno != EEXIST)
			return -errno;
		path[at] = '/';
	}
	return 0;
}

/* The folder of an image, and its file's name there. */
static int place_find(const struct config *config, const char *name, bool make, char *ret_file)
{
	char folder[IMAGE_NAME_MAX];
	const char *last = strrchr(name, '/');
	size_t bytes = last ? (size_t)(last - name) : 0;
	int r = 0;

	auto_close int images_fd = images_open(config);
	if (images_fd < 0)
		return images_fd;
	memcpy(folder, name, bytes);
	folder[bytes] = 0;
	(void)snprintf(ret_file, FILE_NAME_BYTES, "%s" SUFFIX, last ? last + 1 : name);
	if (make)
		r = folders_make(images_fd, name);
	return r < 0 ? r : below_open(images_fd, folder, O_RDONLY | O_DIRECTORY);
}

int image_publish(const struct config *config, int from_fd, const char *from, const char *name)
{
	char file[FILE_NAME_BYTES];
	struct stat st;
	bool replaces;

	auto_close int folder = place_find(config, name, true, file);
	if (folder < 0)
		return folder;
	replaces = fstatat(folder, file, &st, AT_SYMLINK_NOFOLLOW) == 0;
	if (replaces && !S_ISREG(st.st_mode))
		return -EEXIST;
	if (renameat(from_fd, from, folder, file) < 0 || fsync(folder) < 0)
		return -errno;
	return replaces;
}

/* ---- looking ---- */

/* As much of it as is asked for: there may be many images. */
static int found_record(int fd, size_t bytes, struct image_record **ret)
{
	auto_free struct image_record *all = malloc(sizeof *all);
	struct image_record *kept;
	int r = all ? image_record_read(fd, all) : -ENOMEM;

	if (r < 0) /* none, or none of use: a create says so */
		return r == -ENOMEM ? r : 0;
	kept = malloc(bytes);
	if (!kept)
		return -ENOMEM;
	memcpy(kept, all, bytes);
	*ret = kept;
	return 0;
}

struct walk {
	const struct image_table *table;
	struct image_found **last;
	size_t record_bytes;
	int images_fd;
	struct segment_users *users; /* they are counted, and no image is found */
};

/* With its segments, where `users` are known. */
static int found_contents(const struct walk *walk, int fd, const struct segment_users *users,
			  struct image_found *found)
{
	struct image_contents contents;
	int r = 0;

	image_contents_read(walk->images_fd, fd, &contents);
	found->segment_bytes = contents.bytes;
	found->local_bytes = contents.local_bytes;
	if (users && contents.bytes != UINT64_MAX) {
		found->contents = image_contents_text(walk->images_fd, &contents, users);
		r = found->contents ? 0 : -ENOMEM;
	}
	image_contents_done(&contents);
	return r;
}

static int found_read(const struct walk *walk, int folder_fd, const char *file,
		      struct image_found *found)
{
	struct timespec now;
	struct stat st;
	int64_t age_s;

	auto_close int fd = openat(folder_fd, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOENT;
	clock_gettime(CLOCK_REALTIME, &now);
	age_s = now.tv_sec - st.st_mtim.tv_sec;
	found->age_ms = age_s > 0 ? (uint64_t)age_s * 1000 : 0;
	found->file_bytes = (uint64_t)st.st_size;
	if (walk->users)
		return segment_users_add(walk->users, fd);
	(void)found_contents(walk, fd, NULL, found); /* fails with users alone */
	return found_record(fd, walk->record_bytes, &found->record);
}

static int found_add(struct walk *walk, int folder_fd, const char *file, const char *name)
{
	struct image_found *found;
	int r;

	if (image_name_check(name) < 0)
		return 0; /* nobody could ask for it */
	found = calloc(1, sizeof *found);
	if (!found)
		return -ENOMEM;
	r = found_read(walk, folder_fd, file, found);
	if (r < 0 || walk->users) {
		free(found); /* it has just gone, is no file, or was counted */
		return r == -ENOMEM ? r : 0;
	}
	(void)snprintf(found->name, sizeof found->name, "%s", name);
	found->users = images_users(walk->table, name);
	*walk->last = found;
	walk->last = &found->next;
	return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static int walk_folder(struct walk *walk, int folder_fd, const char *prefix, int depth)
{
	struct dirent **entries = NULL;
	char name[IMAGE_NAME_MAX + NAME_MAX + 2];
	int r = 0, count = scandirat(folder_fd, ".", &entries, is_visible, by_name);

	if (count < 0)
		return -errno;
	for (int i = 0; i < count; i++) {
		const char *file = entries[i]->d_name;
		size_t bytes = strlen(file);
		int folder;

		if (r < 0 || snprintf(name, sizeof name, "%s%s", prefix, file) >=
				     IMAGE_NAME_MAX + (int)sizeof SUFFIX - 1)
			continue; /* no image has such a name */
		if (bytes > sizeof SUFFIX - 1 &&
		    !strcmp(file + bytes - (sizeof SUFFIX - 1), SUFFIX)) {
			name[strlen(name) - (sizeof SUFFIX - 1)] = 0;
			r = found_add(walk, folder_fd, file, name);
			continue;
		}
		(void)strcat(name, "/"); /* there is room for one more */
		folder = depth < DEPTH_MAX && !image_name_is_stores(name) ?
				 openat(folder_fd, file,
					O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) :
				 -1;
		if (folder < 0)
			continue;
		r = walk_folder(walk, folder, name, depth + 1);
		(void)close(folder); /* was only read */
	}
	for (int i = 0; i < count; i++)
		free(entries[i]);
	free(entries);
	return r;
}

static int query_list(struct control *control, struct image_query *query)
{
	struct walk walk = { control_images(control), &query->found,
			     offsetof(struct image_record, strings), -1, NULL };

	auto_close int images_fd = images_open(control_config(control));
	if (images_fd < 0)
		return images_fd == -ENOENT ? 0 : images_fd;
	walk.images_fd = images_fd;
	return walk_folder(&walk, images_fd, "", 0);
}

/* What others have of its segments: all images are looked at, as for a list. */
static int found_share(struct walk *walk, int folder_fd, const char *file,
		       struct image_found *found)
{
	auto_close int fd = openat(folder_fd, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	struct segment_users *users = segment_users_new();
	int r = users ? 0 : -ENOMEM;

	walk->users = users;
	if (r >= 0)
		r = walk_folder(walk, walk->images_fd, "", 0);
	if (r >= 0 && fd >= 0)
		r = found_contents(walk, fd, users, found);
	segment_users_free(users);
	walk->users = NULL;
	return r;
}

static int query_inspect(struct control *control, struct image_query *query)
{
	char file[FILE_NAME_BYTES];
	struct walk walk = { control_images(control), &query->found, sizeof(struct image_record),
			     -1, NULL };
	int r;

	auto_close int images_fd = images_open(control_config(control));
	auto_close int folder = place_find(control_config(control), query->name, false, file);
	if (images_fd < 0 || folder < 0)
		return folder < 0 ? folder : images_fd;
	walk.images_fd = images_fd;
	r = found_add(&walk, folder, file, query->name);
	if (r < 0 || !query->found)
		return r < 0 ? r : -ENOENT;
	return found_share(&walk, folder, file, query->found);
}

/* Folders that are empty now go too: they are part of names only. */
static void folders_remove(const struct config *config, const char *name)
{
	char path[IMAGE_NAME_MAX];
	char *last;

	auto_close int images_fd = images_open(config);
	(void)snprintf(path, sizeof path, "%s", name);
	while (images_fd >= 0 && (last = strrchr(path, '/'))) {
		*last = 0;
		if (unlinkat(images_fd, path, AT_REMOVEDIR) < 0)
			return; /* others are in it */
	}
}

static int query_remove(struct control *control, struct image_query *query)
{
	const struct config *config = control_config(control);
	char file[FILE_NAME_BYTES];
	struct stat st;

	auto_close int folder = place_find(config, query->name, false, file);
	if (folder < 0)
		return folder;
	if (fstatat(folder, file, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -ENOENT;
	query->users = images_users(control_images(control), query->name);
	if (query->users)
		return -EBUSY;
	if (unlinkat(folder, file, 0) < 0)
		return -errno;
	log_info("image removed name=\"%s\"", query->name);
	query->news.topic = DSEC_TOPIC_IMAGE_REMOVED;
	folders_remove(config, query->name);
	images_refresh(control, config);
	return 0;
}

void image_query_run(struct mail *mail, void *owner)
{
	struct image_query *query = container_of(mail, struct image_query, mail);
	struct control *control = owner;

	switch (query->verb) {
	case DSEC_IMAGE_LIST:
		query->result = query_list(control, query);
		break;
	case DSEC_IMAGE_INSPECT:
		query->result = query_inspect(control, query);
		break;
	default:
		query->result = query_remove(control, query);
		break;
	}
	query->mail.deliver = query->answered;
	query->news.name = query->name;
	query->news.answer = &query->mail;
	query->news.asker = query->part->shard;
	image_news_send(control, &query->news);
}

void image_found_free(struct image_found *found)
{
	while (found) {
		struct image_found *next = found->next;

		free(found->record);
		free(found->contents);
		free(found);
		found = next;
	}
}
