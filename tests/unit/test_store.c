/* The store: blobs, segments, the index, sealing; what is shared, what is left when it fails. */
#include "backends/store/store.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "backends/store/batch.h"
#include "backends/store/digest_set.h"
#include "backends/store/index.h"
#include "backends/store/manifest.h"
#include "backends/store/segment.h"
#include "engine/base/cleanup.h"
#include "tests/unit/store_place.h"

/* ---- blobs ---- */

Test(store, blob_is_read_as_it_was_written_or_not_at_all)
{
	uint8_t digest[DIGEST_BYTES], other[DIGEST_BYTES] = { 1 };
	char name[16 + DIGEST_HEX_BYTES] = "blobs/sha256/";
	auto_free void *bytes = NULL;
	struct place_of at = { 0 };
	size_t count;
	int fd;

	store_new(&at);
	cr_assert_eq(store_blob_write(&at.store, "some bytes", 10, digest), 0);
	cr_assert_eq(store_blob_write(&at.store, "some bytes", 10, digest), 0);
	cr_assert_eq(blobs_count(&at), 1);
	cr_assert_eq(store_blob_read(&at.store, digest, 10, &bytes, &count), 0);
	cr_assert_eq(count, 10);
	cr_assert_eq(memcmp(bytes, "some bytes", 11), 0);
	cr_assert_eq(store_blob_read(&at.store, digest, 9, &bytes, &count), -EFBIG);
	cr_assert_eq(store_blob_read(&at.store, other, 9, &bytes, &count), -ENOENT);
	digest_hex(digest, name + strlen(name));
	fd = openat(at.fd, name, O_WRONLY);
	cr_assert_eq(pwrite(fd, "S", 1, 0), 1);
	(void)close(fd);
	free(take_ptr(bytes));
	cr_assert_eq(store_blob_read(&at.store, digest, 10, &bytes, &count), -EBADMSG);
	store_gone(&at);
}

Test(store, batch_that_is_not_committed_leaves_nothing)
{
	uint8_t digest[DIGEST_BYTES];
	struct batch *batch;
	struct place_of at = { 0 };

	store_new(&at);
	cr_assert_eq(batch_new(at.store.blobs_fd, &batch), 0);
	cr_assert_eq(batch_write(batch, "one", 3, digest), 0);
	cr_assert_eq(batch_write(batch, "two", 3, digest), 0);
	cr_assert_eq(blobs_count(&at), 0);
	batch_free(batch);
	cr_assert_eq(blobs_count(&at), 0);
	store_gone(&at);
}

Test(store, blob_of_the_wrong_size_gives_way_to_a_right_one)
{
	uint8_t digest[DIGEST_BYTES];
	char name[16 + DIGEST_HEX_BYTES] = "blobs/sha256/";
	auto_free void *bytes = NULL;
	struct place_of at = { 0 };
	size_t count;

	store_new(&at);
	cr_assert_eq(store_blob_write(&at.store, "some bytes", 10, digest), 0);
	digest_hex(digest, name + strlen(name));
	auto_close int fd = openat(at.fd, name, O_WRONLY);
	cr_assert_eq(ftruncate(fd, 3), 0);
	cr_assert_eq(store_blob_write(&at.store, "some bytes", 10, digest), 0);
	cr_assert_eq(store_blob_read(&at.store, digest, 10, &bytes, &count), 0);
	store_gone(&at);
}

Test(store, lock_alone_is_refused_while_others_work)
{
	struct place_of at = { 0 };
	struct store other;

	store_new(&at);
	cr_assert_eq(store_open(at.fd, &other), 0);
	cr_assert_eq(store_lock_alone(&other), -EBUSY);
	store_close(&other);
	cr_assert_eq(store_lock_alone(&at.store), 0);
	store_gone(&at);
}

/* ---- sealing ---- */

Test(store, what_is_sealed_is_given_back)
{
	struct place_of at = { 0 };
	struct sealed sealed;
	struct raw raw;
	uint32_t sparse;

	store_new(&at);
	forty(&raw, 40);
	(void)raw_file(&raw, "empty", 0, 0);
	(void)raw_file(&raw, "again", 7, 100 + 7 * 3000);
	cr_assert_eq(tree_link(raw.tree, 0, "linked", tree_find(raw.tree, 0, "f05", 3), &sparse),
		     0);
	/* In two pieces of the raw contents, which is none of the tree's business. */
	sparse = raw_file(&raw, "pieces", 50, 8192);
	raw.block++;
	raw_extend(&raw, sparse, 51, 5000, 2);
	cr_assert_eq(raw_seal(&at, &raw, &sealed), 0);
	cr_assert_eq(sealed.shared_bytes, 100 + 7 * 3000, "twice in one tree is stored once");
	cr_assert_eq(sealed.new_bytes + sealed.shared_bytes, sealed.content_bytes);
	sealed_check(&at, &sealed);
	raw_free(&raw);
	store_gone(&at);
}

