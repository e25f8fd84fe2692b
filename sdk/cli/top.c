/*
 * `dsec top`: what sandboxes use, the busiest first, again and again. Called by main.c. On no
 * terminal, and with --json, it looks twice, for a share of CPU between, and shows that once.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/select.h"
#include "sdk/cli/settings.h"
#include "sdk/cli/table.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

enum { EVERY_MS = 1000, ROWS_UNKNOWN = 24, HEAD_ROWS = 3, IMAGE_BYTES = 64 };
enum { SORT_CPU = 1, SORT_MEMORY, SORT_EXECS, SORT_AGE }; /* as the option's words */
enum {
	TOP_ID,
	TOP_STATE,
	TOP_CPU,
	TOP_MEMORY,
	TOP_PEAK,
	TOP_EXECS,
	TOP_PROCESSES,
	TOP_AGE,
	TOP_IMAGE
};

static const struct column columns[] = {
	[TOP_ID] = { "ID", 26 },
	[TOP_STATE] = { "STATE", 11 },
	[TOP_CPU] = { "CPU", 7 },
	[TOP_MEMORY] = { "MEMORY", 9 },
	[TOP_PEAK] = { "PEAK", 9 },
	[TOP_EXECS] = { "EXECS", 7 },
	[TOP_PROCESSES] = { "PROCESSES", 9 },
	[TOP_AGE] = { "AGE", 7 },
	[TOP_IMAGE] = { "IMAGE", 0 },
	{ NULL, 0 },
};

struct line {
	struct dsec_id id;
	uint32_t state, processes;
	uint64_t age_ms, execs_running, execs_total;
	uint64_t cpu_us, memory_bytes, memory_peak_bytes; /* UINT64_MAX: unknown */
	uint64_t cpu_before_us;
	char image[IMAGE_BYTES]; /* its beginning */
	size_t image_bytes;
};

/* One look. Lines are in order of ids, until they are sorted. */
struct look {
	struct line *lines;
	uint32_t count;
	uint64_t at_us, took_us; /* since the look before; 0: there was none */
	bool no_memory;
};

