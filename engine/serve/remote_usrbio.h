/*
 * 3FS's USRBIO, as libhf3fs_api_shared.so has it: what we use of it, after
 * src/lib/api/hf3fs_usrbio.h of DeepSeek's 3FS. Never linked: looked up where it is installed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#define USRBIO_LIBRARY "libhf3fs_api_shared.so"

enum { USRBIO_PATH_BYTES = 256, USRBIO_FORBID_READ_HOLES = 2 };

struct hf3fs_iov {
	uint8_t *base;
	void *iovh;
	char id[16];
	char mount_point[USRBIO_PATH_BYTES];
	size_t size, block_size;
	int numa;
};

struct hf3fs_ior {
	struct hf3fs_iov iov;
	void *iorh;
	char mount_point[USRBIO_PATH_BYTES];
	bool for_read;
	int io_depth, priority, timeout;
	uint64_t flags;
};

struct hf3fs_cqe {
	int32_t index, reserved;
	int64_t result; /* bytes, or -errno */
	const void *userdata;
};

struct usrbio_api {
	/* Bytes with the NUL; over `size`: too long; below 1: none */
	int (*extract_mount_point)(char *mount_point, int size, const char *path);
	int (*iovcreate)(struct hf3fs_iov *iov, const char *mount_point, size_t size,
			 size_t block_size, int numa);
	void (*iovdestroy)(struct hf3fs_iov *iov);
	/* The eighth argument: flags. */
	int (*iorcreate4)(struct hf3fs_ior *ior, const char *mount_point, int entries,
			  bool for_read, int io_depth, int timeout, int numa, uint64_t flags);
	void (*iordestroy)(struct hf3fs_ior *ior);
	int (*reg_fd)(int fd, uint64_t flags); /* over 0: an errno */
	void (*dereg_fd)(int fd);
	/* By one thread at a time. */
	int (*prep_io)(const struct hf3fs_ior *ior, const struct hf3fs_iov *iov, bool read,
		       void *at, int fd, size_t offset, uint64_t bytes, const void *userdata);
	int (*submit_ios)(const struct hf3fs_ior *ior);
	int (*wait_for_ios)(const struct hf3fs_ior *ior, struct hf3fs_cqe *cqes, int cqes_max,
			    int least, const struct timespec *until);
};

/* -ENOENT: no such library here, or one that lacks a function. It stays in the process. */
int usrbio_find(struct usrbio_api *ret);
