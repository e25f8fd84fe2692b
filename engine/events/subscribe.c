/*
 * The subscribe op. Called by request.c, and by news.c with what happened. Each subscription walks
 * the journal at its own pace: one that does not read, or whose client gives no credit, costs
 * nobody anything, and is told how much it missed. Must hold: what a subscription selected is sent
 * once and in order, or counted in a GAP that stands where it is missing.
 *
 * One that falls behind by LAG_MAX_PERMILLE of the journal passes over the oldest and counts what
 * it would have sent: so the count is exact unless it is so slow that it is overtaken even so.
 */
#include "engine/events/subscribe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "engine/base/cleanup.h"
#include "engine/events/journal.h"
#include "engine/events/news.h"
#include "engine/request/request.h"
#include "engine/sandbox/sandbox.h"
#include "engine/request/selection.h"
#include "engine/shard.h"
#include "engine/tenant/tenancy.h"
#include "engine/request/window.h"

enum {
	LAG_MAX_PERMILLE = 900,
	STEPS_PER_TURN = 256, /* records looked at: below 200 us */
	SENT_PER_TURN = 32,   /* before the client is asked for room */
	LABEL_PAIRS_MAX = 8,  /* compared with each event of others */
	IDS_COUNT_MAX = 4096,
	JOURNAL_BYTES_MIN = 64 << 10,
};

struct subscriptions {
	struct shard *shard;
	/* A tenant's numbers and its part of the memory are its own; everyone's is behind them. */
	struct journal *journals;
	bool has_everyone; /* somebody may read it */
	struct subscription *all;
};

struct subscription {
	struct part *part; /* NULL: it is over, and only its walk has to come back */
	uint64_t client;
	struct subscriptions *of;
	struct journal *journal;
	struct subscription *next, **link;
	struct mail walk_mail;
	struct walk_turn walk;
	struct journal_cursor cursor;
	uint64_t from_seq; /* what is before that is passed over */
	struct window window;
	struct dsec_wire_missed missed; /* count 0 and no flags: nothing */
	struct dsec_wire_id *ids;	/* sorted */
	uint32_t id_count;
	uint32_t sent_now; /* since the client was last asked for room */
	bool walks;	   /* `walk` is on its way */
	bool asks;	   /* the part's mail is: is there room? */
	bool waits;	   /* for what has not happened yet */
	bool is_pressed;   /* it lags, and more is coming */
	bool is_brief;	   /* ends where others wait */
	bool ends;	   /* as soon as the part's mail is back */
	struct status status;
};

/* ---- beginning and end ---- */

static uint64_t journal_part(uint64_t bytes, uint32_t readers)
{
	return bytes / readers > JOURNAL_BYTES_MIN ? bytes / readers : JOURNAL_BYTES_MIN;
}

int subscriptions_new(struct shard *shard, struct subscriptions **ret)
{
	struct subscriptions *s = calloc(1, sizeof *s);
	const struct node *node = shard->node;
	uint32_t readers = node->tenant_count;
	int r;

	if (!s)
		return -ENOMEM;
	s->shard = shard;
	for (uint32_t i = 0; i < node->tenant_count; i++)
		s->has_everyone |= node->tenants[i].config->is_gateway;
	readers += s->has_everyone;
	s->journals = calloc(node->tenant_count + 1, sizeof *s->journals);
	r = s->journals ? 0 : -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < readers; i++)
		r = journal_init(&s->journals[i],
				 journal_part(shard->config->journal_bytes, readers));
	if (r < 0)
		subscriptions_free(s);
	else
		*ret = s;
	return r;
}

void subscriptions_free(struct subscriptions *subscriptions)
{
	if (!subscriptions)
		return;
	for (uint32_t i = 0;
	     subscriptions->journals && i <= subscriptions->shard->node->tenant_count; i++)
		journal_done(&subscriptions->journals[i]);
	free(subscriptions->journals);
	free(subscriptions);
}

static void subscription_free(struct subscription *sub)
{
	free(sub->ids);
	free(sub);
}

static void subscription_end(struct subscription *sub)
{
	struct part *part = sub->part;

	quota_give(tenancy_of(part), QUOTA_SUBSCRIPTIONS, 1);
	*sub->link = sub->next;
	if (sub->next)
		sub->next->link = sub->link;
	sub->part = NULL;
	part_end(part, &sub->status, NULL);
	if (!sub->walks)
		subscription_free(sub);
}

/* ---- what is selected ---- */

static int id_compare(const void *a, const void *b)
{
	const struct dsec_wire_id *left = a, *right = b;

	if (left->hi != right->hi)
		return left->hi < right->hi ? -1 : 1;
	return left->lo < right->lo ? -1 : left->lo > right->lo;
}

