/*
 * Images of several; see composition.h. Called by image.c, on the control thread. Must hold: of a
 * key there is one run at a time; whoever waits for it is told once; what is named in composed/ is
 * whole.
 */
#include "engine/image/composition.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/image.h"
#include "backends/store/store.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/control.h"
#include "engine/image/image_load.h"
#include "engine/image/run.h"

enum { TRIM_EVERY = 64, COMPOSED_COUNT_MAX = 4096, FRAMES_MAX = 128 };

#define COMPOSED_BYTES_MAX ((uint64_t)4 << 30)
#define COMPOSED	   "composed"

struct composing {
	struct image_run run;
	struct composing *next;
	struct mail *wants, **wants_last;
	char key[DIGEST_HEX_BYTES];
	char *digests; /* owned: of manifests, in hex, each ends with NUL */
	uint32_t count;
	struct turn turn; /* while it waits for a place */
	bool is_waiting;
	int status_fd, its_status_fd; /* -1 */
	bool is_live, is_beginning;
	bool is_over; /* nobody waits for it any more */
};

/* ---- what a name means now ---- */

struct manifests {
	uint8_t digests[IMAGE_MANIFESTS_MAX][DIGEST_BYTES];
	uint32_t count;
	struct image_record record; /* of one part after the other */
};

static int part_read(const struct config *config, const char *name, struct manifests *manifests,
		     struct image_file *ret_file)
{
	struct image_record *record = &manifests->record;
	char path[PATH_MAX];
	int r = image_path(config, name, path, sizeof path);

	if (r < 0)
		return r;
	auto_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	*ret_file = image_file_identify(path);
	if (fd < 0)
		return -errno;
	r = image_record_read(fd, record);
	if (r < 0)
		return r;
	if (!record->manifest_count)
		return -ENODATA;
	if (manifests->count + record->manifest_count > IMAGE_MANIFESTS_MAX)
		return -E2BIG;
	memcpy(manifests->digests[manifests->count], record->manifests,
	       record->manifest_count * (size_t)DIGEST_BYTES);
	manifests->count += record->manifest_count;
	return 0;
}

/* The name was checked: so many parts at most. */
static int parts_read(const struct config *config, const char *name, struct manifests *manifests,
		      struct image_parts **ret)
{
	auto_free struct image_parts *parts =
		calloc(1, sizeof *parts + IMAGE_PARTS_MAX * sizeof *parts->files);
	char part[IMAGE_NAME_MAX];
	int r = 0;

	if (!parts)
		return -ENOMEM;
	for (const char *at = name; at && r >= 0;) {
		(void)image_name_next(&at, part); /* it was checked */
		r = part_read(config, part, manifests, &parts->files[parts->count++]);
	}
	if (r >= 0)
		*ret = take_ptr(parts);
	return r;
}

int composition_path(const struct config *config, const char *key, char *ret, size_t bytes)
{
	int r = snprintf(ret, bytes, "%s/" COMPOSED "/%s.erofs", config->images_path, key);

	return r < (int)bytes ? 0 : -ENAMETOOLONG;
}

static bool parts_are(const struct config *config, const struct image *image)
{
	char part[IMAGE_NAME_MAX], path[PATH_MAX];
	uint32_t i = 0;

	for (const char *at = image->name; at; i++) {
		(void)image_name_next(&at, part); /* it was checked */
		if (i >= image->parts->count || image_path(config, part, path, sizeof path) < 0 ||
		    !image_file_is(&image->parts->files[i], path))
			return false;
	}
	return i == image->parts->count;
}

bool composition_is_current(const struct config *config, struct image *image)
{
	auto_free struct manifests *manifests = NULL;
	struct image_parts *parts;
	char key[DIGEST_HEX_BYTES];

	if (parts_are(config, image))
		return true;
	/* Another file may be of the same manifest. */
	manifests = calloc(1, sizeof *manifests);
	if (!manifests || parts_read(config, image->name, manifests, &parts) < 0)
		return false;
	store_compose_key(manifests->digests, manifests->count, key);
	free(image->parts);
	image->parts = parts;
	return !strcmp(key, image->key);
}

/* ---- the cache ---- */

static bool key_is_used(const void *owner, const char *key)
{
	const struct image_table *table = owner;

	for (uint32_t i = 0; i < IMAGES_MAX; i++)
		if (table->images[i] && !strcmp(table->images[i]->key, key))
			return true;
	return false;
}

