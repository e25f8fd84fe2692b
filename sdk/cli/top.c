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
#include "sdk/cli/look.h"
#include "sdk/cli/select.h"
#include "sdk/cli/settings.h"
#include "sdk/cli/table.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

enum { EVERY_MS = 1000, ROWS_UNKNOWN = 24, HEAD_ROWS = 3 };
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

/* ---- what a line says ---- */

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

	return left == right ? look_compare(a, b) : left > right ? -1 : 1;
}

/* Whether stdout took it is told at the end, by main(); so here and below. */
static void line_show(const struct look *look, const struct line *line)
{
	uint64_t permille = look_cpu_permille(look, line);
	char text[2 * VALUE_TEXT_BYTES];

	dsec_id_print(line->id, text);
	table_text(&columns[TOP_ID], text);
	table_text(&columns[TOP_STATE], state_name(line->state));
	table_share(&columns[TOP_CPU], permille);
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
	uint64_t permille = look_cpu_permille(look, line);
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
		uint64_t permille = look_cpu_permille(look, &look->lines[at]);

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
