/* Images of the store: composing, giving back what nobody needs, finding what is broken. */
#include "backends/store/gc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <sys/stat.h>
#include <time.h>

#include "backends/store/index.h"
#include "backends/store/roots.h"
#include "backends/store/verify.h"
#include "tests/unit/store_place.h"

static void forty_seal(struct place_of *at, uint32_t from, uint8_t ret[DIGEST_BYTES])
{
	struct sealed sealed;
	struct raw raw;

	forty(&raw, from);
	cr_assert_eq(raw_seal(at, &raw, &sealed), 0);
	memcpy(ret, sealed.manifest, DIGEST_BYTES);
	raw_free(&raw);
}

static struct gc_result gc_run(const struct place_of *at, bool dry_run)
{
	const struct gc_wish wish = { .dry_run = dry_run };
	struct gc_result result;

	cr_assert_eq(store_gc(&at->store, &wish, &result), 0);
	return result;
}

struct faults {
	uint32_t count;
	struct verify_fault last;
};

static int fault_note(void *owner, const struct verify_fault *fault)
{
	struct faults *faults = owner;

	faults->count++;
	faults->last = *fault;
	return 0;
}

static struct faults verify_run(const struct place_of *at, const char *name, bool lazy)
{
	struct faults faults = { 0 };
	const struct verify_wish wish = {
		.name = name, .lazy = lazy, .fault = fault_note, .owner = &faults
	};
	struct verify_result result;

	cr_assert_eq(store_verify(&at->store, &wish, &result), 0);
	cr_assert_eq(result.faults, faults.count);
	return faults;
}

static void blob_path(const uint8_t digest[DIGEST_BYTES], char ret[96])
{
	char name[DIGEST_HEX_BYTES];

	digest_hex(digest, name);
	(void)snprintf(ret, 96, "blobs/sha256/%s", name);
}

/* ---- composing ---- */

Test(compose, an_image_says_what_it_is_of)
{
	auto_free struct image_record *record = calloc(1, sizeof *record);
	auto_free struct tree_segment *segments = NULL;
	uint8_t manifests[2][DIGEST_BYTES];
	struct store_manifest manifest;
	struct place_of at = { 0 };
	uint32_t count;

	store_new(&at);
	forty_seal(&at, 40, manifests[0]);
	forty_seal(&at, 20, manifests[1]);
	image_make(&at, manifests, 2, "both.erofs");
	auto_close int fd = openat(at.fd, "both.erofs", O_RDONLY);
	cr_assert_eq(image_record_read(fd, record), 0);
	cr_assert_eq(record->manifest_count, 2);
	cr_assert_eq(memcmp(record->manifests, manifests, sizeof manifests), 0);
	cr_assert_str_eq(record->source, "composed");
	cr_assert_str_eq(record->user, "builder");
	cr_assert_eq(record->layers, 2);
	cr_assert_eq(record->files, 41);
	cr_assert_eq(image_segments_read(fd, &segments, &count), 0);
	cr_assert_eq(count, 2);
	cr_assert_eq(record->segment_bytes, segments[0].bytes + segments[1].bytes);
	cr_assert_eq(store_manifest_load(&at.store, manifests[0], &manifest), 0);
	cr_assert_eq(memcmp(&manifest.segments[0], &segments[0], sizeof segments[0]), 0);
	store_manifest_done(&manifest);
	store_gone(&at);
}

Test(compose, the_same_parts_are_the_same_file)
{
	uint8_t manifests[2][DIGEST_BYTES], digest[3][DIGEST_BYTES];
	struct place_of at[2] = { 0 };
	uint64_t bytes;

	for (unsigned i = 0; i < 3; i++) {
		char path[16];

		if (i < 2)
			store_new(&at[i]);
		forty_seal(&at[i / 2], 40, manifests[0]);
		forty_seal(&at[i / 2], 20, manifests[1]);
		(void)snprintf(path, sizeof path, "%u.erofs", i);
		image_make(&at[i / 2], manifests, 2, path);
		auto_close int fd = openat(at[i / 2].fd, path, O_RDONLY);
		cr_assert_eq(file_digest(fd, digest[i], &bytes), 0);
		cr_assert_eq(memcmp(digest[i], digest[0], DIGEST_BYTES), 0);
	}
	for (unsigned i = 0; i < 2; i++)
		store_gone(&at[i]);
}

