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

/* part->work. */
struct pack {
	struct still still;
	struct image_job_hold hold;
	struct part *part;
	struct image_words words; /* until the job has them */
	struct image_job *job;
	struct status status; /* without a job: how it ends */
	bool cancelled, has_read, goes_on;
	bool is_over; /* the job, or it never began */
};

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

struct status pack_admits(const struct tenant *tenant, const struct node *node, const char *table)
{
	if (!tenant->is_everyone && (node->tenant_count == 1 || tenant->config->is_builder))
		return STATUS_OK;
	return (struct status){ .code = DSEC_DENIED,
				.blame = DSEC_BLAME_CALLER,
				.table = table,
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

int pack_words_add(const struct sandbox *sandbox, uint32_t id_base, struct image_words *words)
{
	enum { MANIFEST_BYTES = sizeof "base:" + 64, OTHERS_BYTES = 80 };
	const struct image_record *record = sandbox->image->record;
	const uint32_t manifests = record ? record->manifest_count : 0;
	const size_t bytes = texts_bytes(words);
	char *texts, *at;

	texts = at = malloc(manifests * (size_t)MANIFEST_BYTES + OTHERS_BYTES +
			    sizeof sandbox->image->name + bytes);
	if (!texts)
		return -ENOMEM;
	for (uint32_t i = 0; i < manifests; i++)
		at = manifest_print(record->manifests[i], at);
	at += sprintf(at, "ids:%u", id_base) + 1;
	at += sprintf(at, "image:%s", sandbox->image->name) + 1;
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

/* ---- the end ---- */

static void pack_end(struct pack *pack)
{
	struct part *part = pack->part;
	const struct status status = pack->status;
	struct image_job *job = pack->job;

	part->work = NULL;
	free(pack->words.texts);
	free(pack);
	if (job)
		image_job_end(job);
	else
		part_end(part, &status, NULL);
}

static void pack_let_go(struct still *still)
{
	struct pack *pack = container_of(still, struct pack, still);
	const struct sandbox *sandbox = still->sandbox;

	log_info("sandbox was read id=%u.%llx paused_us=%llu", sandbox->shard->number,
		 (unsigned long long)sandbox->id.lo, (unsigned long long)still->paused_us);
	pack->goes_on = true;
	if (pack->is_over)
		pack_end(pack);
}

static void pack_read(struct image_job_hold *hold)
{
	struct pack *pack = container_of(hold, struct pack, hold);

	pack->has_read = true;
	still_end(&pack->still);
}

static void pack_job_over(struct image_job_hold *hold)
{
	struct pack *pack = container_of(hold, struct pack, hold);

	pack->is_over = true;
	if (!pack->has_read)
		still_end(&pack->still);
	else if (pack->goes_on)
		pack_end(pack);
}

/* ---- the way ---- */

static void pack_hurry(struct still *still)
{
	struct pack *pack = container_of(still, struct pack, still);

	if (pack->job && !pack->has_read)
		image_job_cancel(pack->job);
}

static void pack_still(struct still *still, int error)
{
	struct pack *pack = container_of(still, struct pack, still);
	struct status s = error ? still_status("pack", error) : STATUS_OK;

	if (error) {
		pack->status = s;
		pack_end(pack);
		return;
	}
	if (pack->cancelled)
		s = status_of_errno(-ECANCELED, "pack", "cancel");
	pack->hold.further_fd = still->freeze.upper_fd;
	if (!s.code)
		s = status_of_errno(pack_words_add(still->sandbox, still->freeze.id_base,
						   &pack->words),
				    "pack", "words");
	if (!s.code) {
		pack->hold.read = pack_read;
		pack->hold.over = pack_job_over;
		s = image_job_start(pack->part, "pack", &pack->words, &pack->hold, &pack->job);
	}
	if (!s.code)
		return;
	cleanup_close(&pack->hold.further_fd);
	pack->status = s;
	pack->is_over = true;
	still_end(still);
}

struct status pack_part(struct part *part, struct image_words *words)
{
	struct sandbox *sandbox =
		sandbox_find(part->shard, part->request->tenant, part->request->body.image.sandbox);
	struct status s = pack_admits(part->request->tenant, part->shard->node, "pack");
	struct pack *pack;

	if (!s.code)
		s = texts_check(words);
	if (s.code)
		return s;
	if (!sandbox || sandbox->state != DSEC_STATE_RUNNING)
		return status_absent();
	pack = calloc(1, sizeof *pack);
	if (!pack)
		return status_of_errno(-ENOMEM, "pack", "request");
	pack->part = part;
	pack->still = (struct still){
		.sandbox = sandbox, .ready = pack_still, .hurry = pack_hurry, .over = pack_let_go
	};
	s = still_begin(&pack->still, part->detail);
	if (s.code) {
		free(pack);
		return s;
	}
	pack->words = *words;
	words->texts = NULL;
	part->work = pack;
	return STATUS_OK;
}

void pack_part_cancel(struct part *part)
{
	struct pack *pack = part->work;

	if (!pack)
		return;
	pack->cancelled = true;
	if (pack->job)
		image_job_cancel(pack->job);
}
