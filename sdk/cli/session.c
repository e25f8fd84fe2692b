/*
 * The verbs' way to an engine. Called by every verb. Whatever comes from an engine and goes to a
 * terminal goes through value_write().
 */
#include "sdk/cli/session.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/values.h"

enum { ID_CHARACTERS = 26, ARENA_BYTES = 4 << 20 /* stdin goes in one piece */ };

/* ---- words ---- */

const char *code_name(uint32_t code)
{
	static const char *const names[] = {
		"ok",	       "refused",  "invalid",	"denied", "absent",  "conflict",
		"unsupported", "deadline", "cancelled", "failed", "unknown", "lost",
	};

	return code < sizeof(names) / sizeof(names[0]) ? names[code] : "failed";
}

const char *blame_name(uint32_t blame)
{
	static const char *const names[] = { "none", "caller", "guest", "platform" };

	return blame < sizeof(names) / sizeof(names[0]) ? names[blame] : "platform";
}

const char *network_name(uint32_t network)
{
	static const char *const names[] = { "none", "none", "private" };

	return network < sizeof(names) / sizeof(names[0]) ? names[network] : "other";
}

/* What the user can do about it; NULL: nothing more to say. */
static const char *status_hint(const char *what, const struct dsec_status *status)
{
	switch (status->code) {
	case DSEC_REFUSED:
		return "ask again later, or destroy what is not needed (dsec ps, dsec rm)";
	case DSEC_UNSUPPORTED:
		return "see dsecd --check; --allow-degraded does without limits this host lacks";
	case DSEC_ABSENT:
		return strcmp(what, "create") ? "dsec ps shows sandboxes" : NULL;
	case DSEC_DEADLINE:
		return "--timeout gives more time";
	case DSEC_LOST:
		return "see the engine's log";
	default:
		return NULL;
	}
}

void report_status(const struct session *session, const char *what,
		   const struct dsec_status *status)
{
	bool terminal = isatty(STDERR_FILENO);
	const char *hint = status_hint(what, status);

	(void)session;
	(void)fprintf(stderr, "dsec: %s %s: ", what, code_name(status->code));
	value_write(stderr, (struct dsec_bytes){ status->detail, strlen(status->detail) },
		    terminal);
	if (status->step[0]) {
		(void)fputs(status->detail[0] ? " at " : "at ", stderr);
		value_write(stderr, (struct dsec_bytes){ status->step, strlen(status->step) },
			    terminal);
	}
	if (status->error)
		(void)fprintf(stderr, " (%s)", strerror(status->error));
	(void)fprintf(stderr, " [%s]", blame_name(status->blame));
	if (status->retry_after_ms)
		(void)fprintf(stderr, "; try again in %u ms", status->retry_after_ms);
	if (hint)
		(void)fprintf(stderr, "; %s", hint);
	(void)fputc('\n', stderr); /* a stderr that takes nothing is nobody's to tell */
}

void report_note(const struct options *options, const char *format, ...)
{
	va_list arguments;

	if (options->quiet)
		return;
	(void)fputs("dsec: ", stderr); /* as above */
	va_start(arguments, format);
	(void)vfprintf(stderr, format, arguments);
	va_end(arguments);
	(void)fputc('\n', stderr);
}

static int report_error(struct session *session, const char *what, int r)
{
	const char *text = dsec_error(session->d, r);
	bool terminal = isatty(STDERR_FILENO);

	(void)fprintf(stderr, "dsec: %s", what);
	value_write(stderr, (struct dsec_bytes){ text, strlen(text) }, terminal);
	(void)fputc('\n', stderr);
	return r;
}

/* ---- connections ---- */

static bool nobody_listens(int r)
{
	return r == -ENOENT || r == -ECONNREFUSED;
}

int session_open(struct session *session, const struct options *options, bool may_start)
{
	const char *environment = getenv("DSEC_ADDRESS");
	struct dsec_open_opts opts = {
		.size = sizeof(opts),
		.address = options->address,
		.images = options->images,
		.arena_bytes = ARENA_BYTES,
	};
	bool given = options->address || (environment && *environment);
	int r;

	*session = (struct session){ .options = options };
	r = dsec_open(&opts, &session->d);
	if (nobody_listens(r) && may_start && !given) {
		opts.address = "private:";
		session->is_private = true;
		r = dsec_open(&opts, &session->d);
	} else if (options->address && !strcmp(options->address, "private:")) {
		session->is_private = true;
	}
	if (r < 0)
		(void)report_error(session, "", r);
	if (nobody_listens(r) && !session->is_private)
		(void)fputs("dsec: is dsecd running? -H or $DSEC_ADDRESS says where\n", stderr);
	return r;
}

void session_close(struct session *session)
{
	dsec_close(session->d);
	session->d = NULL;
}

