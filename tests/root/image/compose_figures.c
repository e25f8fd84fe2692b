/*
 * compose_figures IMAGES DSEC_STORE PLAIN NAME...: what it costs to compose images of a store, and
 * to mount what was composed, beside a mount of PLAIN, an image of mkfs.erofs. See docs/images.md.
 */
#include <err.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "backends/store/erofs.h"
#include "backends/store/manifest.h"
#include "backends/store/store.h"
#include "engine/base/cleanup.h"
#include "tests/root/image/host_tree.h"

enum { FAIL = 1, COMPOSE_ROUNDS = 21, MOUNT_ROUNDS = 301, PARTS_MAX = IMAGE_MANIFESTS_MAX };

struct parts {
	uint8_t manifests[PARTS_MAX][DIGEST_BYTES];
	uint32_t count;
};

static uint64_t now_ns(void)
{
	struct timespec ts;

	(void)clock_gettime(CLOCK_MONOTONIC, &ts); /* cannot fail */
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void must(int r, const char *what)
{
	if (r < 0)
		errx(FAIL, "%s: %s", what, strerror(-r));
}

static int by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void figure(const char *what, uint64_t *ns, size_t count)
{
	qsort(ns, count, sizeof *ns, by_size);
	printf("%-36s p50 %9.1f us, p99 %9.1f us, least %9.1f us\n", what,
	       (double)ns[count / 2] / 1e3, (double)ns[count - 1 - count / 100] / 1e3,
	       (double)ns[0] / 1e3);
}

static int scratch_file(int images_fd)
{
	int fd = openat(images_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0)
		err(FAIL, "a file without a name");
	return fd;
}

/* ---- composing ---- */

static void merge_figures(const struct store *store, const struct parts *parts, int images_fd)
{
	uint64_t load[COMPOSE_ROUNDS], merge[COMPOSE_ROUNDS], write[COMPOSE_ROUNDS];
	struct erofs_made made = { 0 };

	for (size_t round = 0; round < COMPOSE_ROUNDS; round++) {
		struct tree *layers[PARTS_MAX], *tree = NULL;
		uint64_t begun = now_ns();
		auto_close int fd = scratch_file(images_fd);

		for (uint32_t i = 0; i < parts->count; i++) {
			struct store_manifest manifest;

			must(store_manifest_load(store, parts->manifests[i], &manifest),
			     "manifest");
			must(store_tree_load(store, &manifest, &layers[i]), "tree");
			store_manifest_done(&manifest);
		}
		load[round] = now_ns() - begun;
		begun = now_ns();
		tree = layers[0];
		for (uint32_t i = 1; i < parts->count; i++)
			must(tree_merge(tree, layers[i], true), "merge");
		merge[round] = now_ns() - begun;
		begun = now_ns();
		must(erofs_write(tree, fd, &made), "erofs_write");
		write[round] = now_ns() - begun;
		for (uint32_t i = 0; i < parts->count; i++)
			tree_free(layers[i]);
	}
	figure("trees read and checked", load, COMPOSE_ROUNDS);
	figure("tree_merge", merge, COMPOSE_ROUNDS);
	figure("erofs_write", write, COMPOSE_ROUNDS);
	printf("%llu inodes, %llu bytes of metadata\n", (unsigned long long)made.inodes,
	       (unsigned long long)made.bytes);
}

static void compose_figures(const struct store *store, const struct parts *parts, int images_fd)
{
	auto_free struct image_record *record = malloc(sizeof *record);
	uint64_t ns[COMPOSE_ROUNDS];

	for (size_t round = 0; round < COMPOSE_ROUNDS; round++) {
		auto_close int fd = scratch_file(images_fd);
		uint64_t begun = now_ns();

		must(store_compose(store, parts->manifests, parts->count, fd, record), "compose");
		ns[round] = now_ns() - begun;
	}
	figure("store_compose", ns, COMPOSE_ROUNDS);
}

/* The program as the engine runs it; *ret_fd: the last one's file. */
static void program_figures(const char *program, const struct parts *parts, int images_fd,
			    int *ret_fd)
{
	char scratch[] = "/var/tmp/dsec-figures.XXXXXX", hex[PARTS_MAX][DIGEST_HEX_BYTES];
	const char *argv[6 + PARTS_MAX + 1] = { "dsec-store", "assemble", "1099511627776",
						"0",	      "0",	  "" };
	uint64_t ns[COMPOSE_ROUNDS];

	if (!mkdtemp(scratch))
		err(FAIL, "%s", scratch);
	auto_close int scratch_fd = open(scratch, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (uint32_t i = 0; i < parts->count; i++) {
		digest_hex(parts->manifests[i], hex[i]);
		argv[6 + i] = hex[i];
	}
	for (size_t round = 0; round < COMPOSE_ROUNDS; round++) {
		uint64_t begun = now_ns();
		pid_t child = fork();
		int status;

		if (!child) {
			char memory[] = IMAGE_PROGRAM_ENVIRONMENT, *const environment[] = { memory,
											    NULL };
			const int null = open("/dev/null", O_RDWR);

			if (dup2(null, IMAGE_FD_STATUS) >= 0 && fcntl(scratch_fd, F_DUPFD, 64) >= 0)
				(void)dup2(scratch_fd, 100); /* else the program says so */
			(void)dup2(images_fd, 101);
			(void)dup2(100, IMAGE_FD_SCRATCH);
			(void)dup2(101, IMAGE_FD_IMAGES);
			(void)execve(program, (char *const *)argv,
				     environment); /* it changes none */
			_exit(127);
		}
		if (child < 0 || waitpid(child, &status, 0) < 0 || status)
			errx(FAIL, "%s assemble failed", program);
		ns[round] = now_ns() - begun;
		if (round + 1 == COMPOSE_ROUNDS)
			*ret_fd = openat(scratch_fd, IMPORT_RESULT, O_RDONLY | O_CLOEXEC);
		if (unlinkat(scratch_fd, IMPORT_RESULT, 0) < 0)
			err(FAIL, IMPORT_RESULT);
	}
	figure("dsec-store assemble, synced", ns, COMPOSE_ROUNDS);
	if (rmdir(scratch) < 0)
		err(FAIL, "%s", scratch);
}

/* ---- mounting ---- */

static void mount_figures(const char *what, int fd, const int *devices, uint32_t count)
{
	uint64_t mounted[MOUNT_ROUNDS], gone[MOUNT_ROUNDS];

	for (size_t round = 0; round < MOUNT_ROUNDS; round++) {
		uint64_t begun = now_ns();
		int mount_fd = host_image_mount(fd, devices, count);

		must(mount_fd, what);
		mounted[round] = now_ns() - begun;
		begun = now_ns();
		(void)close(mount_fd); /* and with it the mount */
		gone[round] = now_ns() - begun;
	}
	figure(what, mounted, MOUNT_ROUNDS);
	figure("  and its end", gone, MOUNT_ROUNDS);
}

static void mounts_compare(int images_fd, int composed_fd, const char *plain)
{
	static int devices[EROFS_DEVICES_MAX];
	struct erofs_table table;
	auto_close int plain_fd = open(plain, O_RDONLY | O_CLOEXEC);

	if (plain_fd < 0)
		err(FAIL, "%s", plain);
	must(erofs_table_read(composed_fd, &table), "the table of devices");
	for (uint32_t i = 0; i < table.count; i++) {
		char path[128];

		(void)snprintf(path, sizeof path, "blobs/sha256/%s", table.tags[i]);
		devices[i] = openat(images_fd, path, O_RDONLY | O_CLOEXEC);
		if (devices[i] < 0)
			err(FAIL, "%s", path);
	}
	mount_figures("mount of mkfs.erofs's image", plain_fd, NULL, 0);
	printf("%u devices\n", table.count);
	mount_figures("mount of the composition", composed_fd, devices, table.count);
	mount_figures("mount of mkfs.erofs's image, again", plain_fd, NULL, 0);
	erofs_table_done(&table);
}

static void part_read(int images_fd, const char *name, struct parts *parts)
{
	auto_free struct image_record *record = malloc(sizeof *record);
	char path[256];

	(void)snprintf(path, sizeof path, "%s.erofs", name);
	auto_close int fd = openat(images_fd, path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		err(FAIL, "%s", path);
	must(image_record_read(fd, record), path);
	if (record->manifest_count != 1 || parts->count == PARTS_MAX)
		errx(FAIL, "%s is not of one manifest", path);
	memcpy(parts->manifests[parts->count++], record->manifests[0], DIGEST_BYTES);
}

int main(int argc, char **argv)
{
	static struct parts parts;
	struct store store;
	int composed_fd = -1;

	if (argc < 5)
		errx(FAIL, "usage: compose_figures IMAGES DSEC_STORE PLAIN NAME...");
	auto_close int images_fd = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (images_fd < 0)
		err(FAIL, "%s", argv[1]);
	for (int i = 4; i < argc; i++)
		part_read(images_fd, argv[i], &parts);
	must(store_open(images_fd, &store), "store_open");
	merge_figures(&store, &parts, images_fd);
	compose_figures(&store, &parts, images_fd);
	program_figures(argv[2], &parts, images_fd, &composed_fd);
	mounts_compare(images_fd, composed_fd, argv[3]);
	store_close(&store);
	return 0;
}
