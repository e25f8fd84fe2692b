/*
 * What a sandbox changed becomes a layer: the upper directory of its overlay, read as hostile bytes
 * that nobody writes to any more. Contents go into one raw file, which holds nothing that the tree
 * does not refer to; so what was deleted is in neither. See docs/pack.md for the rules.
 */
#pragma once

#include <stdint.h>

#include "backends/store/tree.h"

struct canary_list;
struct digest_set;
struct residue;
struct store;

enum scan_drop {
	SCAN_DROP_SOCKET,
	SCAN_DROP_DEVICE,
	SCAN_DROP_ENGINE,   /* /dev, /proc, /sys and /etc/resolv.conf are the engine's */
	SCAN_DROP_WHITEOUT, /* a name that other tools would read as a whiteout: .wh.* */
	SCAN_DROP_XATTR,    /* neither user.* nor a file capability */
	SCAN_DROPS,
};

enum { SCAN_IDS = 65536, SCAN_PATH_BYTES = 256, SCAN_REASON_BYTES = 160 };

struct scan {
	int upper_fd;		 /* opened for reading */
	int raw_fd;		 /* empty; whole blocks are appended to it, extents' segment is 0 */
	uint32_t id_base;	 /* the first host uid and gid of its range */
	struct residue *residue; /* NULL: nothing is wiped */
	struct digest_set *segments; /* of a layer of the store, for these they are; NULL: nobody */
	const struct canary_list *canaries; /* NULL: none */
	uint64_t bytes_max;		    /* of contents, and of holes as if they were */
	uint32_t files_max;		    /* entries of any kind */
	/* Negative: it ends with that. */
	int (*progress)(void *owner, uint64_t files, uint64_t bytes);
	void *owner;
};

struct scanned {
	uint64_t files, bytes; /* in the layer: entries, and bytes of contents */
	uint64_t whiteouts, wiped;
	uint64_t dropped[SCAN_DROPS];
	/* Why it failed, and where. A path that holds a canary is never shown. */
	char path[SCAN_PATH_BYTES];
	char reason[SCAN_REASON_BYTES];
};

/*
 * -EBADMSG: something in it that no layer can hold; -EKEYREJECTED: a canary was found; -E2BIG,
 * -EFBIG: over a limit; -ENOSPC, -EIO, -ENOMEM. `ret` is filled in either way, the tree is the
 * caller's on success.
 */
int scan_upper(const struct scan *scan, struct tree **ret_tree, struct scanned *ret);

/*
 * A layer of the store, which is published with what lies over it: names, attributes, every byte of
 * its segments, also those that no file of it has, and its other blobs. Residue is counted, in the
 * scan's. As scan_upper(); -EOPNOTSUPP: its contents are not here.
 */
int scan_layer(const struct scan *scan, const struct store *store,
	       const uint8_t manifest[DIGEST_BYTES], struct scanned *ret);

/*
 * A tree of several layers, whose contents are in the store, and in `raw_fd` where a segment has no
 * digest, becomes one of contents in the scan's raw file alone: residue is removed, the rest looked
 * through. `ret` goes on from what it has. As scan_layer().
 */
int scan_fold(const struct scan *scan, const struct store *store, struct tree *tree, int raw_fd,
	      struct scanned *ret);
