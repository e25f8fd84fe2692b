/*
 * The user's terminal before a program's. Called by outcome.c. Must hold: the user's terminal is
 * given back as it was on every way out; so signals come through a descriptor, and none of those
 * that can be caught ends the process in between.
 */
#include "sdk/cli/terminal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include "sdk/cli/signals.h"
#include "sdk/cli/streams.h"

enum { EVENTS_MAX = 16, TYPED_BYTES_MAX = 4096, GOODBYE_MS = 2000 };

/* What an event belongs to. */
enum { TAG_EXEC, TAG_INPUT, TAG_OTHER };

struct terminal {
	struct session *session;
	const struct terminal_wish *wish;
	struct dsec_queue *queue;
	int64_t ticket;
	uint64_t exec; /* its number; 0: it has not started */
	struct termios before;
	bool is_raw, wants_raw;
	struct signals signals;
	bool typing, asked, over; /* typing: stdin has not ended; asked: an input is under way */
	uint64_t typed_bytes;
	char typed[TYPED_BYTES_MAX];
	int signal; /* that is to end us */
	int64_t goodbye_ms;
};

static int64_t now_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail for this clock */
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static struct dsec_call call_of(const struct terminal *t, uint64_t tag)
{
	return (struct dsec_call){ .size = sizeof(struct dsec_call),
				   .queue = t->queue,
				   .tag = tag };
}

/* ---- the user's terminal ---- */

static void terminal_raw(struct terminal *t)
{
	struct termios raw;

	if (!t->wants_raw || tcgetattr(STDIN_FILENO, &t->before) < 0)
		return;
	raw = t->before;
	cfmakeraw(&raw);
	t->is_raw = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

static void terminal_give_back(struct terminal *t)
{
	if (t->is_raw)
		(void)tcsetattr(STDIN_FILENO, TCSADRAIN, &t->before); /* it may have gone */
	t->is_raw = false;
}

static struct winsize terminal_size(void)
{
	struct winsize size = { 0 };

	if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) < 0)
		(void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size); /* nor that: the size is unknown */
	return size;
}

static void terminal_resize(struct terminal *t)
{
	struct dsec_call call = call_of(t, TAG_OTHER);
	struct winsize size = terminal_size();

	/* What fails here shows: the program has the size of before. */
	if (t->exec && size.ws_row && size.ws_col)
		(void)dsec_resize(t->session->d, &call, t->wish->sandbox, t->exec,
				  (uint32_t)size.ws_row << 16 | size.ws_col);
}

/* ---- signals ---- */

/* As soon as it runs: else it would run on with nobody before it. */
static void hang_up(struct terminal *t)
{
	struct dsec_call call = call_of(t, TAG_OTHER);

	if (t->exec && dsec_signal(t->session->d, &call, t->wish->sandbox, t->exec,
				   SIGHUP | DSEC_SIGNAL_TERMINAL) < 0)
		t->over = true; /* nobody is to be told */
}

static void signals_handle(struct terminal *t)
{
	int number;

	while ((number = signals_next(&t->signals))) {
		if (number == SIGWINCH) {
			terminal_resize(t);
		} else if (number == SIGTSTP) {
			terminal_give_back(t);
			(void)raise(SIGSTOP); /* until somebody lets us go on */
			terminal_raw(t);
			terminal_resize(t);
		} else if (!t->signal) {
			t->signal = number;
			t->goodbye_ms = now_ms() + GOODBYE_MS;
			hang_up(t);
		}
	}
}

/* ---- what is typed ---- */

static void type(struct terminal *t)
{
	struct dsec_call call = call_of(t, TAG_INPUT);
	ssize_t n = stream_read(STDIN_FILENO, t->typed, sizeof(t->typed));
	struct dsec_bytes bytes = { t->typed, n > 0 ? (size_t)n : 0 };

	/* A terminal that went away is the end, too. */
	t->typing = n > 0;
	t->asked = true;
	if (dsec_input(t->session->d, &call, t->ticket, t->typed_bytes, bytes) < 0)
		t->typing = t->asked = false; /* it has ended, and its last event is on the way */
	t->typed_bytes += bytes.bytes;
}

