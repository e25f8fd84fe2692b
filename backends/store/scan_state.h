/* One scan from the inside: scan.c walks, scan_file.c reads contents and attributes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "backends/store/canary.h"
#include "backends/store/scan.h"

enum { SCAN_BUFFER_BYTES = 256 << 10, SCAN_LIST_BYTES_MAX = 64 << 10 };

/* Where contents that have several names are in the tree. */
struct scan_link {
	uint64_t inode; /* 0: a free place */
	uint32_t node;
};

struct scanning {
	const struct scan *scan;
	struct tree *tree;
	struct scanned *report;
	uint64_t device;
	uint64_t raw_bytes, content_bytes; /* written; with holes */
	uint64_t entries;
	struct scan_link *links;
	size_t link_count, link_size;
	char layer[DIGEST_TEXT_BYTES]; /* of the store, that is looked through; "": none */
	size_t path_bytes;
	char path[(TREE_DEPTH_MAX + 1) * (TREE_NAME_MAX + 1) + 1];
	char list[SCAN_LIST_BYTES_MAX]; /* names of attributes */
	char value[SCAN_LIST_BYTES_MAX + 1];
	uint8_t buffer[SCAN_BUFFER_BYTES];
};

/* Says why and where, once; returns `error`. */
int scan_refuse(struct scanning *s, int error, const char *reason);
/* The same of a canary, without a word of it: `what` has it. */
int scan_refuse_canary(struct scanning *s, const struct canary_hit *hit, const char *what);
/* A text of the entry at hand. -EKEYREJECTED. */
int scan_check(struct scanning *s, const void *bytes, size_t count, const char *what);
/* The path of the entry at hand, and that it has none from `folder_bytes` on. -EKEYREJECTED. */
int scan_check_path(struct scanning *s, size_t folder_bytes);

/* ---- scan_file.c ---- */

/* What overlayfs says of an entry in attributes of its own. */
struct scan_marks {
	bool is_opaque;
	bool has_whiteouts; /* a directory: files in it may be whiteouts by an attribute */
	bool is_whiteout;
};

/* Those that stay go to the node, which may be TREE_NONE: only the marks are read. */
int scan_xattrs(struct scanning *s, int fd, uint32_t node, struct scan_marks *ret);
/* All of a file's contents. */
int scan_contents(struct scanning *s, int fd, const struct stat *st, uint32_t node);
/*
 * From `at` to `end`, which is the end of the contents or of a block, through the canaries and into
 * the raw file; the last block is filled up.
 */
int scan_extent(struct scanning *s, int fd, uint64_t at, uint64_t end, struct canary_scan *canary);
/* The caller is told, and says whether it goes on. */
int scan_progress(struct scanning *s);
/* Whether a core file begins there. */
bool scan_is_core(int fd, uint64_t at);
