/* `dsec policy`: check, load, show, ls, diff and rm. Called by main.c, and by create.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "sdk/cli/cleanup.h"
#include "sdk/cli/create.h"
#include "sdk/cli/json.h"
#include "sdk/cli/services.h"
#include "sdk/cli/session.h"
#include "sdk/cli/subverb.h"
#include "sdk/cli/table.h"
#include "sdk/cli/values.h"
#include "sdk/cli/verbs.h"

/* What the engine takes, and one byte more, so that too much is told by the engine's own words. */
enum { DOCUMENT_BYTES = (64 << 10) + 1, DETAIL_BYTES = 79, LEVELS_BYTES = 96 };

enum { LS_NAME, LS_VERSION, LS_EXTENDS, LS_RULES, LS_USERS, LS_AGE };

static const struct column columns[] = {
	[LS_NAME] = { "NAME", 28 },
	[LS_VERSION] = { "VERSION", 7 },
	[LS_EXTENDS] = { "EXTENDS", 20 },
	[LS_RULES] = { "RULES", 6 },
	[LS_USERS] = { "IN USE", 6 },
	[LS_AGE] = { "AGE", 0 },
	{ NULL, 0 },
};

/* ---- a policy as it was told ---- */

struct told {
	const char *source; /* the file or the name */
	char *document;
	size_t document_bytes;
	json_t *json; /* with its rules and phases */
	bool is_failed;
};

static void told_done(struct told *told)
{
	free(told->document);
	json_decref(told->json);
}

static json_t *itself_json(const struct dsec_policy_row *row)
{
	json_t *object = json_object();

	/* These fail on memory alone, and json_line() shows what there is. */
	(void)json_add_bytes(object, "name", row->name);
	(void)json_object_set_new(object, "version",
				  row->number ? json_integer(row->number) : json_null());
	if (row->text.bytes)
		(void)json_add_bytes(object, "extends", row->text);
	if (row->tenant.bytes)
		(void)json_add_bytes(object, "tenant", row->tenant);
	(void)json_object_set_new(object, "ready_made",
				  json_boolean(row->flags & DSEC_POLICY_READY_MADE));
	(void)json_object_set_new(object, "services_old",
				  json_boolean(row->flags & DSEC_POLICY_SERVICES_OLD));
	(void)json_object_set_new(object, "rule_count", json_integer(row->rules));
	(void)json_object_set_new(object, "unenforced", json_integer(row->levels));
	(void)json_object_set_new(object, "in_use", json_integer(row->users));
	(void)json_object_set_new(object, "age_ms", json_amount(row->age_ms));
	(void)json_object_set_new(object, "document_bytes", json_amount(row->document_bytes));
	return object;
}

static const char *enforce_name(const struct dsec_policy_row *row)
{
	return row->flags & DSEC_POLICY_AUDIT	 ? "audit" :
	       row->flags & DSEC_POLICY_REQUIRED ? "required" :
						   "where-possible";
}

static const char *const level_names[] = { "bpf-lsm", "apparmor",   "landlock", "seccomp",
					   "mount",   "cgroup-bpf", "xdp",	"namespace" };

static json_t *levels_json(uint32_t levels)
{
	json_t *list = json_array();

	for (size_t at = 0; at < sizeof(level_names) / sizeof(level_names[0]); at++)
		if (levels & 1u << at)
			(void)json_array_append_new(list, json_string(level_names[at]));
	return list;
}

static void rule_take(json_t *json, const struct dsec_policy_row *row)
{
	json_t *rule = json_object();

	(void)json_object_set_new(rule, "rule", json_integer(row->number));
	(void)json_add_bytes(rule, "text", row->text);
	(void)json_object_set_new(rule, "enforce", json_string(enforce_name(row)));
	(void)json_object_set_new(rule, "levels", levels_json(row->levels));
	(void)json_array_append_new(json_object_get(json, "rules"), rule);
}

static void row_take(struct told *told, const struct dsec_policy_row *row)
{
	char phase[DSEC_POLICY_NAME_BYTES_MAX + 1];

	switch (row->what) {
	case DSEC_POLICY_ITSELF:
		json_decref(told->json);
		told->json = itself_json(row);
		(void)json_object_set_new(told->json, "rules", json_array());
		(void)json_object_set_new(told->json, "phases", json_object());
		break;
	case DSEC_POLICY_RULE:
		rule_take(told->json, row);
		break;
	case DSEC_POLICY_PHASE:
		(void)snprintf(phase, sizeof(phase), "%.*s", (int)row->name.bytes,
			       (const char *)row->name.data); /* fits */
		(void)json_object_set_new(json_object_get(told->json, "phases"), phase,
					  json_text(row->text));
		break;
	default:
		break; /* of an engine that knows more */
	}
}

