/*
 * Images of real folders and of odd ones, read back through the kernel. DSEC_EROFS_FOLDERS names
 * more folders (colons between them), DSEC_EROFS_FILES how many files the folder of many has.
 */
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "engine/base/cleanup.h"
#include "tests/root/image/host_tree.h"
#include "tests/slowness.h"

enum { FAIL = 1, FILES_COUNT = 1500, SEGMENT_BYTES_MAX = 64 << 20 };

/* ---- odd folders ---- */

static int file_make(int dir, const char *name, size_t bytes)
{
	auto_free char *text = malloc(bytes + 1);
	int fd = openat(dir, name, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0640);

	if (fd < 0)
		err(FAIL, "%s", name);
	for (size_t i = 0; i < bytes; i++)
		text[i] = (char)(i * 31 + bytes + (i >> 8));
	if (write(fd, text, bytes) != (ssize_t)bytes)
		err(FAIL, "%s", name);
	return fd;
}

static void sizes_make(int dir)
{
	const size_t sizes[] = { 0, 1, 4095, 4096, 4097, 8192, 65536, 1 << 20, (3 << 20) + 17 };

	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		char name[32];

		(void)snprintf(name, sizeof name, "size-%zu", sizes[i]);
		(void)close(file_make(dir, name, sizes[i])); /* its bytes are there */
	}
}

static void names_make(int dir)
{
	char name[256];

	for (int byte = 1; byte<256; byte += slowness()> 1 ? 3 : 1) {
		if (byte == '/')
			continue;
		(void)snprintf(name, sizeof name, "%c%c", byte, byte);
		if (byte != '.')
			(void)close(file_make(dir, name, (size_t)byte)); /* its bytes are there */
		memset(name, byte, sizeof name - 1);
		name[sizeof name - 1] = 0;
		if (mkdirat(dir, name, (mode_t)(0700 + byte % 8)) < 0)
			err(FAIL, "a name of 255 bytes of %d", byte);
	}
}

/* Holes at the beginning, in the middle and at the end, also where blocks are few. */
static void holes_make(int dir)
{
	const off_t places[] = { 0, 3, 4, 7, 64, 1000 };
	auto_close int all = file_make(dir, "all-hole", 0), many = file_make(dir, "holes", 0);
	auto_close int late = file_make(dir, "late", 0);

	if (ftruncate(all, (off_t)5 << 30) < 0)
		err(FAIL, "a file that is all hole");
	for (size_t i = 0; i < sizeof places / sizeof *places; i++)
		if (pwrite(many, "x", 1, places[i] * TREE_BLOCK_BYTES + 5) != 1)
			err(FAIL, "a file with holes");
	if (ftruncate(many, 2000 * TREE_BLOCK_BYTES + 1) < 0 ||
	    pwrite(late, "late", 4, 1 << 20) != 4)
		err(FAIL, "a file with holes");
}

static void kinds_make(int dir)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	auto_close int socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	auto_free char *target = malloc(TREE_TARGET_MAX + 1);

	(void)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/socket", dir);
	if (bind(socket_fd, (struct sockaddr *)&address, sizeof address) < 0)
		err(FAIL, "a socket");
	memset(target, 't', TREE_TARGET_MAX);
	target[TREE_TARGET_MAX] = 0;
	if (mkfifoat(dir, "fifo", 0600) < 0 ||
	    mknodat(dir, "character", S_IFCHR | 0600, makedev(4000, 1000000)) < 0 ||
	    mknodat(dir, "block", S_IFBLK | 0660, makedev(8, 1)) < 0 ||
	    symlinkat("short", dir, "short-link") < 0 || symlinkat(target, dir, "long-link") < 0)
		err(FAIL, "nodes");
	target[4040] = 0;
	if (symlinkat(target, dir, "longer-than-what-is-inline") < 0)
		err(FAIL, "a link");
}

static void attributes_make(int dir)
{
	const unsigned char capability[20] = { 1, 0, 0, 2, 0, 0x20 };
	auto_close int many = file_make(dir, "many-attributes", 10);
	auto_close int able = file_make(dir, "able", 10), owned = file_make(dir, "owned", 1);
	struct timespec times[2] = { { 5, 6 }, { -7, 999999999 } };
	char name[32], value[1000];

	memset(value, 'v', sizeof value);
	for (unsigned i = 0; i < 3; i++) {
		(void)snprintf(name, sizeof name, "user.%u", i);
		if (fsetxattr(many, name, value, 10 * i, 0) < 0)
			err(FAIL, "%s", name);
	}
	if (fsetxattr(many, "trusted.odd", value, sizeof value, 0) < 0 ||
	    fsetxattr(able, "security.capability", capability, sizeof capability, 0) < 0)
		err(FAIL, "attributes");
	if (fchown(owned, 70000, 4000000000u) < 0 || fchmod(owned, 06751) < 0 ||
	    futimens(owned, times) < 0)
		err(FAIL, "an owner");
}

static void links_make(int dir)
{
	(void)close(file_make(dir, "z-first", 5000)); /* its bytes are there */
	if (mkdirat(dir, "links", 0755) < 0 || linkat(dir, "z-first", dir, "a-link", 0) < 0 ||
	    linkat(dir, "z-first", dir, "links/b", 0) < 0)
		err(FAIL, "links");
}

