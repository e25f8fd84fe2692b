/* Images to layouts and back: what is the same, what is refused, what a failure leaves. */
#include "backends/store/transfer.h"

#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <zstd.h>

#include "tests/unit/trip.h"

Test(transfer, what_is_pushed_and_pulled_has_the_same_digest_and_contents)
{
	for (unsigned is_packed = 0; is_packed < 2; is_packed++) {
		struct trip *trip = trip_new();
		uint8_t manifest[DIGEST_BYTES];
		uint32_t blobs;

		cr_assert_eq(trip_push(trip, "rl/task:1", is_packed), 0, "%s", trip->transfer.why);
		blobs = blobs_count(&trip->layout);
		cr_assert_eq(trip_push(trip, "rl/task:1", is_packed), 0);
		cr_assert_eq(blobs_count(&trip->layout), blobs, "nothing is there twice");
		cr_assert_eq(trip_pull(trip, "rl/task:1", manifest), 0, "%s: %s",
			     trip->transfer.step, trip->transfer.why);
		trip_check(trip, manifest);
		cr_assert_eq(blobs_count(&trip->other), blobs_count(&trip->store));
		trip_free(trip);
	}
}

Test(transfer, tags_stand_beside_each_other_and_are_replaced_alone)
{
	struct trip *trip = trip_new();
	uint8_t manifest[DIGEST_BYTES];

	cr_assert_eq(trip_push(trip, "one", false), 0);
	cr_assert_eq(trip_pull(trip, "", manifest), 0, "the only one needs no tag");
	cr_assert_eq(trip_push(trip, "two", true), 0);
	cr_assert_eq(trip_push(trip, "one", false), 0);
	cr_assert_eq(trip_pull(trip, "one", manifest), 0);
	cr_assert_eq(trip_pull(trip, "two", manifest), 0);
	cr_assert_eq(trip_pull(trip, "three", manifest), -ENOENT);
	cr_assert_str_eq(trip->transfer.why, "index.json: no manifest of this tag");
	cr_assert_eq(trip_pull(trip, "", manifest), -EINVAL);
	cr_assert_str_eq(trip->transfer.why, "several images: name one by its tag");
	trip_free(trip);
}

Test(transfer, what_the_store_has_is_not_read_again)
{
	struct trip *trip = trip_new();
	uint8_t manifest[DIGEST_BYTES];

	cr_assert_eq(trip_push(trip, "one", true), 0);
	cr_assert_eq(trip_pull(trip, "one", manifest), 0);
	cr_assert_gt(trip->transfer.new_bytes, LARGE_BYTES);
	cr_assert_eq(trip->transfer.shared_bytes, 0);
	cr_assert_eq(trip_pull(trip, "one", manifest), 0);
	cr_assert_eq(trip->transfer.new_bytes, 0);
	cr_assert_gt(trip->transfer.shared_bytes, LARGE_BYTES);
	trip_free(trip);
}

Test(transfer, lazy_pull_has_all_but_segments)
{
	struct trip *trip = trip_new();
	uint8_t manifest[DIGEST_BYTES];
	struct store_manifest parsed;

	cr_assert_eq(trip_push(trip, "one", false), 0);
	trip->transfer.is_lazy = true;
	cr_assert_eq(trip_pull(trip, "one", manifest), 0);
	cr_assert_eq(memcmp(manifest, trip->sealed.manifest, DIGEST_BYTES), 0);
	cr_assert_eq(store_manifest_load(&trip->other.store, manifest, &parsed), 0);
	for (uint32_t i = 0; i < parsed.segment_count; i++) {
		int fd;

		cr_assert_eq(store_blob_open(&trip->other.store, parsed.segments[i].digest, &fd),
			     -ENOENT);
		cr_assert_eq(store_blob_open(&trip->other.store, parsed.segments[i].chunks, &fd),
			     0);
		(void)close(fd);
	}
	store_manifest_done(&parsed);
	trip_free(trip);
}

/* ---- layouts that lie ---- */

