/*
 * A mounted image beside the folder it was made of. Must hold: whatever differs ends the test with
 * its name.
 */
#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/image/host_tree.h"

enum { FAIL = 1, PIECE_BYTES = 1 << 20, STEP_BYTES = 256 << 20, XATTRS_BYTES = 65536 };

/* A file with several names: what it is on both sides. */
struct pair {
	ino_t host, image;
	dev_t device;
	struct pair *next;
};

struct compare {
	uint64_t files;
	struct pair *pairs;
	char *ours, *its; /* PIECE_BYTES of each side */
};

/* All of it; of what is larger than memory, a piece now and then. */
static void contents_compare(const struct compare *compare, const char *host, const char *image,
			     off_t size)
{
	auto_close int a = open(host, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	auto_close int b = open(image, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	char *x = compare->ours, *y = compare->its;
	off_t at = 0;

	if (a < 0 || b < 0)
		err(FAIL, "%s or %s", host, image);
	while (at < size) {
		ssize_t count = pread(a, x, PIECE_BYTES, at), other = pread(b, y, PIECE_BYTES, at);

		if (count != other || count <= 0)
			errx(FAIL, "%s: %zd bytes at %lld, not %zd", image, other, (long long)at,
			     count);
		if (memcmp(x, y, (size_t)count))
			errx(FAIL, "%s: other bytes at %lld", image, (long long)at);
		at += size > (off_t)1 << 30 ? STEP_BYTES : count;
	}
}

static size_t xattrs_count(const char *path, const char *like)
{
	auto_free char *names = malloc(XATTRS_BYTES);
	auto_free char *value = malloc(XATTRS_BYTES), *other = malloc(XATTRS_BYTES);
	ssize_t bytes = llistxattr(path, names, XATTRS_BYTES);
	size_t count = 0;

	for (ssize_t at = 0; at < bytes; at += (ssize_t)strlen(names + at) + 1) {
		const char *name = names + at;
		ssize_t have, want;

		if (!strncmp(name, "security.", 9) && strcmp(name, "security.capability"))
			continue; /* the host's own */
		have = lgetxattr(path, name, value, XATTRS_BYTES);
		want = lgetxattr(like, name, other, XATTRS_BYTES);
		if (have < 0 || want < 0 || have != want || memcmp(value, other, (size_t)have))
			err(FAIL, "%s: %s has %zd bytes, not those %zd", path, name, have, want);
		count++;
	}
	return count;
}

static void links_compare(struct compare *compare, const struct stat *host,
			  const struct stat *image, const char *path)
{
	struct pair *pair;

	for (pair = compare->pairs; pair; pair = pair->next) {
		if (pair->device == host->st_dev && pair->host == host->st_ino) {
			if (pair->image != image->st_ino)
				errx(FAIL, "%s: a file of its own, not one more name", path);
			return;
		}
		if (pair->image == image->st_ino)
			errx(FAIL, "%s: one more name, not a file of its own", path);
	}
	pair = malloc(sizeof *pair);
	*pair = (struct pair){ host->st_ino, image->st_ino, host->st_dev, compare->pairs };
	compare->pairs = pair;
}

static void folder_compare(struct compare *compare, const char *host, const char *image);

static void stat_compare(const struct stat *a, const struct stat *b, const char *path)
{
	bool is_directory = S_ISDIR(a->st_mode);

	if (a->st_mode != b->st_mode || a->st_uid != b->st_uid || a->st_gid != b->st_gid)
		errx(FAIL, "%s: mode %o owner %u:%u, not %o %u:%u", path, b->st_mode, b->st_uid,
		     b->st_gid, a->st_mode, a->st_uid, a->st_gid);
	if (a->st_mtim.tv_sec != b->st_mtim.tv_sec || a->st_mtim.tv_nsec != b->st_mtim.tv_nsec)
		errx(FAIL, "%s: another time", path);
	if ((S_ISCHR(a->st_mode) || S_ISBLK(a->st_mode)) && a->st_rdev != b->st_rdev)
		errx(FAIL, "%s: another device", path);
	if (!is_directory && a->st_size != b->st_size)
		errx(FAIL, "%s: %lld bytes, not %lld", path, (long long)b->st_size,
		     (long long)a->st_size);
	if (is_directory ? b->st_nlink < 2 : b->st_nlink > a->st_nlink)
		errx(FAIL, "%s: %lu names", path, (unsigned long)b->st_nlink);
}

static void entry_compare(struct compare *compare, const char *host, const char *image)
{
	char target[PATH_MAX] = "", other[PATH_MAX] = "";
	struct stat a, b;

	if (lstat(host, &a) < 0 || lstat(image, &b) < 0)
		err(FAIL, "%s or %s", host, image);
	stat_compare(&a, &b, image);
	if (xattrs_count(host, image) != xattrs_count(image, host))
		errx(FAIL, "%s: other attributes", image);
	if (!S_ISDIR(a.st_mode) && a.st_nlink > 1)
		links_compare(compare, &a, &b, image);
	if (S_ISREG(a.st_mode))
		contents_compare(compare, host, image, a.st_size);
	if (S_ISLNK(a.st_mode) && (readlink(host, target, sizeof target - 1) !=
					   readlink(image, other, sizeof other - 1) ||
				   strcmp(target, other)))
		errx(FAIL, "%s: leads to \"%s\", not \"%s\"", image, other, target);
	compare->files++;
	if (S_ISDIR(a.st_mode))
		folder_compare(compare, host, image);
}

static uint64_t folder_count(const char *path)
{
	DIR *dir = opendir(path);
	uint64_t count = 0;

	if (!dir)
		err(FAIL, "%s", path);
	while (readdir(dir))
		count++;
	(void)closedir(dir); /* it was only read */
	return count;
}

static void folder_compare(struct compare *compare, const char *host, const char *image)
{
	DIR *dir = opendir(host);
	struct dirent *entry;
	char *a, *b;

	if (!dir)
		err(FAIL, "%s", host);
	while ((entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (asprintf(&a, "%s/%s", host, entry->d_name) < 0 ||
		    asprintf(&b, "%s/%s", image, entry->d_name) < 0)
			errx(FAIL, "no memory");
		entry_compare(compare, a, b);
		free(a);
		free(b);
	}
	(void)closedir(dir); /* it was only read */
	if (folder_count(host) != folder_count(image))
		errx(FAIL, "%s: other names", image);
}

uint64_t host_image_compare(const struct host_image *image, const char *path)
{
	struct compare compare = { .ours = malloc(PIECE_BYTES), .its = malloc(PIECE_BYTES) };
	char mount[64];

	(void)snprintf(mount, sizeof mount, "/proc/self/fd/%d/.", image->mount_fd);
	entry_compare(&compare, path, mount);
	while (compare.pairs) {
		struct pair *next = compare.pairs->next;

		free(compare.pairs);
		compare.pairs = next;
	}
	free(compare.ours);
	free(compare.its);
	return compare.files;
}