/* As many as asked for, in folders of a thousand, and one folder with all their names. */
static void many_make(int dir, unsigned count)
{
	char name[64], folder[32];

	if (mkdirat(dir, "all", 0755) < 0)
		err(FAIL, "all");
	for (unsigned i = 0; i < count; i++) {
		(void)snprintf(folder, sizeof folder, "d%u", i / 1000);
		if (!(i % 1000) && mkdirat(dir, folder, 0755) < 0)
			err(FAIL, "%s", folder);
		(void)snprintf(name, sizeof name, "%s/file-%u", folder, i);
		(void)close(file_make(dir, name, i % 100)); /* its bytes are there */
		(void)snprintf(name, sizeof name, "all/link-to-%u", i);
		(void)snprintf(folder, sizeof folder, "../d%u/file-%u", i / 1000, i);
		if (symlinkat(folder, dir, name) < 0)
			err(FAIL, "%s", name);
	}
}

/* ---- each ---- */

static void folder_remove(const char *path)
{
	pid_t child = fork();

	if (!child) {
		(void)execlp("rm", "rm", "-rf", "--one-file-system", path, NULL);
		_exit(FAIL);
	}
	if (child < 0 || waitpid(child, NULL, 0) < 0)
		warn("%s stays", path);
}

/* What erofs-utils says of it, where they are. Our descriptors are those of this process. */
static bool fsck_try(const struct host_tree *host, const struct host_image *image)
{
	char paths[HOST_SEGMENTS_MAX + 1][48];
	const char *argv[HOST_SEGMENTS_MAX + 3] = { "fsck.erofs" };
	pid_t child, parent = getpid();
	uint32_t i;
	int status;

	for (i = 0; i < host->segment_count; i++) {
		(void)snprintf(paths[i], sizeof paths[i], "--device=/proc/%d/fd/%d", (int)parent,
			       host->segment_fds[i]);
		argv[1 + i] = paths[i];
	}
	(void)snprintf(paths[i], sizeof paths[i], "/proc/%d/fd/%d", (int)parent, image->fd);
	argv[1 + i] = paths[i];
	(void)fflush(stdout); /* or the child has it too */
	child = fork();
	if (!child) {
		(void)execvp(argv[0], (char *const *)argv); /* it changes none */
		_exit(errno == ENOENT ? 77 : FAIL);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0)
		err(FAIL, "fsck.erofs");
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		return false;
	if (status)
		errx(FAIL, "fsck.erofs finds fault with it");
	return true;
}

static uint64_t folder_try(const char *path, const char *scratch)
{
	struct host_tree host;
	struct host_image image;
	uint64_t files;

	host_tree_read(&host, path, scratch, SEGMENT_BYTES_MAX);
	host_image_make(&host, &image);
	files = host_image_compare(&image, path);
	if (!fsck_try(&host, &image))
		printf("%s: not looked at by fsck.erofs, which is not installed\n", path);
	printf("%s: %llu inodes, %.1f MB of contents in %u segments, %.2f MB of metadata\n", path,
	       (unsigned long long)image.inodes, (double)host.contents_bytes / 1e6,
	       host.segment_count, (double)image.bytes / 1e6);
	printf("  written in %.1f ms, mounted in %llu us, %llu names compared\n",
	       (double)image.write_us / 1e3, (unsigned long long)image.mount_us,
	       (unsigned long long)files);
	host_image_done(&image);
	host_tree_done(&host);
	return files;
}

static uint64_t odd_try(const char *scratch, const char *name, void (*make)(int dir))
{
	char *path;
	uint64_t files;

	if (asprintf(&path, "%s/%s", scratch, name) < 0 || mkdir(path, 0751) < 0)
		err(FAIL, "%s", name);
	{
		auto_close int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

		make(dir);
	}
	files = folder_try(path, scratch);
	free(path);
	return files;
}

static void many_make_default(int dir)
{
	const char *count = getenv("DSEC_EROFS_FILES");

	many_make(dir, count ? (unsigned)strtoul(count, NULL, 10) : fewer(FILES_COUNT, 200));
}

static uint64_t all_try(const char *scratch)
{
	const char *folders = getenv("DSEC_EROFS_FOLDERS");
	auto_free char *list = strdup(folders ? folders : slowness() > 1 ? "" : "/etc");
	uint64_t files = 0;

	files += odd_try(scratch, "sizes", sizes_make);
	files += odd_try(scratch, "names", names_make);
	files += odd_try(scratch, "holes", holes_make);
	files += odd_try(scratch, "kinds", kinds_make);
	files += odd_try(scratch, "attributes", attributes_make);
	files += odd_try(scratch, "links", links_make);
	files += odd_try(scratch, "many", many_make_default);
	for (char *rest = list, *path; (path = strsep(&rest, ":"));)
		files += *path ? folder_try(path, scratch) : 0;
	return files;
}

int main(void)
{
	char scratch[] = "/var/tmp/dsec-erofs.XXXXXX";
	pid_t child;
	int status;

	(void)setvbuf(stdout, NULL, _IOLBF, 0); /* a figure is shown when it is there */
	(void)umask(0);				/* cannot fail */
	if (!mkdtemp(scratch))
		err(FAIL, "%s", scratch);
	child = fork(); /* whatever ends it, the folder goes */
	if (!child) {
		printf("Tested: %llu\n", (unsigned long long)all_try(scratch));
		exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) < 0)
		err(FAIL, "fork");
	folder_remove(scratch);
	return WIFEXITED(status) ? WEXITSTATUS(status) : FAIL;
}