/* The run's result takes its place. */
static int composed_publish(struct composing *composing)
{
	const struct composed_limits limits = { COMPOSED_COUNT_MAX, COMPOSED_BYTES_MAX };
	struct control *control = composing->run.control;
	struct image_table *table = control_images(control);
	char file[DIGEST_HEX_BYTES + sizeof ".erofs"];
	auto_close int images_fd =
		open(control_config(control)->images_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (images_fd < 0 || (mkdirat(images_fd, COMPOSED, 0755) < 0 && errno != EEXIST))
		return -errno;
	auto_close int folder =
		openat(images_fd, COMPOSED, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

	(void)snprintf(file, sizeof file, "%s.erofs", composing->key); /* fits */
	if (folder < 0 || renameat(composing->run.scratch.fd, IMPORT_RESULT, folder, file) < 0)
		return -errno;
	if (table->compositions.made++ % TRIM_EVERY)
		return 0;
	r = composed_trim(folder, &limits, key_is_used, table);
	if (r < 0)
		log_error("composed images cannot be trimmed err=%s, continuing", strerror(-r));
	return 0;
}

/* ---- a run ---- */

/* What it told, all of it: nothing of it lives. */
static int failure_read(struct composing *composing)
{
	struct import_frame bytes, frame;

	for (int i = 0; i < FRAMES_MAX; i++) {
		ssize_t count = read(composing->status_fd, &bytes, sizeof bytes);

		if (count <= 0 || import_frame_read(&bytes, (size_t)count, &frame) < 0)
			break;
		if (frame.kind != IMPORT_FAILED)
			continue;
		log_error("image compose failed key=%s step=%s err=%s reason=\"%s\"",
			  composing->key, frame.step, strerror(frame.error), frame.reason);
		/* Of the store's own: no part is missing, nor is there one that is no image. */
		return frame.error == ENOENT || frame.error == ENODATA ? -EBADMSG : -frame.error;
	}
	log_error("image compose failed key=%s: the process did not say why", composing->key);
	return -EPIPE;
}

static int composing_start(struct image_run *run, const struct image_run_place *place,
			   pid_t *ret_pid)
{
	struct composing *composing = container_of(run, struct composing, run);
	const struct config *config = control_config(run->control);
	const struct image_start start = {
		.program_path = config->store_path,
		.limits = { .bytes_max = config->image_bytes_max, .free_min = place->free_min },
		.stream_fd = -1,
		.status_fd = composing->its_status_fd,
		.scratch_fd = place->scratch_fd,
		.images_fd = place->images_fd,
		.further_fd = -1,
		.group_fd = place->group_fd,
	};
	const struct store_words words = {
		.verb = "assemble",
		.name = "",
		.texts = composing->digests,
		.text_count = composing->count,
	};
	int r = store_start(&start, &words, ret_pid);

	cleanup_close(&composing->its_status_fd);
	composing->its_status_fd = -1;
	return r;
}

/* Who waited for it has the file, or what came of it. */
static void composing_answer(struct composing *composing)
{
	struct mail *wants = composing->wants;

	composing->is_over = true;
	composing->wants = NULL;
	images_wanted_again(composing->run.control, wants, composing->run.result);
}

static void composing_ended(struct image_run *run)
{
	struct composing *composing = container_of(run, struct composing, run);

	if (run->result == -ETIMEDOUT) {
		log_error("image compose failed key=%s: it took longer than --compose-timeout",
			  composing->key);
	} else if (run->result == -EPROTO) {
		run->result = failure_read(composing);
	} else if (run->result >= 0) {
		run->result = composed_publish(composing);
	} else {
		log_error("image compose failed key=%s: the process was killed", composing->key);
		run->result = -EPIPE;
	}
	composing_answer(composing);
}

static void composing_free(struct composing *composing)
{
	cleanup_close(&composing->status_fd);
	cleanup_close(&composing->its_status_fd);
	free(composing->digests);
	free(composing);
}

static void composing_forget(struct control *control, const struct composing *composing)
{
	struct composing **at = &control_images(control)->compositions.first;

	while (*at != composing)
		at = &(*at)->next;
	*at = composing->next;
}

static void composings_next(struct control *control);

static void composing_gone(struct image_run *run)
{
	struct composing *composing = container_of(run, struct composing, run);
	struct control *control = run->control;

	if (composing->is_beginning) {
		composing->is_live = false; /* it did not begin: see composing_begin() */
		return;
	}
	composing_forget(control, composing);
	if (!composing->is_over)
		composing_answer(composing);
	composing_free(composing);
	composings_next(control);
}

/* It is in the list. -EAGAIN: as many as may be are at work, and one of them is ours. */
static int composing_begin(struct control *control, struct composing *composing)
{
	bool others = false;
	int r;

	for (const struct composing *one = control_images(control)->compositions.first; one;
	     one = one->next)
		others |= one->is_live;
	composing->run.control = control;
	composing->run.start = composing_start;
	composing->run.ended = composing_ended;
	composing->run.gone = composing_gone;
	composing->run.limit_s = control_config(control)->compose_timeout_s;
	composing->is_live = composing->is_beginning = true;
	r = image_run_begin(&composing->run);
	composing->is_beginning = false;
	if (r >= 0 && !composing->is_live)
		r = composing->run.result < 0 ? composing->run.result : -EIO;
	composing->is_live = r >= 0;
	return r == -EAGAIN && !others ? -EBUSY : r;
}

static void composing_wait(struct composing *composing, uint64_t whose, bool is_first)
{
	struct turns *waiting = &control_images(composing->run.control)->compositions.waiting;

	composing->is_waiting = true;
	if (is_first)
		turns_add_first(waiting, &composing->turn, whose);
	else
		turns_add(waiting, &composing->turn, whose);
}

/* Those that wait for a place. */
static void composings_next(struct control *control)
{
	struct turns *waiting = &control_images(control)->compositions.waiting;
	struct turn *turn;

	while ((turn = turns_take(waiting))) {
		struct composing *at = container_of(turn, struct composing, turn);
		int r = composing_begin(control, at);

		at->is_waiting = false;
		if (r == -EAGAIN) {
			composing_wait(at, turn->whose, true);
			return;
		}
		if (r >= 0)
			continue;
		composing_forget(control, at);
		at->run.result = r;
		composing_answer(at);
		composing_free(at);
	}
}

/* ---- who wants one ---- */

static struct composing *composing_find(struct control *control, const char *key)
{
	struct composing *at = control_images(control)->compositions.first;

	while (at && (at->is_over || strcmp(at->key, key)))
		at = at->next;
	return at;
}

static struct composing *composing_new(const char *key, const struct manifests *manifests)
{
	struct composing *composing = calloc(1, sizeof *composing);
	int ends[2];

	if (!composing)
		return NULL;
	composing->status_fd = composing->its_status_fd = -1;
	composing->wants_last = &composing->wants;
	composing->count = manifests->count;
	composing->digests = malloc(manifests->count * (size_t)DIGEST_HEX_BYTES);
	if (!composing->digests || pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
		composing_free(composing);
		return NULL;
	}
	composing->status_fd = ends[0];
	composing->its_status_fd = ends[1];
	(void)snprintf(composing->key, sizeof composing->key, "%s", key); /* fits */
	for (uint32_t i = 0; i < manifests->count; i++)
		digest_hex(manifests->digests[i],
			   composing->digests + (size_t)i * DIGEST_HEX_BYTES);
	return composing;
}

/* One more of the list, begun or waiting for a place. */
static int composing_add(struct control *control, const struct image_want *want,
			 const struct manifests *manifests, struct composing **ret)
{
	struct composing **last = &control_images(control)->compositions.first;
	struct composing *composing = composing_new(want->image->key, manifests);
	int r;

	if (!composing)
		return -ENOMEM;
	while (*last)
		last = &(*last)->next;
	*last = composing;
	composing->run.control = control;
	r = control_images(control)->compositions.waiting.count ?
		    -EAGAIN :
		    composing_begin(control, composing);
	if (r == -EAGAIN) {
		composing_wait(composing, want->tenant, false);
		log_info("image compose waits key=%s tenant=%u", composing->key, want->tenant);
	} else if (r < 0) {
		composing_forget(control, composing);
		composing_free(composing);
		return r;
	}
	*ret = composing;
	return 0;
}

/* Another tenant wants it, too, who need not wait behind all that the first one wants. */
static void composing_share(struct composing *composing, uint32_t whose)
{
	struct turns *waiting = &control_images(composing->run.control)->compositions.waiting;

	if (!composing->is_waiting || turns_waits(waiting, whose))
		return;
	turns_remove(waiting, &composing->turn);
	turns_add(waiting, &composing->turn, whose);
	log_info("image compose waits key=%s tenant=%u, too", composing->key, whose);
}

/* Waits with the others of that key; for the first it is made. */
static int composition_await(struct control *control, const struct manifests *manifests,
			     struct image_want *want)
{
	struct composing *composing = composing_find(control, want->image->key);
	int r = composing ? 0 : composing_add(control, want, manifests, &composing);

	if (r < 0)
		return r;
	composing_share(composing, want->tenant);
	want->mail.next = NULL;
	*composing->wants_last = &want->mail;
	composing->wants_last = &want->mail.next;
	return -EINPROGRESS;
}

int composition_open(struct control *control, struct image_want *want, char *ret_path, size_t bytes)
{
	const struct config *config = control_config(control);
	auto_free struct manifests *manifests = calloc(1, sizeof *manifests);
	struct image *image = want->image;
	int r = manifests ? parts_read(config, want->name, manifests, &image->parts) : -ENOMEM;

	if (r < 0)
		return r;
	store_compose_key(manifests->digests, manifests->count, image->key);
	r = composition_path(config, image->key, ret_path, bytes);
	if (r < 0 || access(ret_path, R_OK) == 0)
		return r;
	if (errno != ENOENT)
		return -errno;
	return composition_await(control, manifests, want);
}
