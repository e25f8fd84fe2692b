/*
 * The file helper from the inside: one operation, and what its files offer each other. Functions
 * return 0 or -errno, with the failed step in files.done.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "backends/guest/protocol.h"

enum { FILES_BUFFER_BYTES = 256 << 10 };

struct files {
	int root_fd;	   /* nothing outside is ever touched */
	int in_fd, out_fd; /* content */
	int control_fd;
	struct guest_ask ask;
	char *path, *to; /* with NULs */
	struct guest_done done;
	uint64_t received; /* from in_fd */
	uint32_t refusals; /* rows sent about what was left out */
	char *buffer;	   /* FILES_BUFFER_BYTES */
};

/* Serves the one operation that waits at control_fd; the exit status. root_fd stays the caller's */
int files_serve(int root_fd, int in_fd, int out_fd, int control_fd);

/* Says where an error arose, and returns it. */
static inline int files_failed(struct files *f, enum guest_step step, int error)
{
	f->done.step = step;
	return error;
}

/* ---- talk.c: the other side ---- */

int talk_ask(struct files *f);
/* A row about an entry; `target` may be NULL. */
int talk_row(struct files *f, struct guest_row *row, const char *name, const char *target);
/* An archive's entry was left out, or changed. Past GUEST_REFUSALS_MAX it is only counted. */
int talk_refusal(struct files *f, enum dsec_file_reason reason, int error, const char *name);
/* The last word; returns when the engine has taken it. */
int talk_done(struct files *f, int error);
/* Up to `bytes` from in_fd; 0 at its end. -ECANCELED when the engine has gone meanwhile. */
long talk_read(struct files *f, void *to, size_t bytes);
/* All of it to out_fd. */
int talk_write(struct files *f, const void *from, size_t bytes);
/* After the end of in_fd: 0 when the engine says that this was all, -ECANCELED when it does not. */
int talk_commit(struct files *f);

/* ---- path.c: from names to descriptors ---- */

/* A folder and a name in it. */
struct place {
	int fd; /* O_PATH */
	char name[NAME_MAX + 1];
};

void place_done(struct place *place);

/* A path in the root, its links followed there, those of proc never. */
int path_open(const struct files *f, const char *path, int flags);
/* The folder of a path's last name, which need not be there. -EBUSY: the path is the root. */
int path_place(const struct files *f, const char *path, struct place *ret);
/* The same for the file that a link at the path leads to, or would. */
int path_place_followed(const struct files *f, const char *path, struct place *ret);
/* The folder at a path, made with those above it where they are missing. */
int path_make(const struct files *f, const char *path, mode_t mode);
/* A path from a folder on that never leaves it and meets no link. */
int path_open_beneath(int dir_fd, const char *path, int flags);

/* ---- temporary.c: a file that nobody sees before it is whole ---- */

int temporary_open(const struct place *place);
/* It becomes the file at its place; an old one is replaced unless `exclusive`. */
int temporary_put(int fd, const struct place *place, bool exclusive);
/* A name that nobody else takes. */
void temporary_name(char ret[static 32]);

/* ---- the verbs ---- */

int verb_read(struct files *f);
int verb_write(struct files *f);
int verb_append(struct files *f);
int verb_tar_out(struct files *f);
int verb_tar_in(struct files *f);
int verb_stat(struct files *f);
int verb_list(struct files *f);
int verb_mkdir(struct files *f);
int verb_remove(struct files *f);
int verb_rename(struct files *f);
int verb_watch(struct files *f);

/* ---- entry.c ---- */

uint32_t entry_type(mode_t mode);
/* 0 for a regular file, -EISDIR for a folder, -EMEDIUMTYPE for what else there is. */
int entry_is_regular(const struct stat *st);
