/*
 * dsec-store pack as the engine starts it, over an upper directory with all that a sandbox can
 * leave there: killed at many calls, and on a disk that fills at every size. Afterwards the store
 * is right, and gc takes what is left over.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>

#include "backends/store/gc.h"
#include "tests/root/image/store_run.h"

/* ---- what a sandbox wrote ---- */

struct upper {
	char path[64];
	int fd;
};

static void put(const struct upper *upper, const char *name, size_t bytes)
{
	auto_close int fd = openat(upper->fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

	for (size_t i = 0; i < bytes; i += strlen(name))
		cr_assert_gt(write(fd, name, strlen(name)), 0);
}

static void mark(const struct upper *upper, const char *name, const char *key, const char *value)
{
	auto_close int fd = openat(upper->fd, name, O_RDONLY | O_CLOEXEC);

	cr_assert_eq(fsetxattr(fd, key, value, strlen(value), 0), 0, "%s: %s", name, key);
}

static void socket_put(const struct upper *upper, const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	auto_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", upper->path, name);
	cr_assert_eq(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
}

/* 7 files and folders with the root, 2 whiteouts, and 3 that no layer has. */
static void upper_new(struct upper *upper)
{
	*upper = (struct upper){ .path = "/dev/shm/dsec-pack-upper.XXXXXX" };
	cr_assert_not_null(mkdtemp(upper->path));
	upper->fd = open(upper->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_geq(upper->fd, 0);
	cr_assert_eq(mkdirat(upper->fd, "d", 0755), 0);
	put(upper, "d/two\nlines", 9000);
	cr_assert_eq(mkdirat(upper->fd, "other", 0755), 0);
	cr_assert_eq(linkat(upper->fd, "d/two\nlines", upper->fd, "other/linked", 0), 0);
	mark(upper, "other", "trusted.overlay.opaque", "y");
	cr_assert_eq(mkfifoat(upper->fd, "fifo", 0600), 0);
	cr_assert_eq(symlinkat("/nowhere", upper->fd, "link"), 0);
	cr_assert_eq(mknodat(upper->fd, "f00", S_IFCHR | 0600, makedev(0, 0)), 0);
	cr_assert_eq(mknodat(upper->fd, "f01", S_IFCHR | 0600, makedev(0, 0)), 0);
	cr_assert_eq(mknodat(upper->fd, "device", S_IFCHR | 0600, makedev(0, 1)), 0);
	socket_put(upper, "socket");
	put(upper, ".wh.f02", 3);
}

static void upper_gone(struct upper *upper)
{
	folder_empty(upper->fd);
	cr_assert_eq(rmdir(upper->path), 0);
}

/* ---- packs ---- */

static void base_of(const struct place_of *at, const char *image, char ret[8 + DIGEST_HEX_BYTES])
{
	auto_free struct image_record *record = calloc(1, sizeof *record);
	auto_close int fd = openat(at->fd, image, O_RDONLY | O_CLOEXEC);

	cr_assert_eq(image_record_read(fd, record), 0);
	cr_assert_eq(record->manifest_count, 1);
	(void)sprintf(ret, "base:");
	digest_hex(record->manifests[0], ret + 5);
}

static void left_over_goes(struct place_of *at, uint32_t kept)
{
	const struct gc_wish gc = { 0 };
	struct gc_result collected;

	cr_assert_eq(store_open(at->fd, &at->store), 0);
	cr_assert_eq(store_gc(&at->store, &gc, &collected), 0);
	cr_assert_eq(collected.temporaries, 0, "no half file has a name");
	cr_assert_eq(collected.incomplete, 0);
	cr_assert_eq(blobs_count(at), kept);
	store_close(&at->store);
}

/* 1: over the base, 2: as a layer alone, 3: as one with what lies below. */
static const char *const ways[] = { "0", "1", "16" };

Test(pack_program, whatever_is_killed_at_any_moment_leaves_a_right_store)
{
	enum { STRIDE = 37, STOPS_MAX = 40000 }; /* odd: before calls, and behind them */
	struct place_of at = { .path = "/dev/shm/dsec-pack-killed.XXXXXX" };
	char base[8 + DIGEST_HEX_BYTES];
	struct upper upper;
	uint32_t kept, stop;

	upper_new(&upper);
	store_new(&at);
	image_add(&at, 5, "one.erofs");
	kept = blobs_count(&at);
	store_close(&at.store);
	base_of(&at, "one.erofs", base);
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		const char *const words[] = { "pack",  ways[i],		"packed", base,
					      "ids:0", "scan:a canary", NULL };
		bool killed = true;

		for (stop = 1; killed; stop += STRIDE) {
			struct run run = { .traced = true, .further_fd = upper.fd };

			cr_assert_lt(stop, STOPS_MAX);
			run_start(&run, &at, words);
			killed = run_kill(&run, stop);
			all_check(&at, &run);
			run_gone(&run);
			left_over_goes(&at, kept);
		}
		cr_assert_gt(stop, 10 * STRIDE, "%s", ways[i]);
	}
	cr_assert_eq(store_open(at.fd, &at.store), 0);
	store_gone(&at);
	upper_gone(&upper);
}

Test(pack_program, what_is_left_out_is_counted_and_the_rest_is_there)
{
	struct place_of at = { .path = "/dev/shm/dsec-pack-program.XXXXXX" };
	char base[8 + DIGEST_HEX_BYTES], text[TEXT_BYTES];
	struct import_frame frame;
	struct upper upper;

	upper_new(&upper);
	store_new(&at);
	image_add(&at, 5, "one.erofs");
	store_close(&at.store);
	base_of(&at, "one.erofs", base);
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
		const char *const words[] = { "pack", ways[i], "packed", base, "ids:0", NULL };
		struct run run = { .further_fd = upper.fd };

		run_start(&run, &at, words);
		cr_assert_eq(run_end(&run, &frame), 0, "%s: %s", frame.step, frame.reason);
		left_read(&run, STORE_REPORT, text);
		cr_expect_not_null(strstr(text, i < 2 ? "\"files\":7,\"whiteouts\":2" :
							"\"files\":45,\"whiteouts\":0"),
				   "%s", text);
		cr_expect_not_null(strstr(text, "\"dropped\":{\"sockets\":1,\"devices\":1,"
						"\"whiteout_names\":1}"),
				   "%s", text);
		run_gone(&run);
	}
	cr_assert_eq(store_open(at.fd, &at.store), 0);
	store_gone(&at);
	upper_gone(&upper);
}

static void segment_take_away(struct place_of *at, const char *image)
{
	auto_free struct image_record *record = calloc(1, sizeof *record);
	auto_close int fd = openat(at->fd, image, O_RDONLY | O_CLOEXEC);
	char path[16 + DIGEST_HEX_BYTES] = "blobs/sha256/";
	struct store_manifest manifest;

	cr_assert_eq(image_record_read(fd, record), 0);
	cr_assert_eq(store_manifest_load(&at->store, record->manifests[0], &manifest), 0);
	cr_assert_gt(manifest.segment_count, 0);
	digest_hex(manifest.segments[0].digest, path + strlen(path));
	store_manifest_done(&manifest);
	cr_assert_eq(unlinkat(at->fd, path, 0), 0);
}

Test(pack_program, contents_that_are_elsewhere_are_not_looked_through_and_that_is_said)
{
	static const struct {
		const char *flags, *more;
		bool works;
	} cases[] = { { "0", "wipe:all", true },
		      { "0", "scan:a canary", false },
		      { "1", "scan:a canary", true },
		      { "16", "wipe:all", false } };
	struct place_of at = { .path = "/dev/shm/dsec-pack-program.XXXXXX" };
	char base[8 + DIGEST_HEX_BYTES];
	struct import_frame frame;
	struct upper upper;

	upper_new(&upper);
	store_new(&at);
	image_add(&at, 5, "one.erofs");
	base_of(&at, "one.erofs", base);
	segment_take_away(&at, "one.erofs");
	store_close(&at.store);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const char *const words[] = { "pack",  cases[i].flags, "packed", base,
					      "ids:0", cases[i].more,  NULL };
		struct run run = { .further_fd = upper.fd };

		run_start(&run, &at, words);
		cr_assert_eq(run_end(&run, &frame) == 0, cases[i].works, "%zu %s", i, frame.reason);
		if (!cases[i].works) {
			cr_expect_eq(frame.error, EOPNOTSUPP);
			cr_expect_not_null(strstr(frame.reason, "pull them whole"), "%s",
					   frame.reason);
		}
		run_gone(&run);
	}
	cr_assert_eq(store_open(at.fd, &at.store), 0);
	store_gone(&at);
	upper_gone(&upper);
}

