/*
 * The record behind an image's EROFS. Written by the importer, read by the engine when it mounts
 * the file. Must hold: what is read is bounded and checked, since a file may come from anywhere.
 */
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/image.h"
#include "backends/store/digest.h"
#include "backends/store/strings.h"
#include "backends/store/tree.h"
#include "engine/base/cleanup.h"
#include "engine/base/json.h"

#define FOOTER_MAGIC 0x31474d4943455344ull /* "DSECIMG1" */

enum { EROFS_SUPER_AT = 1024, EROFS_MAGIC = 0xe0f5e1e2, EROFS_48BIT = 0x80 };

/* The last bytes of the file. */
struct footer {
	uint64_t magic;
	uint64_t erofs_bytes;
	uint32_t record_bytes;
	uint32_t version; /* 1 */
	uint64_t reserved[5];
};

_Static_assert(sizeof(struct footer) == 64, "no padding");
_Static_assert(sizeof((struct image_record *)0)->manifests[0] == DIGEST_BYTES, "SHA-256");

/* ---- writing ---- */

/* Counted lists in a packed block, each string with its NUL. */
static bool strings_are_whole(const struct image_record *record)
{
	uint32_t found = 0;

	if (record->string_bytes > sizeof record->strings)
		return false;
	for (uint32_t i = 0; i < record->string_bytes; i++)
		found += !record->strings[i];
	if (record->string_bytes && record->strings[record->string_bytes - 1])
		return false;
	return record->env_count <= IMAGE_STRINGS_MAX &&
	       record->entrypoint_count <= IMAGE_STRINGS_MAX &&
	       record->cmd_count <= IMAGE_STRINGS_MAX &&
	       found == record->env_count + record->entrypoint_count + record->cmd_count;
}