Test(store, holes_stay_holes_and_are_found_again)
{
	struct sealed sealed, again;
	struct place_of at = { 0 };
	struct raw raw;
	uint32_t sparse;

	store_new(&at);
	for (unsigned i = 0; i < 2; i++) {
		raw_new(&raw);
		if (i)
			(void)raw_file(&raw, "before", 3, 20000);
		sparse = raw_file(&raw, "sparse", 50, 8192);
		raw_extend(&raw, sparse, 51, 5000, 1000);
		raw_extend(&raw, sparse, 52, 5, 4000000);
		cr_assert_eq(raw_seal(&at, &raw, i ? &again : &sealed), 0);
		cr_assert_eq(raw.tree->nodes[sparse].extents, 3);
		raw_free(&raw);
	}
	cr_assert_eq(sealed.new_bytes, 8192 + 8192 + 5);
	cr_assert_eq(again.shared_bytes, sealed.new_bytes);
	cr_assert_eq(again.new_bytes, 20000);
	store_gone(&at);
}

Test(store, the_same_tree_is_the_same_manifest_in_one_store_and_in_two)
{
	struct place_of at[2] = { 0 };
	struct sealed sealed[3];
	struct raw raw;

	for (unsigned i = 0; i < 2; i++)
		store_new(&at[i]);
	for (unsigned i = 0; i < 3; i++) {
		forty(&raw, 40);
		cr_assert_eq(raw_seal(&at[i / 2], &raw, &sealed[i]), 0);
		cr_assert_eq(memcmp(sealed[i].manifest, sealed[0].manifest, DIGEST_BYTES), 0);
		cr_assert_eq(i == 1 ? sealed[i].new_bytes : sealed[i].shared_bytes, 0);
		raw_free(&raw);
	}
	cr_assert_eq(blobs_count(&at[0]), blobs_count(&at[1]));
	for (unsigned i = 0; i < 2; i++)
		store_gone(&at[i]);
}

Test(store, similar_trees_share_what_they_share)
{
	struct sealed one, two;
	struct place_of at = { 0 };
	struct raw raw;

	store_new(&at);
	forty(&raw, 40);
	cr_assert_eq(raw_seal(&at, &raw, &one), 0);
	raw_free(&raw);
	forty(&raw, 30);
	cr_assert_eq(raw_seal(&at, &raw, &two), 0);
	cr_assert_eq(two.shared_bytes, 30 * 100 + 3000 * (29 * 30 / 2));
	cr_assert_eq(raw.tree->segment_count, 2);
	sealed_check(&at, &one);
	sealed_check(&at, &two);
	raw_free(&raw);
	store_gone(&at);
}

Test(store, a_segment_of_which_little_is_used_is_not_used)
{
	struct sealed sealed;
	struct place_of at = { 0 };
	struct raw raw;

	store_new(&at);
	raw_new(&raw);
	(void)raw_file(&raw, "large", 1, 1 << 20);
	(void)raw_file(&raw, "little", 2, 100);
	cr_assert_eq(raw_seal(&at, &raw, &sealed), 0);
	raw_free(&raw);
	raw_new(&raw);
	(void)raw_file(&raw, "little", 2, 100);
	cr_assert_eq(raw_seal(&at, &raw, &sealed), 0);
	cr_assert_eq(sealed.shared_bytes, 0);
	raw_free(&raw);
	store_gone(&at);
}

enum {
	FORTY_BYTES = 40 * 100 + 3000 * (39 * 40 / 2),
	OF_THEM_BYTES = 29 * 100 + 3000 * (28 * 29 / 2), /* the first 29 */
};

