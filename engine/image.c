/*
 * Images by name. A shard asks image_get(); what is not in the table travels to the control thread,
 * which opens and mounts the file (it may block), to shard 0, whose launcher hangs the mount into
 * the vault, and home.
 */
#include "engine/image.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
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
		if (!strcmp(table->names[i], name))
			return (int)i;
	return -ENOENT;
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
	char path[4096];
	int r;

	r = table_find(table, want->name);
	if (r < 0 && table->count == IMAGES_MAX)
		r = -ENOSPC;
	if (r != -ENOENT) {
		want_answer(want, control_io(control), r);
		control_image_next(control);
		return;
	}
	r = snprintf(path, sizeof path, "%s/%s.erofs", want->node->config->images_path, want->name);
	if (r < (int)sizeof path)
		r = backend_image_mount(path, &want->mount_fd);
	else
		r = -ENAMETOOLONG;
	if (r < 0) {
		if (r != -ENOENT)
			log_error("image mount failed path=\"%s\" err=%s", path, strerror(-r));
		want_answer(want, control_io(control), r);
		control_image_next(control);
		return;
	}
	want->index = table->count;
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
