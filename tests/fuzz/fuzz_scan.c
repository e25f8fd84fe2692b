/*
 * Upper directories, made of an input's choices: everything that a sandbox can leave there. Must
 * hold: what is accepted makes a tree that can be written and read again, and whole blocks of raw
 * contents; the same directory gives the same; what is refused says where and why, and no canary.
 *
 * It runs as root: nothing it makes leads out of its own folder, which is on a file system of its
 * own without devices; whatever has a name already is opened without following links, and changed
 * by its descriptor, once it is known to be a file or a folder.
 */
#include "backends/store/scan.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "backends/store/canary.h"
#include "backends/store/residue.h"
#include "backends/store/tree.h"
#include "tests/fuzz/choices.h"

#define CANARY "canary-in-it"

enum { ENTRIES_MAX = 12, DEPTH_MAX = 3, BYTES_MAX = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const char *const names[] = {
	"a",	"b",	 "c\nd", "core", ".wh.a", ".netrc",   "dev",  "etc",
	"proc", "\xff!", "~",	 " ",	 ".wh.",  "x.pyc",    ".git", "resolv.conf",
	"logs", "tmp",	 "%s",	 "*",	 "?",	  CANARY "x", "HEAD", "canary-",
};

static const char *const contents[] = { "", "x", "\177ELF", CANARY, "63616e6172792d696e2d6974" };

static const struct {
	const char *name, *value;
} marks[] = {
	{ "user.a", "" },
	{ "user.overlay.opaque", "y" },
	{ "trusted.overlay.opaque", "y" },
	{ "trusted.overlay.opaque", "x" },
	{ "trusted.overlay.whiteout", "" },
	{ "trusted.overlay.redirect", "/etc" },
	{ "trusted.overlay.origin", "o" },
	{ "trusted.a", "b" },
	{ "user.note", CANARY },
	{ "security.capability", "not one" },
};

static const char *name_of(struct choices *c)
{
	return names[choose(c, sizeof names / sizeof *names)];
}

/* What has that name, if it is of this kind; no link is followed, no device or FIFO opened. */
static int kind_open(int at, const char *name, mode_t kind, int flags)
{
	struct stat st;
	int fd;

	if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || (st.st_mode & S_IFMT) != kind)
		return -1;
	fd = openat(at, name, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	assert(fd >= 0); /* nobody else is here */
	return fd;
}

/* Some contents, at a place that may leave a hole before it. */
static void file_make(struct choices *c, int at, const char *name)
{
	const char *text = contents[choose(c, sizeof contents / sizeof *contents)];
	off_t from = (off_t)choose_byte(c) << choose(c, 12);
	int fd = openat(at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);

	if (fd < 0)
		fd = kind_open(at, name, S_IFREG, O_WRONLY);
	if (fd < 0)
		return;
	assert(pwrite(fd, text, strlen(text), from) == (ssize_t)strlen(text));
	(void)close(fd); /* it is read next */
}

static void socket_make(int at, const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	assert(fd >= 0);
	(void)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", at, name);
	(void)bind(fd, (const struct sockaddr *)&address, sizeof address); /* or it is there */
	(void)close(fd);						   /* the name stays */
}

static void folder_make(struct choices *c, int at, uint32_t depth);

static void below_make(struct choices *c, int at, const char *name, uint32_t depth)
{
	int fd;

	(void)mkdirat(at, name, 0755); /* or it is there */
	fd = kind_open(at, name, S_IFDIR, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return;
	if (depth < DEPTH_MAX)
		folder_make(c, fd, depth + 1);
	(void)close(fd); /* was only a way */
}

static void mark_make(struct choices *c, int at, const char *name)
{
	const uint32_t which = choose(c, sizeof marks / sizeof *marks);
	char path[64];

	(void)snprintf(path, sizeof path, "/proc/self/fd/%d/%s", at, name);
	(void)lsetxattr(path, marks[which].name, marks[which].value, strlen(marks[which].value), 0);
}

static void mode_make(struct choices *c, int at, const char *name)
{
	const mode_t mode = 0700 | choose_byte(c);
	int fd = kind_open(at, name, S_IFREG, O_RDONLY);

	if (fd < 0)
		fd = kind_open(at, name, S_IFDIR, O_RDONLY | O_DIRECTORY);
	if (fd < 0)
		return;
	assert(fchmod(fd, mode) == 0);
	(void)close(fd); /* was only a way */
}

/* What cannot be made is not there, which is as good a case. */
static void entry_make(struct choices *c, int at, uint32_t depth)
{
	const char *name = name_of(c);

	switch (choose(c, 10)) {
	case 0:
		(void)!symlinkat(choose(c, 2) ? "no/such/place" : CANARY, at, name);
		break;
	case 1:
		(void)mkfifoat(at, name, 0644);
		break;
	case 2:
		socket_make(at, name);
		break;
	case 3:
		/* A whiteout, or a device that no driver has. */
		(void)mknodat(at, name, S_IFCHR | 0600, makedev(0, choose(c, 2)));
		break;
	case 4:
		(void)!linkat(at, name_of(c), at, name, 0);
		break;
	case 5:
		mark_make(c, at, name);
		break;
	case 6:
		mode_make(c, at, name);
		break;
	case 7:
		below_make(c, at, name, depth);
		break;
	default:
		file_make(c, at, name);
	}
}

static void folder_make(struct choices *c, int at, uint32_t depth)
{
	for (uint32_t count = choose(c, ENTRIES_MAX); count && c->left; count--)
		entry_make(c, at, depth);
}

static void folder_empty(int folder_fd)
{
	DIR *dir = fdopendir(folder_fd);
	const struct dirent *entry;

	assert(dir);
	while ((entry = readdir(dir))) {
		if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
			continue;
		if (unlinkat(dirfd(dir), entry->d_name, 0) == 0)
			continue;
		folder_empty(openat(dirfd(dir), entry->d_name,
				    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
		assert(unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR) == 0);
	}
	(void)closedir(dir); /* was only read */
}

/* ---- what comes of it ---- */

struct result {
	int r, raw_fd, blob_fd;
	struct scanned told;
};

static void tree_check(struct tree *tree, const struct result *result)
{
	struct tree *again = NULL;
	const char *why = NULL;
	struct stat st;
	uint8_t *blob;

	assert(fstat(result->raw_fd, &st) == 0);
	assert(st.st_size % TREE_BLOCK_BYTES == 0);
	assert((uint64_t)st.st_size == tree->segments[0].bytes);
	tree_sort(tree);
	if (!tree->segments[0].bytes)
		tree->segment_count = 0; /* as the sealer leaves it */
	assert(tree_write(tree, result->blob_fd) == 0);
	assert(fstat(result->blob_fd, &st) == 0);
	blob = malloc((size_t)st.st_size);
	assert(blob);
	assert(pread(result->blob_fd, blob, (size_t)st.st_size, 0) == st.st_size);
	assert(tree_read(blob, (size_t)st.st_size, &again, &why) == 0);
	tree_free(again);
	free(blob);
}

static struct result scan_run(int upper_fd, const struct canary_list *canaries, const char *rules)
{
	struct result result = { .raw_fd = memfd_create("raw", MFD_CLOEXEC),
				 .blob_fd = memfd_create("tree", MFD_CLOEXEC) };
	struct scan scan = { .upper_fd = upper_fd,
			     .raw_fd = result.raw_fd,
			     .id_base = geteuid(),
			     .canaries = canaries,
			     .bytes_max = BYTES_MAX,
			     .files_max = 64 };
	struct tree *tree = NULL;
	size_t wrong;

	assert(residue_new(&rules, 1, &scan.residue, &wrong) == 0);
	result.r = scan_upper(&scan, &tree, &result.told);
	if (result.r < 0) {
		assert(*result.told.reason);
		assert(*result.told.path == '/');
		assert(!canaries || !strstr(result.told.reason, CANARY));
		assert(!canaries || !strstr(result.told.path, CANARY));
	} else {
		tree_check(tree, &result);
		tree_free(tree);
	}
	residue_free(scan.residue);
	return result;
}

static void same_check(int one_fd, int two_fd)
{
	struct stat one, two;
	uint8_t *bytes;

	assert(fstat(one_fd, &one) == 0);
	assert(fstat(two_fd, &two) == 0);
	assert(one.st_size == two.st_size);
	bytes = malloc(2 * (size_t)one.st_size + 1);
	assert(bytes);
	assert(pread(one_fd, bytes, (size_t)one.st_size, 0) == one.st_size);
	assert(pread(two_fd, bytes + one.st_size, (size_t)one.st_size, 0) == one.st_size);
	assert(!memcmp(bytes, bytes + one.st_size, (size_t)one.st_size));
	free(bytes);
}

static void scans_check(int upper_fd, const struct canary_list *canaries, const char *rules)
{
	struct result one = scan_run(upper_fd, canaries, rules);
	struct result two = scan_run(upper_fd, canaries, rules);

	assert(one.r == two.r);
	if (one.r == 0) {
		same_check(one.raw_fd, two.raw_fd);
		same_check(one.blob_fd, two.blob_fd);
	}
	(void)close(one.raw_fd); /* they were only memory */
	(void)close(two.raw_fd);
	(void)close(one.blob_fd);
	(void)close(two.blob_fd);
}

/* A file system of its own; without the right to mount one a folder. */
static void place_make(char path[64])
{
	(void)snprintf(path, 64, "/tmp/dsec-fuzz-scan.XXXXXX");
	assert(mkdtemp(path));
	if (geteuid() != 0)
		return;
	assert(mount("none", path, "tmpfs", MS_NODEV | MS_NOSUID | MS_NOEXEC, "size=64m") == 0);
}

static void place_remove(const char *path)
{
	if (geteuid() == 0)
		assert(umount2(path, 0) == 0);
	assert(rmdir(path) == 0);
}

/* Of all its mounts nobody else sees any. */
static void mounts_hide(void)
{
	if (geteuid() != 0)
		return;
	assert(unshare(CLONE_NEWNS) == 0);
	assert(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct choices all = { data, bytes };
	static bool hidden;
	char path[64];
	const uint8_t how = choose_byte(&all);
	struct canary_list *canaries = NULL;
	int fd;

	if (!hidden)
		mounts_hide();
	hidden = true;
	place_make(path);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert(fd >= 0);
	folder_make(&all, fd, 0);
	if (how & 1) {
		assert(canary_list_new(&canaries) == 0);
		assert(canary_add(canaries, CANARY, strlen(CANARY)) == 0);
		assert(canary_ready(canaries) == 0);
	}
	scans_check(fd, canaries, how & 2 ? "all" : "none");
	canary_list_free(canaries);
	folder_empty(fd);
	place_remove(path);
	return 0;
}
