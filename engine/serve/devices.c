/*
 * Opens the segments that an image's table of devices names. Called by image.c on the control
 * thread. Must hold: what the table says is never part of a path but as 64 hexadecimal digits, and
 * nothing but a regular file of the size it says becomes a device, so no open waits.
 */
#include "engine/serve/devices.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/store/digest.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/config.h"

/* Without any there need not be a store. */
static int blobs_open(const struct config *config)
{
	auto_close int images = open(config->images_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int blobs;

	if (images < 0)
		return -errno;
	blobs = openat(images, "blobs/sha256", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return blobs < 0 ? -errno : blobs;
}

static int segment_open(int blobs_fd, const char *tag, uint64_t bytes)
{
	auto_close int fd =
		openat(blobs_fd, tag, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != bytes)
		return -EBADMSG;
	return take_fd(&fd);
}

static int device_open(int blobs_fd, const char *tag, uint64_t bytes)
{
	uint8_t digest[DIGEST_BYTES];
	int r;

	if (!digest_parse(tag, digest)) {
		log_error("image device is named by no digest");
		return -EBADMSG;
	}
	r = blobs_fd < 0 ? blobs_fd : segment_open(blobs_fd, tag, bytes);
	if (r >= 0)
		return r;
	log_error("image segment cannot be used segment=%s err=%s", tag,
		  r == -EBADMSG ? "it has another size" : strerror(-r));
	return r == -ENOENT ? -ENOMEDIUM : r;
}

int devices_open(const struct config *config, const struct erofs_table *table, struct devices *ret)
{
	int blobs = -ENOENT, r = 0;

	ret->list = (struct backend_devices){ .fds = ret->fds };
	if (table->count)
		blobs = blobs_open(config);
	for (uint32_t i = 0; r >= 0 && i < table->count; i++) {
		r = device_open(blobs, table->tags[i], table->bytes[i]);
		if (r >= 0)
			ret->fds[ret->list.count++] = r;
	}
	cleanup_close(&blobs);
	if (r < 0)
		devices_close(ret);
	return r < 0 ? r : 0;
}

void devices_close(struct devices *devices)
{
	for (uint32_t i = 0; i < devices->list.count; i++)
		(void)close(devices->fds[i]);
	devices->list.count = 0;
}