/* ---- gc ---- */

Test(gc, takes_what_no_image_needs_and_nothing_else)
{
	uint8_t manifests[2][DIGEST_BYTES];
	struct gc_result result;
	struct place_of at = { 0 };
	uint32_t before;

	store_new(&at);
	forty_seal(&at, 40, manifests[0]);
	image_make(&at, manifests, 1, "kept.erofs");
	before = blobs_count(&at);
	forty_seal(&at, 20, manifests[1]);
	cr_assert_eq(mkdirat(at.fd, "team", 0755), 0);
	image_make(&at, manifests + 1, 1, "team/gone.erofs");
	cr_assert_eq(gc_run(&at, false).deleted, 0);
	cr_assert_eq(unlinkat(at.fd, "team/gone.erofs", 0), 0);
	result = gc_run(&at, true);
	cr_assert_gt(result.deleted, 0);
	cr_assert_gt(blobs_count(&at), before, "only counted");
	cr_assert_eq(gc_run(&at, false).deleted, result.deleted);
	cr_assert_eq(blobs_count(&at), before);
	cr_assert_eq(verify_run(&at, NULL, false).count, 0);
	cr_assert_eq(gc_run(&at, false).deleted, 0);
	store_gone(&at);
}

/* Between its job's end and its name an image is in the job's scratch. */
Test(gc, leaves_what_an_image_without_a_name_yet_needs)
{
	uint8_t manifest[1][DIGEST_BYTES];
	struct place_of at = { 0 };

	store_new(&at);
	forty_seal(&at, 40, manifest[0]);
	cr_assert_eq(mkdirat(at.fd, ".import", 0700), 0);
	cr_assert_eq(mkdirat(at.fd, ".import/one-1", 0700), 0);
	cr_assert_eq(mkdirat(at.fd, ".import/one-1/7", 0700), 0);
	image_make(&at, manifest, 1, ".import/one-1/7/" IMPORT_RESULT);
	cr_assert_eq(gc_run(&at, false).deleted, 0);
	cr_assert_eq(unlinkat(at.fd, ".import/one-1/7/" IMPORT_RESULT, 0), 0);
	cr_assert_gt(gc_run(&at, false).deleted, 0);
	cr_assert_eq(blobs_count(&at), 0);
	store_gone(&at);
}

Test(gc, takes_files_that_are_no_blobs_and_forgets_their_places)
{
	uint8_t manifest[1][DIGEST_BYTES];
	struct place_of at = { 0 };
	struct index index;
	struct place found;
	uint8_t file[DIGEST_BYTES];
	struct raw raw;
	struct sealed sealed;

	store_new(&at);
	forty(&raw, 40);
	cr_assert_eq(raw_seal(&at, &raw, &sealed), 0);
	memcpy(file, raw.tree->nodes[tree_find(raw.tree, 0, "f07", 3)].digest, DIGEST_BYTES);
	raw_free(&raw);
	memcpy(manifest[0], sealed.manifest, DIGEST_BYTES);
	cr_assert_eq(index_open(at.fd, &index), 0);
	cr_assert_eq(index_find(&index, file, &found), 0);
	(void)close(openat(at.fd, "blobs/sha256/.half", O_WRONLY | O_CREAT, 0600));
	cr_assert_eq(gc_run(&at, false).temporaries, 1);
	cr_assert_eq(blobs_count(&at), 0);
	cr_assert_eq(faccessat(at.fd, "blobs/sha256/.half", F_OK, 0), -1);
	cr_assert_eq(index_find(&index, file, &found), -ENOENT);
	index_close(&index);
	store_gone(&at);
}

