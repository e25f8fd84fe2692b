/* Images of several on their way: what is the same, what is refused. */
#include "backends/store/composition.h"

#include <errno.h>
#include <stdio.h>

#include "tests/unit/trip.h"

static void part_seal(struct trip *trip, unsigned seed)
{
	char name[24];
	struct raw raw;

	raw_new(&raw);
	(void)snprintf(name, sizeof name, "part%u", seed);
	(void)raw_file(&raw, name, seed, 100000);
	(void)raw_file(&raw, "what all have", 99, 200000);
	trip_seal(trip, &raw);
	raw_free(&raw);
	memcpy(trip->images.manifests[trip->images.count++], trip->sealed.manifest, DIGEST_BYTES);
}

static void composed_digest(const struct place_of *place, const struct store_images *images,
			    char ret[IMAGE_DIGEST_BYTES])
{
	auto_free struct image_record *record = record_new();
	auto_close int fd = openat(place->fd, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);

	cr_assert_geq(fd, 0);
	cr_assert_eq(store_compose(&place->store, images->manifests, images->count, fd, record), 0);
	memcpy(ret, record->digest, IMAGE_DIGEST_BYTES);
}

Test(composition, composition_is_the_same_at_the_other_end)
{
	for (unsigned is_packed = 0; is_packed < 2; is_packed++) {
		auto_free struct store_images *pulled = calloc(1, sizeof *pulled);
		char before[IMAGE_DIGEST_BYTES], after[IMAGE_DIGEST_BYTES];
		struct trip *trip = trip_new();

		for (unsigned seed = 1; seed < 4; seed++)
			part_seal(trip, seed);
		part_seal(trip, 2); /* twice in it */
		trip->transfer = (struct transfer){ .store = &trip->store.store,
						    .layout_fd = trip->layout.fd,
						    .tag = "of/four",
						    .is_packed = is_packed };
		cr_assert_eq(store_push(&trip->transfer, &trip->images), 0, "%s",
			     trip->transfer.why);
		trip->transfer = (struct transfer){ .store = &trip->other.store,
						    .layout_fd = trip->layout.fd,
						    .tag = "of/four",
						    .bytes_max = 1 << 20 };
		cr_assert_eq(store_pull(&trip->transfer, pulled), 0, "%s: %s", trip->transfer.step,
			     trip->transfer.why);
		cr_assert_eq(pulled->count, 4);
		cr_assert_eq(memcmp(pulled, &trip->images, sizeof *pulled), 0);
		composed_digest(&trip->store, &trip->images, before);
		composed_digest(&trip->other, pulled, after);
		cr_assert_str_eq(before, after);
		trip_free(trip);
	}
}

static int composition_lie(struct trip *trip, const char *layers)
{
	auto_free struct store_images *pulled = calloc(1, sizeof *pulled);
	struct layout_entry entry = { .tag = "lie", .artifact = STORE_COMPOSITION };
	auto_free char *index = NULL, *text = NULL;
	int bytes = asprintf(&text, "{\"artifactType\":\"" STORE_COMPOSITION "\",\"layers\":%s}",
			     layers);

	cr_assert_gt(bytes, 0);
	entry.manifest.bytes = (uint64_t)bytes;
	cr_assert_eq(store_blob_write(&trip->layout.store, text, (size_t)bytes,
				      entry.manifest.digest),
		     0);
	cr_assert_eq(layout_index_put(NULL, 0, &entry, &index), 0);
	layout_index_write(trip, index, strlen(index));
	trip->transfer = (struct transfer){ .store = &trip->other.store,
					    .layout_fd = trip->layout.fd,
					    .tag = "lie",
					    .bytes_max = 1 << 20 };
	return store_pull(&trip->transfer, pulled);
}

#define PART(digits, size)                                                                         \
	"{\"mediaType\":\"" STORE_PART_TYPE "\",\"digest\":\"sha256:" digits "\",\"size\":" size "}"
#define DIGITS "00000000000000000000000000000000000000000000000000000000000000aa"

Test(composition, composition_that_lies_is_refused_and_leaves_nothing)
{
	static const struct {
		const char *layers;
		int error;
	} rows[] = {
		{ "[]", -EBADMSG },
		{ "{}", -EBADMSG },
		{ "[1]", -EBADMSG },
		{ "[" PART("../../../../etc/passwd", "3") "]", -EBADMSG },
		{ "[" PART(DIGITS, "2000000") "]", -EBADMSG },
		{ "[" PART(DIGITS, "300") "]", -ENOENT },
	};
	struct trip *trip = trip_new();

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		cr_expect_eq(composition_lie(trip, rows[i].layers), rows[i].error, "%s",
			     rows[i].layers);
		cr_expect(trip->transfer.why, "%s", rows[i].layers);
	}
	cr_assert_eq(blobs_count(&trip->other), 0);
	trip_free(trip);
}

Test(composition, composition_is_no_part_of_a_composition)
{
	char layers[512], digest[DIGEST_TEXT_BYTES];
	struct trip *trip = trip_new();
	const char *text = "{\"artifactType\":\"" STORE_COMPOSITION "\",\"layers\":[]}";
	uint8_t inner[DIGEST_BYTES];

	cr_assert_eq(store_blob_write(&trip->layout.store, text, strlen(text), inner), 0);
	digest_text(inner, digest);
	(void)snprintf(layers, sizeof layers,
		       "[{\"mediaType\":\"" STORE_PART_TYPE "\",\"digest\":\"%s\",\"size\":%zu}]",
		       digest, strlen(text));
	cr_assert_eq(composition_lie(trip, layers), -EBADMSG);
	trip_free(trip);
}