Test(transfer, index_that_lies_is_refused_by_what_it_says_and_nothing_is_left)
{
	static const struct {
		const char *text;
		int error;
		const char *step;
	} rows[] = {
		{ "", -EBADMSG, "index" },
		{ "{\"manifests\":{}}", -EBADMSG, "index" },
		{ "{\"manifests\":[1]}", -EBADMSG, "index" },
		{ "{\"manifests\":[]}", -ENOENT, "index" },
		{ "{\"manifests\":[{\"mediaType\":\"application/vnd.oci.image.index.v1+json\","
		  "\"digest\":\"sha256:"
		  "00000000000000000000000000000000000000000000000000000000000000aa\","
		  "\"size\":3}]}",
		  -EBADMSG, "index" }, /* of an index: there are no cycles to follow */
		{ "{\"manifests\":[{\"mediaType\":\"" STORE_MANIFEST_TYPE "\","
		  "\"digest\":\"sha256:../../../../../../../../etc/passwd\",\"size\":3}]}",
		  -EBADMSG, "index" },
		{ "{\"manifests\":[{\"mediaType\":\"" STORE_MANIFEST_TYPE "\","
		  "\"digest\":\"sha256:"
		  "00000000000000000000000000000000000000000000000000000000000000aa\","
		  "\"size\":2000000}]}",
		  -EBADMSG, "index" },
		{ "{\"manifests\":[{\"mediaType\":\"" STORE_MANIFEST_TYPE "\","
		  "\"digest\":\"sha256:"
		  "00000000000000000000000000000000000000000000000000000000000000aa\","
		  "\"size\":3}]}",
		  -ENOENT, "manifest" },
	};
	struct trip *trip = trip_new();
	uint8_t manifest[DIGEST_BYTES];
	auto_free char *large = calloc(1, LAYOUT_INDEX_BYTES_MAX + 1);

	cr_assert_eq(trip_pull(trip, "", manifest), -ENOENT);
	cr_assert_str_eq(trip->transfer.why, "no index.json: no image layout");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		layout_index_write(trip, rows[i].text, strlen(rows[i].text));
		cr_expect_eq(trip_pull(trip, "", manifest), rows[i].error, "row %zu", i);
		cr_expect_str_eq(trip->transfer.step, rows[i].step);
		cr_expect(trip->transfer.why);
	}
	layout_index_write(trip, large, LAYOUT_INDEX_BYTES_MAX + 1);
	cr_assert_eq(trip_pull(trip, "", manifest), -EFBIG);
	cr_assert_eq(unlinkat(trip->layout.fd, "index.json", 0), 0);
	cr_assert_eq(symlinkat("/etc/passwd", trip->layout.fd, "index.json"), 0);
	cr_assert_eq(trip_pull(trip, "", manifest), -ELOOP);
	cr_assert_eq(trip_push(trip, "one", false), -ELOOP);
	cr_assert_eq(blobs_count(&trip->other), 0);
	trip_free(trip);
}

static int blob_at(const struct trip *trip, const struct store_blob *blob, int flags)
{
	char name[16 + DIGEST_HEX_BYTES] = "blobs/sha256/";

	digest_hex(blob->digest, name + strlen(name));
	if (!flags)
		return unlinkat(trip->layout.fd, name, 0);
	return openat(trip->layout.fd, name, flags | O_CLOEXEC, 0644);
}

/* Each blob of a layout in turn is missing, shorter, longer, or of other bytes. */
Test(transfer, blob_that_is_not_what_was_promised_is_named_and_nothing_is_left)
{
	for (unsigned is_packed = 0; is_packed < 2; is_packed++) {
		struct trip *trip = trip_new();
		auto_free void *text = NULL;
		uint8_t manifest[DIGEST_BYTES];
		struct store_manifest of;
		struct store_blob blobs[4] = { 0 };

		cr_assert_eq(trip_push(trip, "one", is_packed), 0);
		cr_assert_eq(store_manifest_load(&trip->store.store, trip->sealed.manifest, &of),
			     0);
		blobs[0] = of.config;
		blobs[1] = of.tree;
		memcpy(blobs[2].digest, of.segments[0].chunks, DIGEST_BYTES);
		blobs[2].bytes = segment_table_bytes(of.segments[0].bytes);
		memcpy(blobs[3].digest, of.segments[0].digest, DIGEST_BYTES);
		blobs[3].bytes = of.segments[0].bytes;
		for (unsigned i = 0; i < 4 - is_packed; i++) {
			size_t bytes;
			int fd;

			cr_assert_eq(store_blob_read(&trip->store.store, blobs[i].digest, 1 << 28,
						     &text, &bytes),
				     0);
			cr_assert_eq(blob_at(trip, &blobs[i], 0), 0);
			cr_expect_eq(trip_pull(trip, "", manifest), -ENOENT, "%u", i);
			cr_expect(strstr(trip->transfer.what, "sha256:"));
			fd = blob_at(trip, &blobs[i], O_RDWR | O_CREAT);
			cr_assert_eq(file_write(fd, text, bytes, 1), 0); /* longer, of others */
			cr_expect_eq(trip_pull(trip, "", manifest), -EBADMSG, "%u", i);
			cr_assert_eq(ftruncate(fd, (off_t)bytes), 0); /* of other bytes */
			cr_expect_eq(trip_pull(trip, "", manifest), -EBADMSG, "%u", i);
			cr_expect(trip->transfer.why);
			cr_assert_eq(ftruncate(fd, (off_t)bytes - 1), 0); /* shorter */
			cr_expect_eq(trip_pull(trip, "", manifest), -EBADMSG, "%u", i);
			cr_expect_eq(blobs_count(&trip->other), 0, "%u", i);
			cr_assert_eq(ftruncate(fd, (off_t)bytes), 0);
			cr_assert_eq(file_write(fd, text, bytes, 0), 0);
			(void)close(fd);
			free(take_ptr(text));
		}
		cr_assert_eq(trip_pull(trip, "", manifest), 0, "all is as it was");
		trip_check(trip, manifest);
		store_manifest_done(&of);
		trip_free(trip);
	}
}

