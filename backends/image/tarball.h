/* A tar that is read once, compressed or not, from a descriptor. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "backends/image/import.h"

struct archive;
struct archive_entry;
struct source;

struct tarball {
	struct import *in;
	struct archive *archive;
	struct source *source;
	struct archive_entry *held; /* to be returned by the next tarball_next() */
	uint64_t data_left;	    /* of the entry, as it said */
};

/* Bytes of an entry in order; `offset` jumps over holes. */
typedef int tarball_sink(void *owner, const void *bytes, size_t count, uint64_t offset);

/* `wants_digest`: of the tar as it is before compression by gzip; for tarball_rest(). */
int tarball_open(struct tarball *tarball, struct import *in, int fd, bool wants_digest);
void tarball_close(struct tarball *tarball);
/* 1: an entry; 0: the end, with its marker; else import_fail() was told. */
int tarball_next(struct tarball *tarball, struct archive_entry **ret);
/* The same entry again. */
void tarball_hold(struct tarball *tarball, struct archive_entry *entry);
/* What follows the end, so that its sender is not cut off. The digest, where one was asked for. */
int tarball_rest(struct tarball *tarball, char ret_digest[IMAGE_DIGEST_BYTES]);
/* Packed by zstd: then no digest is of the tar. */
bool tarball_is_zstd(const struct tarball *tarball);
/* Its contents, against the limit of bytes; `name` for failures. */
int tarball_data(struct tarball *tarball, const char *name, tarball_sink *sink, void *owner);
