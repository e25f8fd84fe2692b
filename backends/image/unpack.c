/*
 * From the stream to one tree. Called by the program's unpacker process, which has given up
 * everything else. Must hold: it ends with 0 only when the stream was read to its end.
 */
#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "backends/image/blobs.h"
#include "backends/image/files.h"
#include "backends/image/layer.h"
#include "backends/image/manifest.h"
#include "backends/image/tarball.h"
#include "engine/base/cleanup.h"

static bool is_archive_name(const char *name)
{
	static const char *const names[] = { "oci-layout", "index.json", "manifest.json",
					     "repositories", "blobs" };
	size_t bytes;

	while (!strncmp(name, "./", 2))
		name += 2;
	bytes = strcspn(name, "/");
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (bytes == strlen(names[i]) && !strncmp(name, names[i], bytes))
			return true;
	/* Older docker: a folder per layer and a config, named by digests; skopeo: files. */
	return strspn(name, "0123456789abcdef") == 64 &&
	       (name[64] == '/' || !strcmp(name + 64, ".json") || !strcmp(name + 64, ".tar"));
}

/* The first name says what an archive is of. "./" says nothing, and is told to nobody. */
static int kind_guess(struct import *in, struct tarball *stream)
{
	struct archive_entry *entry;
	const char *name;
	int r = tarball_next(stream, &entry);

	if (r == 0)
		return import_fail(in, EBADMSG, NULL, "an empty archive");
	if (r < 0)
		return r;
	name = archive_entry_pathname(entry);
	in->kind = name && is_archive_name(name) ? IMPORT_ARCHIVE : IMPORT_TREE;
	tarball_hold(stream, entry);
	return 0;
}

static int unpack_tree(struct import *in, struct files *files, struct tarball *stream)
{
	in->report.step = "tree";
	in->report.frame.layers_total = 1;
	(void)snprintf(in->record.source, sizeof in->record.source, "tree");
	return layer_apply(files, stream, files->keeps_whiteouts);
}

static bool is_named_again(const struct manifest *m, uint32_t at)
{
	for (uint32_t i = at + 1; i < m->layer_count; i++)
		if (m->layers[i] == m->layers[at])
			return true;
	return false;
}

/* A layer's digest in the config is of its tar; that of zstd's is not seen here. */
static int unpack_layer(struct files *files, const struct blobs *blobs, const struct blob *layer,
			const char *wanted)
{
	char digest[IMAGE_DIGEST_BYTES] = "";
	struct tarball tarball;
	int fd, r = blob_open(blobs, layer, &fd);

	if (r < 0)
		return r;
	auto_close int file = fd;

	r = tarball_open(&tarball, files->in, file, *wanted != 0);
	if (r >= 0)
		r = layer_apply(files, &tarball, true);
	if (r >= 0)
		r = tarball_rest(&tarball, digest);
	if (r >= 0 && *wanted && !tarball_is_zstd(&tarball) && strcmp(digest, wanted) != 0)
		r = import_fail(files->in, EBADMSG, layer->name,
				"its contents have another digest");
	tarball_close(&tarball);
	return r;
}

static int unpack_layers(struct import *in, struct files *files, const struct blobs *blobs)
{
	struct manifest manifest;
	int r;

	in->report.step = "manifest";
	r = manifest_read(blobs, &manifest);
	if (r >= 0) {
		in->report.step = "config";
		(void)snprintf(in->record.source, sizeof in->record.source, "%s", manifest.source);
		r = config_read(blobs, &manifest);
	}
	in->report.step = "layer";
	for (uint32_t i = 0; r >= 0 && i < manifest.layer_count; i++) {
		r = unpack_layer(files, blobs, manifest.layers[i], manifest_diff(&manifest, i));
		if (r >= 0 && !is_named_again(&manifest, i))
			blob_drop(blobs, manifest.layers[i]);
	}
	manifest_done(&manifest);
	return r;
}

static int unpack_archive(struct import *in, struct files *files, struct tarball *stream)
{
	struct blobs blobs;
	int r;

	in->report.step = "stream";
	r = blobs_spool(&blobs, in, stream);
	if (r >= 0)
		r = unpack_layers(in, files, &blobs);
	blobs_done(&blobs);
	return r;
}

int import_unpack(struct import *in)
{
	struct tarball stream;
	struct files files;
	int r;

	in->report.step = "stream";
	r = files_init(&files, in);
	if (r >= 0)
		r = tarball_open(&stream, in, IMAGE_FD_STREAM, false);
	if (r < 0)
		return r;
	if (in->kind == IMPORT_AUTO)
		r = kind_guess(in, &stream);
	if (r >= 0 && in->kind == IMPORT_TREE && *in->tag)
		r = import_fail(in, EINVAL, in->tag, "a root file system has no tags");
	else if (r >= 0 && in->kind == IMPORT_TREE)
		r = unpack_tree(in, &files, &stream);
	else if (r >= 0)
		r = unpack_archive(in, &files, &stream);
	if (r >= 0 && !in->report.frame.files)
		r = import_fail(in, EBADMSG, NULL, "an empty archive");
	if (r >= 0)
		r = files_write(&files);
	in->report.step = "stream";
	if (r >= 0)
		r = tarball_rest(&stream, NULL);
	tarball_close(&stream);
	files_done(&files);
	in->record.files = in->report.frame.files;
	in->record.layers = in->report.frame.layers;
	return r;
}
