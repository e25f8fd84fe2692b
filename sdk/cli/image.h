/* Parts of `dsec image`. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "sdk/cli/session.h"

/* Where an import's bytes come from. */
struct image_source {
	const char *kind; /* dsec_image_opts.source */
	const char *path; /* NULL: stdin */
	const char *tag;  /* dsec_image_opts.tag */
	char *owned;	  /* what path and tag are in, where there is a tag */
	bool is_folder;
	int fd;	     /* -1: not open */
	pid_t child; /* it writes the folder as a tar; 0: none */
};

/*
 * "dir:PATH", "oci:DIR:TAG", …. Where a path is not there but one up to a colon in it is, what
 * follows that is a tag. -EINVAL: it is none. image_source_close() in any case.
 */
int image_source_parse(const char *text, struct image_source *ret);
/* 0 or -errno. */
int image_source_open(struct image_source *source);
/* Up to so many bytes; 0: the end. -EINTR: a signal; -EIO: the folder could not be read whole. */
ssize_t image_source_read(struct image_source *source, void *bytes, size_t bytes_max);
void image_source_close(struct image_source *source);

/* `dsec image import`: returns the exit status. */
int image_import(struct session *session, const char *text);
/* What else takes its time; `what`: "image gc". Returns the exit status. */
int image_job(struct session *session, const struct dsec_image_opts *opts, const char *what);

/* `dsec image pack`, as `name`. Returns the exit status. */
int image_pack(struct session *session, struct dsec_id sandbox, const char *name);
/* `dsec image build NAME`. As above. */
int image_build(struct session *session, const char *name);

/* A job's report for people; false: it has to be shown as it is. */
bool image_report_print(FILE *out, uint32_t verb, const json_t *report);

/* A row as JSON, without the record. The caller's. */
json_t *image_row_json(const struct dsec_image_row *row);
