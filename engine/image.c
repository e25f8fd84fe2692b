/*
 * Images by name. A shard asks image_get(); what is not in the table travels to the control thread,
 * which opens and mounts the file (it may block), to shard 0, whose launcher hangs the mount into
 * the vault, and home.
 */
#include "engine/image.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/backend.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/control.h"
#include "engine/shard.h"

static int table_find(const struct image_table *table, const char *name)
{
	uint32_t count = __atomic_load_n(&table->count, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < count; i++)
		if (!__atomic_load_n(&table->is_stale[i], __ATOMIC_RELAXED) &&
		    !strcmp(table->names[i], name))
			return (int)i;
	return -ENOENT;
}

static int file_path(const struct config *config, const char *name, char *ret, size_t bytes)
{
	int r = snprintf(ret, bytes, "%s/%s.erofs", config->images_path, name);

	return r < (int)bytes ? 0 : -ENAMETOOLONG;
}

/* All zero where there is none. */
static struct image_file file_identify(const char *path)
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
	};
}

void images_refresh(struct control *control, const struct config *config)
{
	struct image_table *table = control_images(control);
	struct image_file now;
	char path[PATH_MAX];

	for (uint32_t i = 0; i < table->count; i++) {
		if (table->is_stale[i] || file_path(config, table->names[i], path, sizeof path) < 0)
			continue;
		now = file_identify(path);
		if (!memcmp(&now, &table->files[i], sizeof now))
			continue;
		__atomic_store_n(&table->is_stale[i], true, __ATOMIC_RELAXED);
		log_info("image changed name=\"%s\" index=%u, the next create reads it anew",
			 table->names[i], i);
	}
}

int image_name_check(const char *name)
{
	bool start = true;

	if (!*name)
		return -EINVAL;
	for (const char *at = name; *at; at++) {
		if (start && (*at == '.' || *at == '/'))
			return -EINVAL;
		if (!isalnum((unsigned char)*at) && !strchr("._-/", *at))
			return -EINVAL;
		start = *at == '/';
	}
	return start ? -EINVAL : 0;
}

static void want_home(struct mail *mail, void *owner)
{
	struct image_want *want = container_of(mail, struct image_want, mail);

	(void)owner; /* want->shard */
	want->ready(want, want->result);
}

static void want_answer(struct image_want *want, struct io *from, int result)
{
	want->result = result;
	want->mail.deliver = want_home;
	mail_send(from, want->shard->io, &want->mail);
}

/* On the control thread: the mount hangs in the vault, or did not get there. */
static void want_published(struct mail *mail, void *owner)
{
	struct image_want *want = container_of(mail, struct image_want, mail);
	struct control *control = owner;
	struct image_table *table = control_images(control);

	control_image_busy(control, false);
	if (want->result >= 0) {
		__atomic_store_n(&table->count, want->index + 1, __ATOMIC_RELEASE);
		log_info("image ready name=\"%s\" index=%u", want->name, want->index);
		want->result = (int)want->index;
	}
	want_answer(want, control_io(control), want->result);
	control_image_next(control);
}

/* On shard 0. */
static void want_attached(void *owner, int error)
{
	struct image_want *want = owner;

	want->result = error;
	want->mail.deliver = want_published;
	mail_send(want->node->shards[0]->io, control_io(want->node->control), &want->mail);
}

static void want_attach(struct mail *mail, void *owner)
{
	struct image_want *want = container_of(mail, struct image_want, mail);
	struct shard *shard = owner;
	int r;

	r = shard->backend->class->image_attach(shard->backend, want->index, want->mount_fd, want,
						want_attached);
	if (r < 0) {
		(void)close(want->mount_fd);
		want_attached(want, r);
	}
}

/* On the control thread, one image at a time. */
void image_open(struct control *control, struct image_want *want)
{
	struct image_table *table = control_images(control);
	struct image_file file = { 0 };
	char path[PATH_MAX];
	int r;

	r = table_find(table, want->name);
	if (r < 0 && table->count == IMAGES_MAX)
		r = -ENOSPC;
	if (r != -ENOENT) {
		want_answer(want, control_io(control), r);
		control_image_next(control);
		return;
	}
	r = file_path(want->node->config, want->name, path, sizeof path);
	if (r >= 0) {
		/* Before it is opened: if it is replaced meanwhile, the next look finds that. */
		file = file_identify(path);
		r = backend_image_mount(path, &want->mount_fd);
	}
	if (r < 0) {
		if (r != -ENOENT)
			log_error("image mount failed path=\"%s\" err=%s", path, strerror(-r));
		want_answer(want, control_io(control), r);
		control_image_next(control);
		return;
	}
	want->index = table->count;
	table->files[want->index] = file;
	table->is_stale[want->index] = false;
	(void)snprintf(table->names[want->index], IMAGE_FILE_NAME_MAX, "%s", want->name);
	control_image_busy(control, true);
	want->mail.deliver = want_attach;
	mail_send(control_io(control), want->node->shards[0]->io, &want->mail);
}

static void want_arrived(struct mail *mail, void *owner)
{
	struct image_want *want = container_of(mail, struct image_want, mail);

	control_image_queue(owner, want);
}

int image_get(struct image_want *want)
{
	struct shard *shard = want->shard;
	int r;

	want->node = shard->node;
	r = image_name_check(want->name);
	if (r < 0)
		return r;
	r = table_find(control_images(shard->node->control), want->name);
	if (r >= 0)
		return r;
	want->mail.deliver = want_arrived;
	mail_send(shard->io, control_io(shard->node->control), &want->mail);
	return -EAGAIN;
}
