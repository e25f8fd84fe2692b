/* `dsec events`, and following events for other verbs. Called by main.c and wait.c. */
#include "sdk/cli/events.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/json.h"
#include "sdk/cli/select.h"
#include "sdk/cli/settings.h"
#include "sdk/cli/table.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

/* An engine that does not answer cannot keep the time. */
enum { GRACE_MS = 1000, STOPPED = 1 };

static const struct {
	uint32_t topic;
	const char *name;
} topics[] = {
	{ DSEC_TOPIC_CREATING, "creating" },
	{ DSEC_TOPIC_RUNNING, "running" },
	{ DSEC_TOPIC_DESTROYING, "destroying" },
	{ DSEC_TOPIC_QUARANTINED, "quarantined" },
	{ DSEC_TOPIC_ENDED, "ended" },
	{ DSEC_TOPIC_EXEC_STARTED, "exec-started" },
	{ DSEC_TOPIC_EXEC_ENDED, "exec-ended" },
	{ DSEC_TOPIC_PHASE, "phase" },
	{ DSEC_TOPIC_THROTTLED, "throttled" },
	{ DSEC_TOPIC_UNTHROTTLED, "unthrottled" },
	{ DSEC_TOPIC_IMAGE_IMPORTED, "image-imported" },
	{ DSEC_TOPIC_IMAGE_REPLACED, "image-replaced" },
	{ DSEC_TOPIC_IMAGE_REMOVED, "image-removed" },
	{ DSEC_TOPIC_VIOLATION, "violation" },
	{ DSEC_TOPIC_ANOMALY, "anomaly" },
};

enum { TOPICS = sizeof(topics) / sizeof(topics[0]) };

const char *topic_name(uint32_t topic)
{
	for (size_t at = 0; at < TOPICS; at++)
		if (topics[at].topic == topic)
			return topics[at].name;
	return "other";
}

/* What several kinds are called together. */
static const char *topic_group(uint32_t topic)
{
	if (topic >= DSEC_TOPIC_VIOLATION)
		return "integrity";
	if (topic >= DSEC_TOPIC_IMAGE_IMPORTED)
		return "image";
	if (topic == DSEC_TOPIC_EXEC_STARTED || topic == DSEC_TOPIC_EXEC_ENDED)
		return "exec";
	return "sandbox";
}

static bool is_of_image(const struct dsec_news *news)
{
	return !strcmp(topic_group(news->topic), "image");
}

uint64_t topics_parse(const char *text)
{
	uint64_t found = 0;

	for (size_t at = 0; at < TOPICS; at++)
		if (!strcmp(text, topics[at].name) || !strcmp(text, topic_group(topics[at].topic)))
			found |= 1ull << topics[at].topic;
	return found;
}

/* ---- following ---- */

static int last_take(struct session *session, const struct dsec_event *event)
{
	if (event->status.code == DSEC_OK || event->status.code == DSEC_CANCELLED)
		return 0;
	if (event->status.code == DSEC_DEADLINE)
		return -ETIMEDOUT;
	(void)session_fail(session, "events", &event->status);
	return -EIO;
}

int events_follow(struct session *session, const struct dsec_subscribe_opts *opts,
		  int (*seen)(void *state, const struct dsec_event *event), void *state)
{
	struct dsec_call call = session_call(session);
	const int wait_ms = call.timeout_ms ? (int)call.timeout_ms + GRACE_MS : -1;
	int64_t ticket = dsec_subscribe(session->d, &call, opts);
	struct dsec_event *event;
	bool last = false;
	int r = 0, given = 0;

	while (!last) {
		r = ticket < 0 ? (int)ticket : dsec_wait(session->d, ticket, wait_ms, &event);
		if (r < 0) {
			(void)session_fail_error(session, r, "events", dsec_error(session->d, r));
			return r;
		}
		last = event->flags & DSEC_LAST;
		if (last) {
			r = last_take(session, event);
		} else if (!given) {
			given = seen(state, event);
			/* Its LAST comes, whatever becomes of this. */
			if (given)
				(void)dsec_cancel(session->d, ticket);
		}
		dsec_event_free(event);
	}
	return given ? given : r;
}