static uint64_t clock_us(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* ---- looking ---- */

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

static int id_compare(const void *a, const void *b)
{
	const struct line *left = a, *right = b;

	if (left->id.hi != right->id.hi)
		return left->id.hi < right->id.hi ? -1 : 1;
	return left->id.lo < right->id.lo ? -1 : left->id.lo > right->id.lo;
}

static struct line *line_find(const struct look *look, struct dsec_id id)
{
	const struct line wanted = { .id = id };

	return look->count ?
		       bsearch(&wanted, look->lines, look->count, sizeof(wanted), id_compare) :
		       NULL;
}

static void usage_add(void *state, const struct dsec_event *event)
{
	const struct dsec_usage *usage = event->body;
	struct line *line;

	/* One that ends while it is looked at has a status and no figures. */
	if (event->kind != DSEC_EV_ROW || !usage)
		return;
	line = line_find(state, usage->id);
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

static int look_take(struct session *session, const struct look *before, struct look *ret)
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
		qsort(ret->lines, ret->count, sizeof(*ret->lines), id_compare);
	r = usage_read(session, ret);
	ret->at_us = clock_us();
	ret->took_us = before->at_us ? ret->at_us - before->at_us : 0;
	for (uint32_t at = 0; at < ret->count; at++) {
		const struct line *old = line_find(before, ret->lines[at].id);

		if (old)
			ret->lines[at].cpu_before_us = old->cpu_us;
	}
	return r;
}

/* ---- what a line says ---- */

/* In thousandths of a CPU; UINT64_MAX: unknown. */
static uint64_t cpu_permille(const struct look *look, const struct line *line)
{
	uint64_t before = line->cpu_before_us;

	if (line->cpu_us == UINT64_MAX || before == UINT64_MAX || !look->took_us)
		return UINT64_MAX;
	return line->cpu_us > before ? (line->cpu_us - before) * 1000 / look->took_us : 0;
}

/* What is not known comes last. */
static uint64_t weight(const struct line *line, uint64_t sort)
{
	uint64_t value = line->execs_running;

	if (sort == SORT_AGE)
		value = line->age_ms;
	else if (sort == SORT_MEMORY)
		value = line->memory_bytes;
	else if (sort != SORT_EXECS && line->cpu_us != UINT64_MAX)
		value = line->cpu_before_us == UINT64_MAX ? 0 : line->cpu_us - line->cpu_before_us;
	return value == UINT64_MAX ? 0 : value + 1;
}

static int weight_compare(const void *a, const void *b, void *sort)
{
	uint64_t left = weight(a, *(const uint64_t *)sort);
	uint64_t right = weight(b, *(const uint64_t *)sort);

	return left == right ? id_compare(a, b) : left > right ? -1 : 1;
}

/* Whether stdout took it is told at the end, by main(); so here and below. */
static void line_show(const struct look *look, const struct line *line)
{
	uint64_t permille = cpu_permille(look, line);
	char text[2 * VALUE_TEXT_BYTES];

	dsec_id_print(line->id, text);
	table_text(&columns[TOP_ID], text);
	table_text(&columns[TOP_STATE], state_name(line->state));
	(void)snprintf(text, sizeof(text), "%" PRIu64 ".%" PRIu64 "%%", permille / 10,
		       permille % 10); /* fits, as below */
	table_text(&columns[TOP_CPU], permille == UINT64_MAX ? "-" : text);
	table_bytes(&columns[TOP_MEMORY], line->memory_bytes);
	table_bytes(&columns[TOP_PEAK], line->memory_peak_bytes);
	(void)snprintf(text, sizeof(text), "%" PRIu64 "/%" PRIu64, line->execs_running,
		       line->execs_total);
	table_text(&columns[TOP_EXECS], text);
	(void)snprintf(text, sizeof(text), "%u", line->processes);
	table_text(&columns[TOP_PROCESSES], text);
	value_print_ms(line->age_ms, text);
	table_text(&columns[TOP_AGE], text);
	table_cell(&columns[TOP_IMAGE], (struct dsec_bytes){ line->image, line->image_bytes });
	table_end();
}

static void line_json(const struct look *look, const struct line *line)
{
	uint64_t permille = cpu_permille(look, line);
	auto_json json_t *object = json_object();

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_object_set_new(object, "id", json_id(line->id));
	(void)json_object_set_new(object, "state", json_string(state_name(line->state)));
	(void)json_object_set_new(object, "cpu_permille", json_amount(permille));
	(void)json_object_set_new(object, "cpu_us", json_amount(line->cpu_us));
	(void)json_object_set_new(object, "memory_bytes", json_amount(line->memory_bytes));
	(void)json_object_set_new(object, "memory_peak_bytes",
				  json_amount(line->memory_peak_bytes));
	(void)json_object_set_new(object, "execs_running", json_amount(line->execs_running));
	(void)json_object_set_new(object, "execs_total", json_amount(line->execs_total));
	(void)json_object_set_new(object, "processes", json_integer(line->processes));
	(void)json_object_set_new(object, "age_ms", json_amount(line->age_ms));
	(void)json_add_bytes(object, "image",
			     (struct dsec_bytes){ line->image, line->image_bytes });
	(void)json_line(stdout, object);
}

/* ---- the screen ---- */

static uint32_t screen_rows(void)
{
	struct winsize size;

	return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row ? size.ws_row :
									     ROWS_UNKNOWN;
}

static void sum_show(const struct look *look)
{
	uint64_t execs = 0, cpu = 0;

	for (uint32_t at = 0; at < look->count; at++) {
		uint64_t permille = cpu_permille(look, &look->lines[at]);

		execs += look->lines[at].execs_running;
		cpu += permille == UINT64_MAX ? 0 : permille;
	}
	(void)printf("%u sandboxes, %" PRIu64 " programs, %" PRIu64 ".%" PRIu64 "%% CPU\n",
		     look->count, execs, cpu / 10, cpu % 10);
}

static void look_show(const struct options *options, struct look *look, bool live)
{
	uint32_t rows = live ? screen_rows() : UINT32_MAX;
	uint64_t sort = options->sort ? options->sort : SORT_CPU;
	struct look sorted = *look;

	/* The order of ids is for the next look. */
	sorted.lines = calloc(look->count + 1ul, sizeof(*sorted.lines));
	if (!sorted.lines)
		return; /* the next look may have room */
	if (look->count)
		memcpy(sorted.lines, look->lines, look->count * sizeof(*sorted.lines));
	qsort_r(sorted.lines, sorted.count, sizeof(*sorted.lines), weight_compare, &sort);
	if (live)
		(void)fputs("\x1b[H\x1b[J", stdout);
	if (!options->json && !options->quiet) {
		sum_show(look);
		table_head(options, columns);
	}
	for (uint32_t at = 0; at < sorted.count && at + HEAD_ROWS < rows; at++) {
		if (options->json)
			line_json(&sorted, &sorted.lines[at]);
		else
			line_show(&sorted, &sorted.lines[at]);
	}
	(void)fflush(stdout);
	free(sorted.lines);
}

static void pause_ms(uint64_t ms)
{
	const struct timespec pause = { (time_t)(ms / 1000), (long)(ms % 1000) * 1000000 };

	(void)nanosleep(&pause, NULL); /* waking early only costs a look */
}

static int top(struct session *session)
{
	const struct options *options = session->options;
	bool live = isatty(STDOUT_FILENO) && !options->json;
	uint64_t every_ms = options->every_ms ? options->every_ms : EVERY_MS;
	struct look before = { 0 }, now;
	int status = 0;

	for (uint32_t looks = 0; status == 0 && !ferror(stdout) && (live || looks < 2); looks++) {
		if (looks)
			pause_ms(every_ms);
		now = (struct look){ 0 };
		status = look_take(session, &before, &now);
		if (status == 0 && (live || looks == 1))
			look_show(options, &now, live);
		free(before.lines);
		before = now;
	}
	free(before.lines);
	return status;
}

int verb_top(const struct options *options)
{
	struct session session = { .options = options };

	if (session_open(&session, false) < 0)
		return session_end(&session, EXIT_TROUBLE);
	return session_end(&session, top(&session));
}