/* A layout whose only segment is packed as these bytes are. */
static int packed_pull(struct trip *trip, const void *packed, size_t count)
{
	struct store_manifest of;
	struct store_blob blob = { .bytes = count };
	auto_free char *text = NULL, *index = NULL;
	struct store *layout = &trip->layout.store;
	struct layout_entry entry = { .tag = "one", .artifact = STORE_ARTIFACT };
	uint8_t pulled[DIGEST_BYTES];
	size_t bytes;
	int r;

	cr_assert_eq(store_manifest_load(&trip->store.store, trip->sealed.manifest, &of), 0);
	cr_assert_eq(store_blob_write(layout, packed, count, blob.digest), 0);
	of.packed = calloc(of.segment_count, sizeof *of.packed);
	for (uint32_t i = 0; i < of.segment_count; i++)
		of.packed[i] = blob;
	cr_assert_eq(store_manifest_text(&of, &text, &bytes), 0);
	entry.manifest.bytes = bytes;
	cr_assert_eq(store_blob_write(layout, text, bytes, entry.manifest.digest), 0);
	cr_assert_eq(layout_index_put(NULL, 0, &entry, &index), 0);
	layout_index_write(trip, index, strlen(index));
	r = trip_pull(trip, "one", pulled);
	store_manifest_done(&of);
	return r;
}

Test(transfer, zstd_that_unpacks_to_more_or_is_damaged_is_refused)
{
	struct trip *trip = trip_new();
	const size_t bomb_bytes = 64 << 20;
	auto_free char *zeros = calloc(1, bomb_bytes);
	auto_free char *packed = malloc(ZSTD_compressBound(bomb_bytes));
	size_t count;

	cr_assert(zeros && packed);
	cr_assert_eq(trip_push(trip, "one", false), 0);
	count = ZSTD_compress(packed, ZSTD_compressBound(bomb_bytes), zeros, bomb_bytes, 1);
	cr_assert_lt(count, 100000);
	cr_expect_eq(packed_pull(trip, packed, count), -EBADMSG);
	cr_expect(strstr(trip->transfer.why, "chunk"), "%s", trip->transfer.why);
	cr_expect_eq(packed_pull(trip, packed, count / 2), -EBADMSG);
	cr_expect_eq(packed_pull(trip, "no zstd", 7), -EBADMSG);
	cr_expect(strstr(trip->transfer.why, "zstd"), "%s", trip->transfer.why);
	cr_expect_eq(packed_pull(trip, "", 0), -EBADMSG);
	cr_assert_eq(blobs_count(&trip->other), 0);
	trip_free(trip);
}

Test(transfer, contents_over_the_limit_are_refused)
{
	struct trip *trip = trip_new();
	uint8_t manifest[DIGEST_BYTES];

	cr_assert_eq(trip_push(trip, "one", false), 0);
	trip->transfer = (struct transfer){
		.store = &trip->other.store,
		.layout_fd = trip->layout.fd,
		.tag = "one",
		.bytes_max = LARGE_BYTES,
	};
	cr_assert_eq(one_pull(&trip->transfer, manifest), -EFBIG);
	cr_assert(strstr(trip->transfer.why, "--image-max"));
	cr_assert_eq(blobs_count(&trip->other), 0);
	trip_free(trip);
}

