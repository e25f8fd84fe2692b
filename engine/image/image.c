/*
 * Images by name. A shard asks image_get(); what it does not hold is asked of the control thread,
 * which opens and mounts the file (it may block), has shard 0 hang the mount into the vault, and
 * tells the shard. Must hold: a version is found by nobody while it goes, and goes only when every
 * shard that held it has given it back; numbers of versions are never used again, so that a slot
 * made of one is never taken for a slot of another.
 */
#include "engine/image/image.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/backend.h"
#include "backends/image.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/control.h"
#include "engine/image/composition.h"
#include "engine/image/image_load.h"
#include "engine/shard.h"

static void images_next(struct control *control);

/* ---- a version, on the control thread ---- */

static struct image *table_find(const struct image_table *table, const char *name)
{
	for (uint32_t i = 0; i < IMAGES_MAX; i++)
		if (table->images[i] && !table->images[i]->is_stale &&
		    !strcmp(table->images[i]->name, name))
			return table->images[i];
	return NULL;
}

static bool table_has_spoilt(const struct image_table *table, const char *name)
{
	for (uint32_t i = 0; i < IMAGES_MAX; i++)
		if (table->images[i] && table->images[i]->is_spoilt &&
		    !strcmp(table->images[i]->name, name))
			return true;
	return false;
}

static struct image **table_place(struct image_table *table, const struct image *image)
{
	for (uint32_t i = 0; i < IMAGES_MAX; i++)
		if (table->images[i] == image)
			return &table->images[i];
	return NULL;
}

static struct image *image_new(struct image_table *table, struct node *node, const char *name)
{
	struct image **place = table_place(table, NULL);
	struct image *image;

	if (!place)
		return NULL;
	image = calloc(1, sizeof *image + node->shard_count * sizeof *image->holders);
	if (!image)
		return NULL;
	for (uint32_t i = 0; i < node->shard_count; i++)
		image->holders[i].image = image;
	image->node = node;
	image->number = ++table->numbers;
	(void)snprintf(image->name, sizeof image->name, "%s", name);
	*place = image;
	return image;
}

static void image_free(struct image_table *table, struct image *image)
{
	*table_place(table, image) = NULL;
	for (uint32_t i = 0; i < image->served_count; i++)
		serve_put(image->served[i]);
	free(image->served);
	free(image->record);
	free(image->parts);
	free(image);
}

/* ---- a version goes ---- */

static void image_detached(void *owner, int error)
{
	struct image *image = owner;

	if (error)
		log_error("image detach failed number=%u err=%s, continuing", image->number,
			  strerror(-error));
	mail_send(image->node->shards[0]->io, control_io(image->node->control), &image->mail);
}

static void image_went(struct mail *mail, void *owner)
{
	struct image *image = container_of(mail, struct image, mail);
	struct control *control = owner;

	log_info("image gone name=\"%s\" number=%u", image->name, image->number);
	image_free(control_images(control), image);
	images_next(control);
}

/* On shard 0. */
static void image_detach(struct mail *mail, void *owner)
{
	struct image *image = container_of(mail, struct image, mail);
	struct shard *shard = owner;
	int r;

	mail->deliver = image_went;
	r = shard->backend->class->image_detach(shard->backend, image->number, image,
						image_detached);
	if (r < 0)
		image_detached(image, r);
}

/* On the control thread: is it time? */
static void image_settle(struct control *control, struct image *image)
{
	if (!image->is_stale || image->held || control_images(control)->stopping)
		return;
	image->mail.deliver = image_detach;
	mail_send(control_io(control), image->node->shards[0]->io, &image->mail);
}

static void holder_came_back(struct mail *mail, void *owner)
{
	struct image_holder *holder = container_of(mail, struct image_holder, mail);

	holder->shard = NULL;
	holder->image->held--;
	image_settle(owner, holder->image);
}

static struct image_hold *hold_of(struct shard *shard, const struct image *image)
{
	for (uint32_t i = 0; i < IMAGES_MAX; i++)
		if (shard->images[i].image == image)
			return &shard->images[i];
	return NULL;
}

/* On a shard. */
static void hold_settle(struct shard *shard, struct image_hold *hold)
{
	struct image_holder *back = hold->back;

	if (hold->users || !back)
		return;
	shard->backend->class->image_forget(shard->backend, hold->image->number);
	*hold = (struct image_hold){ 0 };
	back->mail.deliver = holder_came_back;
	mail_send(shard->io, control_io(shard->node->control), &back->mail);
}

static void hold_end(struct mail *mail, void *owner)
{
	struct image_holder *holder = container_of(mail, struct image_holder, mail);
	struct image_hold *hold = hold_of(owner, holder->image);

	assert(hold); /* told before, by the same way */
	hold->back = holder;
	hold_settle(owner, hold);
}

