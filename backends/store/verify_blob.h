/* What checking is made of: the parts of a manifest. */
#pragma once

#include "backends/store/digest_set.h"
#include "backends/store/verify.h"

enum { VERIFY_BUFFER_BYTES = 256 << 10 };

struct store_manifest;

struct verifying {
	const struct store *store;
	const struct verify_wish *wish;
	struct verify_result *result;
	const char *image; /* that is looked at */
	bool manifest_is_bad;
	struct image_record *record;
	struct digest_set known, bad; /* blobs that were read; of these */
	struct digest_set manifests;  /* of which all is right */
	struct digest_set files;      /* contents at places that are right */
	struct digest *digest;
	char *buffer; /* VERIFY_BUFFER_BYTES */
};

/* verify.c */
int verify_fault_tell(struct verifying *v, const char *what, const char *how,
		      const uint8_t *digest);
int verify_file_tell(struct verifying *v, const struct tree *tree, uint32_t node);
int verify_tell(struct verifying *v, uint64_t files, uint64_t bytes);

/* Of the file's first bytes. -EBADMSG: there are fewer. */
int verify_digest(struct verifying *v, int fd, uint64_t bytes, uint8_t ret[DIGEST_BYTES]);
/* 1: it is there and right; 0: it is not, and that was told. `bytes`: UINT64_MAX: any. */
int verify_blob(struct verifying *v, const char *what, const uint8_t digest[DIGEST_BYTES],
		uint64_t bytes);
/* All that a manifest names, and the files of its tree. */
int verify_parts(struct verifying *v, const struct store_manifest *manifest);
