/*
 * Opens the segments that an image's table of devices names: the store's own, or what is served of
 * a remote. Called by image_load.c on the control thread. Must hold: what the table says is never
 * part of a path but as 64 hexadecimal digits, and nothing but a regular file of the size it says
 * becomes a device, so no open waits.
 */
#include "engine/serve/devices.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/store/digest.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/config.h"
#include "engine/control.h"
#include "engine/image/image.h"

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

static int file_check(int fd, uint64_t bytes)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return S_ISREG(st.st_mode) && (uint64_t)st.st_size == bytes ? 0 : -EBADMSG;
}

static int segment_open(int blobs_fd, const char *tag, uint64_t bytes)
{
	auto_close int fd =
		openat(blobs_fd, tag, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	int r = fd < 0 ? -errno : file_check(fd, bytes);

	return r < 0 ? r : take_fd(&fd);
}

/* ---- what is served ---- */

static void use_ready(struct serve_use *use)
{
	struct devices *devices = use->owner;

	devices->fds[use - devices->uses] = use->result;
	if (use->result < 0)
		devices->error = use->result;
	if (use->result == -ENOENT) { /* it is the segment's, not the image's */
		devices->error = -ENOMEDIUM;
		digest_hex(use->segment.digest, devices->missing);
	}
	if (!--devices->pending)
		devices->ready(devices, devices->error);
}

static const struct tree_segment *segment_find(const struct devices_ask *ask, const uint8_t *digest)
{
	for (uint32_t i = 0; i < ask->segment_count; i++)
		if (!memcmp(ask->segments[i].digest, digest, DIGEST_BYTES))
			return &ask->segments[i];
	return NULL;
}

static int served_open(struct devices *devices, const struct devices_ask *ask, uint32_t at,
		       const uint8_t *digest)
{
	struct serve *serve = control_serve(ask->control);
	const struct tree_segment *segment = segment_find(ask, digest);
	struct serve_use *use;
	int r;

	if (!serve || !segment)
		return -ENOENT;
	if (segment->bytes != ask->table->bytes[at])
		return -EBADMSG;
	if (!devices->uses)
		devices->uses = calloc(ask->table->count, sizeof *devices->uses);
	if (!devices->uses)
		return -ENOMEM;
	use = &devices->uses[at];
	*use = (struct serve_use){ .segment = *segment, .ready = use_ready, .owner = devices };
	r = serve_begin(serve, use);
	if (r == -EAGAIN)
		devices->pending++;
	return r >= 0 ? use->result : r;
}

/* ---- all of them ---- */

static int device_open(struct devices *devices, const struct devices_ask *ask, uint32_t at,
		       int blobs_fd)
{
	const char *tag = ask->table->tags[at];
	uint8_t digest[DIGEST_BYTES];
	int r;

	if (!digest_parse(tag, digest)) {
		log_error("image device is named by no digest");
		return -EBADMSG;
	}
	r = blobs_fd < 0 ? blobs_fd : segment_open(blobs_fd, tag, ask->table->bytes[at]);
	if (r == -ENOENT)
		r = served_open(devices, ask, at, digest);
	if (r >= 0 || r == -EAGAIN)
		return r;
	log_error("image segment cannot be used segment=%s err=%s", tag,
		  r == -EBADMSG ? "it has another size" : strerror(-r));
	if (r != -ENOENT)
		return r;
	digest_hex(digest, devices->missing);
	return -ENOMEDIUM;
}

int devices_open(struct devices *devices, const struct devices_ask *ask)
{
	const uint32_t count = ask->table->count;
	int blobs = -ENOENT, r = 0;

	devices->list = (struct backend_devices){ .fds = devices->fds };
	devices->pending = 0;
	devices->error = 0;
	if (count)
		blobs = blobs_open(control_config(ask->control));
	for (uint32_t i = 0; r >= 0 && i < count; i++) {
		r = device_open(devices, ask, i, blobs);
		devices->fds[devices->list.count++] = r < 0 ? -1 : r;
		if (r == -EAGAIN)
			r = 0;
	}
	cleanup_close(&blobs);
	/* What was asked for comes; then the error is told. */
	if (r < 0)
		devices->error = r;
	if (devices->pending)
		return -EAGAIN;
	if (r < 0)
		devices_close(devices);
	return r < 0 ? r : 0;
}

void devices_close(struct devices *devices)
{
	for (uint32_t i = 0; i < devices->list.count; i++) {
		if (devices->uses && devices->uses[i].entry)
			serve_put(devices->uses[i].entry);
		cleanup_close(&devices->fds[i]);
	}
	devices->list.count = 0;
	free(take_ptr(devices->uses));
}

static void devices_tell(const struct devices *devices, const struct image *image)
{
	uint32_t served = 0, whole = 0;

	for (uint32_t i = 0; i < devices->list.count; i++) {
		if (!devices->uses[i].entry)
			continue;
		if (serve_is_whole(devices->uses[i].entry))
			whole++;
		else
			served++;
	}
	log_info("image devices name=\"%s\" here=%u whole=%u served=%u", image->name,
		 devices->list.count - served - whole, whole, served);
}

void devices_keep(struct devices *devices, struct image *image)
{
	if (!devices->uses)
		return;
	devices_tell(devices, image);
	image->served = calloc(devices->list.count, sizeof *image->served);
	for (uint32_t i = 0; image->served && i < devices->list.count; i++) {
		if (!devices->uses[i].entry)
			continue;
		image->served[image->served_count++] = devices->uses[i].entry;
		devices->uses[i].entry = NULL;
	}
	/* Without memory to remember them they are not put back: they stay with the engine. */
	for (uint32_t i = 0; !image->served && i < devices->list.count; i++)
		devices->uses[i].entry = NULL;
}
