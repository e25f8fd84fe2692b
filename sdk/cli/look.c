/*
 * What sandboxes there are and what each uses, both asked at one moment. Called by ps and top. The
 * engine reads the figures when asked: a look at many costs it a request for each.
 */
#include "sdk/cli/look.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/select.h"

static uint64_t clock_us(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void row_add(void *state, const struct dsec_event *event)
{
	const struct dsec_row *row = event->body;
	struct look *look = state;
	struct line *lines;

	if (event->kind != DSEC_EV_ROW || !row)
		return;
	lines = realloc(look->lines, (look->count + 1ul) * sizeof(*lines));
	if (!lines) {
		look->no_memory = true;
		return;
	}
	look->lines = lines;
	lines[look->count] = (struct line){
		.id = row->id,
		.state = row->state,
		.age_ms = row->age_ms,
		.execs_running = row->execs_running,
		.execs_total = row->execs_total,
		.cpu_us = UINT64_MAX,
		.memory_bytes = UINT64_MAX,
		.memory_peak_bytes = UINT64_MAX,
		.cpu_before_us = UINT64_MAX,
		.image_bytes = row->image.bytes < IMAGE_BYTES ? row->image.bytes : IMAGE_BYTES,
	};
	if (row->image.bytes)
		memcpy(lines[look->count].image, row->image.data, lines[look->count].image_bytes);
	look->count++;
}

int look_compare(const void *a, const void *b)
{
	const struct line *left = a, *right = b;

	if (left->id.hi != right->id.hi)
		return left->id.hi < right->id.hi ? -1 : 1;
	return left->id.lo < right->id.lo ? -1 : left->id.lo > right->id.lo;
}

struct line *look_find(const struct look *look, struct dsec_id id)
{
	const struct line wanted = { .id = id };

	return look->count ?
		       bsearch(&wanted, look->lines, look->count, sizeof(wanted), look_compare) :
		       NULL;
}

static void usage_add(void *state, const struct dsec_event *event)
{
	const struct dsec_usage *usage = event->body;
	struct line *line;

	/* One that ends while it is looked at has a status and no figures. */
	if (event->kind != DSEC_EV_ROW || !usage)
		return;
	line = look_find(state, usage->id);
	if (!line)
		return;
	line->processes = usage->processes;
	line->cpu_us = usage->cpu_us;
	line->memory_bytes = usage->memory_bytes;
	line->memory_peak_bytes = usage->memory_peak_bytes;
}

static int usage_read(struct session *session, struct look *look)
{
	struct dsec_call call = session_call(session);
	auto_free struct dsec_id *ids = calloc(look->count + 1ul, sizeof(*ids));
	struct dsec_select select = { .size = sizeof(select), .count = look->count, .ids = ids };

	if (!ids || look->no_memory)
		return session_fail_error(session, -ENOMEM, "top", strerror(ENOMEM));
	for (uint32_t at = 0; at < look->count; at++)
		ids[at] = look->lines[at].id;
	if (!look->count)
		return 0;
	return session_events(session, dsec_stats(session->d, &call, &select), NULL, usage_add,
			      look) < 0 ?
		       EXIT_TROUBLE :
		       0;
}

int look_take(struct session *session, const struct look *before, struct look *ret)
{
	struct dsec_list_opts opts = { .size = sizeof(opts) };
	struct dsec_call call = session_call(session);
	auto_free struct dsec_label *labels = select_labels(session->options, &opts.label_count);
	int r;

	if (!labels)
		return session_fail_error(session, -ENOMEM, "top", strerror(ENOMEM));
	opts.labels = labels;
	r = session_events(session, dsec_list(session->d, &call, &opts), "top", row_add, ret);
	if (r < 0)
		return EXIT_TROUBLE;
	/* A sandbox that began while it was listed may stand out of order. */
	if (ret->count)
		qsort(ret->lines, ret->count, sizeof(*ret->lines), look_compare);
	r = usage_read(session, ret);
	ret->at_us = clock_us();
	ret->took_us = before->at_us ? ret->at_us - before->at_us : 0;
	for (uint32_t at = 0; at < ret->count; at++) {
		const struct line *old = look_find(before, ret->lines[at].id);

		if (old)
			ret->lines[at].cpu_before_us = old->cpu_us;
	}
	return r;
}

uint64_t look_cpu_permille(const struct look *look, const struct line *line)
{
	uint64_t before = line->cpu_before_us;

	if (line->cpu_us == UINT64_MAX || before == UINT64_MAX || !look->took_us)
		return UINT64_MAX;
	return line->cpu_us > before ? (line->cpu_us - before) * 1000 / look->took_us : 0;
}

uint64_t look_life_permille(const struct line *line)
{
	return line->cpu_us == UINT64_MAX || !line->age_ms ? UINT64_MAX :
							     line->cpu_us / line->age_ms;
}

void look_done(struct look *look)
{
	free(look->lines);
}