static int write_all(int fd, const void *bytes, size_t count, off_t at)
{
	const char *from = bytes;

	while (count) {
		ssize_t n = pwrite(fd, from, count, at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		from += n;
		count -= (size_t)n;
		at += n;
	}
	return 0;
}

static void digest_write(struct json_writer *w, const char *key, const uint8_t digest[DIGEST_BYTES])
{
	char text[DIGEST_TEXT_BYTES];

	digest_text(digest, text);
	json_string(w, key, text);
}

/* What it is made of. The table is for who mounts the file, not for who asks. */
static void parts_write(struct json_writer *w, const struct image_record *record,
			const struct tree_segment *table)
{
	json_array(w, "manifests");
	for (uint32_t i = 0; i < record->manifest_count; i++)
		digest_write(w, NULL, record->manifests[i]);
	json_end(w);
	json_unsigned(w, "segments", record->segments);
	json_unsigned(w, "segment_bytes", record->segment_bytes);
	if (!table)
		return;
	json_array(w, "segment_table");
	for (uint32_t i = 0; i < record->segments; i++) {
		json_object(w, NULL);
		digest_write(w, "digest", table[i].digest);
		digest_write(w, "chunks", table[i].chunks);
		json_unsigned(w, "bytes", table[i].bytes);
		json_end(w);
	}
	json_end(w);
}

static int text_write(const struct image_record *record, const struct tree_segment *table,
		      char *ret, size_t bytes)
{
	struct json_writer w;
	const char *at;
	int r;

	if (!strings_are_whole(record) || record->manifest_count > IMAGE_MANIFESTS_MAX)
		return -EINVAL;
	json_open(&w, ret, bytes);
	json_object(&w, NULL);
	json_string(&w, "digest", record->digest);
	json_string(&w, "source", record->source);
	json_string(&w, "created", record->created);
	json_unsigned(&w, "content_bytes", record->content_bytes);
	json_unsigned(&w, "files", record->files);
	json_unsigned(&w, "layers", record->layers);
	json_string(&w, "user", record->user);
	json_string(&w, "cwd", record->cwd);
	at = strings_write(&w, "env", record->strings, record->env_count);
	at = strings_write(&w, "entrypoint", at, record->entrypoint_count);
	(void)strings_write(&w, "cmd", at, record->cmd_count);
	if (record->manifest_count)
		parts_write(&w, record, table);
	json_end(&w);
	r = json_close(&w);
	return r < 0 ? r : (int)w.bytes;
}

int image_record_text(const struct image_record *record, char *ret, size_t bytes)
{
	return text_write(record, NULL, ret, bytes);
}

int image_record_write(int fd, const struct image_record *record,
		       const struct tree_segment *segments)
{
	struct footer footer = { .magic = FOOTER_MAGIC,
				 .erofs_bytes = record->erofs_bytes,
				 .version = 1 };
	auto_free char *text = malloc(IMAGE_RECORD_BYTES_MAX);
	int r = text ? text_write(record, segments, text, IMAGE_RECORD_BYTES_MAX) : -ENOMEM;

	if (r < 0)
		return r;
	footer.record_bytes = (uint32_t)r;
	r = write_all(fd, text, footer.record_bytes, (off_t)record->erofs_bytes);
	return r < 0 ? r :
		       write_all(fd, &footer, sizeof footer,
				 (off_t)(record->erofs_bytes + footer.record_bytes));
}

/* ---- reading ---- */

static int text_read(const struct json_value *object, const char *key, char *ret, size_t bytes)
{
	struct json_value value;

	if (json_member(object, key, &value) < 0 || value.kind != JSON_STRING)
		return -EBADMSG;
	return json_to_string(&value, ret, bytes) < 0 ? -EBADMSG : 0;
}

static int number_read(const struct json_value *object, const char *key, uint64_t *ret)
{
	struct json_value value;

	if (json_member(object, key, &value) < 0 || json_to_unsigned(&value, ret) < 0)
		return -EBADMSG;
	return 0;
}

static int list_read(const struct json_value *object, const char *key, struct image_record *record,
		     uint32_t *ret_count)
{
	struct json_value list;

	return json_member(object, key, &list) < 0 ? -EBADMSG :
						     strings_read(&list, record, ret_count);
}

static int digest_read(const struct json_value *value, uint8_t ret[DIGEST_BYTES])
{
	char text[DIGEST_TEXT_BYTES];

	return value->kind == JSON_STRING && json_to_string(value, text, sizeof text) >= 0 &&
			       digest_text_parse(text, ret) ?
		       0 :
		       -EBADMSG;
}

/* Of the store's; what was made before it has none. */
static int parts_read(const struct json_value *object, struct image_record *record)
{
	struct json_value list, item;
	size_t cursor = 0;
	uint64_t segments;
	int r = json_member(object, "manifests", &list);

	if (r == -ENOENT)
		return 0;
	if (r < 0 || list.kind != JSON_ARRAY)
		return -EBADMSG;
	while (json_next(&list, &cursor, &item) >= 0)
		if (record->manifest_count == IMAGE_MANIFESTS_MAX ||
		    digest_read(&item, record->manifests[record->manifest_count++]) < 0)
			return -EBADMSG;
	if (!record->manifest_count || number_read(object, "segments", &segments) < 0 ||
	    segments > TREE_SEGMENTS_MAX ||
	    number_read(object, "segment_bytes", &record->segment_bytes) < 0)
		return -EBADMSG;
	record->segments = (uint32_t)segments;
	return 0;
}

static int record_parse(const struct json_value *object, struct image_record *record)
{
	uint64_t layers;

	if (text_read(object, "digest", record->digest, sizeof record->digest) < 0 ||
	    text_read(object, "source", record->source, sizeof record->source) < 0 ||
	    text_read(object, "created", record->created, sizeof record->created) < 0 ||
	    text_read(object, "user", record->user, sizeof record->user) < 0 ||
	    text_read(object, "cwd", record->cwd, sizeof record->cwd) < 0 ||
	    number_read(object, "content_bytes", &record->content_bytes) < 0 ||
	    number_read(object, "files", &record->files) < 0 ||
	    number_read(object, "layers", &layers) < 0 || layers > UINT32_MAX ||
	    (*record->cwd && *record->cwd != '/'))
		return -EBADMSG;
	record->layers = (uint32_t)layers;
	if (list_read(object, "env", record, &record->env_count) < 0 ||
	    list_read(object, "entrypoint", record, &record->entrypoint_count) < 0 ||
	    list_read(object, "cmd", record, &record->cmd_count) < 0)
		return -EBADMSG;
	return parts_read(object, record);
}

/* The beginning of an EROFS, as far as it says how large that is. */
struct superblock {
	uint32_t magic, checksum, compatible;
	uint8_t block_bits, slots;
	uint16_t blocks_high; /* of an EROFS with 48 bits for a block; else the root */
	uint64_t inodes, epoch;
	uint32_t fixed_ns, blocks;
	uint8_t unused[40];
	uint32_t incompatible;
};

_Static_assert(sizeof(struct superblock) == 88, "as on disk: its last field at 80");

int image_size_check(int fd)
{
	struct superblock super;
	struct stat st;
	uint64_t blocks;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (pread(fd, &super, sizeof super, EROFS_SUPER_AT) != sizeof super ||
	    le32toh(super.magic) != EROFS_MAGIC)
		return 0;
	blocks = le32toh(super.blocks);
	if (le32toh(super.incompatible) & EROFS_48BIT)
		blocks |= (uint64_t)le16toh(super.blocks_high) << 32;
	if (super.block_bits < 9 || super.block_bits > 16 ||
	    blocks > (uint64_t)st.st_size >> super.block_bits)
		return -EBADMSG;
	return 0;
}

/* Into memory that the caller frees; `ret` points there. */
static int object_read(int fd, char **ret_text, struct json_value *ret, uint64_t *ret_erofs_bytes)
{
	struct footer footer;
	struct stat st;
	uint64_t before;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size < sizeof footer ||
	    pread(fd, &footer, sizeof footer, st.st_size - (off_t)sizeof footer) != sizeof footer ||
	    footer.magic != FOOTER_MAGIC)
		return -ENODATA;
	before = (uint64_t)st.st_size - sizeof footer;
	if (footer.version != 1 || footer.record_bytes > IMAGE_RECORD_BYTES_MAX ||
	    footer.record_bytes > before || footer.erofs_bytes != before - footer.record_bytes)
		return -EBADMSG;
	auto_free char *text = malloc(footer.record_bytes + 1);
	if (!text)
		return -ENOMEM;
	if (pread(fd, text, footer.record_bytes, (off_t)footer.erofs_bytes) !=
		    (ssize_t)footer.record_bytes ||
	    json_parse(text, footer.record_bytes, ret) < 0 || ret->kind != JSON_OBJECT)
		return -EBADMSG;
	*ret_text = take_ptr(text);
	*ret_erofs_bytes = footer.erofs_bytes;
	return 0;
}