Test(gc, deletes_nothing_while_an_image_cannot_say_what_it_needs)
{
	const struct gc_wish wish = { 0 };
	uint8_t manifest[1][DIGEST_BYTES];
	struct gc_result result;
	struct place_of at = { 0 };
	struct stat st;
	uint32_t before;

	store_new(&at);
	forty_seal(&at, 40, manifest[0]);
	image_make(&at, manifest, 1, "damaged.erofs");
	auto_close int fd = openat(at.fd, "damaged.erofs", O_RDWR);
	cr_assert_eq(fstat(fd, &st), 0);
	cr_assert_eq(pwrite(fd, "{{", 2, st.st_size - 64 - 40), 2);
	before = blobs_count(&at);
	cr_assert_eq(store_gc(&at.store, &wish, &result), -EBADMSG);
	cr_assert_str_eq(result.name, "damaged");
	cr_assert_eq(blobs_count(&at), before);
	store_gone(&at);
}

Test(gc, says_of_an_image_that_lacks_something)
{
	uint8_t manifest[1][DIGEST_BYTES];
	struct gc_result result;
	struct place_of at = { 0 };
	char path[96];

	store_new(&at);
	forty_seal(&at, 40, manifest[0]);
	image_make(&at, manifest, 1, "lacks.erofs");
	blob_path(manifest[0], path);
	cr_assert_eq(unlinkat(at.fd, path, 0), 0);
	result = gc_run(&at, false);
	cr_assert_eq(result.incomplete, 1);
	cr_assert_str_eq(result.name, "lacks");
	store_gone(&at);
}

static void composed_age(const struct place_of *at, const char *path)
{
	const struct timespec old[2] = { { 1, 0 }, { 1, 0 } };

	cr_assert_eq(utimensat(at->fd, path, old, 0), 0);
}

/* A cache: of images that are gone it keeps what somebody has open, or has just made. */
Test(gc, compositions_of_images_that_are_gone_go_when_nobody_uses_them)
{
	uint8_t manifests[2][DIGEST_BYTES];
	struct place_of at = { 0 };

	store_new(&at);
	forty_seal(&at, 40, manifests[0]);
	forty_seal(&at, 20, manifests[1]);
	image_make(&at, manifests, 1, "one.erofs");
	cr_assert_eq(mkdirat(at.fd, "composed", 0755), 0);
	image_make(&at, manifests, 2, "composed/x.erofs");
	cr_assert_eq(gc_run(&at, false).composed_deleted, 0, "it was made a moment ago");
	composed_age(&at, "composed/x.erofs");
	int user = openat(at.fd, "composed/x.erofs", O_RDONLY);
	cr_assert_eq(gc_run(&at, false).composed_deleted, 0, "somebody has it open");
	(void)close(user);
	cr_assert_eq(verify_run(&at, NULL, false).count, 0);
	struct gc_result result = gc_run(&at, false);
	cr_assert_eq(result.composed_deleted, 1);
	cr_assert_gt(result.deleted, 0, "what only it needed goes with it");
	cr_assert_eq(faccessat(at.fd, "composed/x.erofs", F_OK, 0), -1);
	cr_assert_eq(verify_run(&at, NULL, false).count, 0);
	store_gone(&at);
}

Test(gc, compositions_that_lack_a_part_go)
{
	uint8_t manifest[1][DIGEST_BYTES];
	struct place_of at = { 0 };
	char path[96];

	store_new(&at);
	forty_seal(&at, 40, manifest[0]);
	cr_assert_eq(mkdirat(at.fd, "composed", 0755), 0);
	image_make(&at, manifest, 1, "composed/x.erofs");
	cr_assert_eq(gc_run(&at, false).composed_deleted, 0);
	blob_path(manifest[0], path);
	cr_assert_eq(unlinkat(at.fd, path, 0), 0);
	cr_assert_eq(gc_run(&at, false).composed_deleted, 1);
	store_gone(&at);
}

