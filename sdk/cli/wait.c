/*
 * `dsec wait`: until sandboxes run or have ended, or a program of theirs has. Called by main.c. It
 * subscribes first and looks then, so nothing falls between; after a gap it looks again.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/events.h"
#include "sdk/cli/json.h"
#include "sdk/cli/select.h"
#include "sdk/cli/settings.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

enum { OVER = 1, HOPELESS = 2 };

/* One of those that are waited for. */
struct waited {
	struct dsec_id id;
	bool done;
	uint32_t cause, reason;
	int32_t exit_code, signal;
};

struct waiting {
	struct session *session;
	uint32_t topic; /* until this happened */
	uint64_t exec;	/* with DSEC_TOPIC_EXEC_ENDED */
	uint32_t count, left;
	struct waited *all;
};

/* ---- telling ---- */

static void end_print(const struct waiting *w, const struct waited *one, char *ret_text)
{
	if (w->topic == DSEC_TOPIC_RUNNING)
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "running"); /* fits, as below */
	else if (w->topic == DSEC_TOPIC_ENDED)
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "%s", cause_name(one->cause));
	else if (one->reason == DSEC_EXIT || one->reason == DSEC_NOT_STARTED)
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "%s %d", reason_name(one->reason),
			       one->exit_code);
	else
		(void)snprintf(ret_text, VALUE_TEXT_BYTES, "%s", reason_name(one->reason));
}

static void end_json(const struct waiting *w, const struct waited *one)
{
	bool has_code = one->reason == DSEC_EXIT || one->reason == DSEC_NOT_STARTED;
	auto_json json_t *object = json_object();

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_object_set_new(object, "id", json_id(one->id));
	if (w->topic == DSEC_TOPIC_EXEC_ENDED) {
		(void)json_object_set_new(object, "exec", json_amount(w->exec));
		(void)json_object_set_new(object, "reason", json_string(reason_name(one->reason)));
		(void)json_object_set_new(object, "code",
					  has_code ? json_integer(one->exit_code) : json_null());
		(void)json_object_set_new(object, "signal",
					  one->signal ? json_integer(one->signal) : json_null());
	} else {
		bool runs = w->topic == DSEC_TOPIC_RUNNING;

		(void)json_object_set_new(object, "state", json_string(runs ? "running" : "ended"));
		(void)json_object_set_new(object, "cause", json_string(cause_name(one->cause)));
	}
	(void)json_line(stdout, object); /* told at the end, by main() */
}

/* Once. OVER: it was the last one. */
static int waited_tell(struct waiting *w, struct waited *one)
{
	char end[VALUE_TEXT_BYTES], id[2 * VALUE_TEXT_BYTES];

	if (!one->done) {
		one->done = true;
		w->left--;
		end_print(w, one, end);
		dsec_id_print(one->id, id);
		if (w->session->options->json)
			end_json(w, one);
		else if (w->count > 1)
			(void)printf("%s %s\n", id, end); /* told at the end, by main() */
		else
			(void)puts(end);
		(void)fflush(stdout);
	}
	return w->left ? 0 : OVER;
}

/* It ended before what was waited for could happen. */
static int waited_refuse(struct waiting *w, const struct waited *one)
{
	char text[4 * VALUE_TEXT_BYTES], id[2 * VALUE_TEXT_BYTES];

	dsec_id_print(one->id, id);
	(void)snprintf(text, sizeof(text), "%s ended: %s", id, cause_name(one->cause)); /* fits */
	(void)session_fail_error(w->session, -ENOENT, "wait", text);
	return HOPELESS;
}

/* ---- looking ---- */

static void inspected_keep(void *state, const struct dsec_event *event)
{
	if (event->body)
		*(struct dsec_inspected *)state = *(const struct dsec_inspected *)event->body;
}

static void exec_keep(void *state, const struct dsec_event *event)
{
	const struct dsec_exec_row *row = event->body;
	struct waited *one = state;

	if (event->kind != DSEC_EV_ROW || !row)
		return;
	one->reason = row->reason;
	one->exit_code = row->exit_code;
	one->signal = row->signal;
}

/* An exec that was and is no longer kept has ended, and nobody knows how. */
static int exec_look(struct waiting *w, struct waited *one, uint64_t execs_total)
{
	struct dsec_call call = session_call(w->session);
	struct dsec_list_opts opts = { .size = sizeof(opts),
				       .what = DSEC_LIST_EXECS,
				       .sandbox = one->id,
				       .after = { 0, w->exec - 1 },
				       .limit = 1 };

	if (execs_total < w->exec)
		return 0; /* it has yet to begin */
	one->reason = DSEC_END_UNKNOWN;
	if (session_events(w->session, dsec_list(w->session->d, &call, &opts), "wait", exec_keep,
			   one) < 0)
		return HOPELESS;
	return one->reason == DSEC_RUNNING ? 0 : waited_tell(w, one);
}

