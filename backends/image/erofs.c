/*
 * From the tree to an image file. Called by the program's supervisor, after the unpacker has
 * ended. Must hold: the file is synced, and IMPORT_RESULT is whole wherever it exists.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/store/digest.h"
#include "backends/image/import.h"
#include "engine/base/cleanup.h"

#define UNFINISHED "unfinished"
#define WORDS	   "words"

/* /dev of every image: what the backend expects of one that has a /dev/pts. */
static const struct {
	const char *name;
	unsigned major, minor;
} nodes[] = { { "null", 1, 3 },	  { "zero", 1, 5 },    { "full", 1, 7 },
	      { "random", 1, 8 }, { "urandom", 1, 9 }, { "tty", 5, 0 } };

static const char *const links[][2] = {
	{ "fd", "/proc/self/fd" },	 { "stdin", "/proc/self/fd/0" },
	{ "stdout", "/proc/self/fd/1" }, { "stderr", "/proc/self/fd/2" },
	{ "ptmx", "pts/ptmx" },
};

/* The times of what we add: the same tree gives the same bytes. */
static int directory_settle(int dir_fd, const char *name, mode_t mode)
{
	const struct timespec never[2] = { { 0 }, { 0 } };

	if (fchmodat(dir_fd, name, mode, 0) < 0 || utimensat(dir_fd, name, never, 0) < 0)
		return -errno;
	return 0;
}

