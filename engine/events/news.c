/*
 * A shard's events on their way to the journal. Called where sandboxes and execs change their
 * state, and by the shard's loop; with what became of images by image_news.c. Must hold: a
 * tenant's events of a shard stay in order; telling one takes a copy and never waits; one for
 * which there is no room is counted where it would have stood.
 */
#include "engine/events/news.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf/policy.h"
#include "engine/base/cleanup.h"
#include "engine/exec/exec_state.h"
#include "engine/sandbox/sandbox.h"
#include "engine/shard.h"
#include "engine/events/subscribe.h"
#include "engine/tenant/tenancy.h"
#include "engine/tenant/tenant.h"

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

/* Whatever an event has behind its labels. */
struct news_more {
	struct dsec_wire_violation head;
	char texts[POLICY_COMM_BYTES + POLICY_TEXT_BYTES];
};

struct news_parts {
	const char *image;
	const struct packed *labels;
	struct news_more *more; /* may be NULL */
	const char *phase;
	bool is_shared;
};

static uint32_t part_add(char *record, uint32_t at, const void *bytes, uint32_t count)
{
	if (count)
		memcpy(record + at, bytes, count);
	return at + count;
}

/* The state, then what it points to. */
static void news_add(struct news *news, struct dsec_wire_state *state,
		     const struct news_parts *parts)
{
	const struct packed *labels = parts->labels;
	uint32_t image_bytes = parts->image ? (uint32_t)strlen(parts->image) : 0;
	uint32_t more_bytes = parts->more ? parts->more->head.size : 0;
	uint32_t phase_bytes = parts->phase ? (uint32_t)strlen(parts->phase) : 0;
	uint32_t bytes = (uint32_t)sizeof *state + image_bytes + labels->byte_count + more_bytes +
			 phase_bytes;
	uint32_t room = (bytes + 7) & ~7u, at = sizeof *state;
	struct news_batch *batch = &news->filling;
	const struct news_head head = { .bytes = bytes, .is_shared = parts->is_shared };
	char *record = batch->bytes + batch->used + sizeof head;

	/* What comes after a loss is lost too, or it would be numbered before it. */
	if (batch->lost || news->batch_bytes - batch->used < room + sizeof head) {
		batch->lost++;
		batch->lost_shared += parts->is_shared;
		return;
	}
	state->size = sizeof *state;
	state->image = (struct dsec_wire_ref){ at, image_bytes };
	at = part_add(record, at, parts->image, image_bytes);
	state->labels = (struct dsec_wire_items){ at, labels->byte_count, labels->count, 0 };
	at = part_add(record, at, labels->bytes, labels->byte_count);
	if (parts->more) {
		state->violation = (struct dsec_wire_ref){ at, more_bytes };
		parts->more->head.process.at += at;
		parts->more->head.text.at += at;
		parts->more->head.size = sizeof parts->more->head;
		at = part_add(record, at, parts->more, more_bytes);
	}
	state->phase = (struct dsec_wire_ref){ at, phase_bytes };
	(void)part_add(record, at, parts->phase, phase_bytes);
	memcpy(batch->bytes + batch->used, &head, sizeof head);
	memcpy(record, state, sizeof *state);
	batch->used += (uint32_t)sizeof head + room;
}

static uint64_t news_time_ms(const struct shard *shard)
{
	const struct node *node = shard->node;

	return node->epoch + (io_now_ns(shard->io) - node->epoch_ns) / 1000000;
}

static struct dsec_wire_state state_of(const struct sandbox *sandbox, uint32_t topic)
{
	return (struct dsec_wire_state){
		.topic = topic,
		.time_ms = news_time_ms(sandbox->shard),
		.id = sandbox->id,
		.cause = sandbox->cause,
		.flags = sandbox_event_flags(sandbox),
		.phase_version = sandbox->phase.version,
	};
}

void news_of_sandbox(const struct sandbox *sandbox, uint32_t topic)
{
	struct dsec_wire_state state = state_of(sandbox, topic);
	bool begins = topic == DSEC_TOPIC_CREATING;

	if (topic == DSEC_TOPIC_ENDED && !state.cause)
		state.cause = DSEC_CAUSE_FAILED;
	news_add(&sandbox->tenancy->news, &state,
		 &(struct news_parts){ .image = begins ? sandbox_image_name(sandbox) : NULL,
				       .labels = &sandbox->labels,
				       .phase = sandbox->phase.name });
}

void news_of_exec(const struct exec *exec, uint32_t topic)
{
	struct dsec_wire_state state = state_of(exec->sandbox, topic);
	const struct dsec_wire_result *result = &exec->result;

	state.exec = exec->number;
	state.cause = 0;
	state.phase_version = exec->phase;
	if (topic == DSEC_TOPIC_EXEC_ENDED) {
		state.reason = result->size ? result->reason : DSEC_NOT_STARTED;
		state.exit_code = result->size ? result->exit_code : -1;
		state.signal = result->signal;
		state.wall_us = result->wall_us;
	}
	news_add(&exec->sandbox->tenancy->news, &state,
		 &(struct news_parts){ .labels = &exec->sandbox->labels,
				       .phase = exec->phase == exec->sandbox->phase.version ?
							exec->sandbox->phase.name :
							NULL });
}

