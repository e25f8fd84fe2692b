/*
 * The verbs' way to an engine and back. Called by every verb. A verb that failed has said so on
 * stderr, and exactly one JSON object tells how it ended where one is wanted.
 */
#include "sdk/cli/session.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"

enum {
	ARENA_BYTES = 4 << 20 /* stdin goes in one piece */,
	LINE_BYTES_MAX = 1024,
	ANSWER_GRACE_MS = 1000,
	TURN_MS = 10000, /* for a place among the clients, */
	PAUSE_MS = 20,	 /* which is asked for so often */
};

/* ---- what failed ---- */

int session_fail(struct session *session, const char *what, const struct dsec_status *status)
{
	if (session->failure.code == DSEC_OK)
		session->failure = *status;
	report_status(what, status);
	return EXIT_TROUBLE;
}

int session_fail_error(struct session *session, int r, const char *step, const char *text)
{
	if (session->failure.code == DSEC_OK)
		session->failure = status_of_error(r, step, text);
	report_error(text);
	return EXIT_TROUBLE;
}

int session_refuse(struct session *session, const char *format, ...)
{
	char text[LINE_BYTES_MAX];
	va_list arguments;

	va_start(arguments, format);
	(void)vsnprintf(text, sizeof(text), format, arguments); /* cut is fine */
	va_end(arguments);
	return session_fail_error(session, -EINVAL, "usage", text);
}

void session_tell(struct session *session, const json_t *json)
{
	session->told = true;
	if (session->options->json)
		(void)json_line(stdout, json); /* told at the end, by main() */
	/* The program has run: its exit status says more than that this is missing. */
	if (session->status_file && json_line(session->status_file, json) < 0)
		(void)fprintf(stderr, "dsec: %s: the result could not be written: %s\n",
			      session->options->status_file, strerror(errno));
}

int session_done(struct session *session)
{
	auto_json json_t *json = json_status(&session->failure); /* none */

	session_tell(session, json);
	return 0;
}

int session_refuse_json(struct session *session, const char *what)
{
	return session->options->json ?
		       session_refuse(session, "%s goes to stdout as it is: not with --json",
				      what) :
		       0;
}

int session_end(struct session *session, int status)
{
	if (session->failure.code != DSEC_OK && !session->told) {
		auto_json json_t *json = json_status(&session->failure);

		session_tell(session, json);
	}
	if (session->status_file)
		(void)fclose(session->status_file); /* json_line() flushed it */
	dsec_close(session->d);
	return status;
}

/* ---- connections ---- */

static const char *address_given(const struct options *options)
{
	const char *environment = getenv("DSEC_ADDRESS");

	if (options->address)
		return options->address;
	return environment && *environment ? environment : NULL;
}

const char *session_address(const struct options *options)
{
	const char *given = address_given(options);

	return given ? given : "unix:/run/dsec.sock";
}

bool address_is_private(const struct options *options)
{
	const char *address = address_given(options);

	return address && !strcmp(address, "private:");
}

static bool nobody_listens(int r)
{
	return r == -ENOENT || r == -ECONNREFUSED;
}

/* One line. */
static int token_read(struct session *session, const char *path)
{
	FILE *file = fopen(path, "re");
	size_t bytes = file ? fread(session->token, 1, sizeof(session->token) - 1, file) : 0;
	char text[LINE_BYTES_MAX];
	int error = !file || ferror(file) ? errno : 0;

	if (file)
		(void)fclose(file); /* was only read */
	while (bytes && strchr("\r\n", session->token[bytes - 1]))
		bytes--;
	session->token[bytes] = '\0';
	if (!error && bytes && strlen(session->token) == bytes)
		return 0;
	(void)snprintf(text, sizeof(text), "%s: %s", path,
		       error ? strerror(error) : "holds no token"); /* cut is fine */
	(void)session_fail_error(session, -EINVAL, "tenant-token-file", text);
	return -EKEYREJECTED;
}

