/*
 * `dsec policy services`: the operator's named services, and what an image would have them be.
 * Called by policy.c. Must hold: of an image only names of files that scan.c knows are asked for,
 * so much of each and no more; its programs do not run.
 */
#include "sdk/cli/services.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/create.h"
#include "sdk/cli/json.h"
#include "sdk/cli/report.h"
#include "sdk/cli/scan.h"
#include "sdk/cli/table.h"
#include "sdk/cli/values.h"

enum { SERVICE_NAME, SERVICE_PLACE };

static const struct column columns[] = {
	[SERVICE_NAME] = { "SERVICE", 24 },
	[SERVICE_PLACE] = { "PLACE", 0 },
	{ NULL, 0 },
};

static void place_show(const void *state, bool name_alone)
{
	const struct dsec_policy_row *row = state;

	if (!name_alone) {
		table_cell(&columns[SERVICE_NAME], row->name);
		table_cell(&columns[SERVICE_PLACE], row->text);
		table_end();
	} else if (row->number == 1) { /* once */
		value_write(stdout, row->name);
		(void)putchar('\n'); /* told at the end, by main() */
	}
}

static void place_json(const void *state)
{
	const struct dsec_policy_row *row = state;
	auto_json json_t *object = json_object();

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_add_bytes(object, "service", row->name);
	(void)json_add_bytes(object, "place", row->text);
	(void)json_line(stdout, object); /* told at the end, by main() */
}

int services_list(struct session *session)
{
	static const struct session_rows telling = { place_json, place_show };
	const struct dsec_policy_opts opts = { .size = sizeof(opts), .verb = DSEC_POLICY_SERVICES };
	const struct options *options = session->options;
	struct dsec_call call = session_call(session);

	if (!options->json && !options->quiet)
		table_head(options, columns);
	return session_tell_rows(session, dsec_policy(session->d, &call, &opts),
				 "policy services ls", &telling) < 0 ?
		       EXIT_TROUBLE :
		       0;
}

/* ---- scan ---- */

enum { FOLDER_FILES_MAX = 64, FILE_NAME_BYTES = 256 };

struct scanning {
	struct session *session;
	struct dsec_id sandbox;
	struct scan *scan;
	char *text; /* SCAN_FILE_BYTES */
	size_t bytes;
	const char *suffix;
	char names[FOLDER_FILES_MAX][FILE_NAME_BYTES];
	uint32_t name_count;
};

/* What is absent, no file, or not to be read is passed over. */
static void text_take(void *state, const struct dsec_event *event)
{
	struct scanning *scanning = state;
	size_t room = SCAN_FILE_BYTES - scanning->bytes;

	if (event->kind != DSEC_EV_DATA || event->status.code != DSEC_OK)
		return;
	if (room > event->bytes)
		room = event->bytes;
	memcpy(scanning->text + scanning->bytes, event->data, room);
	scanning->bytes += room;
}

static int file_scan(struct scanning *scanning, const char *path, enum scan_kind kind)
{
	const struct dsec_file_opts opts = { .size = sizeof(opts),
					     .path = { path, strlen(path) },
					     .user = "0",
					     .bytes_max = SCAN_FILE_BYTES };
	struct dsec_call call = session_call(scanning->session);
	int r;

	scanning->bytes = 0;
	r = session_events(scanning->session,
			   dsec_read(scanning->session->d, &call, scanning->sandbox, &opts), NULL,
			   text_take, scanning);
	if (r == 0)
		scan_text(scanning->scan, kind, scanning->text, scanning->bytes);
	return r;
}

static void name_take(void *state, const struct dsec_event *event)
{
	struct scanning *scanning = state;
	const struct dsec_file_row *row = event->body;
	const size_t suffix = strlen(scanning->suffix);

	if (event->kind != DSEC_EV_ROW || !row || row->name.bytes >= FILE_NAME_BYTES ||
	    row->name.bytes <= suffix || scanning->name_count == FOLDER_FILES_MAX ||
	    memcmp((const char *)row->name.data + row->name.bytes - suffix, scanning->suffix,
		   suffix) != 0)
		return;
	memcpy(scanning->names[scanning->name_count], row->name.data, row->name.bytes);
	scanning->names[scanning->name_count++][row->name.bytes] = '\0';
}

static int folder_scan(struct scanning *scanning, const struct scan_file *folder)
{
	const struct dsec_file_opts opts = { .size = sizeof(opts),
					     .verb = DSEC_FILE_LIST,
					     .user = "0",
					     .path = { folder->path, strlen(folder->path) } };
	struct dsec_call call = session_call(scanning->session);
	char path[FILE_NAME_BYTES + 64];
	int r;

	scanning->name_count = 0;
	scanning->suffix = folder->suffix;
	r = session_events(scanning->session,
			   dsec_file(scanning->session->d, &call, scanning->sandbox, &opts), NULL,
			   name_take, scanning);
	for (uint32_t i = 0; i < scanning->name_count && r == 0; i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", folder->path,
			       scanning->names[i]); /* fits */
		r = file_scan(scanning, path, folder->kind);
	}
	return r;
}

static void sandbox_note(void *state, const struct dsec_event *event)
{
	struct scanning *scanning = state;

	if (event->kind == DSEC_EV_CREATED)
		scanning->sandbox = event->subject;
}

static int image_scan(struct scanning *scanning, const char *image)
{
	struct session *session = scanning->session;
	int r = session_events(session, create_start(session, image, 1, DSEC_DISCONNECT_DESTROY),
			       "create", sandbox_note, scanning);

	if (r == 0 && !scanning->sandbox.hi && !scanning->sandbox.lo)
		r = session_fail_error(session, -EIO, "create", "no sandbox was created");
	if (r)
		return -EIO;
	for (size_t i = 0; i < scan_file_count && r == 0; i++)
		r = scan_files[i].suffix ?
			    folder_scan(scanning, &scan_files[i]) :
			    file_scan(scanning, scan_files[i].path, scan_files[i].kind);
	return create_undo(session, scanning->sandbox) < 0 ? -EIO : r;
}

int services_scan(struct session *session, const char *image)
{
	auto_free struct scanning *scanning = calloc(1, sizeof(*scanning));
	auto_free struct scan *scan = calloc(1, sizeof(*scan));
	auto_free char *text = malloc(SCAN_FILE_BYTES);

	if (!scanning || !scan || !text)
		return session_fail_error(session, -ENOMEM, "policy", "services scan");
	*scanning = (struct scanning){ .session = session, .scan = scan, .text = text };
	if (image_scan(scanning, image) < 0)
		return EXIT_TROUBLE;
	scan_print(scan, stdout); /* what could not be written is told at the end, by main() */
	if (!scan->count)
		report_note(session->options, "%s names no mirror that is known how to find",
			    image);
	if (scan->left_out)
		report_note(session->options, "%s names more: %u places are left out", image,
			    scan->left_out);
	return 0;
}
