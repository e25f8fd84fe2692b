/*
 * Images to the engine: the record that an imported image carries, and the program that makes an
 * image of a stream of bytes. Called from the control thread; import_frame_read() from anywhere.
 *
 * An image is one file: EROFS, then its record (JSON), then a footer that says where the record
 * begins. The kernel reads the EROFS and does not look further; so a file is an image with or
 * without a record, and both are replaced by one rename.
 */
#pragma once

#include <fcntl.h>
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

/*
 * What the programs that work on images have for an environment. Trees are large and live briefly:
 * glibc takes memory for them in few steps and asks for large pages. Others pass over it.
 */
#define IMAGE_PROGRAM_ENVIRONMENT                                                                  \
	"GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=1073741824:"            \
	"glibc.malloc.top_pad=33554432"

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

/* Descriptors of the programs that work on images; 2 is the engine's standard error. */
enum {
	IMAGE_FD_STREAM = 0, /* dsec-import: the archive; dsec-store: texts */
	IMAGE_FD_STATUS = 1, /* frames */
	IMAGE_FD_SCRATCH = 3,
	IMAGE_FD_IMAGES = 4,  /* the directory of images: the store */
	IMAGE_FD_FURTHER = 5, /* dsec-store pack: the sandbox's changes */
	IMAGE_FD_COUNT,
};

struct image_start {
	const char *program_path;
	struct import_limits limits;
	uint32_t flags; /* of the request */
	/*
	 * -1: /dev/null in its place. stream: it reads the archive here: the other end is written
	 * to, then closed. scratch: an empty directory of its own; what is left in it counts.
	 */
	int stream_fd, status_fd, scratch_fd, images_fd, further_fd;
	int group_fd; /* of import_group_make(): it is born there */
};

/* Bits of `flags`; see enum dsec_image_flag. */
enum image_flag {
	IMAGE_LAYER = 1,
	IMAGE_DRY_RUN = 2,
	IMAGE_ZSTD = 4,
	IMAGE_LAZY = 8,
	IMAGE_FLATTEN = 16,
};

/* What a run leaves in its scratch, whole and synced when it exits with 0. */
#define IMPORT_RESULT "image.erofs"
#define STORE_REPORT  "report.json" /* of dsec-store; also when it failed */

/*
 * dsec-import KIND BYTES_MAX FREE_MIN FILES_MAX LAYERS_MAX FLAGS TAG. A process to reap; killed,
 * all of it ends. -errno: nothing was started. `tag`: of an archive's images this one; "": the only
 * one.
 */
int import_start(const struct image_start *start, enum import_kind kind, const char *tag,
		 pid_t *ret_pid);

/* What dsec-store is asked: checked. */
struct store_words {
	const char *verb, *name; /* name: of the image that is made or read; "": none */
	const char *texts;	 /* parts, sources, rules; each ends with NUL */
	uint32_t text_count;
};

/* What their file has when nobody writes to it any more. */
enum { STORE_WORDS_SEALS = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE };

/*
 * dsec-store VERB BYTES_MAX FREE_MIN FLAGS NAME. As import_start(). The texts, of which some are
 * secrets, come by a sealed file, IMAGE_FD_STREAM. By hand they may follow as arguments.
 */
int store_start(const struct image_start *start, const struct store_words *words, pid_t *ret_pid);
/* dsec-import empties a directory; exit status 0: it is empty. */
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
	uint64_t new_bytes, shared_bytes; /* DONE: of contents: stored now, or there before */
	char step[24];			  /* FAILED: where: "stream", "layer", "config", … */
	char reason[80];		  /* FAILED: in words */
	char name[256];			  /* FAILED: of the entry; "": none */
	char digest[IMAGE_DIGEST_BYTES];  /* DONE */
};

_Static_assert(sizeof(struct import_frame) == 496, "no padding");

/* From bytes of the pipe; -EPROTO: no frame that an importer of ours writes. */
int import_frame_read(const void *bytes, size_t count, struct import_frame *ret);