Test(gc, is_refused_while_somebody_works_with_the_store)
{
	const struct gc_wish wish = { 0 };
	struct gc_result result;
	struct place_of at = { 0 };
	struct store other;

	store_new(&at);
	cr_assert_eq(store_open(at.fd, &other), 0);
	cr_assert_eq(store_gc(&at.store, &wish, &result), -EBUSY);
	store_close(&other);
	store_gone(&at);
}

/* ---- verify ---- */

struct damage {
	struct place_of at;
	uint8_t manifest[1][DIGEST_BYTES];
	struct store_manifest parts;
};

static void damage_begin(struct damage *d)
{
	store_new(&d->at);
	forty_seal(&d->at, 40, d->manifest[0]);
	image_make(&d->at, d->manifest, 1, "one.erofs");
	image_make(&d->at, d->manifest, 1, "two.erofs");
	cr_assert_eq(store_manifest_load(&d->at.store, d->manifest[0], &d->parts), 0);
	cr_assert_eq(verify_run(&d->at, NULL, false).count, 0);
}

/* What is named: both images, or the one that is asked for. */
static void damage_check(const struct damage *d, const uint8_t *digest, const char *what,
			 const char *how)
{
	struct faults faults = verify_run(&d->at, NULL, false);
	char hex[DIGEST_HEX_BYTES];

	digest_hex(digest, hex);
	cr_assert_eq(faults.count, 2, "%s", what);
	faults = verify_run(&d->at, "one", false);
	cr_assert_eq(faults.count, 1, "%s", what);
	cr_assert_str_eq(faults.last.image, "one");
	cr_assert_str_eq(faults.last.what, what);
	cr_assert_str_eq(faults.last.how, how);
	cr_assert_str_eq(faults.last.digest, hex);
}

static void damage_end(struct damage *d)
{
	store_manifest_done(&d->parts);
	store_gone(&d->at);
}

Test(verify, every_kind_of_blob_that_is_damaged_or_missing_is_named_with_its_images)
{
	static const char *const whats[] = { "manifest", "config", "tree", "chunks", "segment" };

	for (unsigned i = 0; i < 10; i++) {
		struct damage d = { 0 };
		char path[96], byte;

		damage_begin(&d);
		const uint8_t *blobs[] = { d.manifest[0], d.parts.config.digest,
					   d.parts.tree.digest, d.parts.segments[0].chunks,
					   d.parts.segments[0].digest };
		blob_path(blobs[i / 2], path);
		auto_close int fd = openat(d.at.fd, path, O_RDWR);
		if (i % 2) {
			cr_assert_eq(unlinkat(d.at.fd, path, 0), 0);
		} else {
			cr_assert_eq(pread(fd, &byte, 1, 70), 1);
			byte ^= 4;
			cr_assert_eq(pwrite(fd, &byte, 1, 70), 1);
		}
		damage_check(&d, blobs[i / 2], whats[i / 2], i % 2 ? "missing" : "damaged");
		damage_end(&d);
	}
}

Test(verify, segments_that_come_on_demand_may_be_missing)
{
	struct damage d = { 0 };
	char path[96];

	damage_begin(&d);
	blob_path(d.parts.segments[0].digest, path);
	cr_assert_eq(unlinkat(d.at.fd, path, 0), 0);
	cr_assert_eq(verify_run(&d.at, NULL, true).count, 0);
	cr_assert_eq(verify_run(&d.at, NULL, false).count, 2);
	damage_end(&d);
}

Test(verify, an_image_file_that_was_changed_is_named)
{
	struct faults faults;
	struct damage d = { 0 };

	damage_begin(&d);
	auto_close int fd = openat(d.at.fd, "two.erofs", O_RDWR);
	cr_assert_eq(pwrite(fd, "x", 1, 5000), 1);
	faults = verify_run(&d.at, NULL, false);
	cr_assert_eq(faults.count, 1);
	cr_assert_str_eq(faults.last.image, "two");
	cr_assert_str_eq(faults.last.what, "erofs");
	damage_end(&d);
}

