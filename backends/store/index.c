/*
 * The index of files: buckets of 4 KiB, 31 places in each, found by the first bytes of a digest; a
 * place may lie in one of a few buckets from its own on. Called by the sealer and gc. Must hold:
 * every place has a sum, so that a torn one is none; what is added is added under a lock; the table
 * grows by being written anew and renamed.
 */
#include "backends/store/index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "backends/store/file.h"
#include "engine/base/cleanup.h"

enum {
	BUCKET_BYTES = 4096,
	BUCKET_PLACES = 31,
	PROBES = 4,
	BUCKETS_FIRST = 256,
	GROW_TIMES = 2,
	GROW_TRIES = 8,
};

#define INDEX_MAGIC 0x3158444943455344ull /* "DSECIDX1" */

struct slot {
	uint64_t sum; /* 0: empty */
	struct place place;
};

struct bucket {
	uint64_t magic;
	uint64_t passed; /* it was full once: what belongs here may be in the next */
	uint64_t reserved[5];
	struct slot slots[BUCKET_PLACES];
	uint8_t rest[BUCKET_BYTES - 56 - BUCKET_PLACES * sizeof(struct slot)];
};

_Static_assert(sizeof(struct place) == 112, "no padding");
_Static_assert(sizeof(struct bucket) == BUCKET_BYTES, "one block of the disk");

/* Of FNV's kind, by words: against what is torn, not against anybody. */
static uint64_t place_sum(const struct place *place)
{
	uint64_t words[sizeof *place / sizeof(uint64_t)], sum = 0xcbf29ce484222325ull;

	memcpy(words, place, sizeof words);
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		sum = (sum ^ words[i]) * 0x100000001b3ull;
		sum ^= sum >> 29;
	}
	return sum | 1;
}

/* By the high bits: a table that grows is read and written in order. */
static uint64_t bucket_of(const struct index *index, const uint8_t file[DIGEST_BYTES])
{
	uint64_t hash = 0;

	for (unsigned i = 0; i < sizeof hash; i++)
		hash = hash << 8 | file[i];
	return (uint64_t)((unsigned __int128)hash * index->buckets >> 64);
}

static int bucket_read(const struct index *index, uint64_t at, struct bucket *ret)
{
	int r = file_read(index->fd, ret, sizeof *ret, at * BUCKET_BYTES);

	if (r >= 0 && ret->magic != INDEX_MAGIC)
		memset(ret, 0, sizeof *ret); /* never written, or damaged: nothing is in it */
	return r;
}

static int bucket_write(const struct index *index, uint64_t at, struct bucket *bucket)
{
	bucket->magic = INDEX_MAGIC;
	return file_write(index->fd, bucket, sizeof *bucket, at * BUCKET_BYTES);
}

static bool slot_is_used(const struct slot *slot)
{
	return slot->sum && slot->sum == place_sum(&slot->place);
}

/* ---- open ---- */

static int buckets_count(struct index *index)
{
	struct stat st;

	if (fstat(index->fd, &st) < 0)
		return -errno;
	index->buckets = (uint64_t)st.st_size / BUCKET_BYTES;
	return 0;
}

