/* A tree of the host's files, its contents in segments, and the image of it mounted: for tests. */
#pragma once

#include <stdint.h>

#include "backends/store/tree.h"

enum { HOST_SEGMENTS_MAX = 256 };

struct host_tree {
	struct tree *tree;
	int directory_fd; /* where segments are made; they have no names */
	int segment_fds[HOST_SEGMENTS_MAX];
	uint32_t segment_count;
	uint64_t segment_bytes, contents_bytes; /* of the last segment; of all */
	uint64_t segment_bytes_max;
	struct host_link *links; /* of files with several names */
};

/*
 * Ends the program with a word when anything fails. UINT64_MAX: all contents are in one segment.
 * Whiteouts and opaque directories are those of overlayfs.
 */
void host_tree_read(struct host_tree *host, const char *path, const char *scratch,
		    uint64_t segment_bytes_max);
void host_tree_done(struct host_tree *host);

struct host_image {
	int fd, mount_fd;
	uint64_t bytes, inodes;
	uint64_t write_us, mount_us;
};

void host_image_make(struct host_tree *host, struct host_image *ret);
/* A mount of an image whose devices are those; -errno. */
int host_image_mount(int fd, const int *devices, uint32_t count);
void host_image_done(struct host_image *image);
/* Everything of the folder is in the image as it is there. Returns the number of files compared. */
uint64_t host_image_compare(const struct host_image *image, const char *path);
