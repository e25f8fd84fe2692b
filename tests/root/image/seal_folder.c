/*
 * seal_folder IMAGES NAME FOLDER...: each folder becomes an image of the store, for tests and
 * figures of what works on such. Must hold: it uses the store as an import does.
 */
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "backends/store/erofs.h"
#include "backends/store/store.h"
#include "engine/base/cleanup.h"
#include "tests/root/image/host_tree.h"

enum { FAIL = 1 };

static double now_ms(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail */
	return (double)ts.tv_sec * 1e3 + (double)ts.tv_nsec / 1e6;
}

static void must(int r, const char *what)
{
	if (r < 0)
		errx(FAIL, "%s: %s", what, strerror(-r));
}

static void image_write(int images_fd, const struct store *store, const char *name,
			const uint8_t (*manifest)[DIGEST_BYTES])
{
	static struct image_record record;
	char *unfinished, *file;

	if (asprintf(&unfinished, ".%s.unfinished", name) < 0 ||
	    asprintf(&file, "%s.erofs", name) < 0)
		errx(FAIL, "no memory");
	{
		auto_close int fd =
			openat(images_fd, unfinished, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

		if (fd < 0)
			err(FAIL, "%s", unfinished);
		must(store_compose(store, manifest, 1, fd, &record), "store_compose");
	}
	if (renameat(images_fd, unfinished, images_fd, file) < 0)
		err(FAIL, "%s", file);
	free(unfinished);
	free(file);
}

static void folder_seal(int images_fd, struct store *store, const char *name, const char *folder)
{
	static const struct image_record record = { .source = "tree", .layers = 1 };
	struct host_tree host;
	struct sealed sealed;
	struct seal seal = { .record = &record, .raw_fd = -1 };
	char scratch[64];
	double begun;

	(void)snprintf(scratch, sizeof scratch, "/proc/self/fd/%d/.", images_fd);
	host_tree_read(&host, folder, scratch, UINT64_MAX);
	seal.tree = host.tree;
	if (host.segment_count)
		seal.raw_fd = host.segment_fds[0];
	begun = now_ms();
	must(store_seal(store, &seal, &sealed), "store_seal");
	printf("%s sealed in %.1f ms: %llu files, %llu bytes new, %llu shared\n", name,
	       now_ms() - begun, (unsigned long long)sealed.files,
	       (unsigned long long)sealed.new_bytes, (unsigned long long)sealed.shared_bytes);
	host_tree_done(&host);
	begun = now_ms();
	image_write(images_fd, store, name, (const uint8_t(*)[DIGEST_BYTES])sealed.manifest);
	printf("%s written in %.1f ms\n", name, now_ms() - begun);
}

int main(int argc, char **argv)
{
	struct store store;
	int images_fd;

	if (argc < 4 || argc % 2)
		errx(FAIL, "usage: seal_folder IMAGES NAME FOLDER...");
	images_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (images_fd < 0)
		err(FAIL, "%s", argv[1]);
	must(store_open(images_fd, &store), "store_open");
	for (int i = 2; i + 1 < argc; i += 2)
		folder_seal(images_fd, &store, argv[i], argv[i + 1]);
	store_close(&store);
	(void)close(images_fd); /* all is in it */
	return 0;
}