static void document_take(struct told *told, const struct dsec_event *event)
{
	char *grown = realloc(told->document, told->document_bytes + event->bytes);

	if (!grown) {
		told->is_failed = true;
		return;
	}
	memcpy(grown + told->document_bytes, event->data, event->bytes);
	told->document = grown;
	told->document_bytes += event->bytes;
}

static void event_take(void *state, const struct dsec_event *event)
{
	struct told *told = state;

	if (event->kind == DSEC_EV_ROW && event->body)
		row_take(told, event->body);
	else if (event->kind == DSEC_EV_DATA && event->stream == 1 && event->bytes)
		document_take(told, event);
	else if (event->kind == DSEC_EV_DATA && event->stream == 2 && event->bytes > DETAIL_BYTES) {
		(void)fprintf(stderr, "dsec: %s: ", told->source);
		value_write(stderr, (struct dsec_bytes){ event->data, event->bytes });
		(void)fputc('\n', stderr); /* what follows is cut */
	}
}

/* ---- asking ---- */

static int read_fail(struct session *session, const char *path, int error)
{
	char text[512];

	(void)snprintf(text, sizeof(text), "policy: '%.400s': %s", path, strerror(error));
	return session_fail_error(session, -error, "policy", text);
}

static int file_read(struct session *session, const char *path, char *data, size_t *ret_bytes)
{
	size_t used = 0;
	ssize_t n;

	auto_close int fd = strcmp(path, "-") ? open(path, O_RDONLY | O_CLOEXEC) :
						dup(STDIN_FILENO);
	if (fd < 0)
		return read_fail(session, path, errno);
	while (used < DOCUMENT_BYTES) {
		n = read(fd, data + used, DOCUMENT_BYTES - used);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return read_fail(session, path, errno);
		if (!n)
			break;
		used += (size_t)n;
	}
	*ret_bytes = used;
	return 0;
}

static int ask(struct session *session, const struct dsec_policy_opts *opts, struct told *told)
{
	struct dsec_call call = session_call(session);

	if (session_events(session, dsec_policy(session->d, &call, opts), told->source, event_take,
			   told) < 0)
		return EXIT_TROUBLE;
	if (told->is_failed || !told->json)
		return session_fail_error(session, told->is_failed ? -ENOMEM : -EPROTO, "policy",
					  "the engine's answer is cut");
	return 0;
}

/* A name has neither . nor /, which is how the two are told apart. */
static bool is_file(const char *source)
{
	return !strcmp(source, "-") || strpbrk(source, "./");
}

static int source_ask(struct session *session, uint32_t verb, struct told *told)
{
	struct dsec_policy_opts opts = { .size = sizeof(opts), .verb = verb };
	size_t bytes = 0;
	int status;

	if (verb == DSEC_POLICY_SHOW) {
		opts.name = told->source;
		return ask(session, &opts, told);
	}
	auto_free char *data = malloc(DOCUMENT_BYTES);
	if (!data)
		return read_fail(session, told->source, ENOMEM);
	status = file_read(session, told->source, data, &bytes);
	if (status)
		return status;
	opts.document = (struct dsec_bytes){ data, bytes };
	opts.version = verb == DSEC_POLICY_LOAD ? session->options->policy_version : 0;
	return ask(session, &opts, told);
}

/* ---- check, load, show ---- */

static const char *levels_text(const json_t *rule, char ret[LEVELS_BYTES])
{
	const json_t *level;
	size_t at, used = 0;

	json_array_foreach(json_object_get(rule, "levels"), at, level)
		used += (size_t)snprintf(ret + used, LEVELS_BYTES - used, "%s%s", at ? "," : "",
					 json_string_value(level)); /* all of them fit */
	return used ? ret : "none";
}

static void rules_show(const json_t *json)
{
	const json_t *rule, *phase;
	char levels[LEVELS_BYTES];
	const char *name;
	size_t at;

	json_array_foreach(json_object_get(json, "rules"), at, rule)(void)
		printf("%4lld  %-14s  %-18s  %s\n",
		       (long long)json_integer_value(json_object_get(rule, "rule")),
		       json_string_value(json_object_get(rule, "enforce")),
		       levels_text(rule, levels), json_string_value(json_object_get(rule, "text")));
	json_object_foreach((json_t *)json_object_get(json, "phases"), name, phase)(void)
		printf("phase %s: %s\n", name, json_string_value(phase));
}