/* ---- showing ---- */

enum { EVENT_TIME, EVENT_SEQ, EVENT_ID, EVENT_NAME, EVENT_DETAIL };

static const struct column columns[] = {
	[EVENT_TIME] = { "TIME", 24 },	[EVENT_SEQ] = { "SEQ", 8 },	[EVENT_ID] = { "ID", 26 },
	[EVENT_NAME] = { "EVENT", 14 }, [EVENT_DETAIL] = { "WHAT", 0 }, { NULL, 0 },
};

static void time_print(uint64_t time_ms, char *ret_text, size_t bytes)
{
	time_t seconds = (time_t)(time_ms / 1000);
	struct tm parts;
	size_t used;

	(void)gmtime_r(&seconds, &parts); /* any 64-bit time of an engine has a year */
	used = strftime(ret_text, bytes, "%Y-%m-%dT%H:%M:%S", &parts);
	(void)snprintf(ret_text + used, bytes - used, ".%03uZ",
		       (unsigned)(time_ms % 1000)); /* fits */
}

static bool has_code(const struct dsec_news *news)
{
	return news->reason == DSEC_EXIT || news->reason == DSEC_NOT_STARTED;
}

/* Its number where it is a policy's; what is counted by itself breaks none. */
static void rule_show(const struct dsec_news *news)
{
	const char *name = rule_name(news->rule);

	if (!news->rule)
		return;
	if (name)
		(void)printf(", rule %s", name);
	else
		(void)printf(", rule %u", news->rule);
	(void)fputs(news->verdict == 1 ? ", refused" : ", watched", stdout);
}

static void violation_show(const struct dsec_news *news)
{
	if (news->topic == DSEC_TOPIC_ANOMALY)
		(void)printf("%s: ", anomaly_name(news->anomaly));
	(void)printf("%s %" PRIu64 " times", hook_name(news->hook), news->count);
	if (news->text.bytes) {
		(void)fputc(' ', stdout);
		value_write(stdout, news->text);
	}
	rule_show(news);
	if (news->process.bytes) {
		(void)printf(" by %d ", news->pid);
		value_write(stdout, news->process);
	}
}

/* Between two parts of the last column, of which any may be the first. */
static void part_begin(bool *told)
{
	if (*told)
		(void)fputc(' ', stdout);
	*told = true;
}

/* What an event says beside its name. */
static void detail_show(const struct dsec_news *news)
{
	bool told = false;

	if (news->exec) {
		part_begin(&told);
		(void)printf("exec %" PRIu64, news->exec);
	}
	if (news->topic >= DSEC_TOPIC_VIOLATION) {
		part_begin(&told);
		violation_show(news);
	}
	if (news->topic == DSEC_TOPIC_CREATING || is_of_image(news)) {
		part_begin(&told);
		value_write(stdout, news->image);
	} else if (news->topic == DSEC_TOPIC_PHASE) {
		part_begin(&told);
		(void)printf("%.*s, version %" PRIu64, (int)news->phase.bytes,
			     (const char *)news->phase.data, news->phase_version);
	} else if (news->cause) {
		part_begin(&told);
		(void)fputs(cause_name(news->cause), stdout);
	}
	if (news->topic == DSEC_TOPIC_EXEC_ENDED) {
		part_begin(&told);
		(void)fputs(reason_name(news->reason), stdout);
		if (has_code(news))
			(void)printf(" %d", news->exit_code);
		else if (news->signal)
			(void)printf(" %d", news->signal);
	}
	for (uint32_t at = 0; at < news->label_count; at++) {
		part_begin(&told);
		value_write(stdout, news->labels[at].key);
		(void)fputc('=', stdout);
		value_write(stdout, news->labels[at].value);
	}
}

