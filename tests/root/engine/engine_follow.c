/* Followers. Called by claims about streams. */
#include "tests/root/engine/engine_follow.h"

#include <stdlib.h>
#include <string.h>

#include "tests/root/engine/engine_client.h"
#include "tests/root/engine/engine_harness.h"

struct follower follower_of(struct dsec *d, int64_t ticket)
{
	return (struct follower){ .d = d, .ticket = ticket };
}

struct follower follower_attach(struct dsec *d, struct dsec_id id, uint64_t exec, uint64_t from,
				uint32_t flags)
{
	const struct dsec_at at[] = { { .stream = 1, .offset = from } };
	struct dsec_attach_opts opts = {
		.size = sizeof opts, .flags = flags, .exec = exec, .at = at, .at_count = 1
	};
	struct follower f = follower_of(d, dsec_attach(d, NULL, id, &opts));

	if (!expect(f.ticket >= 0))
		note("attach: %s", dsec_error(d, f.ticket));
	f.streams[0].from = f.streams[0].next = from;
	return f;
}

void follower_done(struct follower *f)
{
	if (!f->last && f->ticket >= 0) {
		(void)dsec_cancel(f->d, f->ticket); /* it may end by itself */
		(void)ticket_end(f->d, f->ticket);  /* as it likes */
	}
	dsec_event_free(f->last);
	for (int i = 0; i < 2; i++)
		free(f->streams[i].bytes);
}

static void followed_add(struct followed *s, const struct dsec_event *event)
{
	uint64_t have = s->next - s->from;

	if (have + event->bytes > s->room) {
		s->room = 2 * (have + event->bytes);
		s->bytes = realloc(s->bytes, s->room);
		if (!s->bytes)
			abort();
	}
	if (event->data)
		memcpy(s->bytes + have, event->data, event->bytes);
	else
		memset(s->bytes + have, '?', event->bytes);
	s->next += event->bytes;
}

bool follower_step(struct follower *f, int timeout_ms)
{
	struct dsec_event *event;

	if (f->last || f->ticket < 0 || dsec_wait(f->d, f->ticket, timeout_ms, &event) < 0)
		return false;
	if (event->flags & DSEC_LAST) {
		f->last = event;
		f->result = event->body;
		return true;
	}
	if (event->kind == DSEC_EV_STARTED)
		f->exec = event->exec;
	if (event->kind == DSEC_EV_DATA || event->kind == DSEC_EV_GAP) {
		struct followed *s = &f->streams[event->stream - 1];

		f->wrong_offset |= event->offset != s->next;
		f->events += event->kind == DSEC_EV_DATA;
		s->gaps += event->kind == DSEC_EV_GAP;
		s->missing += event->kind == DSEC_EV_GAP ? event->bytes : 0;
		followed_add(s, event);
	}
	dsec_event_free(event);
	return true;
}

bool follower_until(struct follower *f, uint32_t stream, uint64_t bytes, int timeout_ms)
{
	uint64_t end = now_ms() + (uint64_t)timeout_ms;

	while (f->streams[stream - 1].next < bytes && now_ms() < end)
		if (!follower_step(f, (int)(end - now_ms())))
			break;
	return f->streams[stream - 1].next >= bytes;
}

bool follower_to_end(struct follower *f, int timeout_ms)
{
	uint64_t end = now_ms() + (uint64_t)timeout_ms;

	while (!f->last && now_ms() < end)
		if (!follower_step(f, (int)(end - now_ms())))
			break;
	return f->last && !f->wrong_offset;
}

bool follower_has(const struct follower *f, uint32_t stream, const void *bytes, uint64_t count)
{
	const struct followed *s = &f->streams[stream - 1];

	return !f->wrong_offset && s->next - s->from == count &&
	       (!count || !memcmp(s->bytes, bytes, count));
}

uint32_t follower_give(struct dsec *d, int64_t ticket, uint64_t offset, const char *text)
{
	struct dsec_bytes bytes = { text, strlen(text) };
	int64_t input = dsec_input(d, NULL, ticket, offset, bytes);

	if (!expect(input >= 0)) {
		note("input: %s", dsec_error(d, input));
		return UINT32_MAX;
	}
	return ticket_end(d, input).code;
}