/* "192.0.2.1 tcp/443" */
static uint32_t address_write(const struct policy_violation *v, char ret[static POLICY_TEXT_BYTES])
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	const bool is_v4 = !memcmp(v->address, mapped, sizeof mapped);
	char address[INET6_ADDRSTRLEN] = "";

	(void)inet_ntop(is_v4 ? AF_INET : AF_INET6, v->address + (is_v4 ? sizeof mapped : 0),
			address, sizeof address); /* fits, as below */
	return (uint32_t)snprintf(ret, POLICY_TEXT_BYTES, "%s %s/%u", address,
				  v->protocol == IPPROTO_TCP ? "tcp" : "udp", v->port);
}

/*
 * A path as people write it, of names from the last to the first; a name as it is; or where it was
 * to go.
 */
static uint32_t text_write(const struct policy_violation *v, char ret[static POLICY_TEXT_BYTES])
{
	uint32_t bytes = v->text_bytes, used = 0;

	if (v->text_kind == POLICY_TEXT_NONE && v->family)
		return address_write(v, ret);
	if (bytes > POLICY_TEXT_BYTES)
		bytes = POLICY_TEXT_BYTES;
	if (v->text_kind == POLICY_TEXT_NAME)
		memcpy(ret, v->text, bytes);
	if (v->text_kind != POLICY_TEXT_PATH)
		return v->text_kind == POLICY_TEXT_NAME ? bytes : 0;
	for (uint32_t end = bytes; end > 0;) {
		uint32_t at = end - 1, length;

		while (at > 0 && v->text[at - 1])
			at--;
		length = (uint32_t)strnlen(v->text + at, end - at);
		if (length && used + 1 + length <= POLICY_TEXT_BYTES) {
			ret[used] = '/';
			memcpy(ret + used + 1, v->text + at, length);
			used += 1 + length;
		}
		end = at;
	}
	return used;
}

static void integrity_news(const struct sandbox *sandbox, const struct policy_violation *v,
			   struct dsec_wire_state *state, uint32_t anomaly)
{
	struct news_more more = { .head = { .rule = v->rule,
					    .hook = v->hook,
					    .anomaly = anomaly,
					    .count = v->count,
					    .argument = v->argument,
					    .verdict = v->verdict,
					    .policy = v->policy,
					    .error = v->error,
					    .pid = v->pid } };
	const uint32_t comm = (uint32_t)strnlen(v->comm, sizeof v->comm);

	state->cause = 0;
	if (v->phase) /* a program's that knows it */
		state->phase_version = v->phase;
	memcpy(more.texts, v->comm, comm);
	more.head.process = (struct dsec_wire_ref){ sizeof more.head, comm };
	more.head.text =
		(struct dsec_wire_ref){ sizeof more.head + comm, text_write(v, more.texts + comm) };
	more.head.size = (uint32_t)sizeof more.head + comm + more.head.text.bytes;
	news_add(&sandbox->tenancy->news, state,
		 &(struct news_parts){ .labels = &sandbox->labels,
				       .more = &more,
				       .phase = state->phase_version == sandbox->phase.version ?
							sandbox->phase.name :
							NULL });
}

void news_of_violation(const struct sandbox *sandbox, const struct policy_violation *v,
		       uint64_t exec)
{
	struct dsec_wire_state state = state_of(sandbox, DSEC_TOPIC_VIOLATION);

	state.exec = exec;
	integrity_news(sandbox, v, &state, 0);
}

void news_of_anomaly(const struct sandbox *sandbox, const struct policy_violation *v, uint64_t exec,
		     uint32_t anomaly)
{
	struct dsec_wire_state state = state_of(sandbox, DSEC_TOPIC_ANOMALY);

	state.exec = exec;
	integrity_news(sandbox, v, &state, anomaly);
}

void news_of_image(struct shard *shard, const char *name, uint32_t topic)
{
	static const struct packed none;
	const struct node *node = shard->node;

	for (uint32_t i = 0; i < node->tenant_count; i++) {
		const struct tenant *tenant = &node->tenants[i];
		struct dsec_wire_state state = { .topic = topic, .time_ms = news_time_ms(shard) };

		if (tenant_reads_image(tenant, node, name))
			news_add(&shard->tenancies[i].news, &state,
				 &(struct news_parts){
					 .image = name,
					 .labels = &none,
					 .is_shared = !tenant_owns_image(tenant, node, name) });
	}
}

/* ---- sending ---- */

static void batch_came_back(struct mail *mail, void *owner)
{
	struct news *news = container_of(mail, struct news, mail);

	(void)owner; /* news->shard */
	news->sent.used = 0;
	news->sent.lost = news->sent.lost_shared = 0;
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