static int told_show(struct session *session, uint32_t verb, const struct told *told)
{
	const struct options *options = session->options;
	const char *name = json_string_value(json_object_get(told->json, "name"));
	long long rules = json_integer_value(json_object_get(told->json, "rule_count"));

	if (verb == DSEC_POLICY_SHOW)
		(void)json_object_set_new(
			told->json, "document",
			json_text((struct dsec_bytes){ told->document, told->document_bytes }));
	session_tell(session, told->json);
	if (json_is_true(json_object_get(told->json, "services_old")))
		report_note(options,
			    "%s has services as they were when it was loaded; load it again", name);
	if (options->json)
		return 0;
	if (options->effective)
		rules_show(told->json);
	else if (verb == DSEC_POLICY_SHOW)
		(void)fwrite(told->document, 1, told->document_bytes, stdout);
	else if (options->quiet)
		(void)printf("%s\n", name);
	else if (verb == DSEC_POLICY_LOAD)
		(void)printf("%s  version %lld, %lld rules\n", name,
			     json_integer_value(json_object_get(told->json, "version")), rules);
	else
		(void)printf("%s  good, %lld rules\n", name, rules);
	return 0; /* what could not be written is told at the end, by main() */
}

static int policy_tell(struct session *session, const struct subverb *sub, char **arguments,
		       int count)
{
	struct told told = { .source = arguments[0] };
	int status = source_ask(session, sub->code, &told);

	(void)count;
	if (!status)
		status = told_show(session, sub->code, &told);
	told_done(&told);
	return status;
}

int policy_tell_made(struct session *session, uint32_t version)
{
	const char *name = session->options->policy;
	struct told told = { .source = name ? name : "default" };
	int status = source_ask(session, DSEC_POLICY_SHOW, &told);
	long long now;

	if (!status) {
		now = json_integer_value(json_object_get(told.json, "version"));
		if (now != version)
			report_note(session->options,
				    "%s is version %lld by now; what was made has version %u",
				    told.source, now, version);
		if (session->options->json)
			(void)json_line(stdout, told.json); /* told at the end, by main() */
		else
			rules_show(told.json);
	}
	told_done(&told);
	return status;
}

/* ---- ls ---- */

static void row_show(const void *state, bool name_alone)
{
	const struct dsec_policy_row *row = state;
	const bool ready = row->flags & DSEC_POLICY_READY_MADE;
	char text[VALUE_TEXT_BYTES];

	if (name_alone) {
		value_write(stdout, row->name);
		(void)putchar('\n'); /* told at the end, by main() */
		return;
	}
	table_cell(&columns[LS_NAME], row->name);
	value_print_count(row->number, text);
	table_text(&columns[LS_VERSION], text);
	table_cell(&columns[LS_EXTENDS],
		   row->text.bytes ? row->text : (struct dsec_bytes){ "-", 1 });
	value_print_count(row->rules, text);
	table_text(&columns[LS_RULES], text);
	value_print_count(row->users, text);
	table_text(&columns[LS_USERS], text);
	value_print_ms(row->age_ms, text);
	table_text(&columns[LS_AGE], ready ? "ready-made" : text);
	table_end();
}

static void row_json(const void *state)
{
	auto_json json_t *json = itself_json(state);

	(void)json_line(stdout, json); /* told at the end, by main() */
}

static int policy_list(struct session *session, const struct subverb *sub, char **arguments,
		       int count)
{
	static const struct session_rows telling = { row_json, row_show };
	const struct options *options = session->options;
	struct dsec_policy_opts opts = { .size = sizeof(opts), .verb = DSEC_POLICY_LIST };
	struct dsec_call call = session_call(session);

	(void)sub;
	(void)arguments;
	(void)count;
	if (!options->json && !options->quiet)
		table_head(options, columns);
	return session_tell_rows(session, dsec_policy(session->d, &call, &opts), "policy ls",
				 &telling) < 0 ?
		       EXIT_TROUBLE :
		       0;
}

/* ---- diff ---- */

static bool rules_have(const json_t *rules, const json_t *wanted)
{
	const json_t *rule;
	size_t at;

	json_array_foreach(rules, at,
			   rule) if (json_equal(json_object_get(rule, "text"),
						json_object_get(wanted, "text")) &&
				     json_equal(json_object_get(rule, "enforce"),
						json_object_get(wanted, "enforce"))) return true;
	return false;
}