static bool is_selected(const struct subscription *sub, const struct dsec_wire_state *state,
			const char *record)
{
	const struct request *request = sub->part->request;
	const struct dsec_wire_items *labels = &request->body.subscribe.select.labels;
	const struct wire own = { record, state->labels.at + state->labels.bytes };
	uint64_t topics = request->body.subscribe.topics;

	if (topics && !(topics & 1ull << state->topic))
		return false;
	if (!sub->id_count && !labels->count)
		return true;
	if (sub->id_count &&
	    bsearch(&state->id, sub->ids, sub->id_count, sizeof *sub->ids, id_compare))
		return true;
	return labels->count &&
	       selection_labels_match(&own, &state->labels, &request->payload, labels);
}

/* ---- sending ---- */

/* Of what it asked for. */
static void miss(struct subscription *sub, uint64_t first_seq, uint64_t count, uint32_t flags)
{
	struct dsec_wire_missed *missed = &sub->missed;
	uint64_t passed = first_seq < sub->from_seq ? sub->from_seq - first_seq : 0;

	if (passed >= count && !(flags & DSEC_MISSED_RESET))
		return;
	first_seq += passed;
	count -= passed;
	if (!missed->count && !missed->flags)
		missed->first_seq = first_seq;
	missed->count += count;
	missed->flags |= flags;
}

static bool has_missed(const struct subscription *sub)
{
	return sub->missed.count || sub->missed.flags;
}

static void gap_emit(struct subscription *sub, uint64_t next_seq)
{
	struct emission e = { .kind = DSEC_EV_GAP,
			      .offset = sub->missed.first_seq,
			      .body = &sub->missed,
			      .bytes = sizeof sub->missed };

	sub->missed.size = sizeof sub->missed;
	sub->missed.next_seq = next_seq;
	part_emit(sub->part, &e);
	sub->missed = (struct dsec_wire_missed){ 0 };
	sub->window.sent++;
	sub->sent_now++;
	sub->ends |= sub->part->status.code != DSEC_OK; /* no memory for it: a silent loss */
}

static void state_emit(struct subscription *sub, const struct journal_item *item,
		       const struct dsec_wire_state *state)
{
	struct emission e = { .kind = DSEC_EV_STATE,
			      .flags = (uint16_t)state->flags,
			      .subject = state->id,
			      .exec = state->exec,
			      .offset = item->seq,
			      .body = item->data,
			      .bytes = item->bytes };

	part_emit(sub->part, &e);
	sub->window.sent++;
	sub->sent_now++;
	sub->ends |= sub->part->status.code != DSEC_OK;
}

static bool has_room(const struct subscription *sub)
{
	return !sub->asks && sub->sent_now < SENT_PER_TURN && window_room(&sub->window);
}

static bool lags(const struct subscription *sub)
{
	return journal_lag_permille(sub->journal, &sub->cursor) > LAG_MAX_PERMILLE;
}

static bool has_more(const struct subscription *sub)
{
	return sub->cursor.seq != sub->journal->next_seq;
}

/* The next of what the journal has. False: there is nothing more to do now. */
static bool subscription_step(struct subscription *sub)
{
	struct journal_cursor next = sub->cursor;
	struct dsec_wire_state state;
	struct journal_item item;
	uint64_t overtaken;
	bool selected;

	if (!journal_next(sub->journal, &next, &item, &overtaken)) {
		sub->waits = true;
		return false;
	}
	if (overtaken) {
		miss(sub, sub->cursor.seq, overtaken, DSEC_MISSED_UNSELECTED);
		sub->cursor = journal_oldest(sub->journal);
	}
	if (item.lost)
		miss(sub, item.seq, item.lost, DSEC_MISSED_UNSELECTED);
	if (item.lost || item.seq < sub->from_seq) {
		sub->cursor = next;
		return true;
	}
	memcpy(&state, item.data, sizeof state);
	selected = is_selected(sub, &state, item.data);
	if (selected && !has_room(sub)) {
		if (!sub->is_pressed || !lags(sub))
			return false;
		miss(sub, item.seq, 1, 0);
	} else if (selected && has_missed(sub)) {
		gap_emit(sub, item.seq);
		return true; /* and the record itself in the next step */
	} else if (selected) {
		state_emit(sub, &item, &state);
	}
	sub->cursor = next;
	return true;
}

static void subscription_walk(struct subscription *sub);

