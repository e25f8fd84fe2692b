/* `dsec change` and `dsec label`: what may be another than was given. Called by main.c. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/select.h"
#include "sdk/cli/verbs.h"

static void change_count(void *state, const struct dsec_event *event)
{
	uint64_t *count = state;

	*count += event->kind == DSEC_EV_ROW;
}

static int change_ask(struct session *session, const char *verb, const struct dsec_select *select,
		      const struct dsec_change_opts *opts)
{
	struct dsec_call call = session_call(session);
	auto_json json_t *json = NULL;
	uint64_t count = 0;
	int r = session_events(session, dsec_change(session->d, &call, select, opts), verb,
			       change_count, &count);

	json = json_status(&session->failure);
	(void)json_object_set_new(json, "changed", json_amount(count)); /* as in created_json() */
	session_tell(session, json);
	return r < 0 ? EXIT_TROUBLE : 0;
}

static int change(struct session *session)
{
	const struct options *o = session->options;
	struct dsec_change_opts opts = {
		.size = sizeof(opts),
		.set = (o->has_ttl ? DSEC_CHANGE_TTL : 0) |
		       (o->has_idle_ttl ? DSEC_CHANGE_IDLE_TTL : 0) |
		       (o->on_timeout ? DSEC_CHANGE_ON_TIMEOUT : 0),
		.ttl_s = (uint32_t)(o->ttl_ms / 1000),
		.idle_ttl_s = (uint32_t)(o->idle_ttl_ms / 1000),
		.on_timeout = (uint32_t)o->on_timeout,
	};
	auto_free struct dsec_id *ids = NULL;
	auto_free struct dsec_label *labels = NULL;
	struct dsec_select select;

	if (!opts.set)
		return session_refuse(session, "change: what? give --ttl, --idle-ttl or "
					       "--on-timeout");
	if ((o->ttl_ms && o->ttl_ms < 1000) || (o->idle_ttl_ms && o->idle_ttl_ms < 1000))
		return session_refuse(session, "change: times are whole seconds");
	if (select_all(session, &select, &ids, &labels) < 0)
		return EXIT_TROUBLE;
	return change_ask(session, "change", &select, &opts);
}

int verb_change(const struct options *options)
{
	struct session session = { .options = options };

	if (session_open(&session, false) < 0)
		return session_end(&session, EXIT_TROUBLE);
	return session_end(&session, change(&session));
}

/* "KEY=VALUE" is given, "KEY-" is taken. -EINVAL: it is neither. */
static int label_parse(const char *text, struct dsec_change_opts *opts, struct dsec_label *labels,
		       struct dsec_bytes *removed)
{
	const char *equal = strchr(text, '=');
	size_t bytes = strlen(text);

	if (equal && equal > text) {
		labels[opts->label_count++] = (struct dsec_label){
			{ text, (size_t)(equal - text) },
			{ equal + 1, strlen(equal + 1) },
		};
		return 0;
	}
	if (equal || bytes < 2 || text[bytes - 1] != '-')
		return -EINVAL;
	removed[opts->removed_count++] = (struct dsec_bytes){ text, bytes - 1 };
	return 0;
}

static int label(struct session *session)
{
	const struct options *o = session->options;
	struct dsec_change_opts opts = { .size = sizeof(opts), .set = DSEC_CHANGE_LABELS };
	size_t count = (size_t)o->argument_count;
	auto_free struct dsec_label *labels = calloc(count, sizeof(*labels));
	auto_free struct dsec_bytes *removed = calloc(count, sizeof(*removed));
	struct dsec_id id;
	const struct dsec_select select = { .size = sizeof(select), .count = 1, .ids = &id };

	if (!labels || !removed)
		return session_fail_error(session, -ENOMEM, "label", strerror(ENOMEM));
	for (int at = 1; at < o->argument_count; at++)
		if (label_parse(o->arguments[at], &opts, labels, removed) < 0)
			return session_refuse(session,
					      "label: '%.40s' is neither KEY=VALUE nor KEY-",
					      o->arguments[at]);
	if (select_one(session, o->arguments[0], &id) < 0)
		return EXIT_TROUBLE;
	opts.labels = labels;
	opts.removed = removed;
	return change_ask(session, "label", &select, &opts);
}

int verb_label(const struct options *options)
{
	struct session session = { .options = options };
	int status = EXIT_TROUBLE;

	if (options->argument_count < 2)
		status = session_refuse(&session, "label wants an id, and KEY=VALUE or KEY-");
	else if (session_open(&session, false) == 0)
		status = label(&session);
	return session_end(&session, status);
}
