/*
 * `dsec image import`: the source's bytes to the engine, and what it says of them to the user.
 * Called by image.c. Must hold: whatever ends it early cancels the import, which leaves nothing.
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/image.h"
#include "sdk/cli/json.h"
#include "sdk/cli/signals.h"
#include "sdk/cli/values.h"

enum { CHUNK_BYTES = 256 << 10, CHUNKS_MAX = 4, TAG_IMPORT = 1, TAG_INPUT = 2, POLL_MS = 1000 };

struct import {
	struct session *session;
	struct image_source source;
	struct dsec_queue *queue;
	char *chunk;
	int64_t ticket;
	uint64_t sent;
	uint32_t chunks; /* under way */
	bool ended;	 /* of the source all was sent */
	bool cancelled, over, shown;
	int interrupted; /* by this signal; 0: by none */
	struct signals signals;
	int status;
	struct timespec begun;
};

static double seconds_since(const struct timespec *begun)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)(now.tv_sec - begun->tv_sec) + (double)(now.tv_nsec - begun->tv_nsec) / 1e9;
}

/* ---- what is told ---- */

static bool shows_progress(const struct options *options)
{
	return !options->json && !options->quiet && isatty(STDERR_FILENO);
}

static void progress_show(struct import *import, const struct dsec_progress *progress)
{
	char bytes[VALUE_TEXT_BYTES], files[VALUE_TEXT_BYTES];

	if (!shows_progress(import->session->options))
		return;
	value_print_bytes(progress->bytes ? progress->bytes : progress->read_bytes, bytes);
	value_print_count(progress->files, files);
	import->shown = true;
	(void)fprintf(stderr, "\r\033[Kimporting %s  %u/%u layers  %s  %s files",
		      import->session->options->name, progress->layers, progress->layers_total,
		      bytes, files); /* or nobody sees it */
}

static void progress_clear(struct import *import)
{
	if (import->shown)
		(void)fputs("\r\033[K", stderr); /* or nobody sees it */
	import->shown = false;
}

static void dropped_note(const struct options *options, const struct dsec_image_row *row)
{
	if (row->dropped_nodes)
		report_note(options, "left out: %u device nodes and entries below /dev",
			    row->dropped_nodes);
	if (row->dropped_xattrs)
		report_note(options, "left out: %u extended attributes", row->dropped_xattrs);
}

static void done_show(struct import *import, const struct dsec_event *event)
{
	const struct options *options = import->session->options;
	const struct dsec_image_row *row = event->body;
	char bytes[VALUE_TEXT_BYTES], files[VALUE_TEXT_BYTES];
	auto_json json_t *json = NULL;

	progress_clear(import);
	/* That it was cancelled is nothing new where we did it because something else failed. */
	if (event->status.code == DSEC_CANCELLED && import->cancelled &&
	    import->session->failure.code)
		return;
	if (event->status.code || !row) {
		(void)session_fail(import->session, "import", &event->status);
		return;
	}
	import->status = 0;
	json = image_row_json(row);
	(void)json_object_set_new(json, "dropped_nodes", json_integer(row->dropped_nodes));
	(void)json_object_set_new(json, "dropped_xattrs", json_integer(row->dropped_xattrs));
	session_tell(import->session, json);
	if (options->json)
		return;
	dropped_note(options, row);
	value_print_bytes(row->bytes, bytes);
	value_print_count(row->files, files);
	if (options->quiet)
		(void)printf("%.*s\n", (int)row->digest.bytes, (const char *)row->digest.data);
	else
		(void)printf("%s  %.*s  %s  %s files  %.1f s\n", options->name,
			     (int)row->digest.bytes, (const char *)row->digest.data, bytes, files,
			     seconds_since(&import->begun)); /* told at the end, by main() */
}

/* ---- bytes and events ---- */

static void import_cancel(struct import *import)
{
	if (import->cancelled || import->over)
		return;
	import->cancelled = true;
	(void)dsec_cancel(import->session->d, import->ticket); /* it may have ended just now */
}

/* The import's own end says more than what an input of it ends with. */
static void event_take(struct import *import, const struct dsec_event *event)
{
	if (event->kind == DSEC_EV_RECONNECTED)
		return;
	if (event->tag == TAG_INPUT) {
		import->chunks -= event->flags & DSEC_LAST ? 1 : 0;
		return;
	}
	if (event->kind == DSEC_EV_PROGRESS && event->body)
		progress_show(import, event->body);
	if (event->flags & DSEC_LAST) {
		import->over = true;
		done_show(import, event);
	}
}

static int source_fail(struct import *import, int r)
{
	char text[512];

	progress_clear(import);
	(void)snprintf(text, sizeof(text), "%s: %s",
		       import->source.path ? import->source.path : "stdin",
		       import->source.is_folder && r == -EIO ? "it could not be read whole" :
							       strerror(-r)); /* cut is fine */
	return session_fail_error(import->session, r, "source", text);
}

