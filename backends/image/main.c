/*
 * dsec-import: makes an image of a stream. Started by the engine for one import, with what import.h
 * names as its descriptors; `dsec-import sweep` empties the directory it gets as scratch.
 *
 *	supervisor	confines all, starts the others
 *	unpacker	reads the stream, writes a tree and contents to work; strictest filter
 *	sealer		reads these, adds /dev, makes blobs of the store and the image's file
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

/* ---- its processes ---- */

struct scene {
	int out_fd, images_fd; /* by their places in the new root */
	pid_t supervisor;
};

/* In the supervisor, so that the unpacker opens nothing but blobs. */
static int work_make(struct import *in, int out_fd)
{
	if (mkdirat(out_fd, "work", 0700) < 0 || mkdirat(out_fd, "work/blobs", 0700) < 0)
		return -errno;
	in->tree_fd = openat(out_fd, "work/tree", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	in->raw_fd = openat(out_fd, "work/raw", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	in->blobs_fd = openat(out_fd, "work/blobs", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	in->report.disk_fd = in->raw_fd;
	return in->tree_fd < 0 || in->raw_fd < 0 || in->blobs_fd < 0 ? -errno : 0;
}

/* It must reach nothing but its folder, also through a descriptor. */
static int unpacker_run(struct import *in, const struct scene *scene)
{
	int r;

	(void)close(scene->out_fd); /* these were only opened */
	(void)close(scene->images_fd);
	(void)close(IMAGE_FD_SCRATCH);
	(void)close(IMAGE_FD_IMAGES);
	r = confine_unpacker(scene->supervisor);
	return r < 0 ? import_fail(in, -r, "unpacker", strerror(-r)) : import_unpack(in);
}

static int sealer_run(struct import *in, const struct scene *scene)
{
	int r = confine_sealer(scene->supervisor);

	return r < 0 ? import_fail(in, -r, "sealer", strerror(-r)) :
		       import_seal(in, scene->out_fd, scene->images_fd);
}

static int process_run(struct import *in, const struct scene *scene, const char *name,
		       int (*run)(struct import *in, const struct scene *scene))
{
	pid_t pid = fork();
	char words[80];
	int status;

	if (pid < 0)
		return import_fail(in, errno, NULL, strerror(errno));
	if (pid == 0)
		_exit(run(in, scene) < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
	(void)close(IMAGE_FD_STREAM); /* its sender sees when the unpacker stops reading */
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return import_fail(in, errno, NULL, strerror(errno));
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	in->report.step = run == sealer_run ? "seal" : "unpack";
	if (WIFSIGNALED(status))
		(void)snprintf(words, sizeof words, "the %s was killed by signal %d", name,
			       WTERMSIG(status)); /* fits */
	else
		(void)snprintf(words, sizeof words, "the %s failed", name); /* fits */
	return import_fail(in, EIO, NULL, words);
}

static int import_run(struct import *in)
{
	struct scene scene = { .supervisor = getpid() };
	int r;

	in->report.step = "confine";
	r = confine_process(IMAGE_FD_SCRATCH, IMAGE_FD_IMAGES);
	if (r < 0)
		return import_fail(in, -r, NULL, strerror(-r));
	/* By their places in the new root: what is reached through these stays there. */
	auto_close int out_fd = open("/scratch", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	auto_close int images_fd = open("/images", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	r = out_fd < 0 || images_fd < 0 ? -errno : work_make(in, out_fd);
	if (r < 0)
		return import_fail(in, -r, "scratch", strerror(-r));
	scene.out_fd = out_fd;
	scene.images_fd = images_fd;
	r = process_run(in, &scene, "unpacker", unpacker_run);
	if (r >= 0)
		r = process_run(in, &scene, "sealer", sealer_run);
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
