/*
 * `dsec ps`: which sandboxes there are. Called by main.c. What each uses is asked first, all at
 * once, so that rows are shown as they come; ids alone do without.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/execs.h"
#include "sdk/cli/json.h"
#include "sdk/cli/look.h"
#include "sdk/cli/select.h"
#include "sdk/cli/settings.h"
#include "sdk/cli/table.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

enum {
	PS_ID,
	PS_STATE,
	PS_PHASE,
	PS_EXECS,
	PS_CPU,
	PS_MEMORY,
	PS_AGE,
	PS_IDLE,
	PS_TTL,
	PS_INTEGRITY,
	PS_NETWORK,
	PS_IMAGE,
	PS_LABELS
};

static const struct column columns[] = {
	[PS_ID] = { "ID", 26 },		  [PS_STATE] = { "STATE", 11 },
	[PS_PHASE] = { "PHASE", 8 },	  [PS_EXECS] = { "EXECS", 7 },
	[PS_CPU] = { "CPU", 6 },	  [PS_MEMORY] = { "MEM", 8 },
	[PS_AGE] = { "AGE", 6 },	  [PS_IDLE] = { "IDLE", 6 },
	[PS_TTL] = { "TTL", 6 },	  [PS_INTEGRITY] = { "INTEGRITY", 9 },
	[PS_NETWORK] = { "NETWORK", 16 }, [PS_IMAGE] = { "IMAGE", 20 },
	[PS_LABELS] = { "LABELS", 0 },	  { NULL, 0 },
};

struct listing {
	const struct options *options;
	struct look look;
};

static void row_json(const struct listing *listing, const struct dsec_row *row)
{
	const struct line *line = look_find(&listing->look, row->id);
	auto_json json_t *object = json_object();

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_object_set_new(object, "id", json_id(row->id));
	(void)json_add_bytes(object, "image", row->image);
	fork_add(object, row->fork_of);
	(void)json_object_set_new(object, "state", json_string(state_name(row->state)));
	(void)json_object_set_new(object, "network", json_string(network_name(row->network)));
	(void)json_object_set_new(object, "execs_running", json_integer(row->execs_running));
	(void)json_object_set_new(object, "execs_total", json_amount(row->execs_total));
	(void)json_object_set_new(object, "cpu_us", json_amount(line ? line->cpu_us : UINT64_MAX));
	(void)json_object_set_new(object, "memory_bytes",
				  json_amount(line ? line->memory_bytes : UINT64_MAX));
	(void)json_object_set_new(object, "age_ms", json_amount(row->age_ms));
	(void)json_object_set_new(object, "idle_ms", json_amount(row->idle_ms));
	(void)json_object_set_new(object, "ttl_ms", json_amount(row->ttl_ms));
	if (row->tenant.bytes)
		(void)json_add_bytes(object, "tenant", row->tenant);
	integrity_add(object, row->tainted);
	phase_add(object, row->phase, row->phase_version);
	labels_add(object, row->labels, row->label_count);
	(void)json_line(stdout, object); /* told at the end, by main() */
}

static void time_cell(const struct column *column, uint64_t ms)
{
	char text[VALUE_TEXT_BYTES];

	value_print_ms(ms, text);
	table_text(column, text);
}

static void labels_cell(const struct dsec_row *row)
{
	static const struct column unpadded = { "", 0 };

	for (uint32_t at = 0; at < row->label_count; at++) {
		table_text(&unpadded, at ? " " : "");
		table_cell(&unpadded, row->labels[at].key);
		table_text(&unpadded, "=");
		table_cell(&unpadded, row->labels[at].value);
	}
}

/* Before the labels, where there is one. */
static void tenant_cell(const struct dsec_row *row)
{
	static const struct column unpadded = { "", 0 };

	if (!row->tenant.bytes)
		return;
	table_text(&unpadded, "tenant:");
	table_cell(&unpadded, row->tenant);
	table_text(&unpadded, row->label_count ? " " : "");
}

static void phase_cell(struct dsec_bytes phase)
{
	const struct dsec_bytes none = { "-", 1 };

	table_cell(&columns[PS_PHASE], phase.bytes ? phase : none);
}

/* Whose writes a fork began with is as much what it was made of. */
static void image_cell(const struct dsec_row *row)
{
	auto_free char *text = NULL;
	char id[27];

	dsec_id_print(row->fork_of, id);
	if (!fork_is(row->fork_of))
		table_cell(&columns[PS_IMAGE], row->image);
	else if (asprintf(&text, "%.*s, fork of %s", (int)row->image.bytes,
			  (const char *)row->image.data, id) >= 0)
		table_cell(&columns[PS_IMAGE], (struct dsec_bytes){ text, strlen(text) });
}

static void row_show(const struct listing *listing, const struct dsec_row *row)
{
	const struct line *line = look_find(&listing->look, row->id);
	char text[2 * VALUE_TEXT_BYTES], integrity[INTEGRITY_TEXT_BYTES];

	dsec_id_print(row->id, text);
	if (listing->options->quiet) {
		(void)puts(text); /* told at the end, by main() */
		return;
	}
	table_text(&columns[PS_ID], text);
	table_text(&columns[PS_STATE], state_name(row->state));
	phase_cell(row->phase);
	(void)snprintf(text, sizeof(text), "%u/%" PRIu64, row->execs_running, row->execs_total);
	table_text(&columns[PS_EXECS], text);
	table_share(&columns[PS_CPU], line ? look_life_permille(line) : UINT64_MAX);
	table_bytes(&columns[PS_MEMORY], line ? line->memory_bytes : UINT64_MAX);
	time_cell(&columns[PS_AGE], row->age_ms);
	time_cell(&columns[PS_IDLE], row->idle_ms);
	time_cell(&columns[PS_TTL], row->ttl_ms);
	integrity_text(row->tainted, integrity);
	table_text(&columns[PS_INTEGRITY], integrity);
	table_text(&columns[PS_NETWORK], network_name(row->network));
	image_cell(row);
	tenant_cell(row);
	labels_cell(row);
	table_end();
}

static void row_tell(void *state, const struct dsec_event *event)
{
	const struct listing *listing = state;

	if (event->kind != DSEC_EV_ROW || !event->body)
		return;
	if (listing->options->json)
		row_json(listing, event->body);
	else
		row_show(listing, event->body);
}

static int list(struct session *session, struct listing *listing)
{
	static const struct look none;
	const struct options *options = session->options;
	struct dsec_list_opts opts = { .size = sizeof(opts) };
	struct dsec_call call = session_call(session);
	auto_free struct dsec_label *labels = select_labels(options, &opts.label_count);

	if (!labels)
		return session_fail_error(session, -ENOMEM, "request", strerror(ENOMEM));
	opts.labels = labels;
	if ((options->json || !options->quiet) && look_take(session, &none, &listing->look))
		return EXIT_TROUBLE;
	if (!options->json && !options->quiet)
		table_head(options, columns);
	return session_events(session, dsec_list(session->d, &call, &opts), "ps", row_tell,
			      listing) < 0 ?
		       EXIT_TROUBLE :
		       0;
}

int verb_ps(const struct options *options)
{
	struct session session = { .options = options };
	struct listing listing = { .options = options };
	int status;

	if (session_open(&session, false) < 0)
		return session_end(&session, EXIT_TROUBLE);
	if (options->execs)
		return session_end(&session, execs_show(&session, options->execs));
	status = list(&session, &listing);
	look_done(&listing.look);
	return session_end(&session, status);
}