Test(store, what_is_sealed_alone_brings_no_byte_of_others)
{
	struct digest_set beside = { 0 };
	struct place_of at = { 0 };
	struct sealed sealed;
	struct raw raw;
	uint32_t number;

	store_new(&at);
	forty(&raw, 40);
	cr_assert_eq(raw_seal(&at, &raw, &sealed), 0);
	cr_assert_eq(raw.tree->segment_count, 1);
	cr_assert_geq(digest_set_add(&beside, raw.tree->segments[0].digest, &number), 0);
	raw_free(&raw);
	forty(&raw, 30);
	cr_assert_eq(raw_seal_as(&at, &raw, (struct seal){ .is_alone = true }, &sealed), 0);
	cr_expect_eq(sealed.shared_bytes, 0, "ten files of that segment are not in it");
	raw_free(&raw);
	forty(&raw, 40);
	(void)raw_file(&raw, "more", 77, 5000);
	cr_assert_eq(raw_seal_as(&at, &raw, (struct seal){ .is_alone = true }, &sealed), 0);
	cr_expect_eq(sealed.shared_bytes, FORTY_BYTES, "all of that segment is in it");
	sealed_check(&at, &sealed);
	raw_free(&raw);
	forty(&raw, 29);
	cr_assert_eq(raw_seal_as(&at, &raw, (struct seal){ .is_alone = true, .beside = &beside },
				 &sealed),
		     0);
	cr_expect_eq(sealed.shared_bytes, OF_THEM_BYTES, "that is published, too");
	raw_free(&raw);
	digest_set_done(&beside);
	store_gone(&at);
}

/* Its first block is all that is ever asked for: of three bytes, or of four, the last of them 0. */
static void one_of_two(struct place_of *at, struct raw *raw, struct tree_segment *ret)
{
	struct sealed sealed;
	uint32_t node;

	raw_new(raw);
	node = raw_file(raw, "asked", 99, 3);
	(void)raw_file(raw, "other", 5, 4096);
	cr_assert_eq(raw_seal(at, raw, &sealed), 0);
	cr_assert_eq(raw->tree->extents[raw->tree->nodes[node].extent].block, 0);
	*ret = raw->tree->segments[0];
	raw_free(raw);
}

Test(store, an_index_that_lies_brings_no_byte_of_others)
{
	static const uint8_t four[] = { 253, 254, 255, 0 }; /* as 99 makes them */
	struct place place = { .blocks = 1 };
	struct place_of at = { 0 };
	struct sealed sealed;
	struct index index;
	struct raw raw;

	store_new(&at);
	one_of_two(&at, &raw, &place.segment);
	digest_of(four, sizeof four, place.file);
	cr_assert_eq(index_open(at.fd, &index), 0);
	cr_assert_geq(index_add(&index, &place, 1), 0);
	index_close(&index);
	raw_new(&raw);
	(void)raw_file(&raw, "three", 99, 3);
	(void)raw_file(&raw, "four", 99, 4);
	cr_assert_eq(raw_seal_as(&at, &raw, (struct seal){ .is_alone = true }, &sealed), 0);
	cr_expect_eq(sealed.shared_bytes, 0, "two files in one block are no two blocks");
	raw_free(&raw);
	store_gone(&at);
}

Test(store, what_fills_up_a_block_is_compared_where_all_of_it_is_published)
{
	char name[16 + DIGEST_HEX_BYTES] = "blobs/sha256/";
	struct place_of at = { 0 };
	struct tree_segment segment;
	struct sealed sealed;
	struct raw raw;

	store_new(&at);
	one_of_two(&at, &raw, &segment);
	digest_hex(segment.digest, name + strlen(name));
	auto_close int fd = openat(at.fd, name, O_WRONLY);
	cr_assert_eq(pwrite(fd, "secret", 6, 100), 6);
	raw_new(&raw);
	(void)raw_file(&raw, "asked", 99, 3);
	(void)raw_file(&raw, "other", 5, 4096);
	cr_assert_eq(raw_seal_as(&at, &raw, (struct seal){ .is_alone = true }, &sealed), 0);
	cr_expect_eq(sealed.shared_bytes, 0);
	raw_free(&raw);
	store_gone(&at);
}

/* The index says where; the bytes there decide. */
Test(store, a_damaged_segment_is_not_shared)
{
	struct sealed one, two;
	struct place_of at = { 0 };
	struct raw raw;
	char name[16 + DIGEST_HEX_BYTES] = "blobs/sha256/";

	store_new(&at);
	forty(&raw, 40);
	cr_assert_eq(raw_seal(&at, &raw, &one), 0);
	digest_hex(raw.tree->segments[0].digest, name + strlen(name));
	raw_free(&raw);
	auto_close int segment = openat(at.fd, name, O_WRONLY);
	cr_assert_eq(pwrite(segment, "damaged", 7, 0), 7);
	forty(&raw, 41);
	cr_assert_eq(raw_seal(&at, &raw, &two), 0);
	cr_assert_eq(two.new_bytes, 100, "the file that the damage is in");
	sealed_check(&at, &two);
	raw_free(&raw);
	store_gone(&at);
}

