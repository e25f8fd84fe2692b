/*
 * `dsec image import` and what else takes its time: a source's bytes to the engine, and what it
 * says to the user. Called by image.c. Must hold: whatever ends it early cancels the job, which
 * leaves nothing.
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

enum { CHUNK_BYTES = 256 << 10, CHUNKS_MAX = 4, TAG_JOB = 1, TAG_INPUT = 2, POLL_MS = 1000 };

struct job {
	struct session *session;
	const struct dsec_image_opts *opts;
	const char *what;	    /* "image gc" */
	struct image_source source; /* of an import */
	char *report;		    /* JSON; NULL: none came */
	size_t report_bytes;
	struct dsec_queue *queue;
	char *chunk;
	int64_t ticket;
	uint64_t sent;
	uint32_t chunks; /* under way */
	bool ended;	 /* of the source all was sent, or there is none */
	bool cancelled, over, shown;
	bool told;	 /* a report, or what was made */
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

static void progress_show(struct job *job, const struct dsec_progress *progress)
{
	char bytes[VALUE_TEXT_BYTES], files[VALUE_TEXT_BYTES];

	if (!shows_progress(job->session->options))
		return;
	value_print_bytes(progress->bytes ? progress->bytes : progress->read_bytes, bytes);
	value_print_count(progress->files, files);
	job->shown = true;
	/* Or nobody sees it. */
	if (job->opts->verb == DSEC_IMAGE_IMPORT)
		(void)fprintf(stderr, "\r\033[Kimporting %s  %u/%u layers  %s  %s files",
			      job->opts->name, progress->layers, progress->layers_total, bytes,
			      files);
	else
		(void)fprintf(stderr, "\r\033[K%s %s  %s  %s files", job->what,
			      job->opts->name ? job->opts->name : "", bytes, files);
}

static void progress_clear(struct job *job)
{
	if (job->shown)
		(void)fputs("\r\033[K", stderr); /* or nobody sees it */
	job->shown = false;
}

static void dropped_note(const struct options *options, const struct dsec_image_row *row)
{
	if (row->dropped_nodes)
		report_note(options, "left out: %u device nodes and entries below /dev",
			    row->dropped_nodes);
	if (row->dropped_xattrs)
		report_note(options, "left out: %u extended attributes", row->dropped_xattrs);
}

static void row_tell(struct job *job, const struct dsec_image_row *row)
{
	const struct options *options = job->session->options;
	char files[VALUE_TEXT_BYTES], fresh[VALUE_TEXT_BYTES], shared[VALUE_TEXT_BYTES];
	auto_json json_t *json = image_row_json(row);

	(void)json_object_set_new(json, "dropped_nodes", json_integer(row->dropped_nodes));
	(void)json_object_set_new(json, "dropped_xattrs", json_integer(row->dropped_xattrs));
	(void)json_object_set_new(json, "new_bytes", json_amount(row->new_bytes));
	(void)json_object_set_new(json, "shared_bytes", json_amount(row->shared_bytes));
	session_tell(job->session, json);
	if (options->json)
		return;
	dropped_note(options, row);
	value_print_count(row->files, files);
	value_print_bytes(row->new_bytes, fresh);
	value_print_bytes(row->shared_bytes, shared);
	if (options->quiet)
		(void)printf("%.*s\n", (int)row->digest.bytes, (const char *)row->digest.data);
	else
		(void)printf("%s  %.*s  %s files  %s new, %s shared  %.1f s\n", job->opts->name,
			     (int)row->digest.bytes, (const char *)row->digest.data, files, fresh,
			     shared, seconds_since(&job->begun)); /* told by main() */
}