/* A tree whose digests of files are not of what it says lies there. */
Test(verify, a_file_of_other_contents_is_named_with_its_path)
{
	struct store_manifest parts;
	struct faults faults;
	struct place_of at = { 0 };
	struct tree *tree;
	uint8_t manifest[1][DIGEST_BYTES];
	uint8_t digest[DIGEST_BYTES];
	auto_free char *text = NULL;
	size_t bytes;
	struct stat st;

	store_new(&at);
	forty_seal(&at, 40, manifest[0]);
	cr_assert_eq(store_manifest_load(&at.store, manifest[0], &parts), 0);
	cr_assert_eq(store_tree_load(&at.store, &parts, &tree), 0);
	tree->nodes[tree_find(tree, 0, "f07", 3)].digest[5] ^= 1;
	auto_close int fd = memfd_create("tree", MFD_CLOEXEC);
	cr_assert_eq(tree_write(tree, fd), 0);
	cr_assert_eq(fstat(fd, &st), 0);
	auto_free char *blob = malloc((size_t)st.st_size);
	cr_assert_eq(file_read(fd, blob, (size_t)st.st_size, 0), 0);
	cr_assert_eq(store_blob_write(&at.store, blob, (size_t)st.st_size, parts.tree.digest), 0);
	parts.tree.bytes = (uint64_t)st.st_size;
	cr_assert_eq(store_manifest_text(&parts, &text, &bytes), 0);
	cr_assert_eq(store_blob_write(&at.store, text, bytes, digest), 0);
	memcpy(manifest[0], digest, DIGEST_BYTES);
	image_make(&at, manifest, 1, "wrong.erofs");
	faults = verify_run(&at, NULL, false);
	cr_assert_eq(faults.count, 1);
	cr_assert_str_eq(faults.last.what, "file");
	cr_assert_str_eq(faults.last.path, "/f07");
	tree_free(tree);
	store_manifest_done(&parts);
	store_gone(&at);
}

Test(verify, a_blob_of_no_image_is_looked_at_too)
{
	struct faults faults;
	struct damage d = { 0 };
	uint8_t digest[DIGEST_BYTES];
	char path[96];

	damage_begin(&d);
	cr_assert_eq(store_blob_write(&d.at.store, "of nobody", 9, digest), 0);
	blob_path(digest, path);
	auto_close int fd = openat(d.at.fd, path, O_RDWR);
	cr_assert_eq(pwrite(fd, "x", 1, 2), 1);
	faults = verify_run(&d.at, NULL, false);
	cr_assert_eq(faults.count, 1);
	cr_assert_str_eq(faults.last.image, "");
	cr_assert_str_eq(faults.last.what, "blob");
	damage_end(&d);
}

/* ---- names ---- */

Test(roots, an_image_is_opened_beneath_the_store_or_not_at_all)
{
	uint8_t manifest[1][DIGEST_BYTES];
	struct place_of at = { 0 };
	int fd;

	store_new(&at);
	forty_seal(&at, 40, manifest[0]);
	image_make(&at, manifest, 1, "one.erofs");
	cr_assert_eq(symlinkat("one.erofs", at.fd, "link.erofs"), 0);
	cr_assert_eq(root_open(at.fd, "one", &fd), 0);
	(void)close(fd);
	cr_assert_eq(root_open(at.fd, "link", &fd), -ELOOP);
	cr_assert_eq(root_open(at.fd, "two", &fd), -ENOENT);
	cr_assert_eq(root_open(at.fd, "../one", &fd), -EINVAL);
	cr_assert_eq(root_open(at.fd, "x/../../one", &fd), -ENOENT);
	cr_assert_eq(root_open(at.fd, "", &fd), -EINVAL);
	store_gone(&at);
}
