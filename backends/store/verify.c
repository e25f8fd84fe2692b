/*
 * Checking images and blobs. Called by dsec-store. Must hold: nothing is changed; every blob is
 * read once, whoever needs it; memory is bounded by the number of blobs and of different files, and
 * by one tree.
 */
#include "backends/store/verify.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "backends/store/file.h"
#include "backends/store/manifest.h"
#include "backends/store/roots.h"
#include "backends/store/verify_blob.h"
#include "engine/base/cleanup.h"

static int fault_tell(struct verifying *v, const struct verify_fault *fault)
{
	struct verify_fault told = *fault;

	(void)snprintf(told.image, sizeof told.image, "%s", v->image);
	v->result->faults++;
	return v->wish->fault ? v->wish->fault(v->wish->owner, &told) : 0;
}

int verify_fault_tell(struct verifying *v, const char *what, const char *how, const uint8_t *digest)
{
	struct verify_fault fault = { .what = what, .how = how };

	if (digest)
		digest_hex(digest, fault.digest);
	return fault_tell(v, &fault);
}

int verify_file_tell(struct verifying *v, const struct tree *tree, uint32_t node)
{
	struct verify_fault fault = { .what = "file", .how = "damaged" };
	size_t at = sizeof fault.path - 1;

	/* From its end: that says more than its beginning. */
	for (; node; node = tree->nodes[node].parent) {
		const char *name = tree_name(tree, node);
		size_t bytes = strlen(name);

		if (bytes + 1 > at)
			break;
		at -= bytes;
		memcpy(fault.path + at, name, bytes);
		fault.path[--at] = '/';
	}
	memmove(fault.path, fault.path + at, sizeof fault.path - at);
	return fault_tell(v, &fault);
}

int verify_tell(struct verifying *v, uint64_t files, uint64_t bytes)
{
	v->result->files += files;
	v->result->bytes += bytes;
	return v->wish->progress ?
		       v->wish->progress(v->wish->owner, v->result->files, v->result->bytes) :
		       0;
}

/* ---- an image ---- */

static int erofs_check(struct verifying *v, int fd)
{
	uint8_t digest[DIGEST_BYTES], wanted[DIGEST_BYTES];
	int r = verify_digest(v, fd, v->record->erofs_bytes, digest);

	if (r < 0)
		return r == -EBADMSG ? verify_fault_tell(v, "erofs", "cut off", NULL) : r;
	if (!digest_text_parse(v->record->digest, wanted) ||
	    memcmp(digest, wanted, DIGEST_BYTES) != 0 || image_size_check(fd) < 0)
		return verify_fault_tell(v, "erofs", "damaged", NULL);
	return 0;
}

static int manifest_check(struct verifying *v, const uint8_t digest[DIGEST_BYTES])
{
	struct store_manifest manifest;
	uint32_t at;
	int r;

	if (digest_set_find(&v->manifests, digest) != DIGEST_SET_NONE)
		return 0; /* all of it was right */
	r = verify_blob(v, "manifest", digest, UINT64_MAX);
	if (r <= 0)
		return r;
	r = store_manifest_load(v->store, digest, &manifest);
	if (r == -EBADMSG || r == -EFBIG)
		return verify_fault_tell(v, "manifest", "unsound", digest);
	if (r < 0)
		return r;
	v->manifest_is_bad = false;
	r = verify_parts(v, &manifest);
	store_manifest_done(&manifest);
	if (r >= 0 && !v->manifest_is_bad)
		r = digest_set_add(&v->manifests, digest, &at);
	return r < 0 ? r : 0;
}

static int image_check(void *owner, const struct root *root)
{
	struct verifying *v = owner;
	int r = image_record_read(root->fd, v->record);

	if (root->kind == ROOT_SCRATCH)
		return 0; /* not yet an image */
	v->image = root->name;
	v->result->images++;
	if (r == -ENODATA) {
		v->result->unchecked++; /* it says nothing that could be checked */
		return 0;
	}
	if (r == -EBADMSG)
		r = verify_fault_tell(v, "record", "damaged", NULL);
	else if (r >= 0)
		r = erofs_check(v, root->fd);
	for (uint32_t i = 0; r >= 0 && i < v->record->manifest_count; i++)
		r = manifest_check(v, v->record->manifests[i]);
	return r;
}

static int one_check(struct verifying *v)
{
	struct root root = { .kind = ROOT_IMAGE, .name = v->wish->name };
	int r = root_open(v->store->fd, v->wish->name, &root.fd);

	if (r < 0)
		return r;
	r = image_check(v, &root);
	cleanup_close(&root.fd);
	return r;
}

/* ---- what no image needs ---- */

static int rest_check(struct verifying *v)
{
	int fd = openat(v->store->blobs_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *entry;

	if (!dir) {
		r = -errno;
		cleanup_close(&fd);
		return r;
	}
	v->image = "";
	while (r >= 0 && (errno = 0, entry = readdir(dir))) {
		uint8_t digest[DIGEST_BYTES];

		if (digest_parse(entry->d_name, digest))
			r = verify_blob(v, "blob", digest, UINT64_MAX);
	}
	if (r >= 0 && errno)
		r = -errno;
	(void)closedir(dir); /* was only read */
	return r < 0 ? r : 0;
}

int store_verify(const struct store *store, const struct verify_wish *wish,
		 struct verify_result *ret)
{
	struct verifying v = { .store = store, .wish = wish, .result = ret, .image = "" };
	int r = 0;

	memset(ret, 0, sizeof *ret);
	v.record = calloc(1, sizeof *v.record);
	v.buffer = malloc(VERIFY_BUFFER_BYTES);
	v.digest = digest_new();
	if (!v.record || !v.buffer || !v.digest)
		r = -ENOMEM;
	else if (wish->name)
		r = one_check(&v);
	else
		r = roots_walk(store->fd, image_check, &v);
	if (r >= 0 && !wish->name)
		r = rest_check(&v);
	free(v.record);
	free(v.buffer);
	digest_free(v.digest);
	digest_set_done(&v.known);
	digest_set_done(&v.bad);
	digest_set_done(&v.manifests);
	digest_set_done(&v.files);
	return r;
}