/* What a job found, also where it failed. */
static void report_tell(struct job *job)
{
	const struct options *options = job->session->options;
	auto_json json_t *json = job->report ? json_loadb(job->report, job->report_bytes, 0, NULL) :
					       NULL;

	if (!job->report)
		return;
	if (!json) {
		(void)session_fail_error(job->session, -EPROTO, "report",
					 "the engine's answer is cut");
		job->status = EXIT_TROUBLE;
		return;
	}
	session_tell(job->session, json);
	if (options->json || options->quiet)
		return;
	if (image_report_print(stdout, job->opts->verb, json))
		return;
	(void)json_dumpf(json, stdout, JSON_INDENT(2));
	(void)putchar('\n'); /* told at the end, by main() */
}

static void report_take(struct job *job, const struct dsec_event *event)
{
	char *grown = realloc(job->report, job->report_bytes + event->bytes + 1);

	if (!grown)
		return; /* what is missing is no JSON, which is told */
	memcpy(grown + job->report_bytes, event->data, event->bytes);
	job->report = grown;
	job->report_bytes += event->bytes;
}

static void done_show(struct job *job, const struct dsec_event *event)
{
	const struct dsec_image_row *row = event->body;

	progress_clear(job);
	/* That it was cancelled is nothing new where we did it because something else failed. */
	if (event->status.code == DSEC_CANCELLED && job->cancelled && job->session->failure.code)
		return;
	if (event->status.code || (job->opts->verb == DSEC_IMAGE_IMPORT && !row)) {
		(void)session_fail(job->session, job->what, &event->status);
		report_tell(job);
		return;
	}
	job->status = 0;
	job->told = job->report || row;
	report_tell(job);
	if (row)
		row_tell(job, row);
}

/* ---- bytes and events ---- */

static void job_cancel(struct job *job)
{
	if (job->cancelled || job->over)
		return;
	job->cancelled = true;
	(void)dsec_cancel(job->session->d, job->ticket); /* it may have ended just now */
}

/* The import's own end says more than what an input of it ends with. */
static void event_take(struct job *job, const struct dsec_event *event)
{
	if (event->kind == DSEC_EV_RECONNECTED)
		return;
	if (event->tag == TAG_INPUT) {
		job->chunks -= event->flags & DSEC_LAST ? 1 : 0;
		return;
	}
	if (event->kind == DSEC_EV_PROGRESS && event->body)
		progress_show(job, event->body);
	if (event->kind == DSEC_EV_DATA && event->bytes)
		report_take(job, event);
	if (event->flags & DSEC_LAST) {
		job->over = true;
		done_show(job, event);
	}
}

static int source_fail(struct job *job, int r)
{
	char text[512];

	progress_clear(job);
	(void)snprintf(text, sizeof(text), "%s: %s", job->source.path ? job->source.path : "stdin",
		       job->source.is_folder && r == -EIO ? "it could not be read whole" :
							    strerror(-r)); /* cut is fine */
	return session_fail_error(job->session, r, "source", text);
}

static int chunk_send(struct job *job)
{
	struct dsec_call call = { .size = sizeof(call), .queue = job->queue, .tag = TAG_INPUT };
	ssize_t n = image_source_read(&job->source, job->chunk, CHUNK_BYTES);
	int64_t ticket;

	if (n == -EINTR)
		return 0;
	if (n < 0) {
		(void)source_fail(job, (int)n);
		return (int)n;
	}
	do
		ticket = dsec_input(job->session->d, &call, job->ticket, job->sent,
				    (struct dsec_bytes){ job->chunk, (size_t)n });
	while (ticket == -EAGAIN && usleep(1000) == 0);
	if (ticket == -ENOENT)
		return 0; /* the import has ended: its event is on its way */
	if (ticket < 0) {
		(void)session_fail_error(job->session, (int)ticket, "input",
					 dsec_error(job->session->d, ticket));
		return (int)ticket;
	}
	job->chunks++;
	job->sent += (uint64_t)n;
	job->ended = n == 0;
	return 0;
}

static bool may_send(const struct job *job)
{
	return !job->ended && !job->cancelled && !job->over && job->chunks < CHUNKS_MAX;
}

static int events_take(struct job *job)
{
	struct dsec_event *events[16];
	int n;

	while ((n = dsec_queue_poll(job->queue, events, 16, 0)) > 0)
		for (int at = 0; at < n; at++) {
			event_take(job, events[at]);
			dsec_event_free(events[at]);
		}
	return n;
}