static int waited_look(struct waiting *w, struct waited *one)
{
	struct dsec_call call = session_call(w->session);
	struct dsec_inspected seen = { 0 };

	if (one->done)
		return 0;
	if (session_events(w->session, dsec_inspect(w->session->d, &call, one->id), "wait",
			   inspected_keep, &seen) < 0)
		return HOPELESS;
	one->cause = seen.cause;
	if (seen.state == DSEC_STATE_ENDED)
		return w->topic == DSEC_TOPIC_ENDED ? waited_tell(w, one) : waited_refuse(w, one);
	if (w->topic == DSEC_TOPIC_RUNNING && seen.state == DSEC_STATE_RUNNING)
		return waited_tell(w, one);
	return w->topic == DSEC_TOPIC_EXEC_ENDED ? exec_look(w, one, seen.execs_total) : 0;
}

static int all_look(struct waiting *w)
{
	int r = w->left ? 0 : OVER;

	for (uint32_t at = 0; at < w->count && !r; at++)
		r = waited_look(w, &w->all[at]);
	return r;
}

/* ---- events ---- */

static struct waited *waited_find(struct waiting *w, struct dsec_id id)
{
	for (uint32_t at = 0; at < w->count; at++)
		if (w->all[at].id.hi == id.hi && w->all[at].id.lo == id.lo)
			return &w->all[at];
	return NULL;
}

static int news_take(struct waiting *w, const struct dsec_news *news)
{
	struct waited *one = waited_find(w, news->sandbox);

	if (!one || one->done)
		return 0;
	one->cause = news->cause;
	if (news->topic == DSEC_TOPIC_ENDED && w->topic != DSEC_TOPIC_ENDED)
		return waited_refuse(w, one);
	if (news->topic != w->topic || news->exec != w->exec)
		return 0;
	one->reason = news->reason;
	one->exit_code = news->exit_code;
	one->signal = news->signal;
	return waited_tell(w, one);
}

static int event_take(void *state, const struct dsec_event *event)
{
	/* From STARTED on nothing is missed, but what a gap says. */
	if (event->kind == DSEC_EV_STARTED || event->kind == DSEC_EV_GAP)
		return all_look(state);
	return event->kind == DSEC_EV_STATE && event->body ? news_take(state, event->body) : 0;
}

/* ---- the verb ---- */

static int wish_parse(struct waiting *w, const char *text)
{
	static const char of_exec[] = "exec:";

	w->topic = DSEC_TOPIC_ENDED;
	if (!text || !strcmp(text, "ended"))
		return 0;
	w->topic = DSEC_TOPIC_RUNNING;
	if (!strcmp(text, "running"))
		return 0;
	w->topic = DSEC_TOPIC_EXEC_ENDED;
	if (!strncmp(text, of_exec, strlen(of_exec)) &&
	    value_parse_number(text + strlen(of_exec), &w->exec) == 0 && w->exec)
		return 0;
	(void)session_refuse(w->session, "wait: --for '%.40s' is not running, ended or exec:N",
			     text);
	return -EINVAL;
}

static int wait_for(struct waiting *w)
{
	const struct options *options = w->session->options;
	auto_free struct dsec_id *ids = NULL;
	auto_free struct dsec_label *labels = NULL;
	struct dsec_select select;
	struct dsec_subscribe_opts opts = {
		.size = sizeof(opts),
		.select = &select,
		.topics = 1ull << w->topic | 1ull << DSEC_TOPIC_ENDED,
	};
	int r;

	if (select_all(w->session, &select, &ids, &labels) < 0)
		return EXIT_TROUBLE;
	w->count = w->left = select.count;
	w->all = calloc(w->count + 1, sizeof(*w->all));
	if (!w->all)
		return session_fail_error(w->session, -ENOMEM, "wait", strerror(ENOMEM));
	for (uint32_t at = 0; at < w->count; at++)
		w->all[at].id = ids[at];
	r = events_follow(w->session, &opts, event_take, w);
	free(w->all);
	if (r == OVER)
		return 0;
	if (r != -ETIMEDOUT)
		return EXIT_TROUBLE;
	(void)session_fail_error(w->session, r, "wait",
				 options->argument_count > 1 ? "some live on" : "it lives on");
	return EXIT_TIMED_OUT;
}

int verb_wait(const struct options *options)
{
	struct session session = { .options = options };
	struct waiting waiting = { .session = &session };
	int status = EXIT_TROUBLE;

	if (!options->argument_count)
		status = session_refuse(&session, "wait wants an id, or several");
	else if (wish_parse(&waiting, options->wait_for) == 0 && session_open(&session, false) == 0)
		status = wait_for(&waiting);
	return session_end(&session, status);
}
