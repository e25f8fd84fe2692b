/*
 * The fork op: what a sandbox wrote becomes a layer without a name, as a pack makes one but whole,
 * and so many sandboxes are made of it as the source was. Called by request.c. Must hold: the
 * source goes on whatever comes of it; nobody but those made of it ever sees the image; a copy has
 * the source's policy in the version that holds the source, never a newer one.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/image/image_drop.h"
#include "engine/policy/policies.h"
#include "engine/request/request.h"
#include "engine/sandbox/create.h"
#include "engine/sandbox/create_replay.h"
#include "engine/sandbox/pack.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"

/* part->work until the sandboxes are being made: part->count is 0 so far. */
struct fork {
	struct packing packing;
	struct create_source source;
	struct part *part;
	char *bytes; /* the source's payload */
	bool has_image;
};

static struct status fork_invalid(const char *field, int error, const char *detail)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = -error,
				.table = "fork",
				.step = field,
				.detail = detail };
}

/* ---- what the source is ---- */

static struct dsec_wire_items list_add(struct fork *fork, const struct packed *list)
{
	struct wire *payload = &fork->source.payload;
	const struct dsec_wire_items items = { payload->bytes, list->byte_count, list->count, 0 };

	if (list->byte_count)
		memcpy(fork->bytes + payload->bytes, list->bytes, list->byte_count);
	payload->bytes += list->byte_count;
	return items;
}

static int source_take(struct fork *fork, const struct sandbox *sandbox)
{
	struct create_source *source = &fork->source;
	const uint32_t user_bytes = (uint32_t)strlen(sandbox->user);

	fork->bytes = malloc(sandbox->labels.byte_count + sandbox->env.byte_count + user_bytes + 1);
	if (!fork->bytes)
		return -ENOMEM;
	source->payload.payload = fork->bytes;
	source->fields = (struct dsec_wire_create){
		.size = sizeof source->fields,
		.flags = sandbox->flags & ~(uint32_t)DSEC_CREATE_FRESH_ROOT,
		.on_disconnect = sandbox->on_disconnect,
		.output_limit_bytes = sandbox->output_limit_bytes,
		.ttl_s = sandbox->lifetime.ttl_s,
		.idle_ttl_s = sandbox->lifetime.idle_ttl_s,
	};
	source->fields.labels = list_add(fork, &sandbox->labels);
	source->fields.env = list_add(fork, &sandbox->env);
	source->fields.user = (struct dsec_wire_ref){ source->payload.bytes, user_bytes };
	memcpy(fork->bytes + source->payload.bytes, sandbox->user, user_bytes);
	source->payload.bytes += user_bytes;
	source->spec = sandbox->box->spec;
	source->spec.fresh_root = false;
	source->network = sandbox->network;
	source->network_why = sandbox->network_why;
	source->policy = sandbox->policy;
	policy_use(source->policy);
	source->id = sandbox->id;
	(void)snprintf(source->first_image, sizeof source->first_image, "%s",
		       sandbox_image_name(sandbox)); /* fits */
	image_unnamed(sandbox->shard, sandbox->id.hi, sandbox->id.lo, source->image);
	return 0;
}

/* ---- the end ---- */

static void image_forget(struct create_source *source)
{
	struct fork *fork = container_of(source, struct fork, source);

	if (fork->has_image)
		image_drop(fork->part->shard, source->image);
	fork->has_image = false;
}

static void fork_free(struct fork *fork)
{
	image_forget(&fork->source);
	if (fork->source.policy)
		policy_put(fork->source.policy);
	free(fork->bytes);
	free(fork);
}

static void fork_over(struct create_source *source, const struct status *status)
{
	struct fork *fork = container_of(source, struct fork, source);
	struct part *part = fork->part;
	const struct dsec_wire_forked body = { .size = sizeof body,
					       .paused_us = fork->packing.still.paused_us };
	struct emission final = { .kind = DSEC_EV_DONE,
				  .subject = part->request->entry.subject,
				  .body = &body,
				  .bytes = sizeof body };

	if (status)
		final.status = *status;
	part->work = NULL;
	fork_free(fork);
	part_end(part, NULL, &final);
}

/* ---- the way ---- */

/* The layer stands, or does not; the source goes on. */
static void fork_packed(struct packing *packing)
{
	struct fork *fork = container_of(packing, struct fork, packing);
	struct part *part = fork->part;
	struct status s = packing->status;

	if (packing->job) {
		s = image_job_status(packing->job);
		fork->has_image = !s.code;
		(void)snprintf(part->detail, sizeof part->detail, "%s", s.detail ? s.detail : "");
		s.detail = part->detail;
		image_job_drop(packing->job);
		packing->job = NULL;
	}
	if (!s.code && packing->cancelled)
		s = status_of_errno(-ECANCELED, "fork", "cancel");
	if (s.code) {
		fork_over(&fork->source, &s);
		return;
	}
	part->count = part->request->body.fork.count ? part->request->body.fork.count : 1;
	create_after(part, &fork->source);
}

static int fork_words(struct image_words *words, const char *image)
{
	static const char all[] = "wipe:none";

	(void)snprintf(words->name, sizeof words->name, "%s", image);
	words->texts = strdup(all);
	words->text_count = 1;
	return words->texts ? 0 : -ENOMEM;
}

static struct status fork_check(const struct part *part, struct sandbox **ret)
{
	const struct dsec_wire_fork *wish = &part->request->body.fork;

	if (wish->count > CREATE_COUNT_MAX)
		return fork_invalid("count", -ERANGE, "more than 32768");
	if (!wire_is_zero(wish->reserved, sizeof wish->reserved))
		return fork_invalid("reserved", -EINVAL, NULL);
	*ret = sandbox_of(part);
	return *ret && (*ret)->state == DSEC_STATE_RUNNING ? STATUS_OK : status_absent();
}

static struct status fork_begin(struct part *part)
{
	struct sandbox *sandbox = NULL;
	struct status s = fork_check(part, &sandbox);
	struct fork *fork;
	int r;

	if (s.code)
		return s;
	fork = calloc(1, sizeof *fork);
	if (!fork)
		return status_of_errno(-ENOMEM, "fork", "request");
	fork->part = part;
	fork->source.mounted = image_forget;
	fork->source.over = fork_over;
	fork->packing.part = part;
	fork->packing.table = "fork";
	fork->packing.over = fork_packed;
	fork->packing.still.sandbox = sandbox;
	r = source_take(fork, sandbox);
	if (r >= 0)
		r = fork_words(&fork->packing.words, fork->source.image);
	s = r < 0 ? status_of_errno(r, "fork", "request") : packing_begin(&fork->packing);
	if (s.code) {
		free(fork->packing.words.texts);
		fork_free(fork);
		return s;
	}
	part->work = fork;
	return STATUS_OK;
}

void fork_part(struct part *part)
{
	const uint32_t count = part->request->body.fork.count;
	struct status s;

	if (part->request->claim.state == CLAIM_AGAIN) {
		part->count = count ? count : 1;
		create_replay(part);
		return;
	}
	part->count = 0;
	s = fork_begin(part);
	if (s.code)
		part_end(part, &s, NULL);
}

void fork_part_cancel(struct part *part)
{
	struct fork *fork = part->work;

	if (part->count)
		create_part_cancel(part);
	else if (fork)
		packing_cancel(&fork->packing);
}