Test(store, a_lost_index_costs_room_only)
{
	struct sealed one, two;
	struct place_of at = { 0 };
	struct raw raw;

	store_new(&at);
	forty(&raw, 40);
	cr_assert_eq(raw_seal(&at, &raw, &one), 0);
	raw_free(&raw);
	cr_assert_eq(unlinkat(at.fd, INDEX_NAME, 0), 0);
	forty(&raw, 40);
	cr_assert_eq(raw_seal(&at, &raw, &two), 0);
	cr_assert_eq(two.shared_bytes, 0);
	cr_assert_eq(memcmp(one.manifest, two.manifest, DIGEST_BYTES), 0);
	raw_free(&raw);
	store_gone(&at);
}

static int stop_at(void *owner, uint64_t files, uint64_t bytes)
{
	uint64_t *left = owner;

	(void)files;
	(void)bytes;
	return --*left ? 0 : -ECANCELED;
}

Test(store, a_seal_that_ends_anywhere_leaves_nothing)
{
	auto_free struct image_record *record = record_new();
	struct place_of at = { 0 };
	uint64_t steps = 1;
	int r = -ECANCELED;

	store_new(&at);
	for (; r == -ECANCELED; steps += 13) {
		uint64_t left = steps;
		struct sealed sealed;
		struct raw raw;

		forty(&raw, 40);
		struct seal seal = { .tree = raw.tree,
				     .raw_fd = raw.fd,
				     .record = record,
				     .progress = stop_at,
				     .owner = &left };
		r = store_seal(&at.store, &seal, &sealed);
		cr_assert_eq(blobs_count(&at) == 0, r == -ECANCELED);
		raw_free(&raw);
	}
	cr_assert_eq(r, 0);
	cr_assert_gt(steps, 50);
	store_gone(&at);
}

Test(store, raw_contents_that_end_early_are_refused)
{
	struct sealed sealed;
	struct place_of at = { 0 };
	struct raw raw;

	store_new(&at);
	forty(&raw, 40);
	cr_assert_eq(ftruncate(raw.fd, 100000), 0);
	cr_assert_eq(raw_seal(&at, &raw, &sealed), -EBADMSG);
	cr_assert_eq(blobs_count(&at), 0);
	raw_free(&raw);
	store_gone(&at);
}

/* ---- segments ---- */

Test(segment, large_files_have_their_own_and_small_ones_share)
{
	auto_free struct tree_segment *segments = NULL;
	struct segment_writer *writer;
	struct tree_extent extent;
	struct batch *batch;
	struct place_of at = { 0 };
	uint32_t count;
	int raw = memfd_create("raw", MFD_CLOEXEC);
	const uint64_t large = SEGMENT_BYTES + 1, rest = 3 * TREE_BLOCK_BYTES;

	store_new(&at);
	cr_assert_eq(ftruncate(raw, 2 * (off_t)SEGMENT_BYTES), 0);
	cr_assert_eq(batch_new(at.store.blobs_fd, &batch), 0);
	cr_assert_eq(segment_writer_new(batch, 1, &writer), 0);
	struct segment_source one = { raw, 0, 5, 5 };
	cr_assert_eq(segment_add(writer, &one, &extent), 0);
	cr_assert_eq(extent.segment, 0);
	struct segment_source part = { raw, 0, large - rest, large };
	cr_assert_eq(segment_add(writer, &part, &extent), 0);
	cr_assert_eq(extent.segment, 1);
	cr_assert_eq(extent.block, 0);
	part.bytes = rest;
	part.together = rest + TREE_BLOCK_BYTES;
	cr_assert_eq(segment_add(writer, &part, &extent), -EINVAL, "more than was promised");
	part.together = rest;
	cr_assert_eq(segment_add(writer, &part, &extent), 0);
	cr_assert_eq(extent.segment, 1);
	cr_assert_eq(extent.block, SEGMENT_BYTES / 4096 + 1 - 3);
	cr_assert_eq(segment_add(writer, &one, &extent), 0);
	cr_assert_eq(extent.segment, 0);
	cr_assert_eq(extent.block, 1);
	cr_assert_eq(segment_writer_end(writer, &segments, &count), 0);
	cr_assert_eq(count, 2);
	cr_assert_eq(segments[0].bytes, 2 * TREE_BLOCK_BYTES);
	cr_assert_eq(segments[1].bytes, SEGMENT_BYTES + TREE_BLOCK_BYTES);
	segment_writer_free(writer);
	batch_free(batch);
	(void)close(raw);
	store_gone(&at);
}

/* ---- the index ---- */

static struct place place_of_number(uint32_t number)
{
	struct place place = { .block = number, .blocks = 1 };

	digest_of(&number, sizeof number, place.file);
	place.segment.bytes = TREE_BLOCK_BYTES;
	place.segment.digest[0] = (uint8_t)(number % 2);
	return place;
}