struct dsec_call session_call(const struct session *session)
{
	return (struct dsec_call){
		.size = sizeof(struct dsec_call),
		.timeout_ms = (uint32_t)session->options->timeout_ms,
	};
}

int session_next(struct session *session, int64_t ticket, struct dsec_event **ret)
{
	int r = ticket < 0 ? (int)ticket : dsec_wait(session->d, ticket, -1, ret);

	return r < 0 ? report_error(session, "", r) : 0;
}

struct dsec_label *session_labels(const struct options *options, uint32_t *ret_count)
{
	struct dsec_label *labels = calloc(options->labels.count + 1, sizeof(*labels));
	uint32_t count = 0;

	if (!labels)
		return NULL;
	for (; count < options->labels.count; count++) {
		const char *text = options->labels.items[count], *equal = strchr(text, '=');

		labels[count].key = (struct dsec_bytes){ text, (size_t)(equal - text) };
		labels[count].value = (struct dsec_bytes){ equal + 1, strlen(equal + 1) };
	}
	if (options->name)
		labels[count++] = (struct dsec_label){
			{ "name", 4 },
			{ options->name, strlen(options->name) },
		};
	*ret_count = count;
	return labels;
}

/* ---- ids ---- */

struct search {
	const char *text; /* beginning or end of an id; NULL: every row */
	struct dsec_id found;
	uint32_t count;
};

static bool id_matches(struct dsec_id id, const char *text)
{
	size_t bytes = strlen(text);
	char name[ID_CHARACTERS + 1];

	dsec_id_print(id, name);
	return bytes && bytes <= ID_CHARACTERS &&
	       (!strncasecmp(name, text, bytes) || !strcasecmp(name + ID_CHARACTERS - bytes, text));
}

static int rows_search(struct session *session, const struct dsec_list_opts *opts,
		       struct search *search)
{
	struct dsec_call call = session_call(session);
	int64_t ticket = dsec_list(session->d, &call, opts);
	struct dsec_event *event;
	bool last = false;
	int r = 0;

	while (!last) {
		int waited = session_next(session, ticket, &event);

		if (waited < 0)
			return waited;
		last = event->flags & DSEC_LAST;
		if (event->status.code != DSEC_OK) {
			report_status(session, "list", &event->status);
			r = -EIO;
		} else if (event->kind == DSEC_EV_ROW && event->body) {
			const struct dsec_row *row = event->body;

			if (!search->text || id_matches(row->id, search->text)) {
				search->found = row->id;
				search->count++;
			}
		}
		dsec_event_free(event);
	}
	return r;
}

int session_resolve(struct session *session, const char *text, struct dsec_id *ret)
{
	static const char by_name[] = "name:";
	struct dsec_label label = { { "name", 4 }, { 0 } };
	struct dsec_list_opts opts = { .size = sizeof(opts) };
	struct search search = { .text = text };
	int r;

	if (dsec_id_parse(text, ret) == 0)
		return 0;
	if (!strncmp(text, by_name, strlen(by_name))) {
		text += strlen(by_name);
		label.value = (struct dsec_bytes){ text, strlen(text) };
		opts.labels = &label;
		opts.label_count = 1;
		search.text = NULL;
	}
	r = rows_search(session, &opts, &search);
	if (r < 0)
		return r;
	if (search.count == 1) {
		*ret = search.found;
		return 0;
	}
	(void)fprintf(stderr, "dsec: %s: %s; dsec ps shows them\n", text,
		      search.count ? "more than one sandbox" : "no such sandbox");
	return search.count ? -ENOTUNIQ : -ENOENT;
}

int session_select(struct session *session, struct dsec_select *select, struct dsec_id **ret_ids,
		   struct dsec_label **ret_labels)
{
	const struct options *options = session->options;
	uint32_t count = (uint32_t)options->argument_count;
	auto_free struct dsec_id *ids = calloc(count + 1, sizeof(*ids));
	uint32_t label_count;
	int r;

	if (!count && !options->labels.count) {
		(void)fputs("dsec: which? give ids, name:NAME or --label\n", stderr);
		return -EINVAL;
	}
	if (!ids)
		return -ENOMEM;
	for (uint32_t at = 0; at < count; at++) {
		r = session_resolve(session, options->arguments[at], &ids[at]);
		if (r < 0)
			return r;
	}
	*ret_labels = session_labels(options, &label_count);
	if (!*ret_labels)
		return -ENOMEM;
	*ret_ids = ids;
	*select = (struct dsec_select){
		.size = sizeof(*select),
		.count = count,
		.ids = count ? ids : NULL,
		.labels = label_count ? *ret_labels : NULL,
		.label_count = label_count,
	};
	ids = NULL;
	return 0;
}