/* Whether stdout took it is told at the end, by main(); so here and below. */
static void news_show(const struct dsec_news *news)
{
	char text[2 * VALUE_TEXT_BYTES];

	time_print(news->time_ms, text, sizeof(text));
	table_text(&columns[EVENT_TIME], text);
	(void)snprintf(text, sizeof(text), "%" PRIu64, news->seq); /* fits */
	table_text(&columns[EVENT_SEQ], text);
	dsec_id_print(news->sandbox, text);
	table_text(&columns[EVENT_ID], is_of_image(news) ? "-" : text);
	table_text(&columns[EVENT_NAME], topic_name(news->topic));
	detail_show(news);
	table_end();
}

static void violation_add(json_t *object, const struct dsec_news *news)
{
	const char *name = rule_name(news->rule);

	if (news->topic == DSEC_TOPIC_ANOMALY)
		(void)json_object_set_new(object, "anomaly",
					  json_string(anomaly_name(news->anomaly)));
	(void)json_object_set_new(object, "rule", json_integer(news->rule));
	(void)json_object_set_new(object, "rule_name", name ? json_string(name) : json_null());
	(void)json_object_set_new(object, "hook", json_string(hook_name(news->hook)));
	(void)json_object_set_new(object, "count", json_amount(news->count));
	(void)json_object_set_new(object, "argument", json_amount(news->argument));
	(void)json_object_set_new(object, "refused", json_boolean(news->verdict == 1));
	(void)json_object_set_new(object, "errno", json_integer(news->error));
	(void)json_object_set_new(object, "pid", json_integer(news->pid));
	if (news->process.bytes)
		(void)json_add_bytes(object, "process", news->process);
	if (news->text.bytes)
		(void)json_add_bytes(object, "text", news->text);
}

static void news_json(const struct dsec_news *news)
{
	auto_json json_t *object = json_object();
	bool ended = news->topic == DSEC_TOPIC_EXEC_ENDED;

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_object_set_new(object, "event", json_string(topic_name(news->topic)));
	(void)json_object_set_new(object, "seq", json_amount(news->seq));
	(void)json_object_set_new(object, "epoch", json_amount(news->epoch));
	(void)json_object_set_new(object, "time_ms", json_amount(news->time_ms));
	(void)json_object_set_new(object, "sandbox",
				  is_of_image(news) ? json_null() : json_id(news->sandbox));
	(void)json_object_set_new(object, "exec",
				  news->exec ? json_amount(news->exec) : json_null());
	if (news->cause)
		(void)json_object_set_new(object, "cause", json_string(cause_name(news->cause)));
	if (news->image.bytes)
		(void)json_add_bytes(object, "image", news->image);
	if (ended) {
		(void)json_object_set_new(object, "reason", json_string(reason_name(news->reason)));
		(void)json_object_set_new(object, "code",
					  has_code(news) ? json_integer(news->exit_code) :
							   json_null());
		(void)json_object_set_new(object, "signal",
					  news->signal ? json_integer(news->signal) : json_null());
		(void)json_object_set_new(object, "wall_ms",
					  json_real((double)news->wall_us / 1000));
	}
	phase_add(object, news->phase, news->phase_version);
	if (news->topic >= DSEC_TOPIC_VIOLATION)
		violation_add(object, news);
	if (news->flags & DSEC_UNPOLICED)
		(void)json_object_set_new(object, "unpoliced", json_true());
	labels_add(object, news->labels, news->label_count);
	(void)json_line(stdout, object);
}

static void missed_json(const struct dsec_missed *missed)
{
	auto_json json_t *object = json_object();

	(void)json_object_set_new(object, "event", json_string("gap"));
	(void)json_object_set_new(object, "first_seq", json_amount(missed->first_seq));
	(void)json_object_set_new(object, "next_seq", json_amount(missed->next_seq));
	(void)json_object_set_new(object, "count", json_amount(missed->count));
	(void)json_object_set_new(object, "epoch", json_amount(missed->epoch));
	(void)json_object_set_new(object, "selected",
				  json_boolean(!(missed->flags & DSEC_MISSED_UNSELECTED)));
	(void)json_object_set_new(object, "reset", json_boolean(missed->flags & DSEC_MISSED_RESET));
	(void)json_line(stdout, object);
}

