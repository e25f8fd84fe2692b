/*
 * Verbs of dsec-store, one file each. A verb leaves IMPORT_RESULT in IMAGE_FD_SCRATCH where it made
 * an image, STORE_REPORT where it has something to tell.
 */
#pragma once

#include <stdint.h>

#include "backends/store/report.h"
#include "backends/store/tree.h"

/* What IMPORT_RESULT is called until it is whole. */
#define VERB_UNFINISHED "unfinished"

struct store_job {
	struct report report;
	uint64_t bytes_max; /* contents of what is made */
	uint32_t flags;	    /* enum image_flag */
	const char *name;   /* "": none */
	char *const *texts; /* parts, a source, a target, rules */
	uint32_t text_count;
};

/* 0, or -errno; report_fail() says more than an errno. */
typedef int store_verb(struct store_job *job);

store_verb verb_assemble, verb_compose, verb_gc, verb_hotset;
store_verb verb_pack, verb_pull, verb_push, verb_verify;

struct store;
struct store_images;
struct transfer;

/* IMPORT_RESULT of these manifests, and what the report says of it. */
int verb_result_make(struct store_job *job, const struct store *store,
		     const uint8_t (*manifests)[DIGEST_BYTES], uint32_t count);

/* Of push and pull; `owner` is the job. */
int transfer_progress(void *owner, uint64_t bytes);
int transfer_fail(struct store_job *job, const struct transfer *transfer, int error);
int transfer_report(struct store_job *job, const struct transfer *transfer,
		    const struct store_images *images);
