/*
 * Follows an exec: what it writes goes to stdout and stderr as it comes, what stdin has goes to it,
 * one piece at a time. Called by outcome.c. Whoever reads our output slowly holds the program back,
 * and one that went ends it as a pipe would: by SIGPIPE.
 */
#include "sdk/cli/live.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/streams.h"
#include "sdk/cli/values.h"

enum {
	CHUNK_BYTES = 64 << 10,
	EVENTS_MAX = 16,
	AWAY_MS = 20,		 /* between two tries while the engine is away */
	AWAY_MS_MAX = 15 * 1000, /* longer than the library tries */
};

static struct dsec_call live_call(const struct live *live)
{
	return (struct dsec_call){ .size = sizeof(struct dsec_call), .queue = live->queue };
}

/* ---- what comes ---- */

static void reader_went(struct live *live)
{
	struct dsec_call call = live_call(live);

	if (live->deaf || !live->exec)
		return;
	live->deaf = true;
	/* Its answer is nobody's: the program ends of it, or goes on and nobody reads it. */
	(void)dsec_signal(live->session->d, &call, live->sandbox, live->exec, SIGPIPE);
}

static void data_show(struct live *live, const struct dsec_event *event)
{
	FILE *file = event->stream == 2 ? stderr : stdout;

	if (!live->shows || !event->bytes || live->deaf)
		return;
	(void)fwrite(event->data, 1, event->bytes, file); /* as below */
	(void)fflush(file);
	if (ferror(file))
		reader_went(live); /* what else it was is told at the end, by main() */
}

static void gap_show(const struct live *live, const struct dsec_event *event)
{
	char from[VALUE_TEXT_BYTES], gone[VALUE_TEXT_BYTES];

	value_print_count(event->bytes, gone);
	value_print_count(event->offset, from);
	report_note(live->session->options, "gap: %s: %s bytes from %s on are no longer kept",
		    event->stream == 2 ? "stderr" : "stdout", gone, from);
}

static void input_taken(struct live *live, const struct dsec_event *event)
{
	live->input_ticket = -1;
	if (event->status.code == DSEC_OK)
		return;
	/* Nobody reads it any more: as good as its end. */
	live->input_over = true;
	if (event->status.code != DSEC_FAILED && event->status.code != DSEC_ABSENT)
		(void)session_fail(live->session, "stdin", &event->status);
}

static void event_take(struct live *live, const struct dsec_event *event)
{
	if (event->ticket == live->input_ticket) {
		input_taken(live, event);
		return;
	}
	if (event->ticket != live->ticket)
		return;
	if (event->exec)
		live->exec = event->exec;
	if (event->kind == DSEC_EV_DATA)
		data_show(live, event);
	else if (event->kind == DSEC_EV_GAP)
		gap_show(live, event);
	if (!(event->flags & DSEC_LAST))
		return;
	live->ended = true;
	live->last(live, event);
}

/* ---- what goes ---- */

static void chunk_give(struct live *live)
{
	struct dsec_call call = live_call(live);
	int64_t ticket = dsec_input(live->session->d, &call, live->ticket, live->input_offset,
				    (struct dsec_bytes){ live->chunk, live->chunk_bytes });

	live->chunk_waits = ticket == -EAGAIN;
	if (ticket < 0) {
		live->input_over |= ticket != -EAGAIN; /* -ENOENT: it has ended */
		return;
	}
	live->input_ticket = ticket;
	live->input_offset += live->chunk_bytes;
	live->input_over = !live->chunk_bytes;
}

static void stdin_take(struct live *live)
{
	ssize_t n = stream_read(STDIN_FILENO, live->chunk, CHUNK_BYTES);

	if (n < 0)
		(void)session_fail_error(live->session, (int)n, "stdin", strerror((int)-n));
	live->chunk_bytes = n < 0 ? 0 : (size_t)n;
	chunk_give(live);
}

/* ---- both ---- */

static bool wants_input(const struct live *live)
{
	return live->input && !live->input_over && live->input_ticket < 0 && !live->ended;
}

static int live_sleep(struct live *live)
{
	struct pollfd fds[2] = {
		{ .fd = dsec_queue_fd(live->queue), .events = POLLIN },
		{ .fd = wants_input(live) && !live->chunk_waits ? STDIN_FILENO : -1,
		  .events = POLLIN },
	};

	if (fds[0].fd < 0)
		return fds[0].fd;
	if (poll(fds, 2, live->chunk_waits ? AWAY_MS : -1) < 0 && errno != EINTR)
		return -errno;
	if (live->chunk_waits)
		chunk_give(live);
	else if (fds[1].revents)
		stdin_take(live);
	return 0;
}

static int live_loop(struct live *live)
{
	struct dsec_event *events[EVENTS_MAX];
	int n, r = 0;

	while (!live->ended && r == 0) {
		n = dsec_queue_poll(live->queue, events, EVENTS_MAX, 0);
		for (int at = 0; at < n; at++) {
			event_take(live, events[at]);
			dsec_event_free(events[at]);
		}
		if (n < 0)
			r = n;
		else if (n == 0)
			r = live_sleep(live);
	}
	return r;
}

/* The engine may be away, for as long as the library believes in it. */
static int64_t live_ask(struct live *live)
{
	struct dsec_call call = live_call(live);
	struct dsec_event *event;
	int64_t ticket = live->ask(live, &call);

	for (int ms = 0; ticket == -EAGAIN && ms < AWAY_MS_MAX; ms += AWAY_MS) {
		if (dsec_queue_poll(live->queue, &event, 1, AWAY_MS) > 0)
			dsec_event_free(event); /* the engine is back: that is all there can be */
		ticket = live->ask(live, &call);
	}
	return ticket;
}

int live_follow(struct live *live)
{
	auto_free char *chunk = malloc(CHUNK_BYTES);
	struct dsec *d = live->session->d;
	int r;

	live->ticket = live->input_ticket = -1;
	live->chunk = chunk;
	r = chunk ? dsec_queue_new(d, &live->queue) : -ENOMEM;
	if (r == 0) {
		live->ticket = live_ask(live);
		r = live->ticket < 0 ? (int)live->ticket : live_loop(live);
	}
	if (r < 0)
		(void)session_fail_error(live->session, r, "request", dsec_error(d, r));
	dsec_queue_free(live->queue);
	return r;
}