static int dev_fill(int dev)
{
	const struct timespec never[2] = { { 0 }, { 0 } };

	for (size_t i = 0; i < sizeof nodes / sizeof *nodes; i++)
		if (mknodat(dev, nodes[i].name, S_IFCHR | 0666,
			    makedev(nodes[i].major, nodes[i].minor)) < 0 ||
		    utimensat(dev, nodes[i].name, never, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
	for (size_t i = 0; i < sizeof links / sizeof *links; i++)
		if (symlinkat(links[i][1], dev, links[i][0]) < 0 ||
		    utimensat(dev, links[i][0], never, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
	if (mkdirat(dev, "pts", 0755) < 0 || mkdirat(dev, "shm", 01777) < 0)
		return -errno;
	if (directory_settle(dev, "pts", 0755) < 0 || directory_settle(dev, "shm", 01777) < 0)
		return -errno;
	return 0;
}

/* Nothing of an archive is ever made below /dev, so it is ours to make. */
static int dev_make(int tree)
{
	struct stat root;
	int r;

	if (fstat(tree, &root) < 0 || mkdirat(tree, "dev", 0755) < 0)
		return -errno;
	auto_close int dev = openat(tree, "dev", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	r = dev < 0 ? -errno : dev_fill(dev);
	if (r >= 0)
		r = directory_settle(tree, "dev", 0755);
	if (r >= 0) {
		const struct timespec times[2] = { root.st_mtim, root.st_mtim };

		r = futimens(tree, times) < 0 ? -errno : 0;
	}
	return r;
}

/* ---- mkfs.erofs ---- */

static const char *mkfs_find(void)
{
	static const char *const places[] = { "/usr/bin/mkfs.erofs", "/usr/sbin/mkfs.erofs",
					      "/usr/local/bin/mkfs.erofs" };

	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		if (access(places[i], X_OK) == 0)
			return places[i];
	return NULL;
}

static void mkfs_run(const char *program, int words_fd, pid_t parent)
{
	/*
	 * All the same each time. Files' times as they are: a date of the source is an upper bound
	 * of them, and nothing else keeps them with a fixed time of the image.
	 */
	static const char *const argv[] = {
		"mkfs.erofs",
		"--quiet",
		"-U6473c5ec-0000-4000-8000-000000000001",
		"/scratch/" UNFINISHED,
		"/scratch/work/tree",
		NULL,
	};
	static const char *const envp[] = { "SOURCE_DATE_EPOCH=32503680000", NULL };

	if (dup2(words_fd, 1) < 0 || dup2(words_fd, 2) < 0 || confine_mkfs(parent) < 0)
		_exit(127);
	/* It takes them as they are; the type is older than const. */
	(void)execve(program, (char *const *)argv, (char *const *)envp);
	_exit(127);
}

static void words_last(int words_fd, char *ret, size_t bytes)
{
	off_t end = lseek(words_fd, 0, SEEK_END);
	ssize_t n;
	char *line;

	n = pread(words_fd, ret, bytes - 1, end > (off_t)bytes - 1 ? end - (off_t)bytes + 1 : 0);
	ret[n > 0 ? n : 0] = 0;
	while (n > 0 && ret[n - 1] == '\n')
		ret[--n] = 0;
	line = strrchr(ret, '\n');
	if (line)
		memmove(ret, line + 1, strlen(line + 1) + 1);
}

static int mkfs(struct import *in, int out_fd)
{
	const char *program = mkfs_find();
	pid_t pid, supervisor = getpid();
	char words[80] = "";
	int status;

	if (!program)
		return import_fail(in, ENOENT, NULL,
				   "mkfs.erofs is missing: apt-get install erofs-utils");
	auto_close int words_fd =
		openat(out_fd, WORDS, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (words_fd < 0)
		return import_fail(in, errno, NULL, strerror(errno));
	pid = fork();
	if (pid < 0)
		return import_fail(in, errno, NULL, strerror(errno));
	if (pid == 0)
		mkfs_run(program, words_fd, supervisor);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return import_fail(in, errno, NULL, strerror(errno));
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	if (WIFSIGNALED(status))
		(void)snprintf(words, sizeof words, "mkfs.erofs was killed by signal %d",
			       WTERMSIG(status));
	else
		words_last(words_fd, words, sizeof words);
	return import_fail(in, strstr(words, "No space") ? ENOSPC : EIO, NULL,
			   *words ? words : "mkfs.erofs failed");
}

/* ---- the file ---- */

static int file_digest(int fd, struct image_record *record)
{
	char bytes[64 << 10];
	struct digest *digest = digest_new();
	uint8_t taken[DIGEST_BYTES];
	ssize_t n;

	if (!digest)
		return -ENOMEM;
	record->erofs_bytes = 0;
	while ((n = read(fd, bytes, sizeof bytes)) > 0) {
		digest_add(digest, bytes, (size_t)n);
		record->erofs_bytes += (uint64_t)n;
	}
	if (n < 0)
		n = -errno;
	digest_take(digest, taken);
	digest_text(taken, record->digest);
	digest_free(digest);
	return (int)n;
}

/* The image takes its room once more, while the tree is still there. */
static int room_look(struct import *in, int out_fd)
{
	struct statfs fs;

	if (fstatfs(out_fd, &fs) < 0)
		return import_fail(in, errno, NULL, strerror(errno));
	if ((uint64_t)fs.f_bavail * (uint64_t)fs.f_bsize <
	    in->limits.free_min + in->report.frame.bytes)
		return import_fail(in, ENOSPC, NULL,
				   "the disk of images would be full to its mark");
	return 0;
}

int import_erofs(struct import *in, int out_fd)
{
	int r = room_look(in, out_fd);

	if (r >= 0) {
		auto_close int tree = openat(out_fd, "work/tree",
					     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

		r = tree < 0 ? -errno : dev_make(tree);
		if (r < 0)
			return import_fail(in, -r, "dev", strerror(-r));
	}
	if (r >= 0)
		r = mkfs(in, out_fd);
	if (r < 0)
		return r;
	auto_close int file = openat(out_fd, UNFINISHED, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (file < 0)
		return import_fail(in, errno, NULL, strerror(errno));
	r = file_digest(file, &in->record);
	if (r >= 0)
		r = image_record_write(file, &in->record, NULL);
	if (r >= 0 && (fchmod(file, 0644) < 0 || fsync(file) < 0 ||
		       renameat(out_fd, UNFINISHED, out_fd, IMPORT_RESULT) < 0))
		r = -errno;
	return r < 0 ? import_fail(in, -r, NULL, strerror(-r)) : 0;
}
