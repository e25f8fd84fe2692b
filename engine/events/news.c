/*
 * A shard's events on their way to the journal. Called where sandboxes and execs change their
 * state, and by the shard's loop. Must hold: a tenant's events of a shard stay in order; telling
 * one takes a copy and never waits; one for which there is no room is counted where it would have
 * stood.
 */
#include "engine/events/news.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/exec/exec_state.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"
#include "engine/events/subscribe.h"
#include "engine/tenant/tenancy.h"

int news_open(struct news *news, struct shard *shard, uint32_t tenant, uint32_t batch_bytes)
{
	*news = (struct news){ .shard = shard, .tenant = tenant, .batch_bytes = batch_bytes };
	news->filling.bytes = malloc(batch_bytes);
	news->sent.bytes = malloc(batch_bytes);
	return news->filling.bytes && news->sent.bytes ? 0 : -ENOMEM;
}

void news_done(struct news *news)
{
	free(news->filling.bytes);
	free(news->sent.bytes);
	*news = (struct news){ 0 };
}

/* ---- collecting ---- */

/* The state, then the image's name and the labels that it points to; all of them aligned. */
static void news_add(struct news *news, struct dsec_wire_state *state, const char *image,
		     const struct packed *labels)
{
	uint32_t image_bytes = image ? (uint32_t)strlen(image) : 0;
	uint32_t bytes = (uint32_t)sizeof *state + image_bytes + labels->byte_count;
	uint32_t room = (bytes + 7) & ~7u;
	struct news_batch *batch = &news->filling;
	char *at = batch->bytes + batch->used;

	/* What comes after a loss is lost too, or it would be numbered before it. */
	if (batch->lost || news->batch_bytes - batch->used < room + sizeof bytes * 2) {
		batch->lost++;
		return;
	}
	state->size = sizeof *state;
	state->image = (struct dsec_wire_ref){ sizeof *state, image_bytes };
	state->labels = (struct dsec_wire_items){ (uint32_t)sizeof *state + image_bytes,
						  labels->byte_count, labels->count, 0 };
	memcpy(at, &bytes, sizeof bytes);
	at += 2 * sizeof bytes;
	memcpy(at, state, sizeof *state);
	if (image_bytes)
		memcpy(at + state->image.at, image, image_bytes);
	if (labels->byte_count)
		memcpy(at + state->labels.at, labels->bytes, labels->byte_count);
	batch->used += 2 * (uint32_t)sizeof bytes + room;
}

static struct dsec_wire_state state_of(const struct sandbox *sandbox, uint32_t topic)
{
	const struct shard *shard = sandbox->shard;
	const struct node *node = shard->node;

	return (struct dsec_wire_state){
		.topic = topic,
		.time_ms = node->epoch + (io_now_ns(shard->io) - node->epoch_ns) / 1000000,
		.id = sandbox->id,
		.cause = sandbox->cause,
		.flags = sandbox_event_flags(sandbox),
	};
}

void news_of_sandbox(const struct sandbox *sandbox, uint32_t topic)
{
	struct dsec_wire_state state = state_of(sandbox, topic);
	bool begins = topic == DSEC_TOPIC_CREATING;

	if (topic == DSEC_TOPIC_ENDED && !state.cause)
		state.cause = DSEC_CAUSE_FAILED;
	news_add(&sandbox->tenancy->news, &state, begins ? sandbox->image->name : NULL,
		 &sandbox->labels);
}

void news_of_exec(const struct exec *exec, uint32_t topic)
{
	struct dsec_wire_state state = state_of(exec->sandbox, topic);
	const struct dsec_wire_result *result = &exec->result;

	state.exec = exec->number;
	state.cause = 0;
	if (topic == DSEC_TOPIC_EXEC_ENDED) {
		state.reason = result->size ? result->reason : DSEC_NOT_STARTED;
		state.exit_code = result->size ? result->exit_code : -1;
		state.signal = result->signal;
		state.wall_us = result->wall_us;
	}
	news_add(&exec->sandbox->tenancy->news, &state, NULL, &exec->sandbox->labels);
}

/* ---- sending ---- */

static void batch_came_back(struct mail *mail, void *owner)
{
	struct news *news = container_of(mail, struct news, mail);

	(void)owner; /* news->shard */
	news->sent.used = 0;
	news->sent.lost = 0;
	news->is_away = false;
	shard_check_stopped(news->shard);
}

static void batch_arrived(struct mail *mail, void *owner)
{
	struct news *news = container_of(mail, struct news, mail);
	struct shard *shard = owner;

	subscriptions_take(shard->subscriptions, news->tenant, &news->sent);
	mail->deliver = batch_came_back;
	shard_send(shard, news->shard, mail);
}

bool news_is_told(const struct news *news)
{
	return !news->is_away && !news->filling.used && !news->filling.lost;
}

void news_send(struct news *news)
{
	struct shard *shard = news->shard;
	struct news_batch batch = news->sent;

	if (news->is_away || news_is_told(news))
		return;
	news->sent = news->filling;
	news->filling = batch;
	news->is_away = true;
	news->mail.deliver = batch_arrived;
	shard_send(shard, shard->node->shards[SUBSCRIPTIONS_SHARD], &news->mail);
}