/* ---- a disk that fills ---- */

/* Its images and its scratch are on it. 0, or the error that was told. */
static int pack_on_disk(const char *disk, const struct upper *upper)
{
	static const char *const words[] = { "pack", "1", "packed", "ids:0", NULL };
	struct run run = { .disk = disk, .further_fd = upper->fd };
	struct place_of at = { 0 };
	struct import_frame frame;
	int status;

	(void)snprintf(at.path, sizeof at.path, "%s/images", disk);
	cr_assert_eq(mkdir(at.path, 0700), 0);
	at.fd = open(at.path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	run_start(&run, &at, words);
	status = run_end(&run, &frame);
	cr_assert_eq(status != 0, frame.kind == IMPORT_FAILED);
	if (faccessat(at.fd, "blobs/sha256", F_OK, 0) == 0)
		cr_assert_eq(blobs_count(&at) == 0, status != 0 && strcmp(frame.step, "compose") &&
							    strcmp(frame.step, "report"));
	(void)close(run.scratch_fd); /* they go with their disk */
	(void)close(at.fd);
	return status ? frame.error : 0;
}

Test(pack_program, a_disk_that_fills_is_told_and_leaves_nothing_half)
{
	char disk[] = "/dev/shm/dsec-pack-full.XXXXXX", name[16];
	struct upper upper;
	uint32_t full = 0;
	int error = ENOSPC;

	upper_new(&upper);
	for (int i = 0; i < 64; i++) {
		(void)snprintf(name, sizeof name, "small%02d", i);
		put(&upper, name, 700);
	}
	cr_assert_eq(unshare(CLONE_NEWNS), 0);
	cr_assert_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	cr_assert_not_null(mkdtemp(disk));
	for (uint32_t size_kb = 16; error == ENOSPC; size_kb += 60) {
		char options[32];

		cr_assert_lt(size_kb, 64 << 10);
		(void)snprintf(options, sizeof options, "size=%uk", size_kb);
		cr_assert_eq(mount("none", disk, "tmpfs", 0, options), 0);
		error = pack_on_disk(disk, &upper);
		full += error == ENOSPC;
		cr_assert_eq(umount2(disk, 0), 0);
	}
	cr_assert_eq(error, 0);
	cr_assert_gt(full, 5);
	cr_assert_eq(rmdir(disk), 0);
	upper_gone(&upper);
}