static void room_came(struct mail *mail, void *owner)
{
	struct part *part = container_of(mail, struct part, mail);
	struct subscription *sub = part->work;

	(void)owner; /* part->shard */
	sub->asks = false;
	sub->sent_now = 0;
	if (sub->ends)
		subscription_end(sub);
	else if (!sub->waits)
		subscription_walk(sub);
}

static void subscription_walks(struct mail *mail, void *owner)
{
	struct subscription *sub = container_of(mail, struct subscription, walk_mail);
	uint32_t steps = 0;

	(void)owner; /* the subscriptions' shard */
	sub->walks = false;
	if (!sub->part) {
		subscription_free(sub);
		return;
	}
	if (sub->ends)
		return; /* room_came() */
	sub->waits = false;
	while (steps < STEPS_PER_TURN && !sub->ends && subscription_step(sub))
		steps++;
	/* What is missing at the end is told, too, or nobody would know until something happens. */
	if (sub->waits && has_missed(sub)) {
		sub->waits = has_room(sub);
		if (sub->waits)
			gap_emit(sub, sub->cursor.seq);
	}
	sub->ends |= sub->waits && sub->is_brief;
	if (steps == STEPS_PER_TURN)
		subscription_walk(sub);
	else
		sub->is_pressed = false;
	if (sub->sent_now && !sub->asks) {
		sub->asks = true;
		part_again_with_room(sub->part, room_came);
	}
	if (sub->ends && !sub->asks)
		subscription_end(sub);
}

static void subscription_walk(struct subscription *sub)
{
	if (sub->walks)
		return;
	sub->walks = true;
	sub->walk_mail.deliver = subscription_walks;
	sub->walk.mail = &sub->walk_mail;
	shard_walk(sub->of->shard, &sub->walk, sub->client);
}

/* The batch's records are numbered by each journal that takes them; everyone's each once. */
static void batch_add(struct journal *journal, const struct news_batch *batch, bool is_everyone)
{
	for (uint32_t at = 0; at < batch->used;) {
		struct dsec_wire_state *state;
		struct news_head head;

		memcpy(&head, batch->bytes + at, sizeof head);
		at += (uint32_t)sizeof head;
		state = (struct dsec_wire_state *)(batch->bytes + at); /* aligned by news.c */
		at += (head.bytes + 7) & ~7u;
		if (is_everyone && head.is_shared)
			continue;
		state->seq = journal->next_seq;
		journal_add(journal, state, head.bytes);
	}
	journal_add_lost(journal, batch->lost - (is_everyone ? batch->lost_shared : 0));
}

void subscriptions_take(struct subscriptions *s, uint32_t tenant, const struct news_batch *batch)
{
	batch_add(&s->journals[tenant], batch, false);
	if (s->has_everyone)
		batch_add(&s->journals[s->shard->node->tenant_count], batch, true);
	for (struct subscription *sub = s->all; sub; sub = sub->next) {
		sub->is_pressed |= lags(sub);
		if (sub->is_pressed || (sub->waits && has_more(sub)))
			subscription_walk(sub);
	}
}

/* ---- the op ---- */

static struct status subscribe_invalid(const char *field, const char *detail)
{
	return (struct status){ .code = DSEC_INVALID,
				.blame = DSEC_BLAME_CALLER,
				.error = EINVAL,
				.table = "subscribe",
				.step = field,
				.detail = detail };
}

static struct status subscribe_wrong(const struct part *part)
{
	const struct request *request = part->request;
	const struct dsec_wire_subscribe *wish = &request->body.subscribe;
	const char *wrong = selection_wrong(request);

	if (wrong)
		return subscribe_invalid(wrong, NULL);
	if (wish->select.count > IDS_COUNT_MAX)
		return subscribe_invalid("ids", "at most 4096");
	if (wish->select.labels.count > 2 * LABEL_PAIRS_MAX)
		return subscribe_invalid("labels", "at most 8 pairs");
	if (wish->flags & ~(uint32_t)DSEC_SUBSCRIBE_SO_FAR)
		return subscribe_invalid("flags", "unknown flag");
	if (!wire_is_zero(wish->reserved, sizeof wish->reserved))
		return subscribe_invalid("reserved", NULL);
	return STATUS_OK;
}

/* Another one of this client's, and of all? */
static struct status subscribe_admit(const struct subscriptions *s, const struct part *part)
{
	const uint64_t client = part->request->client;
	uint32_t own = 0;

	for (const struct subscription *sub = s->all; sub; sub = sub->next)
		own += sub->part->request->client == client;
	if (own >= SUBSCRIPTIONS_CLIENT_MAX)
		return status_of_errno(-EAGAIN, "subscribe", "client_max");
	if (!quota_has(tenancy_of(part), QUOTA_SUBSCRIPTIONS))
		return status_of_errno(-EAGAIN, "subscribe", "subscriptions_max");
	return STATUS_OK;
}

