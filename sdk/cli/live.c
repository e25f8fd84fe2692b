/*
 * Follows an exec: what it writes goes to stdout and stderr as it comes, what stdin has goes to it,
 * one piece at a time, and signals. Called by outcome.c. Whoever reads our output slowly holds the
 * program back, and one that went ends it as a pipe would: by SIGPIPE.
 */
#include "sdk/cli/live.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
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

/* Once it has a number; what fails here shows: the program has ended, or goes on. */
static void signal_pass(struct live *live)
{
	struct dsec_call call = live_call(live);

	live->pass_waits = !live->exec || dsec_signal(live->session->d, &call, live->sandbox,
						      live->exec, live->passed) == -EAGAIN;
}

static void signals_take(struct live *live)
{
	int number;

	while ((number = signals_next(&live->signals))) {
		if (live->passed) {
			live->interrupted = number;
			live->ended = true;
			return;
		}
		live->passed = number;
		signal_pass(live);
	}
}

static void reader_went(struct live *live)
{
	struct dsec_call call = live_call(live);

	if (live->deaf || !live->exec)
		return;
	live->deaf = true;
	/* Its answer is nobody's: the program ends of it, or goes on and nobody reads it. */
	(void)dsec_signal(live->session->d, &call, live->sandbox, live->exec, SIGPIPE);
}

static FILE *file_of(const struct dsec_event *event)
{
	return event->stream == 2 ? stderr : stdout;
}

static int fd_of(const struct dsec_event *event)
{
	return event->stream == 2 ? STDERR_FILENO : STDOUT_FILENO;
}

static bool has_room(int fd)
{
	struct pollfd wanted = { .fd = fd, .events = POLLOUT };

	return poll(&wanted, 1, 0) != 0; /* what is wrong with it the write says */
}

/* In pieces that a pipe with room takes whole. False: the rest must wait. */
static bool data_show(struct live *live, const struct dsec_event *event)
{
	const char *bytes = event->data;
	FILE *file = file_of(event);

	while (live->shows && !live->deaf && live->shown_bytes < event->bytes) {
		uint32_t left = event->bytes - live->shown_bytes;

		if (!has_room(fd_of(event)))
			return false;
		left = left < PIPE_BUF ? left : PIPE_BUF;
		(void)fwrite(bytes + live->shown_bytes, 1, left, file); /* as below */
		(void)fflush(file);
		live->shown_bytes += left;
		if (ferror(file))
			reader_went(live); /* what else it was is told at the end, by main() */
	}
	live->shown_bytes = 0;
	return true;
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
	if (live->pass_waits)
		signal_pass(live);
}

/* False: it is not done with. */
static bool event_show(struct live *live, const struct dsec_event *event)
{
	if (event->ticket != live->ticket)
		return true;
	if (event->kind == DSEC_EV_DATA && !data_show(live, event))
		return false;
	if (event->kind == DSEC_EV_GAP)
		gap_show(live, event);
	if (event->flags & DSEC_LAST) {
		live->ended = true;
		live->last(live, event);
	}
	return true;
}

/* What came and is not shown yet: as much as the program may send ahead. */
static int backlog_add(struct live *live, struct dsec_event *event)
{
	struct backlog *b = &live->backlog;

	if (b->count == b->size && b->at) {
		b->count -= b->at;
		memmove(b->events, b->events + b->at, b->count * sizeof(struct dsec_event *));
		b->at = 0;
	}
	if (b->count == b->size) {
		uint32_t size = b->size ? b->size * 2 : EVENTS_MAX;
		struct dsec_event **grown = realloc(b->events, size * sizeof(*grown));

		if (!grown) {
			dsec_event_free(event);
			return -ENOMEM;
		}
		b->events = grown;
		b->size = size;
	}
	b->events[b->count++] = event;
	return 0;
}

/* Whether any was done with: the queue is to be asked again then, which sends their credit. */
static bool backlog_show(struct live *live)
{
	struct backlog *b = &live->backlog;
	const uint32_t before = b->at;
	bool any;

	while (b->at < b->count && event_show(live, b->events[b->at]))
		dsec_event_free(b->events[b->at++]);
	any = b->at > before;
	if (b->at == b->count)
		b->at = b->count = 0;
	return any;
}

static void backlog_done(struct live *live)
{
	struct backlog *b = &live->backlog;

	while (b->at < b->count)
		dsec_event_free(b->events[b->at++]);
	free(b->events);
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
	const struct backlog *b = &live->backlog;
	struct pollfd fds[4] = {
		{ .fd = dsec_queue_fd(live->queue), .events = POLLIN },
		{ .fd = wants_input(live) && !live->chunk_waits ? STDIN_FILENO : -1,
		  .events = POLLIN },
		{ .fd = live->signals.fd, .events = POLLIN },
		{ .fd = b->count ? fd_of(b->events[b->at]) : -1, .events = POLLOUT },
	};
	const bool is_away = live->chunk_waits || (live->pass_waits && live->exec);

	if (fds[0].fd < 0)
		return fds[0].fd;
	if (poll(fds, 4, is_away ? AWAY_MS : -1) < 0 && errno != EINTR)
		return -errno;
	if (live->pass_waits)
		signal_pass(live);
	signals_take(live);
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
			int added;

			event_take(live, events[at]);
			added = backlog_add(live, events[at]);
			r = r < 0 ? r : added;
		}
		if (n < 0)
			r = n;
		else if (!backlog_show(live) && n == 0)
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

static int live_run(struct live *live)
{
	static const int numbers[] = { SIGINT, SIGTERM, SIGHUP };
	const bool passes = live->passes;
	int r = dsec_queue_new(live->session->d, &live->queue);

	if (r == 0)
		live->ticket = live_ask(live);
	if (r == 0 && live->ticket < 0)
		r = (int)live->ticket;
	if (r == 0 && passes)
		r = signals_open(&live->signals, numbers, 3);
	if (r == 0)
		r = live_loop(live);
	return r;
}

int live_follow(struct live *live)
{
	auto_free char *chunk = malloc(CHUNK_BYTES);
	int r;

	live->ticket = live->input_ticket = -1;
	live->signals.fd = -1;
	live->chunk = chunk;
	r = chunk ? live_run(live) : -ENOMEM;
	if (live->interrupted) {
		r = -EINTR;
		(void)session_fail_error(live->session, r, "signal", "interrupted");
	} else if (r < 0) {
		(void)session_fail_error(live->session, r, "request",
					 dsec_error(live->session->d, r));
	}
	if (live->signals.fd >= 0)
		signals_close(&live->signals);
	backlog_done(live);
	dsec_queue_free(live->queue);
	return r;
}