static int chunk_send(struct import *import)
{
	struct dsec_call call = { .size = sizeof(call), .queue = import->queue, .tag = TAG_INPUT };
	ssize_t n = image_source_read(&import->source, import->chunk, CHUNK_BYTES);
	int64_t ticket;

	if (n == -EINTR)
		return 0;
	if (n < 0) {
		(void)source_fail(import, (int)n);
		return (int)n;
	}
	do
		ticket = dsec_input(import->session->d, &call, import->ticket, import->sent,
				    (struct dsec_bytes){ import->chunk, (size_t)n });
	while (ticket == -EAGAIN && usleep(1000) == 0);
	if (ticket == -ENOENT)
		return 0; /* the import has ended: its event is on its way */
	if (ticket < 0) {
		(void)session_fail_error(import->session, (int)ticket, "input",
					 dsec_error(import->session->d, ticket));
		return (int)ticket;
	}
	import->chunks++;
	import->sent += (uint64_t)n;
	import->ended = n == 0;
	return 0;
}

static bool may_send(const struct import *import)
{
	return !import->ended && !import->cancelled && !import->over && import->chunks < CHUNKS_MAX;
}

static int events_take(struct import *import)
{
	struct dsec_event *events[16];
	int n;

	while ((n = dsec_queue_poll(import->queue, events, 16, 0)) > 0)
		for (int at = 0; at < n; at++) {
			event_take(import, events[at]);
			dsec_event_free(events[at]);
		}
	return n;
}

static void signal_take(struct import *import)
{
	int number = signals_next(&import->signals);

	if (!number)
		return; /* none after all */
	import->interrupted = number;
	import_cancel(import);
}

static int import_pump(struct import *import)
{
	int r = events_take(import);

	while (r >= 0 && (!import->over || import->chunks)) {
		struct pollfd waited[] = {
			{ .fd = dsec_queue_fd(import->queue), .events = POLLIN },
			{ .fd = import->signals.fd, .events = POLLIN },
			{ .fd = may_send(import) ? import->source.fd : -1, .events = POLLIN },
		};

		if (poll(waited, 3, POLL_MS) < 0 && errno != EINTR)
			return -errno;
		if (waited[1].revents)
			signal_take(import);
		if (waited[2].revents && may_send(import) && chunk_send(import) < 0)
			import_cancel(import);
		r = events_take(import);
	}
	return r;
}

/* Ctrl-C asks the engine first: the import is undone before we go. */
static void signals_begin(struct import *import)
{
	static const int numbers[] = { SIGINT, SIGTERM };

	/* Without a descriptor they have their effect at the end. */
	(void)signals_open(&import->signals, numbers, 2);
}

static int import_begin(struct import *import)
{
	const struct options *options = import->session->options;
	struct dsec_call call = session_call(import->session);
	struct dsec_image_opts opts = { .size = sizeof(opts),
					.verb = DSEC_IMAGE_IMPORT,
					.source = import->source.kind,
					.name = options->name,
					.tag = import->source.tag };
	int r = dsec_queue_new(import->session->d, &import->queue);

	if (r >= 0) {
		call.queue = import->queue;
		call.tag = TAG_IMPORT;
		import->ticket = dsec_image(import->session->d, &call, &opts);
		r = import->ticket < 0 ? (int)import->ticket : 0;
	}
	if (r < 0)
		(void)session_fail_error(import->session, r, "request",
					 dsec_error(import->session->d, r));
	return r;
}

int image_import(struct session *session, const char *text)
{
	struct import import = { .session = session, .status = EXIT_TROUBLE };
	int r = image_source_parse(text, &import.source);

	if (r < 0)
		return session_refuse(session,
				      "import: '%s' is no source: dir:PATH, tar:FILE, "
				      "docker-archive:FILE[:TAG], oci:DIR[:TAG], "
				      "oci-archive:FILE[:TAG] or -",
				      text);
	clock_gettime(CLOCK_MONOTONIC, &import.begun);
	import.chunk = malloc(CHUNK_BYTES);
	if (!import.chunk)
		return session_fail_error(session, -ENOMEM, "request", strerror(ENOMEM));
	r = image_source_open(&import.source);
	if (r < 0) {
		(void)source_fail(&import, r);
	} else if (import_begin(&import) == 0) {
		signals_begin(&import);
		r = import_pump(&import);
		if (r < 0)
			(void)session_fail_error(session, r, "connection",
						 dsec_error(session->d, r));
		signals_close(&import.signals);
	}
	image_source_close(&import.source);
	dsec_queue_free(import.queue);
	free(import.chunk);
	return import.interrupted && import.status ? 128 + import.interrupted : import.status;
}