static void image_retire(struct control *control, struct image *image)
{
	image->is_stale = true;
	for (uint32_t i = 0; i < image->node->shard_count; i++) {
		struct image_holder *holder = &image->holders[i];

		if (!holder->shard)
			continue;
		holder->mail.deliver = hold_end;
		mail_send(control_io(control), holder->shard->io, &holder->mail);
	}
	image_settle(control, image);
}

static void image_spoil(struct image *image)
{
	image->is_spoilt = true;
	log_error("image was written to in place name=\"%s\" number=%u: its sandboxes are spoilt,"
		  " destroy them; a new file is to be renamed over the old one",
		  image->name, image->number);
}

static int version_path(const struct config *config, const struct image *image, char *ret,
			size_t bytes)
{
	return *image->key ? composition_path(config, image->key, ret, bytes) :
			     image_path(config, image->name, ret, bytes);
}

static bool version_is_current(const struct config *config, struct image *image, const char *path)
{
	return image_file_is(&image->file, path) &&
	       (!image->parts || image->is_stale || composition_is_current(config, image));
}

void images_refresh(struct control *control, const struct config *config)
{
	struct image_table *table = control_images(control);
	char path[PATH_MAX];

	for (uint32_t i = 0; i < IMAGES_MAX; i++) {
		struct image *image = table->images[i];

		/* What is being opened is looked at next time. */
		if (!image || !image->held || image->is_spoilt ||
		    version_path(config, image, path, sizeof path) < 0 ||
		    version_is_current(config, image, path))
			continue;
		if (__atomic_load_n(&image->users, __ATOMIC_RELAXED) &&
		    image_file_was_written(&image->file, path))
			image_spoil(image);
		if (image->is_stale)
			continue;
		log_info("image changed name=\"%s\" number=%u, the next create reads it anew",
			 image->name, image->number);
		image_retire(control, image);
	}
}

/* The one longest here of those that nobody uses. 1: it goes; 0: another goes; -ENOSPC. */
static int images_make_room(struct control *control)
{
	struct image_table *table = control_images(control);
	struct image *oldest = NULL;

	for (uint32_t i = 0; i < IMAGES_MAX; i++) {
		struct image *image = table->images[i];

		if (!image || __atomic_load_n(&image->users, __ATOMIC_RELAXED))
			continue;
		if (image->is_stale)
			return 0;
		if (!oldest || image->number < oldest->number)
			oldest = image;
	}
	if (!oldest)
		return -ENOSPC;
	image_retire(control, oldest);
	return 1;
}

uint32_t images_users(const struct image_table *table, const char *name)
{
	uint32_t users = 0;

	for (uint32_t i = 0; i < IMAGES_MAX; i++)
		if (table->images[i] && !strcmp(table->images[i]->name, name))
			users += __atomic_load_n(&table->images[i]->users, __ATOMIC_RELAXED);
	return users;
}

void images_init(struct image_table *table)
{
	*table = (struct image_table){ .wants_last = &table->wants };
}

void images_stop(struct control *control)
{
	control_images(control)->stopping = true;
	images_next(control); /* none waits for a place any more */
}

void images_done(struct image_table *table)
{
	for (uint32_t i = 0; i < IMAGES_MAX; i++)
		if (table->images[i])
			image_free(table, table->images[i]);
}

/* ---- a version comes: from the control thread to the shard that asked ---- */

static void want_home(struct mail *mail, void *owner)
{
	struct image_want *want = container_of(mail, struct image_want, mail);
	struct shard *shard = owner;

	if (want->result >= 0) {
		struct image_hold *hold = hold_of(shard, want->image);

		if (!hold)
			hold = hold_of(shard, NULL);
		assert(hold); /* as many as there may be versions */
		hold->image = want->image;
		hold->users++; /* the control thread counted it in image->users */
	}
	want->ready(want, want->result);
}

static void want_answer(struct control *control, struct image_want *want, int result)
{
	want->result = result;
	if (result >= 0) {
		struct image_holder *holder = &want->image->holders[want->shard->number];

		if (!holder->shard) {
			holder->shard = want->shard;
			want->image->held++;
		}
		__atomic_fetch_add(&want->image->users, 1, __ATOMIC_RELAXED);
	}
	want->mail.deliver = want_home;
	mail_send(control_io(control), want->shard->io, &want->mail);
}

/* The mount hangs in the vault, or did not get there. */
static void want_published(struct mail *mail, void *owner)
{
	struct image_want *want = container_of(mail, struct image_want, mail);
	struct control *control = owner;
	struct image_table *table = control_images(control);

	table->busy = false;
	if (want->result >= 0) {
		log_info("image ready name=\"%s\" number=%u", want->name, want->image->number);
	} else {
		image_free(table, want->image);
		want->image = NULL;
	}
	want_answer(control, want, want->result);
	images_next(control);
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

	r = shard->backend->class->image_attach(shard->backend, want->image->number, want->mount_fd,
						want, want_attached);
	if (r < 0) {
		(void)close(want->mount_fd);
		want_attached(want, r);
	}
}

