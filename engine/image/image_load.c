/*
 * Loading an image. Called by image.c on the control thread. Must hold: record, table and mount are
 * of one file, though it may be replaced at any time; when it fails, nothing is left of it.
 */
#include "engine/image/image_load.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/backend.h"
#include "backends/image.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"

enum { LOAD_TRIES = 3 };

struct image_file image_file_identify(const char *path)
{
	struct stat st;

	if (stat(path, &st) < 0)
		return (struct image_file){ 0 };
	return (struct image_file){
		.device = st.st_dev,
		.inode = st.st_ino,
		.bytes = (uint64_t)st.st_size,
		.changed_ns =
			(uint64_t)st.st_ctim.tv_sec * 1000000000u + (uint64_t)st.st_ctim.tv_nsec,
		.written_ns =
			(uint64_t)st.st_mtim.tv_sec * 1000000000u + (uint64_t)st.st_mtim.tv_nsec,
	};
}

bool image_file_is(const struct image_file *file, const char *path)
{
	struct image_file now = image_file_identify(path);

	return !memcmp(&now, file, sizeof now);
}

/* The record of the very file that was identified; none is fine. */
static int record_load(int fd, struct image_record **ret)
{
	auto_free struct image_record *record = calloc(1, sizeof *record);
	int r;

	if (!record)
		return -ENOMEM;
	r = image_size_check(fd);
	if (r >= 0)
		r = image_record_read(fd, record);
	if (r < 0)
		return r == -ENODATA ? 0 : r;
	*ret = take_ptr(record);
	return 0;
}

static int segments_load(int fd, struct image_load *load)
{
	int r = image_segments_read(fd, &load->segments, &load->segment_count);

	return r == -ENODATA ? 0 : r;
}

/* What the file says of itself. */
static int file_read(struct image_load *load)
{
	auto_close int fd = open(load->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	int r;

	if (fd < 0)
		return 0; /* the mount says what is wrong */
	r = record_load(fd, &load->image->record);
	if (r >= 0)
		r = erofs_table_read(fd, &load->table);
	if (r >= 0 && load->table.count)
		r = segments_load(fd, load);
	return r;
}

static void load_forget(struct image_load *load)
{
	devices_close(&load->devices);
	erofs_table_done(&load->table);
	free(take_ptr(load->segments));
	load->segment_count = 0;
}

/* 1: it is another file by now. */
static int file_mount(struct image_load *load)
{
	struct image *image = load->image;
	int mount_fd, r = backend_image_mount(load->path, &load->devices.list, &mount_fd);

	if (r < 0)
		return r;
	if (!image_file_is(&image->file, load->path)) {
		(void)close(mount_fd); /* and with it the mount */
		return 1;
	}
	if (r > 0)
		log_info("image contents are in memory twice name=\"%s\": its file system has no"
			 " direct reads, continuing",
			 image->name);
	devices_keep(&load->devices, image);
	load->mount_fd = mount_fd;
	return 0;
}

static void devices_came(struct devices *devices, int result)
{
	struct image_load *load = devices->owner;
	int r = result < 0 ? result : file_mount(load);

	load_forget(load);
	if (r > 0)
		r = image_load(load);
	if (r != -EAGAIN)
		load->loaded(load, r);
}

int image_load(struct image_load *load)
{
	int r = -EBUSY;

	while (load->tries++ < LOAD_TRIES) {
		struct devices_ask ask = { .control = load->control, .table = &load->table };

		load->image->file = image_file_identify(load->path);
		free(load->image->record);
		load->image->record = NULL;
		r = file_read(load);
		ask.segments = load->segments;
		ask.segment_count = load->segment_count;
		load->devices.ready = devices_came;
		load->devices.owner = load;
		if (r >= 0)
			r = devices_open(&load->devices, &ask);
		if (r == -EAGAIN)
			return r;
		if (r >= 0)
			r = file_mount(load);
		load_forget(load);
		if (r <= 0)
			return r;
		r = -EBUSY;
	}
	return r;
}