static int ids_take(struct subscription *sub, const struct request *request)
{
	const struct dsec_wire_select *select = &request->body.subscribe.select;
	const struct dsec_wire_id *subject = &request->entry.subject;

	sub->ids = calloc(select->count + 1ul, sizeof *sub->ids);
	if (!sub->ids)
		return -ENOMEM;
	if (select->count)
		memcpy(sub->ids, request->payload.payload + select->ids.at,
		       select->count * sizeof *sub->ids);
	sub->id_count = select->count;
	if (subject->hi || subject->lo)
		sub->ids[sub->id_count++] = *subject;
	qsort(sub->ids, sub->id_count, sizeof *sub->ids, id_compare);
	return 0;
}

/* Where it begins: INVALID for what has not happened yet. */
static struct status subscription_place(struct subscription *sub,
					const struct dsec_wire_subscribe *wish)
{
	const struct journal *journal = sub->journal;
	uint64_t epoch = sub->part->shard->node->epoch;

	if (!wish->from_seq) {
		sub->cursor = journal_end(journal);
		return STATUS_OK;
	}
	sub->cursor = journal_oldest(journal); /* the walk passes over what is before it */
	if (wish->epoch && wish->epoch != epoch) {
		miss(sub, 1, sub->cursor.seq - 1,
		     DSEC_MISSED_RESET | (sub->cursor.seq > 1 ? DSEC_MISSED_UNSELECTED : 0));
		return STATUS_OK;
	}
	if (wish->from_seq > journal->next_seq)
		return subscribe_invalid("from_seq", "no event has that number yet");
	sub->from_seq = wish->from_seq;
	if (wish->from_seq < sub->cursor.seq)
		miss(sub, wish->from_seq, sub->cursor.seq - wish->from_seq, DSEC_MISSED_UNSELECTED);
	return STATUS_OK;
}

static void subscription_start(struct subscription *sub)
{
	struct subscriptions *s = sub->of;
	struct emission e = { .kind = DSEC_EV_STARTED };

	e.offset = sub->from_seq ? sub->from_seq : has_missed(sub) ? 1 : sub->cursor.seq;
	sub->next = s->all;
	sub->link = &s->all;
	if (sub->next)
		sub->next->link = &sub->next;
	s->all = sub;
	tenancy_of(sub->part)->used[QUOTA_SUBSCRIPTIONS]++;
	sub->part->work = sub;
	part_emit(sub->part, &e);
	subscription_walk(sub);
}

void subscribe_part(struct part *part)
{
	struct subscriptions *all = part->shard->subscriptions;
	const struct dsec_wire_subscribe *wish = &part->request->body.subscribe;
	uint32_t window = wish->window ? wish->window : DSEC_EVENTS_WINDOW_DEFAULT;
	struct status s = subscribe_wrong(part);
	struct subscription *sub;

	if (!s.code)
		s = subscribe_admit(all, part);
	if (s.code) {
		part_end(part, &s, NULL);
		return;
	}
	sub = calloc(1, sizeof *sub);
	if (!sub || ids_take(sub, part->request) < 0) {
		free(sub);
		s = status_of_errno(-ENOMEM, "subscribe", "memory");
		part_end(part, &s, NULL);
		return;
	}
	sub->part = part;
	sub->client = part->request->client;
	sub->of = all;
	sub->journal = &all->journals[part->request->tenant->index];
	sub->is_brief = wish->flags & DSEC_SUBSCRIBE_SO_FAR;
	sub->window.bytes = window < DSEC_EVENTS_WINDOW_MAX ? window : DSEC_EVENTS_WINDOW_MAX;
	s = subscription_place(sub, wish);
	if (s.code) {
		subscription_free(sub);
		part_end(part, &s, NULL);
		return;
	}
	subscription_start(sub);
}

void subscribe_cancel(struct part *part)
{
	struct subscription *sub = part->work;

	if (!sub->ends)
		sub->status = status_of_errno(-ECANCELED, "subscribe", "cancel");
	sub->ends = true;
	if (!sub->asks)
		subscription_end(sub);
}

int subscribe_credit(struct part *part, uint32_t stream, uint64_t consumed)
{
	struct subscription *sub = part->work;
	int r;

	if (stream)
		return -EINVAL;
	r = window_credit(&sub->window, consumed);
	if (r == 0 && !sub->waits)
		subscription_walk(sub);
	return r;
}