/* Its mount is there, and shard 0 hangs it into the vault. */
static void want_loaded(struct control *control, struct image_want *want)
{
	want->mail.deliver = want_attach;
	mail_send(control_io(control), want->node->shards[0]->io, &want->mail);
}

static void want_failed(struct control *control, struct image_want *want, int error)
{
	if (error != -ENOENT && error != -EINPROGRESS)
		log_error("image mount failed name=\"%s\" err=%s", want->name, strerror(-error));
	image_free(control_images(control), want->image);
	want->image = NULL;
}

/* Contents that had to be asked for are there, or cannot be had. */
static void image_loaded(struct image_load *load, int result)
{
	struct image_want *want = load->owner;
	struct control *control = load->control;

	want->mount_fd = load->mount_fd;
	memcpy(want->missing, load->devices.missing, sizeof want->missing);
	free(load);
	if (result >= 0) {
		want_loaded(control, want);
		return;
	}
	want_failed(control, want, result);
	control_images(control)->busy = false;
	want_answer(control, want, result);
	images_next(control);
}

static int want_load(struct control *control, struct image_want *want)
{
	struct image_load *load = calloc(1, sizeof *load);
	int r;

	if (!load)
		return -ENOMEM;
	load->control = control;
	load->image = want->image;
	load->loaded = image_loaded;
	load->owner = want;
	r = image_is_composed(want->name) ?
		    composition_open(control, want, load->path, sizeof load->path) :
		    image_path(want->node->config, want->name, load->path, sizeof load->path);
	if (r >= 0)
		r = image_load(load);
	if (r == -EAGAIN)
		return r;
	want->mount_fd = load->mount_fd;
	memcpy(want->missing, load->devices.missing, sizeof want->missing);
	free(load);
	return r;
}

/* 0: it is on its way; 1: want->image; -EAGAIN: when there is room; -EINPROGRESS: it is made. */
static int want_open(struct control *control, struct image_want *want)
{
	struct image_table *table = control_images(control);
	int r;

	want->image = table_find(table, want->name);
	if (want->image)
		return 1;
	if (table_has_spoilt(table, want->name))
		return -ETXTBSY;
	if (!table_place(table, NULL)) {
		r = images_make_room(control);
		return r < 0 ? r : -EAGAIN;
	}
	want->image = image_new(table, want->node, want->name);
	if (!want->image)
		return -ENOMEM;
	r = want_load(control, want);
	if (r < 0 && r != -EAGAIN) {
		want_failed(control, want, r);
		return r;
	}
	table->busy = true;
	if (r >= 0)
		want_loaded(control, want);
	return 0;
}

static void images_next(struct control *control)
{
	struct image_table *table = control_images(control);

	while (table->wants && !table->busy) {
		struct mail *mail = table->wants, *after = mail->next;
		struct image_want *want = container_of(mail, struct image_want, mail);
		int r = table->stopping ? -ECANCELED : want_open(control, want);

		if (r == -EAGAIN)
			return; /* image_went() comes here again */
		table->wants = after;
		if (!after)
			table->wants_last = &table->wants;
		if (r && r != -EINPROGRESS)
			want_answer(control, want, r < 0 ? r : 0);
	}
}

void images_wanted_again(struct control *control, struct mail *wants, int result)
{
	struct image_table *table = control_images(control);

	while (wants) {
		struct mail *mail = wants;

		wants = mail->next;
		mail->next = NULL;
		if (result < 0) {
			want_answer(control, container_of(mail, struct image_want, mail), result);
			continue;
		}
		*table->wants_last = mail;
		table->wants_last = &mail->next;
	}
	images_next(control);
}

static void want_arrived(struct mail *mail, void *owner)
{
	struct image_table *table = control_images(owner);

	mail->next = NULL;
	*table->wants_last = mail;
	table->wants_last = &mail->next;
	images_next(owner);
}

/* ---- on a shard ---- */

void image_use(struct shard *shard, struct image *image)
{
	hold_of(shard, image)->users++;
	__atomic_fetch_add(&image->users, 1, __ATOMIC_RELAXED);
}

void image_put(struct shard *shard, struct image *image)
{
	struct image_hold *hold = hold_of(shard, image);

	hold->users--;
	__atomic_fetch_sub(&image->users, 1, __ATOMIC_RELAXED);
	hold_settle(shard, hold);
}

int image_get(struct image_want *want)
{
	struct shard *shard = want->shard;
	int r;

	want->node = shard->node;
	r = want->is_ours ? 0 : image_names_check(want->name);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < IMAGES_MAX; i++) {
		struct image_hold *hold = &shard->images[i];

		if (hold->image && !hold->back && !strcmp(hold->image->name, want->name)) {
			want->image = hold->image;
			image_use(shard, want->image);
			return 0;
		}
	}
	want->mail.deliver = want_arrived;
	mail_send(shard->io, control_io(shard->node->control), &want->mail);
	return -EAGAIN;
}
