/*
 * Packing: what a sandbox wrote becomes a layer, while it is held still. The image op's verb, on
 * the sandbox's shard; and what a fork shares with it. See docs/pack.md.
 */
#pragma once

#include <stdbool.h>

#include "engine/image/job.h"
#include "engine/request/status.h"
#include "engine/sandbox/still.h"

struct part;
struct sandbox;

/* A sandbox held still, and a job that reads what it wrote. Embedded; lives until over(). */
struct packing {
	struct still still;
	struct image_job_hold hold;
	struct part *part;
	const char *table;	  /* "pack": of statuses */
	struct image_words words; /* rules and canaries; until the job has them */
	struct image_job *job;	  /* over(): its caller's to end or drop; NULL: it never began */
	struct status status;	  /* without a job: why */
	bool cancelled, has_read, goes_on;
	bool is_over; /* the job, or it never began */
	void (*over)(struct packing *packing);
};

/* part, table, words, still.sandbox and over are set. Not OK: nothing began. */
struct status packing_begin(struct packing *packing);
void packing_cancel(struct packing *packing);

/* `words` are taken where it returns OK: rules and canaries. Not OK: the part ends with it. */
struct status pack_part(struct part *part, struct image_words *words);
void pack_part_cancel(struct part *part);
