/*
 * Images by name, mounted on first use. A version of an image (this name, this file) belongs to the
 * control thread; shards hold it while they use it. It goes when its file was replaced or removed,
 * or its place is needed, and no shard holds it any more.
 *
 *	shard		image_get() ── not held here ──► control: opened, mounted, attached
 *	control		the file changed ──► shards: give it back when it is out of use
 *	shard		last use over, slots forgotten ──► control: detached, freed
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "backends/store/digest.h"
#include "engine/base/io.h"
#include "engine/base/turns.h"
#include "engine/config.h"
#include "engine/request/status.h"

struct composing;
struct config;
struct control;
struct image;
struct image_parts;
struct image_record;
struct image_want;
struct node;
struct serve_entry;
struct shard;

enum {
	IMAGE_NAME_MAX = 128,
	IMAGE_PARTS_MAX = 128,	/* of a composition */
	IMAGE_NAMES_MAX = 1024, /* of a sandbox's image: one name, or several joined by + */
};

#define IMAGE_NAMES_RULE "a name, or several joined by +; at most 1023 bytes"

/* Which file it was: another one of the same name is another image. */
struct image_file {
	uint64_t device, inode, bytes, changed_ns, written_ns;
};

/* A shard's part of a version: its mail, out to be given back, then home. */
struct image_holder {
	struct mail mail;
	struct image *image;
	struct shard *shard; /* NULL: it does not hold it */
};

/* A version. Made whole by the control thread, then only read, but for what is marked. */
struct image {
	char name[IMAGE_NAMES_MAX];
	uint32_t number; /* the backend's: never used again */
	struct image_file file;
	struct image_record *record; /* NULL: it has none */
	uint32_t users;		     /* sandboxes and creates, of all shards; atomic */
	/* the control thread's */
	char key[DIGEST_HEX_BYTES]; /* of a composition: its file's name; "": it is none */
	struct image_parts *parts;  /* of a composition; owned */
	bool is_stale;		    /* found no more: its file is another, or its place is needed */
	bool is_spoilt;		    /* its file was written to under those that use it */
	uint32_t held;		    /* by so many shards */
	struct serve_entry **served; /* segments that its mount reads from the cache; owned */
	uint32_t served_count;
	struct mail mail; /* to shard 0 and back, when it goes */
	struct node *node;
	struct image_holder holders[]; /* one per shard */
};

/* In the making; see composition.h. */
struct compositions {
	struct composing *first;
	struct turns waiting; /* of those: for a place, by tenants */
	uint32_t made;	      /* so far */
};

/* The control thread's. */
struct image_table {
	struct image *images[IMAGES_MAX];
	uint32_t numbers;		  /* given so far */
	struct mail *wants, **wants_last; /* one image is opened at a time; others wait here */
	bool busy, stopping;
	struct compositions compositions;
};

/* What a shard holds. */
struct image_hold {
	struct image *image;
	uint32_t users;
	struct image_holder *back; /* given back when nobody uses it; NULL: it may be found */
};

/* Somebody who waits for an image. Embedded; lives until ready(). */
struct image_want {
	struct mail mail;
	struct shard *shard;
	struct node *node;
	char name[IMAGE_NAMES_MAX];
	char missing[DIGEST_HEX_BYTES]; /* -ENOMEDIUM: the segment that is not here */
	uint32_t tenant;		/* whose: what is made for it takes turns with others' */
	bool is_ours;			/* the name is none that users may write */
	int result, mount_fd;
	struct image *image; /* result 0: used from now on, until image_put() */
	/*
	 * 0, or -ENOENT, -EINVAL (name), -ENOSPC (IMAGES_MAX in use), -EBADMSG (record), -ETXTBSY
	 * (written to in place, under sandboxes that use it), -ENODATA (a part of it is not of the
	 * store), -ETIMEDOUT (it took longer than --compose-timeout to make), …
	 */
	void (*ready)(struct image_want *want, int result);
};

/* ---- on a shard ---- */

/* Why there is none, for who wants one; error: negative, of ready(). */
struct status image_status(const char *table, int error);
/* The same of a want, with what it misses; `detail` lives as long as the status. */
struct status image_want_status(const struct image_want *want, int error, const char *table,
				char *detail, size_t bytes);
/* It is the name or the image itself: whoever asks, on whatever shard, is told the same. */
bool image_error_is_final(int error);
/* 0: want->image is used; or -EAGAIN: ready() will be called. */
int image_get(struct image_want *want);
/* Once more, and once less. */
void image_use(struct shard *shard, struct image *image);
void image_put(struct shard *shard, struct image *image);

/* ---- on the control thread ---- */

void images_init(struct image_table *table);
/* The shards have ended. */
void images_done(struct image_table *table);
/* The engine stops: nothing is detached any more, the vault goes as a whole. */
void images_stop(struct control *control);
/* Now and then, and when it is known that a file changed. */
void images_refresh(struct control *control, const struct config *config);
/* How many use a name's versions, also those that are found no more. */
uint32_t images_users(const struct image_table *table, const char *name);

/* Of composition.c: its wants, which are looked at anew, or all end with `result` < 0. */
void images_wanted_again(struct control *control, struct mail *wants, int result);

/* ---- names, and files; from anywhere ---- */

/*
 * A name users may write: letters, digits, . _ - : and / inside, no part beginning with a dot, and
 * not below a folder of the store's own.
 */
int image_name_check(const char *name);
/* It leads to what the store has beside images. */
bool image_name_is_stores(const char *name);
/* One such, or several joined by +. -E2BIG: more than IMAGE_PARTS_MAX. */
int image_names_check(const char *name);
/* The next of several: its bytes; 0: too long, or empty. *at is NULL behind the last. */
size_t image_name_next(const char **at, char ret[IMAGE_NAME_MAX]);
/* Its file. -ENAMETOOLONG. */
int image_path(const struct config *config, const char *name, char *ret, size_t bytes);
/* The same file with other bytes: a mount of it shows some of the old and some of the new. */
bool image_file_was_written(const struct image_file *file, const char *path);