/* ---- events ---- */

static void event_handle(struct terminal *t, const struct dsec_event *event)
{
	if (event->tag == TAG_INPUT && event->flags & DSEC_LAST) {
		t->asked = false;
		t->typing = t->typing && event->status.code == DSEC_OK;
		return;
	}
	if (event->tag != TAG_EXEC || event->ticket != t->ticket)
		return;
	if (event->kind == DSEC_EV_STARTED) {
		t->exec = event->exec;
		terminal_resize(t); /* it may have changed since */
		if (t->signal)
			hang_up(t);
	} else if (event->kind == DSEC_EV_DATA && event->bytes) {
		(void)fwrite(event->data, 1, event->bytes, stdout); /* told at the end, by main() */
		(void)fflush(stdout);
	}
	if (!(event->flags & DSEC_LAST))
		return;
	t->over = true;
	terminal_give_back(t); /* before anything is said about its end */
	t->wish->last(t->wish->state, event);
}

static int events_handle(struct terminal *t)
{
	struct dsec_event *events[EVENTS_MAX];
	int count;

	while ((count = dsec_queue_poll(t->queue, events, EVENTS_MAX, 0)) > 0) {
		for (int at = 0; at < count; at++) {
			event_handle(t, events[at]);
			dsec_event_free(events[at]);
		}
	}
	return count;
}

/* One look at everything. */
static int terminal_turn(struct terminal *t)
{
	bool reads = t->typing && !t->asked && t->exec;
	struct pollfd fds[] = {
		{ .fd = dsec_queue_fd(t->queue), .events = POLLIN },
		{ .fd = t->signals.fd, .events = POLLIN },
		{ .fd = reads ? STDIN_FILENO : -1, .events = POLLIN },
	};
	int64_t left_ms = t->signal ? t->goodbye_ms - now_ms() : -1;
	int r;

	if (t->signal && left_ms <= 0) {
		t->over = true;
		return 0;
	}
	if (poll(fds, 3, (int)left_ms) < 0 && errno != EINTR)
		return -errno;
	r = events_handle(t);
	signals_handle(t);
	if (r >= 0 && fds[2].revents && t->typing && !t->asked && !t->over)
		type(t);
	return r;
}

static int terminal_follow(struct terminal *t)
{
	struct dsec_exec_opts opts = *t->wish->opts;
	struct dsec_call call = call_of(t, TAG_EXEC);
	struct winsize size = terminal_size();
	int r = 0;

	opts.flags &= ~(uint32_t)DSEC_EXEC_CAPTURE;
	opts.flags |= DSEC_EXEC_TTY | DSEC_EXEC_STREAM;
	if (t->wish->input)
		opts.flags |= DSEC_EXEC_INPUT_STREAM;
	opts.rows = size.ws_row;
	opts.columns = size.ws_col;
	t->ticket = dsec_exec(t->session->d, &call, t->wish->sandbox, &opts);
	if (t->ticket < 0)
		return (int)t->ticket;
	terminal_raw(t);
	while (!t->over && r >= 0)
		r = terminal_turn(t);
	terminal_give_back(t);
	return r;
}

int terminal_run(struct session *session, const struct terminal_wish *wish)
{
	static const int numbers[] = { SIGWINCH, SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGTSTP };
	struct terminal t = { .session = session,
			      .wish = wish,
			      .wants_raw = wish->input && isatty(STDIN_FILENO),
			      .typing = wish->input };
	int r = signals_open(&t.signals, numbers, sizeof(numbers) / sizeof(numbers[0]));

	if (r >= 0)
		r = dsec_queue_new(session->d, &t.queue);
	if (r >= 0)
		r = terminal_follow(&t);
	if (r < 0)
		(void)session_fail_error(session, r, "exec", dsec_error(session->d, r));
	dsec_queue_free(t.queue);
	signals_close(&t.signals);
	return r < 0 ? r : t.signal ? 128 + t.signal : 0;
}