Test(index, finds_what_was_added_while_it_grows_and_is_pruned)
{
	enum { COUNT = 40000 };
	auto_free struct place *places = calloc(COUNT, sizeof *places);
	struct digest_set kept = { 0 };
	uint8_t digest[DIGEST_BYTES] = { 0 };
	struct index index;
	struct place_of at = { 0 };
	struct place found;
	uint32_t number;

	store_new(&at);
	cr_assert_eq(index_open(at.fd, &index), 0);
	for (uint32_t i = 0; i < COUNT; i++)
		places[i] = place_of_number(i);
	cr_assert_eq(index_find(&index, places[0].file, &found), -ENOENT);
	cr_assert_eq(index_add(&index, places, COUNT / 2), 0);
	cr_assert_eq(index_add(&index, places + COUNT / 2, COUNT / 2), 0);
	for (uint32_t i = 0; i < COUNT; i++) {
		cr_assert_eq(index_find(&index, places[i].file, &found), 0);
		cr_assert_eq(memcmp(&found, &places[i], sizeof found), 0);
	}
	cr_assert_eq(digest_set_add(&kept, digest, &number), 1);
	cr_assert_eq(index_prune(&index, &kept), 0);
	for (uint32_t i = 0; i < COUNT; i++)
		cr_assert_eq(index_find(&index, places[i].file, &found) < 0, i % 2 == 1);
	digest_set_done(&kept);
	index_close(&index);
	store_gone(&at);
}

Test(index, damage_is_nothing_found)
{
	struct place places[200], found;
	struct index index;
	struct place_of at = { 0 };
	uint32_t lost = 0;

	store_new(&at);
	cr_assert_eq(index_open(at.fd, &index), 0);
	for (uint32_t i = 0; i < 200; i++)
		places[i] = place_of_number(i);
	cr_assert_eq(index_add(&index, places, 200), 0);
	for (uint64_t block = 0; block < index.buckets; block++)
		cr_assert_eq(pwrite(index.fd, "torn", 4, (off_t)(block * 4096 + 56 + 60)), 4);
	for (uint32_t i = 0; i < 200; i++)
		if (index_find(&index, places[i].file, &found) < 0)
			lost++;
		else
			cr_assert_eq(memcmp(&found, &places[i], sizeof found), 0);
	cr_assert_gt(lost, 0);
	index_close(&index);
	store_gone(&at);
}

/* ---- manifests ---- */

Test(manifest, every_cut_and_every_flipped_bit_is_refused_or_the_same_kind)
{
	struct store_manifest manifest = { 0 }, read;
	struct tree_segment segments[3];
	auto_free char *text = NULL;
	const char *why = NULL;
	size_t bytes;

	memset(segments, 0x5a, sizeof segments);
	for (unsigned i = 0; i < 3; i++)
		segments[i].bytes = 4096 * (i + 1);
	(void)snprintf(manifest.source, sizeof manifest.source, "oci");
	manifest.layers = 7;
	manifest.segments = segments;
	manifest.segment_count = 3;
	cr_assert_eq(store_manifest_text(&manifest, &text, &bytes), 0);
	cr_assert_eq(store_manifest_parse(text, bytes, &read, &why), 0);
	cr_assert_eq(read.layers, 7);
	cr_assert_eq(read.segment_count, 3);
	cr_assert_eq(memcmp(read.segments, segments, sizeof segments), 0);
	store_manifest_done(&read);
	for (size_t cut = 0; cut < bytes; cut++)
		cr_assert_eq(store_manifest_parse(text, cut, &read, &why), -EBADMSG);
	for (size_t bit = 0; bit < bytes * 8; bit++) {
		text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
		if (store_manifest_parse(text, bytes, &read, &why) >= 0) {
			cr_assert_leq(read.segment_count, 3);
			store_manifest_done(&read);
		}
		text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
	}
}

Test(manifest, config_keeps_what_a_record_says)
{
	auto_free struct image_record *record = record_new(), *read = calloc(1, sizeof *read);
	struct store_manifest manifest = { 0 };
	auto_free char *text = NULL;
	size_t bytes;

	cr_assert_eq(store_config_text(record, &manifest, &text, &bytes), 0);
	cr_assert_eq(store_config_parse(text, bytes, read), 0);
	cr_assert_str_eq(read->user, "builder");
	cr_assert_str_eq(read->cwd, "/srv");
	cr_assert_eq(read->string_bytes, record->string_bytes);
	cr_assert_eq(memcmp(read->strings, record->strings, read->string_bytes), 0);
	cr_assert_eq(read->env_count + read->entrypoint_count + read->cmd_count, 3);
}
