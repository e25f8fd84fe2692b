/*
 * dsec-import: makes an image of a stream. Started by the engine for one import, with what import.h
 * names as its descriptors; `dsec-import sweep` empties the directory it gets as scratch.
 *
 *	supervisor	confines all, starts the others, adds /dev, syncs and names the result
 *	unpacker	reads the stream, makes work/tree; confined to work, strictest filter
 *	mkfs.erofs	reads work/tree, writes the file
 *
 * Must hold: the supervisor reads no byte that came by the stream; exit status 0 means that the
 * result is whole.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "backends/store/digest.h"
#include "backends/image/import.h"
#include "engine/base/cleanup.h"

enum { ARGUMENTS = 8, SWEEP_DEPTH_MAX = IMPORT_DEPTH_MAX + 8 };

/* ---- sweeping ---- */

/* No deeper than an import makes trees. */
static int sweep(int fd, unsigned depth)
{
	const struct dirent *entry;
	int r = 0;
	DIR *dir = depth < SWEEP_DEPTH_MAX ? fdopendir(fd) : NULL;

	if (!dir) {
		(void)close(fd); /* only its number was lost */
		return depth < SWEEP_DEPTH_MAX ? -ENOMEM : -ELOOP;
	}
	while (r >= 0 && (entry = readdir(dir))) {
		const char *name = entry->d_name;
		int below;

		if (!strcmp(name, ".") || !strcmp(name, "..") || unlinkat(fd, name, 0) == 0)
			continue;
		if (errno != EISDIR && errno != EPERM) {
			r = -errno;
			break;
		}
		below = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		r = below < 0 ? -errno : sweep(below, depth + 1);
		if (r >= 0 && unlinkat(fd, name, AT_REMOVEDIR) < 0)
			r = -errno;
	}
	(void)closedir(dir); /* was only read */
	return r;
}

static int sweep_scratch(void)
{
	int fd = openat(IMAGE_FD_SCRATCH, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r = fd < 0 ? -errno : sweep(fd, 0);

	if (r < 0)
		fprintf(stderr, "dsec-import: sweep: %s\n", strerror(-r));
	return r < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* ---- importing ---- */

static int number_parse(const char *text, uint64_t *ret)
{
	char *end;

	errno = 0;
	*ret = strtoull(text, &end, 10);
	return errno || end == text || *end ? -EINVAL : 0;
}

static int arguments_parse(char **argv, struct import *in)
{
	uint64_t kind, files, layers, flags;

	if (number_parse(argv[1], &kind) < 0 || kind >= IMPORT_KINDS ||
	    number_parse(argv[2], &in->limits.bytes_max) < 0 ||
	    in->limits.bytes_max > UINT64_MAX / 4 ||
	    number_parse(argv[3], &in->limits.free_min) < 0 || number_parse(argv[4], &files) < 0 ||
	    files > UINT32_MAX || number_parse(argv[5], &layers) < 0 || layers > UINT32_MAX ||
	    number_parse(argv[6], &flags) < 0 || flags & ~(uint64_t)IMAGE_LAYER ||
	    strlen(argv[7]) >= sizeof in->tag)
		return -EINVAL;
	memcpy(in->tag, argv[7], strlen(argv[7]) + 1);
	in->flags = (uint32_t)flags;
	in->report.free_min = in->limits.free_min;
	in->kind = (enum import_kind)kind;
	in->limits.files_max = (uint32_t)files;
	in->limits.layers_max = (uint32_t)layers;
	return 0;
}

/* Opened before the root changes, so that the unpacker holds nothing above its own folder. */
static int work_make(struct import *in, int out_fd)
{
	if (mkdirat(out_fd, "work", 0700) < 0 || mkdirat(out_fd, "work/tree", 0755) < 0 ||
	    mkdirat(out_fd, "work/blobs", 0700) < 0)
		return -errno;
	in->tree_fd = openat(out_fd, "work/tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	in->report.disk_fd = in->tree_fd;
	in->blobs_fd = openat(out_fd, "work/blobs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return in->tree_fd < 0 || in->blobs_fd < 0 ? -errno : 0;
}

/* It must reach nothing but its folder, also through a descriptor. */
static void unpacker_run(struct import *in, int out_fd, pid_t supervisor)
{
	int r;

	(void)close(out_fd);
	(void)close(IMAGE_FD_SCRATCH);
	r = confine_unpacker(supervisor);
	if (r < 0)
		r = import_fail(in, -r, "unpacker", strerror(-r));
	else
		r = import_unpack(in);
	_exit(r < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
}

static int unpack(struct import *in, int out_fd)
{
	pid_t supervisor = getpid(), pid = fork();
	char words[80];
	int status;

	if (pid < 0)
		return import_fail(in, errno, NULL, strerror(errno));
	if (pid == 0)
		unpacker_run(in, out_fd, supervisor);
	(void)close(IMAGE_FD_STREAM); /* its sender sees when the unpacker stops reading */
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return import_fail(in, errno, NULL, strerror(errno));
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	in->report.step = "unpack";
	if (WIFSIGNALED(status))
		(void)snprintf(words, sizeof words, "the unpacker was killed by signal %d",
			       WTERMSIG(status));
	else
		(void)snprintf(words, sizeof words, "the unpacker failed");
	return import_fail(in, EIO, NULL, words);
}

static int import_run(struct import *in)
{
	int fd, r;

	in->report.step = "start";
	if (in->flags & IMAGE_LAYER)
		return import_fail(in, EOPNOTSUPP, NULL, "this importer makes no layers");
	in->report.step = "confine";
	r = confine_process(IMAGE_FD_SCRATCH);
	if (r < 0)
		return import_fail(in, -r, NULL, strerror(-r));
	/* By its place in the new root: what is reached through it stays there. */
	fd = open("/scratch", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = fd < 0 ? -errno : work_make(in, fd);
	if (r < 0)
		return import_fail(in, -r, "scratch", strerror(-r));
	auto_close int out_fd = fd;

	r = unpack(in, out_fd);
	in->report.step = "erofs";
	if (r >= 0)
		r = import_erofs(in, out_fd);
	if (r < 0)
		return r;
	memcpy(in->report.frame.digest, in->record.digest, sizeof in->report.frame.digest);
	report_done(&in->report);
	return 0;
}

int main(int argc, char **argv)
{
	struct import *in;

	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return EXIT_FAILURE;
	if (argc == 2 && !strcmp(argv[1], "sweep"))
		return sweep_scratch();
	in = mmap(NULL, sizeof *in, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (in == MAP_FAILED || argc != ARGUMENTS || arguments_parse(argv, in) < 0) {
		fprintf(stderr,
			"usage: dsec-import KIND BYTES_MAX FREE_MIN FILES_MAX LAYERS_MAX FLAGS "
			"TAG\n"
			"       dsec-import sweep\n"
			"It is started by dsecd.\n");
		return EXIT_FAILURE;
	}
	/* Names are UTF-8 or bytes; libarchive converts to the locale's. */
	(void)setlocale(LC_CTYPE, "C.UTF-8");
	in->report.step = "start";
	if (digest_prepare() < 0) {
		(void)import_fail(in, ENOTSUP, NULL, "libcrypto has no SHA-256");
		return EXIT_FAILURE;
	}
	/* Nothing at exit finds what it expects in our root: a leak checker wants /proc. */
	_exit(import_run(in) < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
}