static void missed_show(const struct options *options, const struct dsec_missed *missed)
{
	char count[VALUE_TEXT_BYTES], from[VALUE_TEXT_BYTES];

	if (missed->flags & DSEC_MISSED_RESET)
		report_note(options, "another engine: what was before is gone");
	if (!missed->count)
		return;
	value_print_count(missed->count, count);
	value_print_count(missed->first_seq, from);
	report_note(options, "gap: %s %s from %s on are not told", count,
		    missed->flags & DSEC_MISSED_UNSELECTED ? "events of all sandboxes" : "events",
		    from);
}

static int event_show(void *state, const struct dsec_event *event)
{
	const struct options *options = state;

	if (event->kind == DSEC_EV_STATE && event->body) {
		if (options->json)
			news_json(event->body);
		else
			news_show(event->body);
	} else if (event->kind == DSEC_EV_GAP && event->body) {
		if (options->json)
			missed_json(event->body);
		else
			missed_show(options, event->body);
	}
	(void)fflush(stdout); /* somebody may read along */
	return ferror(stdout) ? STOPPED : 0;
}

/* ---- the verb ---- */

/* "SEQ" or "EPOCH.SEQ". */
static int place_parse(const char *text, struct dsec_subscribe_opts *opts)
{
	const char *point = strchr(text, '.');
	char epoch[VALUE_TEXT_BYTES];

	if (point) {
		if (point - text >= (ptrdiff_t)sizeof(epoch))
			return -EINVAL;
		(void)snprintf(epoch, sizeof(epoch), "%.*s", (int)(point - text), text);
		if (value_parse_number(epoch, &opts->epoch) < 0)
			return -EINVAL;
		text = point + 1;
	}
	return value_parse_number(text, &opts->from_seq) < 0 || !opts->from_seq ? -EINVAL : 0;
}

static int wish_make(struct session *session, struct dsec_subscribe_opts *opts)
{
	const struct options *options = session->options;

	opts->from_seq = options->follow ? 0 : 1;
	opts->flags = options->follow ? 0 : DSEC_SUBSCRIBE_SO_FAR;
	if (options->from_event && place_parse(options->from_event, opts) < 0) {
		(void)session_refuse(session,
				     "events: '%.40s' is no number of an event: SEQ or "
				     "EPOCH.SEQ",
				     options->from_event);
		return -EINVAL;
	}
	for (uint32_t at = 0; at < options->kinds.count; at++) {
		uint64_t found = topics_parse(options->kinds.items[at]);

		opts->topics |= found;
		if (found)
			continue;
		(void)session_refuse(session, "events: there is no kind '%.40s'",
				     options->kinds.items[at]);
		return -EINVAL;
	}
	return 0;
}

static int events_show(struct session *session, struct dsec_subscribe_opts *opts)
{
	const struct options *options = session->options;
	auto_free struct dsec_id *ids = NULL;
	auto_free struct dsec_label *labels = NULL;
	struct dsec_select select = { .size = sizeof(select) };
	int r;

	if ((options->argument_count || options->sandboxes.count || select_has_labels(options)) &&
	    select_all(session, &select, &ids, &labels) < 0)
		return EXIT_TROUBLE;
	opts->select = &select;
	if (!options->json && !options->quiet)
		table_head(options, columns);
	(void)fflush(stdout);
	r = events_follow(session, opts, event_show, (void *)options);
	if (r == -ETIMEDOUT)
		return EXIT_TIMED_OUT;
	return r == 0 || r == STOPPED ? 0 : EXIT_TROUBLE; /* what stdout did is told by main() */
}

int verb_events(const struct options *options)
{
	struct session session = { .options = options };
	struct dsec_subscribe_opts opts = { .size = sizeof(opts) };

	if (wish_make(&session, &opts) < 0 || session_open(&session, false) < 0)
		return session_end(&session, EXIT_TROUBLE);
	return session_end(&session, events_show(&session, &opts));
}
