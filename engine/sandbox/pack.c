/*
 * The pack verb: a sandbox held still, its upper directory handed to a run of dsec-store, and let
 * go again before the LAST. Called by image_op.c. Must hold: the sandbox goes on whatever became
 * of the run; a sandbox that ends ends the run, and nothing of it is published then.
 */
#include "engine/sandbox/pack.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/image.h"
#include "engine/base/cleanup.h"
#include "engine/base/log.h"
#include "engine/image/job.h"
#include "engine/request/request.h"
#include "engine/sandbox/sandbox.h"
#include "engine/sandbox/still.h"
#include "engine/shard.h"
#include "engine/tenant/tenant.h"

static struct status pack_invalid(const char *field, const char *detail)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = EINVAL,
				.table = "pack",
				.step = field,
				.detail = detail };
}

/* ---- what is asked ---- */

static struct status pack_admits(const struct tenant *tenant, const struct node *node)
{
	if (!tenant->is_everyone && (node->tenant_count == 1 || tenant->config->is_builder))
		return STATUS_OK;
	return (struct status){ .code = DSEC_DENIED,
				.blame = DSEC_BLAME_CALLER,
				.table = "pack",
				.step = "builder",
				.detail =
					"only a tenant with `builder` makes images of sandboxes" };
}

/* The others are the engine's own. */
static struct status texts_check(const struct image_words *words)
{
	const char *at = words->texts;

	for (uint32_t i = 0; i < words->text_count; i++, at += strlen(at) + 1)
		if (strncmp(at, "wipe:", 5) != 0 && strncmp(at, "scan:", 5) != 0)
			return pack_invalid("items", "wipe:RULE, wipe:/GLOB or scan:CANARY");
	return STATUS_OK;
}

static size_t texts_bytes(const struct image_words *words)
{
	const char *at = words->texts;

	for (uint32_t i = 0; i < words->text_count; i++)
		at += strlen(at) + 1;
	return words->texts ? (size_t)(at - words->texts) : 0;
}

static char *manifest_print(const uint8_t manifest[32], char *at)
{
	at += sprintf(at, "base:");
	for (int i = 0; i < 32; i++)
		at += sprintf(at, "%02x", manifest[i]);
	return at + 1;
}

/* What dsec-store is told of the sandbox, in front of what a client said. */
static int words_add(const struct sandbox *sandbox, uint32_t id_base, struct image_words *words)
{
	enum { MANIFEST_BYTES = sizeof "base:" + 64, OTHERS_BYTES = 80 };
	const struct image_record *record = sandbox->image->record;
	const uint32_t manifests = record ? record->manifest_count : 0;
	const size_t bytes = texts_bytes(words);
	char *texts, *at;

	texts = at = malloc(manifests * (size_t)MANIFEST_BYTES + OTHERS_BYTES +
			    strlen(sandbox_image_name(sandbox)) + bytes);
	if (!texts)
		return -ENOMEM;
	for (uint32_t i = 0; i < manifests; i++)
		at = manifest_print(record->manifests[i], at);
	at += sprintf(at, "ids:%u", id_base) + 1;
	at += sprintf(at, "image:%s", sandbox_image_name(sandbox)) + 1;
	at += sprintf(at, "sandbox:%016llx%016llx", (unsigned long long)sandbox->id.hi,
		      (unsigned long long)sandbox->id.lo) +
	      1;
	if (bytes)
		memcpy(at, words->texts, bytes);
	free(words->texts);
	words->texts = texts;
	words->text_count += manifests + 3;
	return 0;
}

/* ---- a sandbox held still, and a job ---- */

static void packing_end(struct packing *p)
{
	free(p->words.texts);
	p->words.texts = NULL;
	p->over(p);
}

static void packing_let_go(struct still *still)
{
	struct packing *p = container_of(still, struct packing, still);
	const struct sandbox *sandbox = still->sandbox;

	log_info("sandbox was read id=%u.%llx paused_us=%llu", sandbox->shard->number,
		 (unsigned long long)sandbox->id.lo, (unsigned long long)still->paused_us);
	p->goes_on = true;
	if (p->is_over)
		packing_end(p);
}

static void packing_read(struct image_job_hold *hold)
{
	struct packing *p = container_of(hold, struct packing, hold);

	p->has_read = true;
	still_end(&p->still);
}

static void packing_job_over(struct image_job_hold *hold)
{
	struct packing *p = container_of(hold, struct packing, hold);

	p->is_over = true;
	if (!p->has_read)
		still_end(&p->still);
	else if (p->goes_on)
		packing_end(p);
}

static void packing_hurry(struct still *still)
{
	struct packing *p = container_of(still, struct packing, still);

	if (p->job && !p->has_read)
		image_job_cancel(p->job);
}

static void packing_still(struct still *still, int error)
{
	struct packing *p = container_of(still, struct packing, still);

	if (error) {
		p->status = still_status(p->table, error);
		packing_end(p);
		return;
	}
	p->hold = (struct image_job_hold){ .further_fd = still->freeze.upper_fd,
					   .read = packing_read,
					   .over = packing_job_over };
	p->status = status_of_errno(p->cancelled ? -ECANCELED :
						   words_add(still->sandbox, still->freeze.id_base,
							     &p->words),
				    p->table, p->cancelled ? "cancel" : "words");
	if (!p->status.code)
		p->status = image_job_start(p->part, "pack", &p->words, &p->hold, &p->job);
	if (!p->status.code)
		return;
	cleanup_close(&p->hold.further_fd);
	p->is_over = true;
	still_end(still);
}

struct status packing_begin(struct packing *p)
{
	p->still.ready = packing_still;
	p->still.hurry = packing_hurry;
	p->still.over = packing_let_go;
	return still_begin(&p->still, p->part->detail);
}

void packing_cancel(struct packing *p)
{
	p->cancelled = true;
	if (p->job)
		image_job_cancel(p->job);
}

/* ---- the verb ---- */

static void pack_over(struct packing *p)
{
	struct part *part = p->part;
	const struct status status = p->status;
	struct image_job *job = p->job;

	part->work = NULL;
	free(p);
	if (job)
		image_job_end(job);
	else
		part_end(part, &status, NULL);
}

struct status pack_part(struct part *part, struct image_words *words)
{
	struct sandbox *sandbox =
		sandbox_find(part->shard, part->request->tenant, part->request->body.image.sandbox);
	struct status s = pack_admits(part->request->tenant, part->shard->node);
	struct packing *p;

	if (!s.code)
		s = texts_check(words);
	if (s.code)
		return s;
	if (!sandbox || sandbox->state != DSEC_STATE_RUNNING)
		return status_absent();
	p = calloc(1, sizeof *p);
	if (!p)
		return status_of_errno(-ENOMEM, "pack", "request");
	*p = (struct packing){
		.part = part, .table = "pack", .still.sandbox = sandbox, .over = pack_over
	};
	p->still.kills = words->flags & DSEC_IMAGE_KILL;
	words->flags &= ~(uint32_t)DSEC_IMAGE_KILL; /* of the engine alone */
	s = packing_begin(p);
	if (s.code) {
		free(p);
		return s;
	}
	p->words = *words; /* not before: they are the caller's where it fails */
	words->texts = NULL;
	part->work = p;
	return STATUS_OK;
}

void pack_part_cancel(struct part *part)
{
	if (part->work)
		packing_cancel(part->work);
}