/* Rules of `from` that `other` has not; JSON too: {"only": "a", "rule": …}. */
static size_t rules_differ(const struct session *session, const json_t *from, const json_t *other,
			   char sign)
{
	const json_t *rule;
	size_t at, count = 0;

	json_array_foreach(json_object_get(from, "rules"), at, rule)
	{
		if (rules_have(json_object_get(other, "rules"), rule))
			continue;
		count++;
		if (session->options->json) {
			auto_json json_t *line = json_copy((json_t *)rule);

			(void)json_object_set_new(line, "only",
						  json_string(sign == '-' ? "first" : "second"));
			(void)json_line(stdout, line); /* told at the end, by main() */
		} else if (!session->options->quiet) {
			(void)printf("%c %-14s  %s\n", sign,
				     json_string_value(json_object_get(rule, "enforce")),
				     json_string_value(json_object_get(rule, "text")));
		}
	}
	return count;
}

static int policy_diff(struct session *session, const struct subverb *sub, char **sources,
		       int count)
{
	struct told told[2] = { { .source = sources[0] }, { .source = sources[1] } };
	int status = 0;

	(void)sub;
	(void)count;
	for (size_t i = 0; i < 2 && !status; i++)
		status = source_ask(session,
				    is_file(sources[i]) ? DSEC_POLICY_CHECK : DSEC_POLICY_SHOW,
				    &told[i]);
	if (!status) {
		size_t rules = rules_differ(session, told[0].json, told[1].json, '-');

		rules += rules_differ(session, told[1].json, told[0].json, '+');
		session->told = true; /* in lines of its own */
		status = rules ? EXIT_DIFFERS : 0;
	}
	told_done(&told[0]);
	told_done(&told[1]);
	return status;
}

/* ---- rm ---- */

static int policies_remove(struct session *session, const struct subverb *sub, char **names,
			   int count)
{
	int status = 0;

	(void)sub;
	for (int at = 0; at < count; at++) {
		struct dsec_call call = session_call(session);
		const struct dsec_policy_opts opts = { .size = sizeof(opts),
						       .verb = DSEC_POLICY_REMOVE,
						       .name = names[at],
						       .version =
							       session->options->policy_version };

		if (session_events(session, dsec_policy(session->d, &call, &opts), names[at], NULL,
				   NULL) < 0)
			status = EXIT_TROUBLE;
	}
	return status ? status : session_done(session);
}

/* ---- services ---- */

static int services_run(struct session *session, const struct subverb *sub, char **arguments,
			int count)
{
	(void)sub;
	if (count == 1 && !strcmp(arguments[0], "ls"))
		return services_list(session);
	if (count == 2 && !strcmp(arguments[0], "scan")) {
		if (session_refuse_json(session, "a document"))
			return EXIT_TROUBLE;
		return services_scan(session, arguments[1]);
	}
	return session_refuse(session, "policy services wants ls, or scan and one IMAGE");
}

/* ---- the verb ---- */

static const struct subverb subverbs[] = {
	{ "check", "one FILE", 1, 1, policy_tell, DSEC_POLICY_CHECK },
	{ "load", "one FILE", 1, 1, policy_tell, DSEC_POLICY_LOAD },
	{ "show", "one NAME", 1, 1, policy_tell, DSEC_POLICY_SHOW },
	{ "ls", "nothing more", 0, 0, policy_list, DSEC_POLICY_LIST },
	{ "diff", "two of FILE or NAME", 2, 2, policy_diff, DSEC_POLICY_SHOW },
	{ "rm", "names", 1, INT32_MAX, policies_remove, DSEC_POLICY_REMOVE },
	{ "services", "ls, or scan and one IMAGE", 1, 2, services_run, DSEC_POLICY_SERVICES },
};

static int refuse(struct session *session, const struct subverb *sub)
{
	if (session->options->policy_version && sub->code != DSEC_POLICY_LOAD &&
	    sub->code != DSEC_POLICY_REMOVE)
		return session_refuse(session, "--version belongs to policy load and policy rm");
	if (session->options->effective && sub->run != policy_tell)
		return session_refuse(session,
				      "--effective belongs to policy check, load and show");
	return 0;
}

int verb_policy(const struct options *options)
{
	static const struct subverbs all = { "policy", subverbs,
					     sizeof(subverbs) / sizeof(subverbs[0]), refuse };

	return subverb_run(options, &all);
}
