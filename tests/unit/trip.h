/* An image's way: from a store by a layout into another. */
#pragma once

#include "backends/store/transfer.h"
#include "tests/unit/store_place.h"

enum { LARGE_BYTES = 3 << 20 };

struct trip {
	struct place_of store, layout, other; /* from store by way of layout into other */
	struct sealed sealed;
	struct transfer transfer;
	struct store_images images;
};

static inline void trip_seal(struct trip *trip, const struct raw *raw)
{
	auto_free struct image_record *record = record_new();
	struct seal seal = {
		.tree = raw->tree,
		.raw_fd = raw->fd,
		.record = record,
		.provenance = "{\"by\":\"builder \\u00e9\"}",
	};

	cr_assert_eq(store_seal(&trip->store.store, &seal, &trip->sealed), 0);
}

static inline struct trip *trip_new(void)
{
	struct trip *trip = calloc(1, sizeof *trip);
	struct raw raw;

	cr_assert(trip);
	store_new(&trip->store);
	store_new(&trip->layout);
	store_new(&trip->other);
	forty(&raw, 40);
	(void)raw_file(&raw, "large", 7, LARGE_BYTES);
	trip_seal(trip, &raw);
	raw_free(&raw);
	return trip;
}

static inline void trip_free(struct trip *trip)
{
	store_gone(&trip->store);
	store_gone(&trip->layout);
	store_gone(&trip->other);
	free(trip);
}

static inline int trip_push(struct trip *trip, const char *tag, bool is_packed)
{
	trip->transfer = (struct transfer){
		.store = &trip->store.store,
		.layout_fd = trip->layout.fd,
		.tag = tag,
		.is_packed = is_packed,
	};
	memcpy(trip->images.manifests[0], trip->sealed.manifest, DIGEST_BYTES);
	trip->images.count = 1;
	return store_push(&trip->transfer, &trip->images);
}

/* Of an image its manifest. */
static inline int one_pull(struct transfer *transfer, uint8_t ret[DIGEST_BYTES])
{
	auto_free struct store_images *images = calloc(1, sizeof *images);
	int r = store_pull(transfer, images);

	if (r >= 0) {
		cr_assert_eq(images->count, 1);
		memcpy(ret, images->manifests[0], DIGEST_BYTES);
	}
	return r;
}

static inline int trip_pull(struct trip *trip, const char *tag, uint8_t ret[DIGEST_BYTES])
{
	trip->transfer = (struct transfer){
		.store = &trip->other.store,
		.layout_fd = trip->layout.fd,
		.tag = tag,
		.bytes_max = 1ull << 40,
		.is_lazy = trip->transfer.is_lazy,
	};
	return one_pull(&trip->transfer, ret);
}

static inline void trip_check(struct trip *trip, const uint8_t manifest[DIGEST_BYTES])
{
	struct sealed pulled = trip->sealed;

	cr_assert_eq(memcmp(manifest, trip->sealed.manifest, DIGEST_BYTES), 0);
	memcpy(pulled.manifest, manifest, DIGEST_BYTES);
	sealed_check(&trip->other, &pulled);
}

static inline void layout_index_write(const struct trip *trip, const char *text, size_t bytes)
{
	auto_close int fd =
		openat(trip->layout.fd, "index.json", O_WRONLY | O_CREAT | O_TRUNC, 0644);

	cr_assert_geq(fd, 0);
	cr_assert_eq(file_write(fd, text, bytes, 0), 0);
}