static int64_t clock_ms(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail */
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/*
 * As many clients as there may be: where commands come in bursts one of them goes soon. Not all of
 * them come again at once.
 */
static int open_in_turn(struct session *session, const struct dsec_open_opts *opts)
{
	const struct timespec pause = { .tv_nsec = (PAUSE_MS + getpid() % PAUSE_MS) * 1000000l };
	const int64_t end_ms = clock_ms() + (opts->connect_ms ? opts->connect_ms : TURN_MS);
	int r;

	while ((r = dsec_open(opts, &session->d)) == -EBUSY && clock_ms() < end_ms)
		(void)nanosleep(&pause, NULL); /* a signal only makes it shorter */
	return r;
}

int session_connect(struct session *session, struct dsec_open_opts *opts, bool *ret_named)
{
	const struct options *options = session->options;
	int r = options->token_file ? token_read(session, options->token_file) : 0;

	if (r < 0)
		return r;
	opts->token = options->token_file ? session->token : NULL;
	opts->tenant = options->tenant;
	*ret_named = address_given(options) || options->tenant || options->token_file;
	session->is_private = address_is_private(session->options);
	return open_in_turn(session, opts);
}

static int status_file_open(struct session *session)
{
	const char *path = session->options->status_file;
	char text[LINE_BYTES_MAX];

	if (!path)
		return 0;
	session->status_file = fopen(path, "we");
	if (session->status_file)
		return 0;
	(void)snprintf(text, sizeof(text), "%s: %s", path, strerror(errno)); /* cut is fine */
	(void)session_fail_error(session, -EINVAL, "status-file", text);
	return -EINVAL;
}

/* --timeout is a program's own where there is one. */
static uint32_t connect_ms(const struct options *options)
{
	return options->command_count ? 0 : (uint32_t)options->timeout_ms;
}

int session_open(struct session *session, bool may_start)
{
	struct dsec_open_opts opts = {
		.size = sizeof(opts),
		.address = session->options->address,
		.images = session->options->images,
		.arena_bytes = ARENA_BYTES,
		.connect_ms = connect_ms(session->options),
	};
	bool named;
	int r;

	r = status_file_open(session);
	if (r < 0)
		return r;
	r = session_connect(session, &opts, &named);
	if (nobody_listens(r) && session->options->keep) {
		(void)session_refuse(session, "run: --keep wants an engine that stays: %s",
				     dsec_error(session->d, r));
		return r;
	}
	if (nobody_listens(r) && may_start && !named) {
		opts.address = "private:";
		session->is_private = true;
		r = dsec_open(&opts, &session->d);
	}
	if (r < 0 && r != -EKEYREJECTED)
		(void)session_fail_error(session, r, "connect", dsec_error(session->d, r));
	if (nobody_listens(r) && !session->is_private)
		report_error("is dsecd running? -H or $DSEC_ADDRESS says where");
	return r;
}

/* ---- requests ---- */

struct dsec_call session_call(const struct session *session)
{
	return (struct dsec_call){
		.size = sizeof(struct dsec_call),
		.timeout_ms = session->options->command_count ?
				      0 /* --timeout is the program's */ :
				      (uint32_t)session->options->timeout_ms,
	};
}

int session_events(struct session *session, int64_t ticket, const char *what,
		   void (*seen)(void *state, const struct dsec_event *event), void *state)
{
	const uint32_t limit_ms = session_call(session).timeout_ms;
	/* The engine keeps the time; one that does not answer at all cannot. */
	const int wait_ms = limit_ms ? (int)limit_ms + ANSWER_GRACE_MS : -1;
	struct dsec_event *event;
	bool told = false, last = false;
	int r;

	while (!last) {
		r = ticket < 0 ? (int)ticket : dsec_wait(session->d, ticket, wait_ms, &event);
		if (r < 0) {
			(void)session_fail_error(session, r, "request", dsec_error(session->d, r));
			return r;
		}
		last = event->flags & DSEC_LAST;
		if (what && event->status.code != DSEC_OK) {
			if (!told)
				(void)session_fail(session, what, &event->status);
			told = true;
		} else if (seen) {
			seen(state, event);
		}
		dsec_event_free(event);
	}
	return told ? -EIO : 0;
}

struct telling {
	const struct session_rows *rows;
	const struct options *options;
};

static void row_tell(void *state, const struct dsec_event *event)
{
	const struct telling *telling = state;

	if (event->kind != DSEC_EV_ROW || !event->body)
		return;
	if (telling->options->json)
		telling->rows->json(event->body);
	else
		telling->rows->show(event->body, telling->options->quiet);
}

int session_tell_rows(struct session *session, int64_t ticket, const char *what,
		      const struct session_rows *rows)
{
	struct telling telling = { .rows = rows, .options = session->options };

	return session_events(session, ticket, what, row_tell, &telling);
}