static void signal_take(struct job *job)
{
	int number = signals_next(&job->signals);

	if (!number)
		return; /* none after all */
	job->interrupted = number;
	job_cancel(job);
}

static int job_pump(struct job *job)
{
	int r = events_take(job);

	while (r >= 0 && (!job->over || job->chunks)) {
		struct pollfd waited[] = {
			{ .fd = dsec_queue_fd(job->queue), .events = POLLIN },
			{ .fd = job->signals.fd, .events = POLLIN },
			{ .fd = may_send(job) ? job->source.fd : -1, .events = POLLIN },
		};

		if (poll(waited, 3, POLL_MS) < 0 && errno != EINTR)
			return -errno;
		if (waited[1].revents)
			signal_take(job);
		if (waited[2].revents && may_send(job) && chunk_send(job) < 0)
			job_cancel(job);
		r = events_take(job);
	}
	return r;
}

/* Ctrl-C asks the engine first: the import is undone before we go. */
static void signals_begin(struct job *job)
{
	static const int numbers[] = { SIGINT, SIGTERM };

	/* Without a descriptor they have their effect at the end. */
	(void)signals_open(&job->signals, numbers, 2);
}

static int job_begin(struct job *job)
{
	struct dsec_call call = session_call(job->session);
	int r = dsec_queue_new(job->session->d, &job->queue);

	if (r >= 0) {
		call.queue = job->queue;
		call.tag = TAG_JOB;
		job->ticket = dsec_image(job->session->d, &call, job->opts);
		r = job->ticket < 0 ? (int)job->ticket : 0;
	}
	if (r < 0)
		(void)session_fail_error(job->session, r, "request",
					 dsec_error(job->session->d, r));
	return r;
}

static void job_run(struct job *job)
{
	int r;

	clock_gettime(CLOCK_MONOTONIC, &job->begun);
	if (job_begin(job) == 0) {
		signals_begin(job);
		r = job_pump(job);
		if (r < 0)
			(void)session_fail_error(job->session, r, "connection",
						 dsec_error(job->session->d, r));
		signals_close(&job->signals);
	}
	dsec_queue_free(job->queue);
	free(job->report);
}

static int job_exit(const struct job *job)
{
	return job->interrupted && job->status ? 128 + job->interrupted : job->status;
}

int image_job(struct session *session, const struct dsec_image_opts *opts, const char *what)
{
	struct job job = { .session = session,
			   .opts = opts,
			   .what = what,
			   .source = { .fd = -1 },
			   .ended = true,
			   .status = EXIT_TROUBLE };

	job_run(&job);
	return job.status || job.told ? job_exit(&job) : session_done(session);
}

int image_import(struct session *session, const char *text)
{
	struct dsec_image_opts opts = { .size = sizeof(opts),
					.verb = DSEC_IMAGE_IMPORT,
					.name = session->options->name,
					.flags = session->options->layer ? DSEC_IMAGE_LAYER : 0 };
	struct job job = {
		.session = session, .opts = &opts, .what = "import", .status = EXIT_TROUBLE
	};
	int r = image_source_parse(text, &job.source);

	if (r < 0)
		return session_refuse(session,
				      "import: '%s' is no source: dir:PATH, tar:FILE, "
				      "docker-archive:FILE[:TAG], oci:DIR[:TAG], "
				      "oci-archive:FILE[:TAG] or -",
				      text);
	opts.source = job.source.kind;
	opts.tag = job.source.tag;
	job.chunk = malloc(CHUNK_BYTES);
	if (!job.chunk)
		return session_fail_error(session, -ENOMEM, "request", strerror(ENOMEM));
	r = image_source_open(&job.source);
	if (r < 0)
		(void)source_fail(&job, r);
	else
		job_run(&job);
	image_source_close(&job.source);
	free(job.chunk);
	return job_exit(&job);
}