int image_record_read(int fd, struct image_record *ret)
{
	auto_free struct image_record *record = calloc(1, sizeof *record);
	auto_free char *text = NULL;
	struct json_value object;
	int r = record ? object_read(fd, &text, &object, &record->erofs_bytes) : -ENOMEM;

	if (r >= 0)
		r = record_parse(&object, record);
	if (r >= 0)
		*ret = *record;
	return r;
}

static int segment_read(const struct json_value *item, struct tree_segment *ret)
{
	struct json_value digest, chunks;

	if (item->kind != JSON_OBJECT || json_member(item, "digest", &digest) < 0 ||
	    digest_read(&digest, ret->digest) < 0 || json_member(item, "chunks", &chunks) < 0 ||
	    digest_read(&chunks, ret->chunks) < 0 || number_read(item, "bytes", &ret->bytes) < 0 ||
	    !ret->bytes || ret->bytes % TREE_BLOCK_BYTES || ret->bytes > INT64_MAX)
		return -EBADMSG;
	return 0;
}

static int table_read(const struct json_value *object, struct tree_segment **ret,
		      uint32_t *ret_count)
{
	struct json_value list, item;
	size_t cursor = 0;
	uint64_t count;
	uint32_t at = 0;
	int r = json_member(object, "segment_table", &list);

	if (r == -ENOENT) {
		*ret = NULL;
		*ret_count = 0;
		return 0;
	}
	if (r < 0 || list.kind != JSON_ARRAY || number_read(object, "segments", &count) < 0 ||
	    count > TREE_SEGMENTS_MAX)
		return -EBADMSG;
	auto_free struct tree_segment *segments = calloc(count + 1, sizeof *segments);
	if (!segments)
		return -ENOMEM;
	while (json_next(&list, &cursor, &item) >= 0)
		if (at == count || segment_read(&item, &segments[at++]) < 0)
			return -EBADMSG;
	if (at != count)
		return -EBADMSG;
	*ret = take_ptr(segments);
	*ret_count = at;
	return 0;
}

int image_segments_read(int fd, struct tree_segment **ret, uint32_t *ret_count)
{
	auto_free char *text = NULL;
	struct json_value object;
	uint64_t erofs_bytes;
	int r = object_read(fd, &text, &object, &erofs_bytes);

	return r < 0 ? r : table_read(&object, ret, ret_count);
}
