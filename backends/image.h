/*
 * Images to the engine: the record that an imported image carries, and the program that makes an
 * image of a stream of bytes. Called from the control thread; import_frame_read() from anywhere.
 *
 * An image is one file: EROFS, then its record (JSON), then a footer that says where the record
 * begins. The kernel reads the EROFS and does not look further; so a file is an image with or
 * without a record, and both are replaced by one rename.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	IMAGE_DIGEST_BYTES = 72, /* "sha256:" and 64 digits, and NUL */
	IMAGE_USER_BYTES_MAX = 64,
	IMAGE_CWD_BYTES_MAX = 1024,
	IMAGE_STRINGS_BYTES_MAX = 32 << 10, /* env, entrypoint and cmd together */
	IMAGE_STRINGS_MAX = 512,
	IMAGE_RECORD_BYTES_MAX = 512 << 10, /* all of it escaped */
	IMAGE_MANIFESTS_MAX = 128,
};

struct image_record {
	char digest[IMAGE_DIGEST_BYTES]; /* of the EROFS */
	char source[24];		 /* "tree", "docker-archive", "oci" */
	char created[40];		 /* as its maker wrote it; "": unknown */
	char user[IMAGE_USER_BYTES_MAX]; /* "": root */
	char cwd[IMAGE_CWD_BYTES_MAX];	 /* "": the user's home */
	uint64_t erofs_bytes, content_bytes, files;
	uint32_t layers;
	uint32_t env_count, entrypoint_count, cmd_count;
	uint32_t string_bytes;
	uint32_t manifest_count; /* 0: it was not made of the store's */
	uint32_t segments;	 /* that it needs; image_segments_read() has them */
	uint64_t segment_bytes;
	char strings[IMAGE_STRINGS_BYTES_MAX];	    /* env, entrypoint, cmd; each ends with NUL */
	uint8_t manifests[IMAGE_MANIFESTS_MAX][32]; /* what it is of, the lowest first: SHA-256 */
};

struct tree_segment;

/* Of an open image file. -ENODATA: it has none; -EBADMSG: it is damaged, and must not be used. */
int image_record_read(int fd, struct image_record *ret);
/* -EBADMSG: it says of itself that it is larger than it is. What is no EROFS is fine here. */
int image_size_check(int fd);
/* As JSON, without the segments; its bytes, or -ENOSPC, -EINVAL. */
int image_record_text(const struct image_record *record, char *ret, size_t bytes);
/* Behind the EROFS of `fd`, which has erofs_bytes. `segments`: as many as the record says. */
int image_record_write(int fd, const struct image_record *record,
		       const struct tree_segment *segments);
/*
 * The segments that its table of devices names, in its order; the caller frees them. As
 * image_record_read(); none where an image was not made of the store's.
 */
int image_segments_read(int fd, struct tree_segment **ret, uint32_t *ret_count);

/* ---- bringing an image in ---- */

enum import_kind {
	IMPORT_AUTO,	/* by the first name in the archive */
	IMPORT_TREE,	/* a tar of a root file system */
	IMPORT_ARCHIVE, /* a tar of a docker archive or an OCI layout */
	IMPORT_KINDS,
};

struct import_limits {
	uint64_t bytes_max; /* contents of all files of all layers */
	uint64_t free_min;  /* of the disk: below it an import ends */
	uint32_t files_max, layers_max;
};

enum { IMPORT_TAG_BYTES = 129 };

struct import_options {
	const char *program_path; /* dsec-import */
	enum import_kind kind;
	const char *tag; /* of an archive's images this one; "": the only one */
	struct import_limits limits;
	int stream_fd;	/* it reads the archive here: the other end is written to, then closed */
	int status_fd;	/* it writes frames here */
	int group_fd;	/* of import_group_make(): it is born there */
	int scratch_fd; /* an empty directory of this import's own; IMPORT_RESULT appears in it */
};

#define IMPORT_RESULT "image.erofs" /* whole and synced when the program exits with 0 */

/* A process to reap; killed, all of it ends. -errno: nothing was started. */
int import_start(const struct import_options *options, pid_t *ret_pid);
/* The same program empties a directory; exit status 0: it is empty. */
int import_sweep(const char *program_path, int directory_fd, pid_t *ret_pid);

/* A control group for an import, below the instance's, with limits; numbers come only once. */
int import_group_make(int root_fd, uint64_t number, int *ret_fd);
/* Every process in it is killed. Only where it is removed afterwards. */
void import_group_kill(int group_fd);
/* After the import was reaped. -EBUSY: something in it did not die within a second; it stays. */
int import_group_remove(int root_fd, uint64_t number, int group_fd);

enum import_frame_kind { IMPORT_PROGRESS = 1, IMPORT_DONE, IMPORT_FAILED };

/* What the program tells. It parses hostile bytes: import_frame_read() makes a copy sane. */
struct import_frame {
	uint32_t kind;
	int32_t error; /* FAILED: positive errno */
	uint32_t layers, layers_total;
	uint64_t files, bytes, read_bytes;
	uint32_t dropped_nodes; /* device nodes and what lay below /dev */
	uint32_t dropped_xattrs;
	char step[24];			 /* FAILED: where: "stream", "layer", "config", … */
	char reason[80];		 /* FAILED: in words */
	char name[256];			 /* FAILED: of the entry; "": none */
	char digest[IMAGE_DIGEST_BYTES]; /* DONE */
};

_Static_assert(sizeof(struct import_frame) == 480, "no padding");

/* From bytes of the pipe; -EPROTO: no frame that an importer of ours writes. */
int import_frame_read(const void *bytes, size_t count, struct import_frame *ret);