int index_open(int directory_fd, struct index *ret)
{
	struct index index = { .directory_fd = directory_fd };
	int r;

	index.fd = openat(directory_fd, INDEX_NAME, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
	if (index.fd < 0 && errno != ENOENT)
		return -errno;
	r = index.fd < 0 ? 0 : buckets_count(&index);
	if (r < 0)
		index_close(&index);
	else
		*ret = index;
	return r;
}

void index_close(struct index *index)
{
	cleanup_close(&index->fd);
	index->fd = -1;
}

/* ---- find ---- */

int index_find(const struct index *index, const uint8_t file[DIGEST_BYTES], struct place *ret)
{
	struct bucket bucket;

	if (index->fd < 0 || !index->buckets)
		return -ENOENT;
	for (uint64_t i = 0, at = bucket_of(index, file); i < PROBES; i++) {
		int r = bucket_read(index, (at + i) % index->buckets, &bucket);

		if (r < 0)
			return r == -EBADMSG ? -ENOENT : r;
		for (unsigned k = 0; k < BUCKET_PLACES; k++) {
			const struct slot *slot = &bucket.slots[k];

			if (slot_is_used(slot) && !memcmp(slot->place.file, file, DIGEST_BYTES)) {
				*ret = slot->place;
				return 0;
			}
		}
		if (!bucket.passed)
			break;
	}
	return -ENOENT;
}

/* ---- add ---- */

/* -ENOSPC: no room near its bucket. */
static int place_add(const struct index *index, const struct place *place)
{
	struct bucket bucket;

	for (uint64_t i = 0, at = bucket_of(index, place->file); i < PROBES; i++) {
		struct slot *slot = NULL;
		int r = bucket_read(index, (at + i) % index->buckets, &bucket);

		if (r < 0)
			return r;
		for (unsigned k = 0; k < BUCKET_PLACES; k++) {
			struct slot *one = &bucket.slots[k];
			bool used = slot_is_used(one);

			if (used && !memcmp(one->place.file, place->file, DIGEST_BYTES)) {
				slot = one;
				break;
			}
			if (!used && !slot)
				slot = one;
		}
		if (!slot && !bucket.passed) {
			bucket.passed = 1;
			r = bucket_write(index, (at + i) % index->buckets, &bucket);
			if (r < 0)
				return r;
		}
		if (!slot)
			continue;
		slot->place = *place;
		slot->sum = place_sum(place);
		return bucket_write(index, (at + i) % index->buckets, &bucket);
	}
	return -ENOSPC;
}

static int table_copy(const struct index *from, const struct index *to)
{
	struct bucket bucket;
	int r = 0;

	for (uint64_t at = 0; r >= 0 && at < from->buckets; at++) {
		r = bucket_read(from, at, &bucket);
		for (unsigned k = 0; r >= 0 && k < BUCKET_PLACES; k++)
			if (slot_is_used(&bucket.slots[k]))
				r = place_add(to, &bucket.slots[k].place);
	}
	return r;
}

/* In the place of `index`, of so many buckets, locked; with what that has. */
static int table_make(struct index *index, uint64_t buckets)
{
	struct index made = { .directory_fd = index->directory_fd, .buckets = buckets };
	const char *name = INDEX_NAME ".new";
	int r = 0;

	made.fd = openat(index->directory_fd, name,
			 O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (made.fd < 0)
		return -errno;
	if (ftruncate(made.fd, (off_t)(buckets * BUCKET_BYTES)) < 0 ||
	    flock(made.fd, LOCK_EX | LOCK_NB) < 0)
		r = -errno;
	if (r >= 0 && index->fd >= 0)
		r = table_copy(index, &made);
	if (r >= 0 && renameat(index->directory_fd, name, index->directory_fd, INDEX_NAME) < 0)
		r = -errno;
	if (r < 0) {
		index_close(&made);
		(void)unlinkat(index->directory_fd, name, 0); /* a hint less */
		return r;
	}
	index_close(index);
	*index = made;
	return 0;
}

/* The one that is named now, locked: only one at a time makes a table. */
static int table_lock(struct index *index, int lock_fd)
{
	int r;

	while (flock(lock_fd, LOCK_EX) < 0)
		if (errno != EINTR)
			return -errno;
	index_close(index);
	r = index_open(index->directory_fd, index);
	if (r >= 0 && (index->fd < 0 || !index->buckets))
		r = table_make(index, BUCKETS_FIRST);
	return r;
}

int index_add(struct index *index, const struct place *places, uint32_t count)
{
	/* Beside the table, which changes. */
	auto_close int lock = openat(index->directory_fd, INDEX_NAME ".lock",
				     O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	int r = lock < 0 ? -errno : table_lock(index, lock);

	for (uint32_t i = 0; r >= 0 && i < count; i++) {
		uint64_t buckets = index->buckets;

		r = place_add(index, &places[i]);
		for (int tries = 0; r == -ENOSPC && tries < GROW_TRIES; tries++) {
			buckets *= GROW_TIMES;
			r = table_make(index, buckets);
			if (r >= 0)
				r = place_add(index, &places[i]);
		}
	}
	return r;
}

int index_prune(struct index *index, const struct digest_set *kept)
{
	struct bucket bucket;
	int r = 0;

	for (uint64_t at = 0; r >= 0 && index->fd >= 0 && at < index->buckets; at++) {
		bool changed = false;

		r = bucket_read(index, at, &bucket);
		for (unsigned k = 0; r >= 0 && k < BUCKET_PLACES; k++) {
			struct slot *slot = &bucket.slots[k];

			if (!slot->sum ||
			    (slot_is_used(slot) &&
			     digest_set_find(kept, slot->place.segment.digest) != DIGEST_SET_NONE))
				continue;
			memset(slot, 0, sizeof *slot);
			changed = true;
		}
		if (r >= 0 && changed)
			r = bucket_write(index, at, &bucket);
	}
	return r;
}