Test(transfer, address_is_a_directory_and_a_tag)
{
	char path[LAYOUT_PATH_BYTES], tag[LAYOUT_TAG_BYTES];
	static const char *const wrong[] = { "/srv/images",  "oci:srv",
					     "oci:",	     "oci:/srv:",
					     "oci:/srv:a b", "docker://images.example/a" };
	const char *why;

	cr_assert_eq(layout_address_parse("oci:/srv/images:rl/task:1", path, tag, &why), 0);
	cr_assert_str_eq(path, "/srv/images");
	cr_assert_str_eq(tag, "rl/task:1");
	cr_assert_eq(layout_address_parse("oci:/srv", path, tag, &why), 0);
	cr_assert_str_eq(tag, "");
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
		cr_expect_eq(layout_address_parse(wrong[i], path, tag, &why), -EINVAL, "%s",
			     wrong[i]);
}

/* ---- programs ---- */

static int program_run(char *const argv[])
{
	extern char **environ;
	int status;
	pid_t pid;

	if (posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) != 0)
		return -ENOENT;
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -EIO;
}

static void transport_copy(struct trip *trip, bool is_packed)
{
	char from[160], to[160], copied[64] = "/var/tmp/dsec-copied.XXXXXX";
	char *argv[] = { (char[]){ "skopeo" },
			 (char[]){ "--insecure-policy" },
			 (char[]){ "copy" },
			 (char[]){ "--quiet" },
			 from,
			 to,
			 NULL };
	uint8_t manifest[DIGEST_BYTES];
	int fd, r;

	cr_assert(mkdtemp(copied));
	cr_assert_eq(trip_push(trip, "one", is_packed), 0);
	(void)snprintf(from, sizeof from, "oci:%s:one", trip->layout.path);
	(void)snprintf(to, sizeof to, "oci:%s:two", copied);
	r = program_run(argv);
	fd = open(copied, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	trip->transfer = (struct transfer){
		.store = &trip->other.store,
		.layout_fd = fd,
		.tag = "two",
		.bytes_max = 1ull << 40,
	};
	if (r == 0)
		r = one_pull(&trip->transfer, manifest);
	folder_empty(fd);
	(void)rmdir(copied);
	if (r == -ENOENT && !trip->transfer.step) {
		trip_free(trip);
		cr_skip_test("no skopeo here: see tests/setup.sh");
	}
	cr_assert_eq(r, 0, "%d %s: %s", r, trip->transfer.step, trip->transfer.why);
	trip_check(trip, manifest);
	trip_free(trip);
}

Test(transfer, copy_that_skopeo_made_gives_the_same_digest)
{
	transport_copy(trip_new(), false);
}

Test(transfer, packed_copy_that_skopeo_made_gives_the_same_digest)
{
	transport_copy(trip_new(), true);
}

/* As the engine starts it: status, scratch, images. */
static int store_run(const struct place_of *images, int scratch_fd, char *const argv[])
{
	int ends[2], status;
	char frames[65536];
	pid_t pid;

	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		const int its[] = { -1, fcntl(ends[1], F_DUPFD, 64), -1,
				    fcntl(scratch_fd, F_DUPFD, 64),
				    fcntl(images->fd, F_DUPFD, 64) };

		for (int to = 0; to < 5; to++)
			if (its[to] >= 0)
				(void)dup2(its[to], to);
		(void)execv(getenv("DSEC_STORE"), argv);
		_exit(127);
	}
	(void)close(ends[1]);
	while (read(ends[0], frames, sizeof frames) > 0)
		;
	(void)close(ends[0]);
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(transfer, program_pushes_an_image_and_pulls_it_confined)
{
	struct trip *trip = trip_new();
	struct place_of scratch = { 0 };
	char address[160];
	char name[] = "base", zero[] = "0", flags[] = "4", most[] = "1000000000";
	char program[] = "dsec-store", push[] = "push", pull[] = "pull";
	char *pushing[] = { program, push, most, zero, flags, name, address, NULL };
	char *pulling[] = { program, pull, most, zero, zero, name, address, NULL };
	struct image_record *record = calloc(1, sizeof *record);

	store_new(&scratch);
	image_make(&trip->store, &trip->sealed.manifest, 1, "base.erofs");
	(void)snprintf(address, sizeof address, "oci:%s/new", trip->layout.path);
	cr_assert_eq(store_run(&trip->store, scratch.fd, pushing), 0);
	cr_assert_eq(unlinkat(scratch.fd, "report.json", 0), 0);
	cr_assert_eq(store_run(&trip->other, scratch.fd, pulling), 0);
	auto_close int fd = openat(scratch.fd, IMPORT_RESULT, O_RDONLY | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	cr_assert_eq(image_record_read(fd, record), 0);
	cr_assert_eq(record->manifest_count, 1);
	trip_check(trip, record->manifests[0]);
	free(record);
	store_gone(&scratch);
	trip_free(trip);
}
